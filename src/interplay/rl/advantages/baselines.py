"""Advantages with another baseline than the group's plain mean."""

import math

import torch
from torch import Tensor

from interplay.rl.advantages.group import EPSILON, compared, means, over_tokens, spread, standardised
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import (
    GraeAdvantage,
    GroupAdvantage,
    LeaveOneOutAdvantage,
    LengthBaselineAdvantage,
    PassKAdvantage,
    TrackedAdvantage,
    WhitenedAdvantage,
)


def leave_one_out(spec: LeaveOneOutAdvantage, batch: Batch, now: Now) -> Tensor:
    """r_i - mean of r_j, j != i, of the group (RLOO, arXiv:2402.14740, eq. 7): n / (n - 1) times what is above the mean; 0 alone.
    A row set aside is compared with all that count."""
    return over_tokens(left_out(batch.rewards, batch.groups, batch.counted()), batch)


def left_out(rewards: Tensor, groups: Tensor, counted: Tensor) -> Tensor:
    """The same for (N,) float64 rewards of rows in groups (N,), of which those count that are `counted` (N,) bool: (N,)."""
    centred, _ = standardised(rewards, groups, counted)
    size = means(counted, groups, total=True)
    own = torch.where(counted, size / (size - 1).clamp(min=1), 1.0)
    return centred * own


def whitened(spec: WhitenedAdvantage, batch: Batch, now: Now) -> Tensor:
    """(r - baseline), less its mean over all tokens of the batch and over its deviation over them (REINFORCE++,
    arXiv:2501.03262). Deviations are Bessel-corrected; to the variance 1e-8 is added, as in verl."""
    values = standardised(batch.rewards, batch.groups, batch.counted())[0] if spec.baseline == "group" else batch.rewards
    return whitened_over(values[:, None].expand(batch.tokens.shape), batch.mask()).float()


def whitened_over(values: Tensor, mask: Tensor) -> Tensor:
    """(N,T) float64 values less their mean over the mask (N,T) bool and over their deviation over it; 0 outside, and everywhere
    where all are equal."""
    tokens = mask.sum().clamp(min=2)
    mean = (values * mask).sum() / tokens
    variance = ((values - mean) ** 2 * mask).sum() / (tokens - 1)
    return torch.where((variance > 0) & mask, (values - mean) / (variance + 1e-8).sqrt(), 0.0)


def length_baseline(spec: LengthBaselineAdvantage, batch: Batch, now: Now) -> Tensor:
    """r - sum l r / sum l over the group, l the length of each completion (OPO, arXiv:2505.23585, eq. 7)."""
    weights = batch.written() * batch.counted()
    total = means(weights.double(), batch.groups, total=True).clamp(min=1)
    baseline = means(weights * batch.rewards, batch.groups, total=True) / total
    equal = standardised(batch.rewards, batch.groups, batch.counted())[1] == 0
    return over_tokens(torch.where(equal & batch.counted(), 0.0, batch.rewards - baseline), batch)


def pass_k(spec: PassKAdvantage, batch: Batch, now: Now) -> Tensor:
    """With R = 1 - C(wrong, k) / C(n, k), the pass@k of the group, and s = sqrt(R (1 - R)): (1 - R) / s for right completions
    and (1 - R - C(wrong - 1, k - 1) / C(n - 1, k - 1)) / s for wrong ones (arXiv:2508.10751, eq. 9 to 15); 0 where s is. Rows
    set aside get what their kind does."""
    right, counted = batch.rewards >= 1, batch.counted()
    found = torch.zeros(len(batch), dtype=torch.float64)
    for group in batch.groups.unique():
        here = batch.groups == group
        n, wrong = int((here & counted).sum()), int((here & counted & ~right).sum())
        k = min(spec.k, n)
        rate = 1 - math.comb(wrong, k) / math.comb(n, k)
        deviation = math.sqrt(rate * (1 - rate))
        if deviation:
            found[here & right] = (1 - rate) / deviation
            found[here & ~right] = (1 - rate - math.comb(wrong - 1, k - 1) / math.comb(n - 1, k - 1)) / deviation
    return over_tokens(found, batch)


def a_grae(spec: GraeAdvantage, batch: Batch, now: Now) -> Tensor:
    """(w / 2) A / sqrt(p) + ((1 - w) / 2) A / sqrt(1 - p), A the group's advantage, p its mean reward and w the batch's, both cut
    to [0, 1]; then min(1, w^alpha) times what is positive (A-GRAE, arXiv:2602.05548). 0 where p is 0 or 1."""
    counted = batch.counted()
    rate = means(batch.rewards, batch.groups, counted).clamp(0, 1)
    w = float(batch.rewards[counted].mean().clamp(0, 1)) if counted.any() else 0.0
    plain = compared(GroupAdvantage(), batch.rewards, batch.groups, counted)
    inside = (rate > 0) & (rate < 1)
    p = torch.where(inside, rate, 0.5)
    found = torch.where(inside, plain / 2 * (w / p.sqrt() + (1 - w) / (1 - p).sqrt()), 0.0)
    return over_tokens(torch.where(found > 0, found * min(1.0, w**spec.alpha), found), batch)


def tracked(spec: TrackedAdvantage, batch: Batch, now: Now) -> Tensor:
    """r - v, centred and scaled over the batch (arXiv:2509.13232, section 3.2), v the sampler's estimate before this step. Raises
    ValueError where the sampler makes none."""
    if batch.expected is None:
        raise ValueError("the advantage `tracked` needs a sampler that expects a pass rate of each prompt")
    values, counted = batch.rewards - batch.expected, batch.counted()
    if not counted.any():
        return over_tokens(torch.zeros_like(values), batch)
    deviation = spread(values[counted])
    centred = (values - values[counted].mean()) / (deviation + EPSILON)
    return over_tokens(centred if deviation > 0 else torch.zeros_like(values), batch)
