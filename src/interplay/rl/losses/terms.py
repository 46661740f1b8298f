"""What policy losses are made of: what a member sees, how tokens are weighed, ratios, and estimates of divergences."""

from typing import NamedTuple

import torch
from torch import Tensor

from interplay.schema.loss import RatioLoss


class Seen(NamedTuple):
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
    if loss_type == "dr_grpo":
        return active / (len(mask) * max_completion_length)
    return active / (max(batch_tokens, 1) / minibatches)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """(n,1) mean of (n,T) values over each row's tokens; 0 for a row without any."""
    return (values * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def log_ratios(loss: RatioLoss, seen: Seen) -> Tensor:
    """log(pi / pi_old), 0 outside the mask: (n,T) per token, or (n,1) its mean over the sequence where the loss asks for the
    level `sequence` (GSPO, arXiv:2507.18071, eq. 7)."""
    difference = (seen.logp - seen.old_logp) * seen.mask
    if loss.importance_sampling_level == "token":
        return difference
    return sequence_mean(difference, seen.mask)


def k3(log_ratio: Tensor) -> Tensor:
    """Per-token estimate of KL(p || q) from samples of p, given log(q / p): never negative and unbiased (Schulman 2020)."""
    return torch.expm1(log_ratio) - log_ratio
