"""How uncertain a token is beside others, and a temperature that follows it (HAPO, heterogeneous tokens)."""

from typing import NamedTuple

import torch
from torch import Tensor

LEAST = 1e-8
"""Entropies below count as this before their logarithm is taken."""


class Scale(NamedTuple):
    """What log entropies are held against. (The release also divides by their deviation, which cancels.)"""

    pivot: float
    """A quantile of them."""
    highest: float
    """The largest one less the pivot."""
    lowest: float
    """The smallest one less the pivot."""


def scale_of(entropy: Tensor, quantile: float) -> Scale | None:
    """The scale of the entropies (M,) in nats of some tokens; None of none."""
    if not len(entropy):
        return None
    logs = entropy.clamp(min=LEAST).log()
    pivot = float(torch.quantile(logs.double(), quantile))
    return Scale(pivot, float((logs - pivot).max()), float((logs - pivot).min()))


def uncertainty(entropy: Tensor, scale: Scale) -> Tensor:
    """h of entropies of any shape: log entropy less the pivot, over the largest such value on its side of 0, so that it lies in
    [-1, 1] for the tokens that the scale was taken from."""
    z = entropy.clamp(min=LEAST).log() - scale.pivot
    return torch.where(z > 0, z / max(scale.highest, LEAST), z / max(-scale.lowest, LEAST))


class Heat(NamedTuple):
    """A temperature for each token."""

    tau: float
    """Largest change of the temperature, as a share of it."""
    scale: Scale


def heated(logprobs: Tensor, heat: Heat) -> Tensor:
    """Log-probabilities (N, vocab) at 1 + tau h times the temperature that they are at, h held to [-1, 1]."""
    entropy = -(logprobs.exp() * logprobs).sum(-1, keepdim=True)
    factor = 1 + heat.tau * uncertainty(entropy, heat.scale).clamp(-1, 1)
    return (logprobs / factor).log_softmax(-1)
