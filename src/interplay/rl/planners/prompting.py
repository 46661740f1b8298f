"""Prompting: planners that put hints, examples, own attempts or feedback before the completion."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from interplay.data import pool as pools
from interplay.data.steps.decompose import goal_first
from interplay.rl.batch import Batch, take
from interplay.rl.planners.allocation import SamplingRequest, plain_request
from interplay.rl.planners.spec import (
    AnnealedShotsPlanner,
    CritiquePlanner,
    ExitPlanner,
    FeedbackPlanner,
    GuidePlanner,
    Hint,
    IcpoPlanner,
    PrefixPlanner,
    ReflectionPlanner,
    Shots,
    ShownAttemptPlanner,
)
from interplay.rl.step_context import StepContext
from interplay.tasks.environments.transcript import MARK
from interplay.tasks.op_dag.terse_corruptions import repair
from interplay.tasks.verdict import Row, Verdict

# Planners that show own attempts: what is sampled is the step that improves on them, and it is learnt behind what it was
# sampled from.


HISTORIES = "exit"
"""Name in the memory: histories to start from, oldest first: {id: prompt, attempts: texts, score, seen: reward of the last
attempt}."""


def append_attempts(prompt: str, attempts: Sequence[str], feedback: str) -> str:
    """The text of a prompt with attempts, each followed by the feedback: what an episode `retry` reads before its next turn. MARK
    stands between the pieces, and an end token behind each attempt (data.pool.encode_turns)."""
    return MARK.join([prompt, *(piece for attempt in attempts for piece in (attempt.replace(MARK, ""), feedback))])


def shown_attempt(spec: ShownAttemptPlanner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """The attempts that are shown, from the bare prompts."""
    return [plain_request(slot, spec.references, row.prompt) for slot, row in enumerate(rows)]


def shown_attempt_again(
    spec: ShownAttemptPlanner, rows: Sequence[Row], batch: Batch, asked: int, now: StepContext
) -> list[SamplingRequest]:
    """Once, an equal number of completions behind each of them; those of a prompt make one group."""
    if asked:
        return []
    each = spec.num_generations // spec.references - 1
    asks = []
    for slot, text, reward in zip(batch.groups.tolist(), batch.completions, batch.rewards.tolist(), strict=True):
        context = append_attempts(rows[slot].prompt, [text], spec.feedback)
        asks.append(plain_request(slot, each, context)._replace(group=len(rows) + slot, shown=reward))
    return asks


def shown_attempt_settled(spec: ShownAttemptPlanner, batch: Batch, now: StepContext) -> Batch:
    """The completions behind an attempt alone."""
    assert batch.shown is not None
    return take(batch, (~batch.shown.isnan()).nonzero()[:, 0])


def exit_carried(spec: ExitPlanner, now: StepContext, prompts: int) -> list[int]:
    """The prompts of the histories that the step starts from."""
    return [history["id"] for history in started_histories(spec, now, prompts)]


def exit_plan(spec: ExitPlanner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """A group for each: behind its history, or from the bare prompt."""
    histories = started_histories(spec, now, len(rows))
    asks = []
    for slot, row in enumerate(rows):
        if slot < len(histories):
            text = append_attempts(row.prompt, histories[slot]["attempts"], spec.feedback)
            asks.append(plain_request(slot, spec.num_generations, text)._replace(group=slot, shown=histories[slot]["seen"]))
        else:
            asks.append(plain_request(slot, spec.num_generations, row.prompt))
    return asks


def exit_settled(spec: ExitPlanner, batch: Batch, now: StepContext) -> Batch:
    """All of it. Each group tells its variance to the history that it started from, and leaves one history longer by an attempt,
    of the same score until it is started from itself; what exceeds the buffer goes."""
    slots = batch.groups.unique().tolist()
    histories, known = started_histories(spec, now, len(slots)), _known(now)
    for slot in slots:
        here = (batch.groups == slot).nonzero()[:, 0]
        score = float(batch.rewards[here].var(correction=0))
        before: list[str] = []
        if slot < len(histories):
            histories[slot]["score"] = score
            before = histories[slot]["attempts"]
        on = [row for row in here.tolist() if not batch.truncated[row] and (spec.always or not batch.verdicts[row].answer)]
        if on and len(before) < spec.depth:
            row = on[int(now.random(f"exit attempt {slot}").integers(len(on)))]
            attempts = [*before, batch.completions[row]]
            known.append({"id": int(batch.ids[row]), "attempts": attempts, "score": score, "seen": float(batch.rewards[row])})
    now.memory.notes[HISTORIES] = _bounded(spec, known)
    return batch


def started_histories(spec: ExitPlanner, now: StepContext, prompts: int) -> list[dict[str, Any]]:
    """The histories that the step starts from: of `prompts` groups each does with probability `resample`, as far as there are
    histories with a chance, all different, drawn by their chances. The same all through a step until it is settled."""
    known, stream = _known(now), now.random("exit")
    chances = _chances(spec, known)
    count = min(int(stream.binomial(prompts, spec.resample)), int((chances > 0).sum()))
    if not count:
        return []
    return [known[i] for i in stream.choice(len(known), size=count, replace=False, p=chances / chances.sum()).tolist()]


def _known(now: StepContext) -> list[dict[str, Any]]:
    return now.memory.notes.get(HISTORIES, [])


def _chances(spec: ExitPlanner, known: Sequence[dict[str, Any]]) -> np.ndarray:
    return np.array([1.0 if spec.priority == "uniform" else history["score"] for history in known])


def _bounded(spec: ExitPlanner, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those of the least chance, the oldest of equals first."""
    order = np.argsort(_chances(spec, known), kind="stable")[: max(0, len(known) - spec.buffer)]
    gone = set(order.tolist())
    return [history for place, history in enumerate(known) if place not in gone]


