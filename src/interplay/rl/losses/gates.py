"""Losses that weigh a token by a smooth function of its ratio, where the clipped ones cut."""

import torch
from torch import Tensor

from interplay.rl.losses.terms import Seen, log_ratios
from interplay.schema.loss import SapoLoss


def sapo(spec: SapoLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """-(4 / tau) sigmoid(tau (ratio - 1)) A, with a tau for each sign of A; an advantage of 0 takes the negative one (SAPO,
    arXiv:2511.20347). At ratio 1 its gradient is that of ratio * A."""
    ratio = log_ratios(spec, seen).exp()
    tau = torch.where(seen.advantage > 0, spec.sapo_temperature_pos, spec.sapo_temperature_neg)
    return -torch.sigmoid(tau * (ratio - 1)) * (4 / tau) * seen.advantage, {}
