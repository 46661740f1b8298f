"""Temperatures that follow a token's entropy (HAPO, heterogeneous tokens)."""

import torch

from interplay.rl.batch import Batch
from interplay.rl.now import Memory, Now
from interplay.rollout.request import Sampling
from interplay.rollout.uncertainty import Heat, Scale, scale_of
from interplay.schema.decoding import AdaptiveTemperature

SCALE = "adaptive_temperature"
"""Name in the memory: (3,) float64, what the entropies of the last batch were (`Scale`)."""


def adaptive_temperature(spec: AdaptiveTemperature, sampling: Sampling, memory: Memory) -> Sampling:
    """With a temperature for each token, as soon as there was a batch."""
    if SCALE not in memory.tensors:
        return sampling
    return sampling._replace(heat=Heat(spec.temperature_tau, Scale(*memory.tensors[SCALE].tolist())))


def adaptive_temperature_learnt(spec: AdaptiveTemperature, batch: Batch, now: Now) -> None:
    """What the entropies of the batch were is remembered; nothing of an empty one."""
    if scale := scale_of(now.entropy(batch)[batch.mask()], spec.entropy_pivot):
        now.memory.tensors[SCALE] = torch.tensor(scale, dtype=torch.float64)
