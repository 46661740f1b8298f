"""Continuation: what follows from rollouts (further requests, and which rows are kept); the three seams together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from interplay.core import extension, model
from interplay.core.keys import filled
from interplay.data import sets
from interplay.data.steps.reformulate import is_goal_first
from interplay.rl import request_spec as specs, requests
from interplay.rl.batch import Batch, StepContext, take
from interplay.rl.requests import ALLOCATION, PROMPTING, Requests, SamplingRequest, hinted_prompt, plain_request
from interplay.tasks.op_dag.terse_variants import repair
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import Row, Verdict

# More completions with information in the context, credited to the bare prompt: a hint (Guide), a critique (Critique-GRPO).


def guide_follow(spec: specs.GuideContinuation, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext) -> Requests:
    """Once, for each group in which all failed, completions with the hint, credited to the prompt without it."""
    if rounds:
        return []
    failed = [slot for slot in range(len(rows)) if not batch.right[batch.groups == slot].any()]
    return [SamplingRequest(slot, spec.guided, hinted_prompt(spec.hint, rows[slot]), rows[slot].prompt) for slot in failed]


def guide_kept(spec: specs.GuideContinuation, batch: Batch, now: StepContext) -> Batch:
    """Without the failed completions of groups that were guided, where these replace them."""
    if spec.mode == "append" or batch.off_policy is None:
        return batch
    guided = torch.isin(batch.groups, batch.groups[batch.off_policy])
    return take(batch, (~guided | batch.off_policy).nonzero()[:, 0])


def critique_follow(
    spec: specs.CritiqueContinuation, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext
) -> Requests:
    """Once, for each group with a wrong completion, more behind its first one, credited to the prompt alone."""
    asks = []
    for slot, row in enumerate(rows if not rounds else []):
        wrong = ((batch.groups == slot) & ~batch.right).nonzero()[:, 0].tolist()
        if wrong:
            said = {"completion": batch.completions[wrong[0]], "answer": row.answer, "prompt": row.prompt}
            asks.append(SamplingRequest(slot, spec.refined, filled(spec.template, said), row.prompt))
    return asks


def critique_kept(spec: specs.CritiqueContinuation, batch: Batch, now: StepContext) -> Batch:
    """Without failed refinements, or with all of them, which then count in no statistics of their group."""
    if batch.off_policy is None:
        return batch
    if spec.failed == "keep":
        return replace(batch, excluded=batch.off_policy if batch.excluded is None else batch.off_policy | batch.excluded)
    return take(batch, (~batch.off_policy | batch.right).nonzero()[:, 0])


def _name(row: Row) -> str:
    return f"{row.set}.{row.index}"


# Prompts that mostly failed enter with an own failure in the context (R3).


FAILURES = "reflection"
"""Name in the memory: id -> {n, reward: how many were right, wrong: last wrong completion}."""


def reflection_begun(spec: specs.ReflectionContinuation, requests: Requests, rows: Sequence[Row], now: StepContext) -> Requests:
    """Also a further group for each prompt that mostly failed so far, after its last wrong completion."""
    known = now.memory.notes.setdefault(FAILURES, {})
    further = []
    for slot, (row, request) in enumerate(zip(rows, requests, strict=True)):
        past = known.get(_name(row))
        if past and past["wrong"] is not None and past["reward"] / past["n"] < spec.threshold:
            text = filled(spec.template, {"completion": past["wrong"], "prompt": row.prompt})
            further.append(plain_request(slot, request.n, text)._replace(group=len(rows) + slot))
    return requests + further


def reflection_kept(spec: specs.ReflectionContinuation, batch: Batch, now: StepContext) -> Batch:
    """The batch as it is; the results of each prompt are remembered."""
    known = now.memory.notes.setdefault(FAILURES, {})
    for i, right, text in zip(batch.ids.tolist(), batch.right.tolist(), batch.completions, strict=True):
        past = known.setdefault(_name(now.rows[i]), {"n": 0, "reward": 0.0, "wrong": None})
        past["n"] += 1
        past["reward"] += float(right)
        if not right:
            past["wrong"] = text
    return batch


# What is known of a completion once it is judged, in a context of its own (DistIL, arXiv:2606.05152).


def feedback_text(spec: specs.FeedbackContinuation, row: Row, completion: str, verdict: Verdict) -> str | None:
    """The feedback on a completion; None: there is nothing to say."""
    if spec.feedback == "gold":
        return row.solution
    if verdict.strict:
        return None
    corrected = repair(sets.problem_of(row), completion, is_goal_first(row)) if row.family == "op_dag" else None
    return corrected.prefix + corrected.step if corrected else row.solution


def feedback_kept(spec: specs.FeedbackContinuation, batch: Batch, now: StepContext) -> Batch:
    """With what the teacher reads before each completion."""
    known: dict[str, list[int]] = {}
    contexts = []
    for i, completion, verdict, prompt in zip(batch.ids.tolist(), batch.completions, batch.verdicts, batch.prompts, strict=True):
        feedback = feedback_text(spec, now.rows[i], completion, verdict)
        if feedback is None:
            contexts.append(prompt)
            continue
        text = filled(spec.template, {"feedback": feedback, "prompt": now.rows[i].prompt})
        if text not in known:
            known[text] = now.encode(text)
        contexts.append(known[text])
    return replace(batch, teacher=contexts)


# Own attempts in the context: what is sampled is the step that improves on them, and it is learnt after the text that it was
# sampled from.


HISTORIES = "exit"
"""Name in the memory: histories to start from, oldest first: {id: prompt, attempts: texts, score, seen: reward of the last
attempt}."""


def append_attempts(prompt: str, attempts: Sequence[str], feedback: str) -> str:
    """The text of a prompt with attempts, each followed by the feedback: what an episode `retry` reads before its next turn. MARK
    separates the pieces, and an end token follows each attempt (data.text.encode_turns)."""
    return MARK.join([prompt, *(piece for attempt in attempts for piece in (attempt.replace(MARK, ""), feedback))])


def shown_attempt_begun(
    spec: specs.ShownAttemptContinuation, requests: Requests, rows: Sequence[Row], now: StepContext
) -> Requests:
    """The attempts that are shown, from the bare prompts."""
    return [request._replace(n=spec.references) for request in requests]


def shown_attempt_follow(
    spec: specs.ShownAttemptContinuation, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext
) -> Requests:
    """Once, an equal number of completions behind each of them; those of a prompt make one group."""
    if rounds:
        return []
    each = now.method.allocation.num_generations // spec.references - 1
    asks = []
    for slot, text, reward in zip(batch.groups.tolist(), batch.completions, batch.rewards.tolist(), strict=True):
        context = append_attempts(rows[slot].prompt, [text], spec.feedback)
        asks.append(plain_request(slot, each, context)._replace(group=len(rows) + slot, shown=reward))
    return asks


def shown_attempt_kept(spec: specs.ShownAttemptContinuation, batch: Batch, now: StepContext) -> Batch:
    """The completions behind an attempt alone."""
    assert batch.shown is not None
    return take(batch, (~batch.shown.isnan()).nonzero()[:, 0])


def exit_carried(spec: specs.ExitContinuation, now: StepContext, prompts: int) -> list[int]:
    """The prompts of the histories that the step starts from."""
    return [history["id"] for history in started_histories(spec, now, prompts)]


def exit_begun(spec: specs.ExitContinuation, requests: Requests, rows: Sequence[Row], now: StepContext) -> Requests:
    """The first groups after histories, the others from the bare prompt."""
    histories = started_histories(spec, now, len(rows))
    begun = []
    for request, history in zip(requests, histories, strict=False):
        text = append_attempts(request.sampling, history["attempts"], spec.feedback)
        begun.append(plain_request(request.slot, request.n, text)._replace(group=request.slot, shown=history["seen"]))
    return begun + requests[len(begun) :]


def exit_kept(spec: specs.ExitContinuation, batch: Batch, now: StepContext) -> Batch:
    """All of it. The variance of each group becomes the score of the history that it started from, and leaves one history longer
    by an attempt, of the same score until it is started from itself; what exceeds the buffer goes."""
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


def started_histories(spec: specs.ExitContinuation, now: StepContext, prompts: int) -> list[dict[str, Any]]:
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


def _chances(spec: specs.ExitContinuation, known: Sequence[dict[str, Any]]) -> np.ndarray:
    return np.array([1.0 if spec.priority == "uniform" else history["score"] for history in known])


def _bounded(spec: specs.ExitContinuation, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those of the least chance, the oldest of equals first."""
    order = np.argsort(_chances(spec, known), kind="stable")[: max(0, len(known) - spec.buffer)]
    gone = set(order.tolist())
    return [history for place, history in enumerate(known) if place not in gone]


