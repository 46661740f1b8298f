"""Distillation of what the policy says once it has read feedback (DistIL, arXiv:2606.05152)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from interplay.rl.losses.terms import Seen, bounds, clip, log_ratios
from interplay.schema.loss import DistilLoss


def forward_cross_entropy(teacher: Tensor, policy: Tensor) -> Tensor:
    """(M,) H(teacher, policy) of log-probabilities (M,V): KL(teacher || policy) and the teacher's own entropy."""
    return -(teacher.exp() * policy).sum(-1)


def reverse_kl(teacher: Tensor, policy: Tensor) -> Tensor:
    """(M,) KL(policy || teacher)."""
    return (policy.exp() * (policy - teacher)).sum(-1)


def jensen_shannon(teacher: Tensor, policy: Tensor) -> Tensor:
    """(M,) the mean of the KL divergences of both from their mean; at most ln 2."""
    mean = torch.logaddexp(teacher, policy) - math.log(2)
    return 0.5 * (teacher.exp() * (teacher - mean) + policy.exp() * (policy - mean)).sum(-1)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "fwd_ce": forward_cross_entropy,
    "rev_kl": reverse_kl,
    "js": jensen_shannon,
}


def distil(spec: DistilLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """The divergence of each token, and `mix_rlvr` times the clipped surrogate. Raises ValueError without a teacher."""
    if seen.divergence is None:
        raise ValueError("the loss `distil` needs a teacher")
    sums = {"divergence": (seen.divergence.detach() * seen.mask).sum()}
    if not spec.mix_rlvr:
        return seen.divergence, {**sums, "clip_fraction": torch.zeros(())}
    paid, outside = clip(log_ratios(spec, seen).exp(), seen.advantage, *bounds(spec.epsilon, spec.epsilon_high))
    return seen.divergence + spec.mix_rlvr * paid, {**sums, "clip_fraction": (outside * seen.mask).sum()}
