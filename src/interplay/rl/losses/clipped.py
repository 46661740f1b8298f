"""The clipped surrogate and the loss types that TRL has for it."""

import torch
from torch import Tensor

from interplay.rl.losses.terms import Seen, log_ratios
from interplay.schema.loss import ClippedLoss


def clipped(spec: ClippedLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate (PPO, arXiv:1707.06347, eq. 7; DAPO, arXiv:2503.14476, eq. 8; CISPO, arXiv:2506.13585, eq. 4).
    `clip_fraction` counts the tokens whose gradient the clip removes."""
    ratio, advantage = log_ratios(spec, seen).exp(), seen.advantage
    high = spec.epsilon if spec.epsilon_high is None else spec.epsilon_high
    if spec.loss_type == "cispo":
        per_token = -ratio.clamp(max=high).detach() * advantage * seen.logp
        outside = (ratio > high) & (advantage > 0)
    else:
        capped = ratio if spec.delta is None else ratio.clamp(max=spec.delta)
        per_token = -torch.minimum(capped * advantage, ratio.clamp(1 - spec.epsilon, 1 + high) * advantage)
        outside = ((ratio < 1 - spec.epsilon) & (advantage < 0)) | ((ratio > 1 + high) & (advantage > 0))
    return per_token, {"clip_fraction": (outside * seen.mask).sum()}
