"""Groups that tell nothing are dropped, and fresh ones drawn (DAPO, arXiv:2503.14476)."""

from collections.abc import Callable

import torch
from torch import Tensor

from interplay.rl.batch import Batch, join, take
from interplay.schema.edit import DynamicSampling

Draw = Callable[[int], Batch]


def informative(rewards: Tensor, groups: Tensor) -> Tensor:
    """(N,) bool: rows whose group holds at least two different rewards."""
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    low = torch.full((len(size),), torch.inf, dtype=rewards.dtype).scatter_reduce_(0, member, rewards, "amin")
    high = torch.full((len(size),), -torch.inf, dtype=rewards.dtype).scatter_reduce_(0, member, rewards, "amax")
    return (low < high)[member]


def dynamic_sampling(spec: DynamicSampling, batch: Batch, draw: Draw, pad_token: int) -> Batch:
    """Keep informative groups only and draw as many fresh prompts as groups were lost, until the batch is full again or
    `max_num_gen_batches` rounds (the first one included) are spent (DAPO, arXiv:2503.14476, section 3.2)."""
    wanted = len(batch.groups.unique())
    kept = take(batch, informative(batch.rewards, batch.groups).nonzero()[:, 0])
    for _ in range(spec.max_num_gen_batches - 1):
        missing = wanted - len(kept.groups.unique())
        if missing == 0:
            break
        fresh = draw(missing)
        kept = join([kept, take(fresh, informative(fresh.rewards, fresh.groups).nonzero()[:, 0])], pad_token)
    return kept
