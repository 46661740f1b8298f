"""Completions where they tell most (XRPO, arXiv:2510.06672)."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.rl.planners.ask import Ask, plain
from interplay.schema.planner import AllocationPlanner
from interplay.tasks.row import Row


def xrpo(spec: AllocationPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """The first completions, alike for all."""
    return [plain(slot, spec.first, row.prompt) for slot, row in enumerate(rows)]


def priority(spec: AllocationPlanner, n: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """(P,) t_{n-1} s (1 / sqrt(n) - 1 / sqrt(n + 1)) + exploration sqrt(ln T / n): n (P,) completions so far, s (P,) the
    Bessel-corrected deviation of their rewards, T their total."""
    quantile = stats.t.ppf((1 + spec.confidence) / 2, n - 1)
    drop = quantile * deviation * (1 / np.sqrt(n) - 1 / np.sqrt(n + 1))
    return drop + spec.exploration * np.sqrt(math.log(n.sum()) / n)


def xrpo_again(spec: AllocationPlanner, rows: Sequence[Row], batch: Batch, asked: int, now: Now) -> list[Ask]:
    """This round's even share of what is left of the budget, one by one to the prompt of highest priority, each counting at once
    with its deviation as it is."""
    groups = batch.groups.numpy()
    n = np.array([(groups == slot).sum() for slot in range(len(rows))], dtype=float)
    left = spec.num_generations * len(rows) - int(n.sum())
    if asked >= spec.rounds or left <= 0:
        return []
    rewards = batch.rewards.numpy()
    deviation = np.array([rewards[groups == slot].std(ddof=1) for slot in range(len(rows))])
    more = np.zeros(len(rows), dtype=int)
    for _ in range(-(-left // (spec.rounds - asked))):
        chosen = int(priority(spec, n + more, deviation).argmax())
        more[chosen] += 1
    return [plain(slot, int(count), rows[slot].prompt) for slot, count in enumerate(more) if count]
