"""The clipped surrogate and the loss types that TRL has for it."""

from torch import Tensor

from interplay.rl.losses.terms import Seen, bounds, clip, log_ratios
from interplay.schema.loss import ClippedLoss


def clipped(spec: ClippedLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate (PPO, arXiv:1707.06347, eq. 7; DAPO, arXiv:2503.14476, eq. 8; CISPO, arXiv:2506.13585, eq. 4).
    `clip_fraction` counts the tokens whose gradient the clip removes."""
    ratio, advantage = log_ratios(spec, seen).exp(), seen.advantage
    low, high = bounds(spec.epsilon, spec.epsilon_high)
    if spec.loss_type == "cispo":
        per_token = -ratio.clamp(max=high).detach() * advantage * seen.logp
        outside = (ratio > high) & (advantage > 0)
    else:
        per_token, outside = clip(ratio, advantage, low, high, spec.delta)
    return per_token, {"clip_fraction": (outside * seen.mask).sum()}
