"""Allocation: sampling requests and how many completions each prompt gets (XRPO, arXiv:2510.06672)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from interplay.rl.batch import Batch
from interplay.rl.planners.spec import AllocationPlanner
from interplay.rl.step_context import StepContext
from interplay.tasks.verdict import Row

# What a planner asks for.


class SamplingRequest(NamedTuple):
    """Completions to sample of one prompt."""

    slot: int
    """Place of the prompt among those drawn."""
    n: int
    sampling: str
    """Text that the completions are sampled from."""
    training: str
    """Text that they are credited to. Where it is another, the rows are off policy."""
    given: str = ""
    """What a completion is judged to begin with and is not learnt with it; it ends both texts."""
    group: int | None = None
    """Number of its group; None: that of the slot. Asks of one number make one group."""
    own: bool = False
    """Whether the policy itself wrote what is given, so that the whole tells how it does on the bare prompt."""
    limit: int | None = None
    """Tokens after which these completions are cut; None: the run's limit. The asks of a round have one limit."""
    goes_on: bool = False
    """Whether what is cut is gone on with later, so that nothing is known of it yet."""
    shown: float | None = None
    """Reward of the own attempt that stands last in the texts; None: none does."""


def plain_request(slot: int, n: int, text: str) -> SamplingRequest:
    """Completions sampled from the text that they are credited to."""
    return SamplingRequest(slot, n, text, text)


# Completions where they tell most (XRPO, arXiv:2510.06672).


def xrpo(spec: AllocationPlanner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """The first completions, alike for all."""
    return [plain_request(slot, spec.first, row.prompt) for slot, row in enumerate(rows)]


def priority(spec: AllocationPlanner, n: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """(P,) t_{n-1} s (1 / sqrt(n) - 1 / sqrt(n + 1)) + exploration sqrt(ln T / n): n (P,) completions so far, s (P,) the
    Bessel-corrected deviation of their rewards, T their total."""
    quantile = stats.t.ppf((1 + spec.confidence) / 2, n - 1)
    drop = quantile * deviation * (1 / np.sqrt(n) - 1 / np.sqrt(n + 1))
    return drop + spec.exploration * np.sqrt(math.log(n.sum()) / n)


def xrpo_again(spec: AllocationPlanner, rows: Sequence[Row], batch: Batch, asked: int, now: StepContext) -> list[SamplingRequest]:
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
    return [plain_request(slot, int(count), rows[slot].prompt) for slot, count in enumerate(more) if count]