# Planners that put something before a prompt: solved problems, or an own failure.


FAILURES = "reflection"
"""Name in the memory: id -> {n, reward: sum, wrong: last wrong completion}."""


def with_shots(spec: Shots, row: Row, count: int, slot: int, now: StepContext) -> str:
    """The prompt behind `count` solved problems of its own set, drawn by seed, step and slot; itself never among them."""
    others = [other for other in now.rows if other.set == row.set and other.key != row.key]
    stream = now.random(f"shots {slot}")
    chosen = stream.permutation(len(others))[:count]
    return "".join(others[i].prompt + others[i].solution + spec.between for i in chosen) + row.prompt


def icpo(spec: IcpoPlanner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """`steered` completions behind solved problems, credited to the bare prompt; the rest from it."""
    asks = []
    for slot, row in enumerate(rows):
        steered = with_shots(spec.examples, row, spec.shots, slot, now)
        asks += [
            plain_request(slot, spec.num_generations - spec.steered, row.prompt),
            SamplingRequest(slot, spec.steered, steered, row.prompt),
        ]
    return asks


def icpo_settled(spec: IcpoPlanner, batch: Batch, now: StepContext) -> Batch:
    """Without steered completions below the floor; with the bonus, b (1 - progress), for the others."""
    if batch.off_policy is None:
        return batch
    kept = take(batch, (~batch.off_policy | (batch.rewards >= spec.floor)).nonzero()[:, 0])
    assert kept.off_policy is not None
    return replace(kept, rewards=kept.rewards + spec.bonus * (1 - now.progress) * kept.off_policy)


def annealed_shots(spec: AnnealedShotsPlanner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """As many solved problems as the phase says, in what is sampled from and learnt alike."""
    count = spec.schedule[min(int(now.progress * len(spec.schedule)), len(spec.schedule) - 1)]
    texts = [with_shots(spec.examples, row, count, slot, now) for slot, row in enumerate(rows)]
    return [plain_request(slot, spec.num_generations, text) for slot, text in enumerate(texts)]


def reflection(spec: ReflectionPlanner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """A group for every prompt, and a further one for each that mostly failed so far, behind its last wrong completion."""
    known = now.memory.notes.setdefault(FAILURES, {})
    asks = [plain_request(slot, spec.num_generations, row.prompt) for slot, row in enumerate(rows)]
    for slot, row in enumerate(rows):
        past = known.get(_name(row))
        if past and past["wrong"] is not None and past["reward"] / past["n"] < spec.threshold:
            text = fill_template(spec.template, {"{completion}": past["wrong"], "{prompt}": row.prompt})
            asks.append(plain_request(slot, spec.num_generations, text)._replace(group=len(rows) + slot))
    return asks


def reflection_settled(spec: ReflectionPlanner, batch: Batch, now: StepContext) -> Batch:
    """The batch as it is; what came of each prompt is remembered."""
    known = now.memory.notes.setdefault(FAILURES, {})
    for i, reward, text in zip(batch.ids.tolist(), batch.rewards.tolist(), batch.completions, strict=True):
        past = known.setdefault(_name(now.rows[i]), {"n": 0, "reward": 0.0, "wrong": None})
        past["n"] += 1
        past["reward"] += min(max(reward, 0.0), 1.0)
        if reward <= 0:
            past["wrong"] = text
    return batch


def critique_again(
    spec: CritiquePlanner, rows: Sequence[Row], batch: Batch, asked: int, now: StepContext
) -> list[SamplingRequest]:
    """Once, for each group with a wrong completion, more behind its first one, credited to the prompt alone."""
    asks = []
    for slot, row in enumerate(rows if not asked else []):
        wrong = ((batch.groups == slot) & (batch.rewards <= 0)).nonzero()[:, 0].tolist()
        if wrong:
            said = {"{completion}": batch.completions[wrong[0]], "{answer}": row.answer, "{prompt}": row.prompt}
            asks.append(SamplingRequest(slot, spec.refined, fill_template(spec.template, said), row.prompt))
    return asks


def critique_settled(spec: CritiquePlanner, batch: Batch, now: StepContext) -> Batch:
    """Without failed refinements."""
    if batch.off_policy is None:
        return batch
    return take(batch, (~batch.off_policy | (batch.rewards > 0)).nonzero()[:, 0])


def fill_template(template: str, said: dict[str, str]) -> str:
    """The template with its fields; what stands in a field is never read as one."""
    return re.sub("|".join(map(re.escape, said)), lambda found: said[found[0]], template)


def _name(row: Row) -> str:
    return f"{row.set}.{row.index}"


# What is known of a completion once it is judged, in a context of its own (DistIL, arXiv:2606.05152).


def feedback_text(spec: FeedbackPlanner, row: Row, completion: str, verdict: Verdict) -> str | None:
    """The feedback on a completion; None: there is nothing to say."""
    if spec.feedback == "gold":
        return row.solution
    if verdict.strict:
        return None
    mended = repair(pools.problem_of(row), completion, goal_first(row)) if row.family == "op_dag" else None
    return mended.prefix + mended.step if mended else row.solution


def feedback_settled(spec: FeedbackPlanner, batch: Batch, now: StepContext) -> Batch:
    """With what the teacher reads before each completion."""
    known: dict[str, list[int]] = {}
    contexts = []
    for i, completion, verdict, prompt in zip(batch.ids.tolist(), batch.completions, batch.verdicts, batch.prompts, strict=True):
        feedback = feedback_text(spec, now.rows[i], completion, verdict)
        if feedback is None:
            contexts.append(prompt)
            continue
        text = spec.template.replace("{feedback}", feedback).replace("{prompt}", now.rows[i].prompt)
        if text not in known:
            known[text] = now.encode(text)
        contexts.append(known[text])
    return replace(batch, teacher=contexts)


# Planners that show part of the gold solution.


def first_steps(spec: Hint, solution: str) -> str:
    """The first steps of a solution with their last separator; empty where it has a single one."""
    steps = solution.split(spec.separator)
    kept = min(max(1, int(spec.share * len(steps))), len(steps) - 1)
    return "".join(step + spec.separator for step in steps[:kept])


def hinted_prompt(spec: Hint, row: Row) -> str:
    """The prompt with its hint."""
    return spec.template.replace("{hint}", first_steps(spec, row.solution)).replace("{prompt}", row.prompt)


def guide_again(spec: GuidePlanner, rows: Sequence[Row], batch: Batch, asked: int, now: StepContext) -> list[SamplingRequest]:
    """Once, for each group in which all failed, completions with the hint, credited to the prompt without it."""
    if asked:
        return []
    failed = [slot for slot in range(len(rows)) if not (batch.rewards[batch.groups == slot] > 0).any()]
    return [SamplingRequest(slot, spec.guided, hinted_prompt(spec.hint, rows[slot]), rows[slot].prompt) for slot in failed]


def guide_settled(spec: GuidePlanner, batch: Batch, now: StepContext) -> Batch:
    """Without the failed completions of groups that were guided, where these replace them."""
    if spec.mode == "append" or batch.off_policy is None:
        return batch
    guided = torch.isin(batch.groups, batch.groups[batch.off_policy])
    return take(batch, (~guided | batch.off_policy).nonzero()[:, 0])


def prefix(spec: PrefixPlanner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """Of each group `started` (1 - progress), rounded down, from the first steps of the gold solution."""
    started = int(spec.started * (1 - now.progress) * spec.num_generations)
    asks = []
    for slot, row in enumerate(rows):
        text = hinted_prompt(spec.hint, row)
        if started:
            asks.append(SamplingRequest(slot, started, text, text, first_steps(spec.hint, row.solution)))
        if started < spec.num_generations:
            asks.append(plain_request(slot, spec.num_generations - started, row.prompt))
    return asks
