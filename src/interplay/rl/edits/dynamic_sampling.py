"""Groups that tell nothing are dropped, and fresh ones drawn (DAPO, arXiv:2503.14476)."""

import torch
from torch import Tensor

from interplay.rl.advantages.table import advantages
from interplay.rl.batch import Batch, join, take
from interplay.rl.now import Now
from interplay.schema.edit import DynamicSampling


def informative(batch: Batch, now: Now) -> Tensor:
    """(N,) bool: rows of groups from which the policy would learn, since some token has an advantage. Completions with equal
    rewards have none, unless the advantage is of spans: these may differ where their means agree."""
    found = advantages(now.method.advantage, batch, now)
    return torch.isin(batch.groups, batch.groups[(found != 0).any(1)])


def dynamic_sampling(spec: DynamicSampling, batch: Batch, now: Now) -> Batch:
    """Keep informative groups only and draw as many fresh prompts as groups were lost, until the batch is full again or
    `max_num_gen_batches` rounds (the first one included) are spent (DAPO, arXiv:2503.14476, section 3.2)."""
    wanted = len(batch.groups.unique())
    kept = take(batch, informative(batch, now).nonzero()[:, 0])
    for _ in range(spec.max_num_gen_batches - 1):
        missing = wanted - len(kept.groups.unique())
        if missing == 0:
            break
        fresh = now.draw(missing)
        kept = join([kept, take(fresh, informative(fresh, now).nonzero()[:, 0])], now.pad)
    return kept
