"""Losses that weigh a token or a sequence by a smooth function of its ratio, and one that clips in logarithms."""

import math

import torch
from torch import Tensor

from interplay.rl.losses.terms import Seen, bounds, log_ratios, sequence_mean
from interplay.schema.loss import GeoMeanLoss, GpgLoss, SapoLoss, VespoLoss


def sapo(spec: SapoLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """-(4 / tau) sigmoid(tau (ratio - 1)) A, with a tau for each sign of A; an advantage of 0 takes the negative one (SAPO,
    arXiv:2511.20347). At ratio 1 its gradient is that of ratio * A."""
    ratio = log_ratios(spec, seen).exp()
    tau = torch.where(seen.advantage > 0, spec.sapo_temperature_pos, spec.sapo_temperature_neg)
    return -torch.sigmoid(tau * (ratio - 1)) * (4 / tau) * seen.advantage, {}


def vespo(spec: VespoLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """-phi(w) A log pi, phi(w) = e^lambda w^k e^(-lambda w) without a gradient, w the product of the sequence's ratios (VESPO,
    arXiv:2602.10693). Logarithms are held to [-20, 20] a token and [log 1e-8, 20] a sequence, as in its release. `phi` sums the
    weights."""
    with torch.no_grad():
        log_w = ((seen.logp - seen.old_logp).clamp(-20, 20) * seen.mask).sum(1, keepdim=True).clamp(math.log(1e-8), 20)
        risen = seen.advantage >= 0
        k = torch.where(risen, spec.vespo_k_pos, spec.vespo_k_neg)
        decay = torch.where(risen, spec.vespo_lambda_pos, spec.vespo_lambda_neg)
        phi = (decay + k * log_w - decay * log_w.exp()).exp()
    return -phi * seen.advantage * seen.logp, {"phi": (phi * seen.mask).sum()}


def gpg(spec: GpgLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """-A log pi (GPG, arXiv:2504.02546)."""
    return -seen.advantage * seen.logp, {}


def geo_mean(spec: GeoMeanLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """-A exp(mean_t min over sign of A of (log ratio_t, its clip)) for each row, A the mean of its tokens' (GMPO,
    arXiv:2507.20673): a token's log ratio is cut only on the side to which its advantage pulls."""
    low, high = bounds(spec.epsilon, spec.epsilon_high)
    difference = (seen.logp - seen.old_logp) * seen.mask
    sign = seen.advantage.sign()
    cut = sign * torch.minimum(sign * difference, sign * difference.clamp(-low, high))
    ratio, advantage = sequence_mean(cut, seen.mask).exp(), sequence_mean(seen.advantage, seen.mask)
    return (-ratio * advantage).expand_as(seen.advantage), {"clip_fraction": ((cut != difference) & seen.mask).sum()}
