"""PolicyLoss seam: per-token weights, then a weighted sum over tokens.

Each of TRL's loss types is one choice of weights, fixed for a whole optimiser step before it is cut into micro-batches. So the
gradient does not depend on how the step is cut, but for rounding."""

from collections.abc import Callable

import torch
from torch import Tensor

from interplay.schema.rl import ClippedLoss


def token_weights(spec: ClippedLoss, mask: Tensor, batch_tokens: int, minibatches: int, max_completion_length: int) -> Tensor:
    """Weight (N,T) float32 of each token's loss within one optimiser step.

    `mask` (N,T) bool marks the step's tokens that bear loss; `batch_tokens` counts those of the whole batch of rollouts, which is
    shared by `minibatches` steps. As in TRL a row whose mask is empty still counts as a row."""
    active = mask.float()
    if spec.loss_type == "grpo":
        return active / (active.sum(1, keepdim=True).clamp(min=1) * len(mask))
    if spec.loss_type == "bnpo":
        return active / active.sum().clamp(min=1)
    if spec.loss_type == "dr_grpo":
        return active / (len(mask) * max_completion_length)
    return active / (max(batch_tokens, 1) / minibatches)


def log_ratios(spec: ClippedLoss, logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """log(pi / pi_old): (N,T) per token, or (N,1) its mean over the sequence (GSPO, arXiv:2507.18071, eq. 7)."""
    difference = (logp - old_logp) * mask
    if spec.importance_sampling_level == "token":
        return difference
    return difference.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def k3(log_ratio: Tensor) -> Tensor:
    """Per-token estimate of KL(p || q) from samples of p, given log(q / p): never negative and unbiased (Schulman 2020)."""
    return torch.expm1(log_ratio) - log_ratio


def clipped(
    spec: ClippedLoss,
    logp: Tensor,
    old_logp: Tensor,
    reference_logp: Tensor | None,
    advantage: Tensor,
    mask: Tensor,
    weights: Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate (PPO, arXiv:1707.06347, eq. 7; DAPO, arXiv:2503.14476, eq. 8; CISPO, arXiv:2506.13585, eq. 4), with
    `beta` times the k3 estimate of the KL divergence from the reference.

    All of (N,T). Returns the scalar loss, summed with `weights`, and sums over the masked tokens of: `clip_fraction` (tokens
    whose gradient the clip removes) and, when there is a reference, `kl`."""
    log_ratio = log_ratios(spec, logp, old_logp, mask)
    ratio = log_ratio.exp()
    high = spec.epsilon if spec.epsilon_high is None else spec.epsilon_high
    if spec.loss_type == "cispo":
        per_token = -ratio.clamp(max=high).detach() * advantage * logp
        outside = (ratio > high) & (advantage > 0)
    else:
        capped = ratio if spec.delta is None else ratio.clamp(max=spec.delta)
        per_token = -torch.minimum(capped * advantage, ratio.clamp(1 - spec.epsilon, 1 + high) * advantage)
        outside = ((ratio < 1 - spec.epsilon) & (advantage < 0)) | ((ratio > 1 + high) & (advantage > 0))
    sums = {"clip_fraction": (outside * mask).sum()}
    if reference_logp is not None:
        kl = k3(reference_logp - logp)
        per_token = per_token + spec.beta * kl
        sums["kl"] = (kl.detach() * mask).sum()
    return (per_token * weights).sum(), sums


MEMBERS: dict[str, Callable[..., tuple[Tensor, dict[str, Tensor]]]] = {"clipped": clipped}


def policy_loss(
    spec: ClippedLoss,
    logp: Tensor,
    old_logp: Tensor,
    reference_logp: Tensor | None,
    advantage: Tensor,
    mask: Tensor,
    weights: Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, logp, old_logp, reference_logp, advantage, mask, weights)