# The table of continuations, by the `name` of their spec.


def own_follow(spec: specs.OwnContinuation, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext) -> Requests:
    """The requests of the user's function. Raises UserError when they are none."""
    made = extension.call(spec, rows, batch, rounds, now)
    if not isinstance(made, list) or not all(isinstance(one, SamplingRequest) for one in made):
        raise model.UserError(f"{spec.function}: must return a list of SamplingRequest, not {made!r:.60}")
    return made


class ContinuationMember(NamedTuple):
    """A continuation."""

    begin: Callable[..., Requests] = lambda spec, requests, rows, now: requests
    """`(spec, requests, rows, now)`: the first requests, changed by what is remembered of earlier steps."""
    follow: Callable[..., Requests] = lambda spec, rows, batch, rounds, now: []
    """`(spec, rows, batch, rounds, now)`: what is requested next, given what was sampled so far in how many further rounds; none:
    no further round."""
    keep: Callable[..., Batch] = lambda spec, batch, now: batch
    """`(spec, batch, now) -> batch`: which of the rows are kept. It alone may write to the memory."""
    carried: Callable[..., list[int]] = lambda spec, now, prompts: []
    """`(spec, now, prompts)`: ids of the prompts that a step of so many begins with, ahead of the sampler's; they take the first
    slots."""


