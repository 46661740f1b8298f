"""Planners that show own attempts: what is sampled is the step that improves on them, and it is learnt behind what it was sampled
from."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from interplay.rl.batch import Batch, take
from interplay.rl.now import Now
from interplay.rl.planners.ask import Ask, plain
from interplay.schema.planner import ExitPlanner, ShownAttemptPlanner
from interplay.tasks.row import Row
from interplay.tasks.turns import MARK

HISTORIES = "exit"
"""Name in the memory: histories to start from, oldest first: {id: prompt, attempts: texts, score, seen: reward of the last
attempt}."""


def behind(prompt: str, attempts: Sequence[str], feedback: str) -> str:
    """The text of a prompt with attempts, each followed by the feedback: what an episode `retry` reads before its next turn. MARK
    stands between the pieces, and an end token behind each attempt (data.pool.encode_turns)."""
    return MARK.join([prompt, *(piece for attempt in attempts for piece in (attempt.replace(MARK, ""), feedback))])


def shown_attempt(spec: ShownAttemptPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """The attempts that are shown, from the bare prompts."""
    return [plain(slot, spec.references, row.prompt) for slot, row in enumerate(rows)]


def shown_attempt_again(spec: ShownAttemptPlanner, rows: Sequence[Row], batch: Batch, asked: int, now: Now) -> list[Ask]:
    """Once, an equal number of completions behind each of them; those of a prompt make one group."""
    if asked:
        return []
    each = spec.num_generations // spec.references - 1
    asks = []
    for slot, text, reward in zip(batch.groups.tolist(), batch.completions, batch.rewards.tolist(), strict=True):
        context = behind(rows[slot].prompt, [text], spec.feedback)
        asks.append(plain(slot, each, context)._replace(group=len(rows) + slot, shown=reward))
    return asks


def shown_attempt_settled(spec: ShownAttemptPlanner, batch: Batch, now: Now) -> Batch:
    """The completions behind an attempt alone."""
    assert batch.shown is not None
    return take(batch, (~batch.shown.isnan()).nonzero()[:, 0])


def exit_carried(spec: ExitPlanner, now: Now, prompts: int) -> list[int]:
    """The prompts of the histories that the step starts from."""
    return [history["id"] for history in started(spec, now, prompts)]


def exit_plan(spec: ExitPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """A group for each: behind its history, or from the bare prompt."""
    histories = started(spec, now, len(rows))
    asks = []
    for slot, row in enumerate(rows):
        if slot < len(histories):
            text = behind(row.prompt, histories[slot]["attempts"], spec.feedback)
            asks.append(plain(slot, spec.num_generations, text)._replace(group=slot, shown=histories[slot]["seen"]))
        else:
            asks.append(plain(slot, spec.num_generations, row.prompt))
    return asks


def exit_settled(spec: ExitPlanner, batch: Batch, now: Now) -> Batch:
    """All of it. Each group tells its variance to the history that it started from, and leaves one history longer by an attempt,
    of the same score until it is started from itself; what exceeds the buffer goes."""
    slots = batch.groups.unique().tolist()
    histories, known = started(spec, now, len(slots)), _known(now)
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


def started(spec: ExitPlanner, now: Now, prompts: int) -> list[dict[str, Any]]:
    """The histories that the step starts from: of `prompts` groups each does with probability `resample`, as far as there are
    histories with a chance, all different, drawn by their chances. The same all through a step until it is settled."""
    known, stream = _known(now), now.random("exit")
    chances = _chances(spec, known)
    count = min(int(stream.binomial(prompts, spec.resample)), int((chances > 0).sum()))
    if not count:
        return []
    return [known[i] for i in stream.choice(len(known), size=count, replace=False, p=chances / chances.sum()).tolist()]


def _known(now: Now) -> list[dict[str, Any]]:
    return now.memory.notes.get(HISTORIES, [])


def _chances(spec: ExitPlanner, known: Sequence[dict[str, Any]]) -> np.ndarray:
    return np.array([1.0 if spec.priority == "uniform" else history["score"] for history in known])


def _bounded(spec: ExitPlanner, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those of the least chance, the oldest of equals first."""
    order = np.argsort(_chances(spec, known), kind="stable")[: max(0, len(known) - spec.buffer)]
    gone = set(order.tolist())
    return [history for place, history in enumerate(known) if place not in gone]
