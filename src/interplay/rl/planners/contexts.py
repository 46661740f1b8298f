"""Planners that put something before a prompt: solved problems, or an own failure."""

import re
from collections.abc import Sequence
from dataclasses import replace

from interplay.rl.batch import Batch, take
from interplay.rl.now import Now
from interplay.rl.planners.ask import Ask, plain
from interplay.schema.planner import AnnealedShotsPlanner, CritiquePlanner, IcpoPlanner, ReflectionPlanner, Shots
from interplay.tasks.row import Row

FAILURES = "reflection"
"""Name in the memory: id -> {n, reward: sum, wrong: last wrong completion}."""


def with_shots(spec: Shots, row: Row, count: int, slot: int, now: Now) -> str:
    """The prompt behind `count` solved problems of its own set, drawn by seed, step and slot; itself never among them."""
    others = [other for other in now.rows if other.set == row.set and other.key != row.key]
    stream = now.random(f"shots {slot}")
    chosen = stream.permutation(len(others))[:count]
    return "".join(others[i].prompt + others[i].solution + spec.between for i in chosen) + row.prompt


def icpo(spec: IcpoPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """`steered` completions behind solved problems, credited to the bare prompt; the rest from it."""
    asks = []
    for slot, row in enumerate(rows):
        steered = with_shots(spec.examples, row, spec.shots, slot, now)
        asks += [plain(slot, spec.num_generations - spec.steered, row.prompt), Ask(slot, spec.steered, steered, row.prompt)]
    return asks


def icpo_settled(spec: IcpoPlanner, batch: Batch, now: Now) -> Batch:
    """Without steered completions below the floor; with the bonus, b (1 - progress), for the others."""
    if batch.off_policy is None:
        return batch
    kept = take(batch, (~batch.off_policy | (batch.rewards >= spec.floor)).nonzero()[:, 0])
    assert kept.off_policy is not None
    return replace(kept, rewards=kept.rewards + spec.bonus * (1 - now.progress) * kept.off_policy)


def annealed_shots(spec: AnnealedShotsPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """As many solved problems as the phase says, in what is sampled from and learnt alike."""
    count = spec.schedule[min(int(now.progress * len(spec.schedule)), len(spec.schedule) - 1)]
    texts = [with_shots(spec.examples, row, count, slot, now) for slot, row in enumerate(rows)]
    return [plain(slot, spec.num_generations, text) for slot, text in enumerate(texts)]


def reflection(spec: ReflectionPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """A group for every prompt, and a further one for each that mostly failed so far, behind its last wrong completion."""
    known = now.memory.notes.setdefault(FAILURES, {})
    asks = [plain(slot, spec.num_generations, row.prompt) for slot, row in enumerate(rows)]
    for slot, row in enumerate(rows):
        past = known.get(_name(row))
        if past and past["wrong"] is not None and past["reward"] / past["n"] < spec.threshold:
            text = filled(spec.template, {"{completion}": past["wrong"], "{prompt}": row.prompt})
            asks.append(plain(slot, spec.num_generations, text)._replace(group=len(rows) + slot))
    return asks


def reflection_settled(spec: ReflectionPlanner, batch: Batch, now: Now) -> Batch:
    """The batch as it is; what came of each prompt is remembered."""
    known = now.memory.notes.setdefault(FAILURES, {})
    for i, reward, text in zip(batch.ids.tolist(), batch.rewards.tolist(), batch.completions, strict=True):
        past = known.setdefault(_name(now.rows[i]), {"n": 0, "reward": 0.0, "wrong": None})
        past["n"] += 1
        past["reward"] += min(max(reward, 0.0), 1.0)
        if reward <= 0:
            past["wrong"] = text
    return batch


def critique_again(spec: CritiquePlanner, rows: Sequence[Row], batch: Batch, asked: int, now: Now) -> list[Ask]:
    """Once, for each group with a wrong completion, more behind its first one, credited to the prompt alone."""
    asks = []
    for slot, row in enumerate(rows if not asked else []):
        wrong = ((batch.groups == slot) & (batch.rewards <= 0)).nonzero()[:, 0].tolist()
        if wrong:
            said = {"{completion}": batch.completions[wrong[0]], "{answer}": row.answer, "{prompt}": row.prompt}
            asks.append(Ask(slot, spec.refined, filled(spec.template, said), row.prompt))
    return asks


def critique_settled(spec: CritiquePlanner, batch: Batch, now: Now) -> Batch:
    """Without failed refinements."""
    if batch.off_policy is None:
        return batch
    return take(batch, (~batch.off_policy | (batch.rewards > 0)).nonzero()[:, 0])


def filled(template: str, said: dict[str, str]) -> str:
    """The template with its fields; what stands in a field is never read as one."""
    return re.sub("|".join(map(re.escape, said)), lambda found: said[found[0]], template)


def _name(row: Row) -> str:
    return f"{row.set}.{row.index}"
