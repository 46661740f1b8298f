"""Advantage seam: `(spec, rewards (N,), groups (N,), mask (N,T)) -> (N,T) float32`, zero where the mask is.

Every member gives one value per token, so that methods which credit spans or turns fit the same place."""

from collections.abc import Callable

import torch
from torch import Tensor

from interplay.schema.advantage import GroupAdvantage

EPSILON = 1e-4
"""Added to a standard deviation before dividing, as TRL does."""


def group(spec: GroupAdvantage, rewards: Tensor, groups: Tensor, mask: Tensor) -> Tensor:
    """Reward less its group's mean, over a standard deviation (GRPO, arXiv:2402.03300, eq. 3; "batch": arXiv:2508.08221;
    "none": arXiv:2503.20783). Deviations are Bessel-corrected, as in TRL.

    A group of equal rewards gets exactly zero: in floating point its mean may miss the common value by a rounding error, which
    the division by EPSILON would blow up."""
    rewards = rewards.double()
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    mean = torch.zeros(len(size), dtype=torch.float64).index_add_(0, member, rewards) / size
    centred = rewards - mean[member]
    low = torch.full_like(mean, torch.inf).scatter_reduce_(0, member, rewards, "amin")
    high = torch.full_like(mean, -torch.inf).scatter_reduce_(0, member, rewards, "amax")
    centred = torch.where((low == high)[member], 0.0, centred)
    if spec.scale_rewards == "group":
        variance = torch.zeros_like(mean).index_add_(0, member, centred**2) / (size - 1).clamp(min=1)
        centred = centred / (variance.sqrt()[member] + EPSILON)
    elif spec.scale_rewards == "batch":
        centred = centred / ((rewards.std() if len(rewards) > 1 else 0.0) + EPSILON)
    return (centred[:, None] * mask).float()


MEMBERS: dict[str, Callable[..., Tensor]] = {"group": group}


def advantages(spec: GroupAdvantage, rewards: Tensor, groups: Tensor, mask: Tensor) -> Tensor:
    """The member that `spec` names, applied to all rows of a step."""
    return MEMBERS[spec.name](spec, rewards, groups, mask)
