"""The likeliest tokens of a distribution, and a policy that acts within those of a copy of it that lags behind (NLPO,
arXiv:2210.01241)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from interplay.model.decoder import Decoder


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """(N, vocab) bool: the smallest set of the likeliest tokens whose probabilities sum to at least `top_p`; all of them at 1."""
    if top_p >= 1.0:
        return torch.ones_like(logits, dtype=torch.bool)
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = ordered.softmax(-1).cumsum(-1, dtype=torch.float64).roll(1, -1)
    before[:, 0] = 0.0
    return torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, order, before < top_p)


class Lagged(NamedTuple):
    """A policy, and the copy whose nucleus it acts in."""

    policy: Decoder
    copy: Decoder
    top_p: float

    def logits(self, policy: Tensor, copy: Tensor) -> Tensor:
        """Logits (N, vocab) that tokens are drawn from: the policy's, and minus infinity outside the nucleus of the copy's at
        temperature 1."""
        return policy.masked_fill(~nucleus(copy, self.top_p), -math.inf)
