"""Groups that tell nothing are dropped, and fresh ones drawn (DAPO, arXiv:2503.14476)."""

from collections.abc import Callable

import torch
from torch import Tensor

from interplay.rl.advantage import advantages
from interplay.rl.batch import Batch, join, take
from interplay.schema.advantage import Advantage
from interplay.schema.edit import DynamicSampling

Draw = Callable[[int], Batch]


def informative(advantage: Advantage, batch: Batch) -> Tensor:
    """(N,) bool: rows of groups from which the policy would learn, since some token has an advantage. Completions with equal
    rewards have none, unless the advantage is of spans: these may differ where their means agree."""
    found = advantages(advantage, batch.rewards, batch.groups, batch.mask(), batch.spans)
    return torch.isin(batch.groups, batch.groups[(found != 0).any(1)])


def dynamic_sampling(spec: DynamicSampling, batch: Batch, draw: Draw, pad_token: int, advantage: Advantage) -> Batch:
    """Keep informative groups only and draw as many fresh prompts as groups were lost, until the batch is full again or
    `max_num_gen_batches` rounds (the first one included) are spent (DAPO, arXiv:2503.14476, section 3.2)."""
    wanted = len(batch.groups.unique())
    kept = take(batch, informative(advantage, batch).nonzero()[:, 0])
    for _ in range(spec.max_num_gen_batches - 1):
        missing = wanted - len(kept.groups.unique())
        if missing == 0:
            break
        fresh = draw(missing)
        kept = join([kept, take(fresh, informative(advantage, fresh).nonzero()[:, 0])], pad_token)
    return kept
