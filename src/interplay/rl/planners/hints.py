"""Planners that show part of the gold solution."""

from collections.abc import Sequence

import torch

from interplay.rl.batch import Batch, take
from interplay.rl.now import Now
from interplay.rl.planners.ask import Ask, plain
from interplay.schema.planner import GuidePlanner, Hint, PrefixPlanner
from interplay.tasks.row import Row


def first_steps(spec: Hint, solution: str) -> str:
    """The first steps of a solution with their last separator; empty where it has a single one."""
    steps = solution.split(spec.separator)
    kept = min(max(1, int(spec.share * len(steps))), len(steps) - 1)
    return "".join(step + spec.separator for step in steps[:kept])


def hinted(spec: Hint, row: Row) -> str:
    """The prompt with its hint."""
    return spec.template.replace("{hint}", first_steps(spec, row.solution)).replace("{prompt}", row.prompt)


def guide_again(spec: GuidePlanner, rows: Sequence[Row], batch: Batch, asked: int, now: Now) -> list[Ask]:
    """Once, for each group in which all failed, completions with the hint, credited to the prompt without it."""
    if asked:
        return []
    failed = [slot for slot in range(len(rows)) if not (batch.rewards[batch.groups == slot] > 0).any()]
    return [Ask(slot, spec.guided, hinted(spec.hint, rows[slot]), rows[slot].prompt) for slot in failed]


def guide_settled(spec: GuidePlanner, batch: Batch, now: Now) -> Batch:
    """Without the failed completions of groups that were guided, where these replace them."""
    if spec.mode == "append" or batch.off_policy is None:
        return batch
    guided = torch.isin(batch.groups, batch.groups[batch.off_policy])
    return take(batch, (~guided | batch.off_policy).nonzero()[:, 0])


def prefix(spec: PrefixPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """Of each group `started` (1 - progress), rounded down, from the first steps of the gold solution."""
    started = int(spec.started * (1 - now.progress) * spec.num_generations)
    asks = []
    for slot, row in enumerate(rows):
        text = hinted(spec.hint, row)
        if started:
            asks.append(Ask(slot, started, text, text, first_steps(spec.hint, row.solution)))
        if started < spec.num_generations:
            asks.append(plain(slot, spec.num_generations - started, row.prompt))
    return asks
