"""Advantages from a critic's values."""

import torch
from torch import Tensor

from interplay.rl.advantages.baselines import whitened_over
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import GaeAdvantage


def by_critic(spec: GaeAdvantage, batch: Batch, now: Now) -> Tensor:
    """Generalised advantage estimates (arXiv:1506.02438, eq. 16), centred and scaled over the batch's tokens where `whiten` says
    so. Raises ValueError without values."""
    if batch.values is None:
        raise ValueError("the advantage `gae` needs a critic's values")
    found = gae(batch.values.double(), batch, spec.gamma, spec.lam)
    return (whitened_over(found, batch.mask()) if spec.whiten else found).float()


def gae(values: Tensor, batch: Batch, gamma: float, lam: float) -> Tensor:
    """(N,T) float64: sum_l (gamma lam)^l delta_{t+l}, delta_t = r_t + gamma V_{t+1} - V_t; the reward comes with a row's last
    token, behind which V is 0. A row that goes on in a later step has no reward yet, and V behind its last token is that before
    it (T-PPO, arXiv:2506.15050). Places outside the mask are passed over, as if their neighbours stood side by side."""
    mask, going_on = batch.mask(), ~batch.finished()
    last = (mask * torch.arange(1, mask.shape[1] + 1)).argmax(1)
    later = torch.where(going_on, values[torch.arange(len(values)), last], 0.0)
    found, running = torch.zeros_like(values), torch.zeros(len(values), dtype=values.dtype)
    for t in reversed(range(values.shape[1])):
        reward = torch.where((last == t) & ~going_on, batch.rewards, 0.0)
        delta = reward + gamma * later - values[:, t]
        running = torch.where(mask[:, t], delta + gamma * lam * running, running)
        later = torch.where(mask[:, t], values[:, t], later)
        found[:, t] = torch.where(mask[:, t], running, 0.0)
    return found
