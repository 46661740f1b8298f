"""What policy losses are made of: what a member sees, how tokens are weighed, ratios, and estimates of divergences."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interplay.rl.losses.spec import RatioLoss


class MicroBatch(NamedTuple):
    """What a loss sees of a micro-batch: n rows, T places. All but `mask` are 0 or anything where that is False."""

    logp: Tensor
    """(n,T) float32 under the policy that is trained, with its gradient."""
    old_logp: Tensor
    """(n,T) under the policy before the first update of this batch; for rows of another policy or text, under that."""
    advantage: Tensor
    """(n,T)."""
    mask: Tensor
    """(n,T) bool: tokens that bear loss."""
    reference: Tensor | None = None
    """(n,T) under the reference model, where there is one."""
    prepared: Mapping[str, Tensor] = MappingProxyType({})
    """What the loss read off the whole optimiser step, (n,T) each."""
    divergence: Tensor | None = None
    """(n,T) of the policy from its teacher, with its gradient, 0 where that says nothing; there where the loss has a teacher."""
    sampled: Tensor | None = None
    """(n,T) as the engine told it where it sampled the row in this step, elsewhere `old_logp`; None: `old_logp` everywhere."""


class FullBatch(NamedTuple):
    """All that one optimiser step trains on, before it is cut: what a loss reads whose weight of a token hangs on other tokens or
    rows. N rows, T places, without gradients."""

    logp: Tensor
    """(N,T) under the policy as it stands."""
    old_logp: Tensor
    """(N,T), as in `Seen`."""
    entropy: Tensor
    """(N,T) in nats of the distribution that each token came from."""
    advantage: Tensor
    """(N,T)."""
    mask: Tensor
    """(N,T) bool."""
    groups: Tensor
    """(N,) int64."""
    rewards: Tensor
    """(N,) float64."""
    noise: Tensor
    """(N,T) float64 in [0, 1), by seed and step: what is drawn at random is drawn by this."""


def token_weights(loss_type: str, mask: Tensor, batch_tokens: int, minibatches: int, max_completion_length: int) -> Tensor:
    """Weight (N,T) float32 of each token's loss within one optimiser step: TRL's loss types, as choices of a weight.

    Weights are fixed for a whole optimiser step before it is cut into micro-batches, so the gradient does not depend on how it
    is cut, but for rounding. `mask` (N,T) bool marks the step's tokens that bear loss; `batch_tokens` counts those of the whole
    batch of rollouts, which is shared by `minibatches` steps. As in TRL a row whose mask is empty still counts as a row."""
    active = mask.float()
    if loss_type == "grpo":
        return active / (active.sum(1, keepdim=True).clamp(min=1) * len(mask))
    if loss_type == "bnpo":
        return active / active.sum().clamp(min=1)
    if loss_type == "luspo":
        return active / len(mask)
    if loss_type == "dr_grpo":
        return active / (len(mask) * max_completion_length)
    return active / (max(batch_tokens, 1) / minibatches)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """(n,1) mean of (n,T) values over each row's tokens; 0 for a row without any."""
    return (values * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def log_ratios(loss: RatioLoss, seen: MicroBatch) -> Tensor:
    """log(pi / pi_old), 0 outside the mask: (n,T) per token, or (n,1) its mean over the sequence where the loss asks for the
    level `sequence` (GSPO, arXiv:2507.18071, eq. 7)."""
    difference = (seen.logp - seen.old_logp) * seen.mask
    if loss.importance_sampling_level == "token":
        return difference
    return sequence_mean(difference, seen.mask)


def first(score: Tensor, among: Tensor, count: int) -> Tensor:
    """(N,T) bool: the `count` places of `among` (N,T) bool with the largest scores (N,T); all where there are no more, earlier
    ones among equals."""
    places = among.flatten().nonzero()[:, 0]
    best = torch.argsort(score.flatten()[places], descending=True, stable=True)[:count]
    return torch.zeros(among.numel(), dtype=torch.bool).index_fill_(0, places[best], True).view(among.shape)


def bounds(epsilon: float, epsilon_high: float | None) -> tuple[float, float]:
    """Lower and upper clip; one number stands for both."""
    return epsilon, epsilon if epsilon_high is None else epsilon_high


def clip(ratio: Tensor, advantage: Tensor, low: Any, high: Any, delta: float | None = None) -> tuple[Tensor, Tensor]:
    """-min(ratio A, clip(ratio, 1 - low, 1 + high) A) of each token (PPO, arXiv:1707.06347, eq. 7), its first ratio capped at
    `delta`, which matters where A is negative; and which tokens the clip leaves without a gradient, bool. Both bounds are
    numbers, or both tensors (n,T)."""
    capped = ratio if delta is None else ratio.clamp(max=delta)
    outside = ((ratio < 1 - low) & (advantage < 0)) | ((ratio > 1 + high) & (advantage > 0))
    return -torch.minimum(capped * advantage, torch.clamp(ratio, 1 - low, 1 + high) * advantage), outside


def truncated_weight(cap: float, seen: MicroBatch) -> Tensor:
    """(n,T) min(pi_old / pi_engine, cap) of each token, without a gradient: truncated importance sampling, which makes up for an
    engine whose probabilities are not those of training (https://fengyao.notion.site/off-policy-rl). 1 where both agree."""
    if seen.sampled is None:
        return torch.ones_like(seen.old_logp)
    return (seen.old_logp.detach() - seen.sampled).mul(seen.mask).exp().clamp(max=cap)


def k3(log_ratio: Tensor) -> Tensor:
    """Per-token estimate of KL(p || q) from samples of p, given log(q / p): never negative and unbiased (Schulman 2020)."""
    return torch.expm1(log_ratio) - log_ratio