CONTINUATION: dict[str, ContinuationMember] = {
    "none": ContinuationMember(),
    "guide": ContinuationMember(follow=guide_follow, keep=guide_kept),
    "critique": ContinuationMember(follow=critique_follow, keep=critique_kept),
    "reflection": ContinuationMember(reflection_begun, keep=reflection_kept),
    "feedback": ContinuationMember(keep=feedback_kept),
    "tree": ContinuationMember(requests.tree_begun, requests.tree_follow, requests.tree_kept),
    "windows": ContinuationMember(begin=requests.windows_begun, keep=requests.windows_kept, carried=requests.windows_carried),
    "exit": ContinuationMember(begin=exit_begun, keep=exit_kept, carried=exit_carried),
    "custom": ContinuationMember(follow=own_follow),
    "shown_attempt": ContinuationMember(shown_attempt_begun, shown_attempt_follow, shown_attempt_kept),
}

# The three seams together.


def carried_prompts(now: StepContext, prompts: int) -> list[int]:
    """Ids of the prompts that a step of so many begins with, before the sampler chooses the others."""
    spec = now.method.continuation
    return CONTINUATION[spec.name].carried(spec, now, prompts)


def first_requests(rows: Sequence[Row], now: StepContext) -> Requests:
    """The first round of requests for the prompts `rows`, slot by slot."""
    counts = ALLOCATION[now.method.allocation.name].first(now.method.allocation, len(rows))
    spec = now.method.continuation
    return CONTINUATION[spec.name].begin(spec, prompted(rows, counts, now), rows, now)


def prompted(rows: Sequence[Row], counts: Sequence[int], now: StepContext) -> Requests:
    """Requests for so many completions of each prompt, from the texts that the prompting chooses."""
    spec = now.method.prompting
    make = PROMPTING[spec.name].requests
    return [one for slot, (row, n) in enumerate(zip(rows, counts, strict=True)) if n for one in make(spec, row, slot, n, now)]


def next_requests(rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext) -> Requests:
    """The next round of requests, after `rounds` further ones led to `batch`; none: the step's rollouts are complete."""
    allocation, continuation = now.method.allocation, now.method.continuation
    counts = ALLOCATION[allocation.name].again(allocation, batch, len(rows), rounds)
    if any(counts):
        return prompted(rows, counts, now)
    return CONTINUATION[continuation.name].follow(continuation, rows, batch, rounds, now)


def kept_rollouts(batch: Batch, now: StepContext) -> Batch:
    """The rows that prompting and continuation keep of all that a draw sampled."""
    prompting, continuation = now.method.prompting, now.method.continuation
    batch = PROMPTING[prompting.name].keep(prompting, batch, now)
    return CONTINUATION[continuation.name].keep(continuation, batch, now)
