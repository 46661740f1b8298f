"""Clip bounds and advantages that follow a token's entropy (HAPO, heterogeneous tokens)."""

import torch
from torch import Tensor

from interplay.rl.losses.terms import Seen, Whole, clip, log_ratios
from interplay.rollout.uncertainty import scale_of, uncertainty
from interplay.schema.loss import HapoTokenLoss


def heterogeneity(spec: HapoTokenLoss, whole: Whole) -> dict[str, Tensor]:
    """`h` (N,T) in [-1, 1]: how uncertain each token is beside the others of the mask; 0 outside."""
    scale = scale_of(whole.entropy[whole.mask], spec.entropy_pivot)
    return {"h": torch.zeros_like(whole.entropy) if scale is None else uncertainty(whole.entropy, scale) * whole.mask}


def hapo_token(spec: HapoTokenLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate with the lower bound epsilon (1 - h) where h < 0 and the upper one epsilon_high (1 + h) where h > 0;
    and the advantage times (1 + h) where h > 0 and the ratio has left half of the base's bounds, or h <= 0 and it has not."""
    ratio, h = log_ratios(spec, seen).exp(), seen.prepared["h"]
    left = (ratio < 1 - spec.epsilon / 2) | (ratio > 1 + spec.epsilon_high / 2)
    advantage = seen.advantage * torch.where(left == (h > 0), 1 + h, torch.ones(()))
    low, high = spec.epsilon * (1 - h.clamp(max=0)), spec.epsilon_high * (1 + h.clamp(min=0))
    per_token, outside = clip(ratio, advantage, low, high)
    return per_token, {"clip_fraction": (outside * seen.mask).sum()}
