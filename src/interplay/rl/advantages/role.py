"""Advantages over what a seat of a game usually earns (SPIRAL, arXiv:2506.24119)."""

import torch
from torch import Tensor

from interplay.rl.advantages.group import over_tokens
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import RoleAdvantage

BASELINES = "role.baselines"
"""Name in the memory: `<family>.<seat>` -> the baseline of that seat."""


def role(spec: RoleAdvantage, batch: Batch, now: Now) -> Tensor:
    """r - b, b the baseline of the row's game and seat as it was before this step. Raises ValueError where there are no seats."""
    known = now.memory.notes.get(BASELINES, {})
    baselines = torch.tensor([known.get(name, 0.0) for name in roles(batch, now)], dtype=torch.float64)
    return over_tokens(batch.rewards - baselines, batch)


def role_learnt(spec: RoleAdvantage, batch: Batch, now: Now) -> None:
    """b <- decay b + (1 - decay) r for each row, in order."""
    known = now.memory.notes.setdefault(BASELINES, {})
    for name, reward in zip(roles(batch, now), batch.rewards.tolist(), strict=True):
        known[name] = spec.decay * known.get(name, 0.0) + (1 - spec.decay) * reward


def roles(batch: Batch, now: Now) -> list[str]:
    """The game and seat of each row. Raises ValueError where there are no seats."""
    if batch.seats is None:
        raise ValueError("the advantage `role` needs the episode self_play")
    pairs = zip(batch.ids.tolist(), batch.seats.tolist(), strict=True)
    return [f"{now.rows[i].family}.{seat}" for i, seat in pairs]
