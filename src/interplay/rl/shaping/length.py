"""Terms that pay for or charge length."""

import math

import torch
from torch import Tensor

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.shaping import (
    HistoryLengthShaping,
    KimiLengthShaping,
    OverlongShaping,
    TurnsShaping,
)

SHORTEST = "hapo_length.shortest"
"""Name in the memory: tokens of each prompt's shortest right completion so far; infinite before there is one."""


def right(batch: Batch) -> Tensor:
    """(N,) bool: completions with a reward above 0."""
    return batch.rewards > 0


def overlong(spec: OverlongShaping, batch: Batch, now: Now) -> Tensor:
    """0 up to limit - cache tokens, then falling in a line to -weight at the limit (DAPO, arXiv:2503.14476, eq. 13)."""
    over = (batch.lengths - (now.max_completion_length - spec.cache)).clamp(0, spec.cache)
    return -spec.weight * over.double() / spec.cache


def hapo_length(spec: HistoryLengthShaping, batch: Batch, now: Now) -> Tensor:
    """With h the shortest right completion of the prompt in earlier steps and c = cos(min(l / h, 2) pi / 2): max(c, -0.7) for
    right completions, min(c, 0) for wrong ones, 0 while h is unknown; times w (arXiv:2505.11225). Updates h."""
    shortest = now.memory.per_prompt(SHORTEST, math.inf)
    h, length, good = shortest[batch.ids], batch.written().double(), right(batch)
    c = torch.cos((length / h).clamp(max=2) * math.pi / 2)
    term = torch.where(good, c.clamp(min=-0.7), c.clamp(max=0))
    shortest.scatter_reduce_(0, batch.ids[good], length[good], "amin")
    return spec.weight * torch.where(h.isinf(), 0.0, term)


def kimi_length(spec: KimiLengthShaping, batch: Batch, now: Now) -> Tensor:
    """lambda = 0.5 - (l - min) / (max - min) over the group for right completions, min(0, lambda) for wrong ones, 0 where all
    are of one length (arXiv:2501.12599, section 2.3.3)."""
    if now.progress < spec.warmup:
        return torch.zeros(len(batch), dtype=torch.float64)
    _, member = torch.unique(batch.groups, return_inverse=True)
    length, groups = batch.written().double(), int(member.max()) + 1 if len(batch) else 0
    least = torch.full((groups,), math.inf, dtype=torch.float64).scatter_reduce_(0, member, length, "amin")[member]
    most = torch.zeros(groups, dtype=torch.float64).scatter_reduce_(0, member, length, "amax")[member]
    term = 0.5 - (length - least) / (most - least).clamp(min=1)
    term = torch.where(right(batch), term, term.clamp(max=0))
    return spec.weight * torch.where(most == least, 0.0, term)


def units(spec: TurnsShaping, batch: Batch, now: Now) -> Tensor:
    """-weight for each unit beyond the first of a right completion."""
    further = torch.tensor([max(text.count(spec.marker) - 1, 0) for text in batch.completions], dtype=torch.float64)
    return -spec.weight * torch.where(right(batch), further, 0.0)
