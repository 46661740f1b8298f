"""The table of shapings, by the `name` of their spec: `(spec, batch, now) -> (N,) float64`, what is added to the rewards. All
read the rewards as they were; a member may write to `now.memory`."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.rl.shaping.content import entropy_rank, gcpo, repetition
from interplay.rl.shaping.length import hapo_length, kimi_length, overlong, units

MEMBERS: dict[str, Callable[..., Tensor]] = {
    "overlong": overlong,
    "repetition": repetition,
    "hapo_length": hapo_length,
    "kimi_length": kimi_length,
    "gcpo": gcpo,
    "units": units,
    "entropy_rank": entropy_rank,
}


def shaped(batch: Batch, now: Now) -> Batch:
    """The batch with the terms of the method's shapings added to its rewards, and each kept among their parts."""
    if not now.method.shaping:
        return batch
    terms: dict[str, Tensor] = {spec.name: MEMBERS[spec.name](spec, batch, now) for spec in now.method.shaping}
    return replace(batch, rewards=batch.rewards + torch.stack(list(terms.values())).sum(0), parts={**batch.parts, **terms})
