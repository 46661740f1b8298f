"""Advantages that compare whole completions of one prompt with each other."""

import torch
from torch import Tensor

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import GroupAdvantage

EPSILON = 1e-4
"""Added to a standard deviation before dividing, as TRL does."""


def group(spec: GroupAdvantage, batch: Batch, now: Now) -> Tensor:
    """Reward less its group's mean, over a standard deviation (GRPO, arXiv:2402.03300, eq. 3; "batch": arXiv:2508.08221;
    "none": arXiv:2503.20783)."""
    return over_tokens(compared(spec, batch.rewards.double(), batch.groups, batch.counted()), batch)


def compared(spec: GroupAdvantage, rewards: Tensor, groups: Tensor, counted: Tensor | None = None) -> Tensor:
    """The same for (N,) float64 rewards of rows in groups (N,); statistics are those of the rows that are `counted` (N,) bool."""
    centred, deviation = standardised(rewards, groups, counted)
    if spec.scale_rewards == "group":
        return centred / (deviation + EPSILON)
    if spec.scale_rewards == "batch":
        return centred / (spread(rewards if counted is None else rewards[counted]) + EPSILON)
    return centred


def over_tokens(values: Tensor, batch: Batch) -> Tensor:
    """(N,) values of rows as (N,T) float32 advantages: the same for each token of a completion, 0 past it."""
    return (values[:, None] * batch.mask()).float()


def means(values: Tensor, groups: Tensor, counted: Tensor | None = None, total: bool = False) -> Tensor:
    """(N,) float64: of each row its group's mean (or `total`) of the (N,) values of the rows that are `counted` (N,) bool; 0 of
    none."""
    counted = torch.ones(len(values), dtype=torch.bool) if counted is None else counted
    found, member = torch.unique(groups, return_inverse=True)
    empty, inside = torch.zeros(len(found), dtype=torch.float64), member[counted]
    sums = empty.index_add(0, inside, values[counted].double())
    sizes = empty.index_add(0, inside, torch.ones(len(inside), dtype=torch.float64))
    return (sums if total else sums / sizes.clamp(min=1))[member]


def spread(values: Tensor) -> Tensor:
    """Standard deviation of (M,) float64 values, Bessel-corrected; 0 of a single one."""
    return values.std() if len(values) > 1 else torch.zeros((), dtype=torch.float64)


def standardised(values: Tensor, groups: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(M,) float64 values less their group's mean, and their group's standard deviation, Bessel-corrected as in TRL. Both are
    taken over the members that are `counted` (M,) bool; a group without any has mean and deviation 0.

    Equal values of a group get exactly zero: in floating point their mean may miss them by a rounding error, which the division
    by EPSILON would blow up."""
    counted = torch.ones(len(values), dtype=torch.bool) if counted is None else counted
    _, member = torch.unique(groups, return_inverse=True)
    groups_here = int(member.max()) + 1 if len(member) else 0
    empty, inside = torch.zeros(groups_here, dtype=torch.float64), member[counted]
    size = empty.index_add(0, inside, torch.ones(len(inside), dtype=torch.float64))
    mean = empty.index_add(0, inside, values[counted]) / size.clamp(min=1)
    low = torch.full_like(empty, torch.inf).scatter_reduce_(0, inside, values[counted], "amin")
    high = torch.full_like(empty, -torch.inf).scatter_reduce_(0, inside, values[counted], "amax")
    mean = torch.where(low == high, low, mean)
    centred = values - mean[member]
    variance = empty.index_add(0, inside, centred[counted] ** 2) / (size - 1).clamp(min=1)
    return centred, variance.sqrt()[member]
