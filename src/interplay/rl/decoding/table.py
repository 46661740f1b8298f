"""The table of decodings, by the `name` of their spec."""

from collections.abc import Callable
from typing import NamedTuple

from interplay.rl.batch import Batch
from interplay.rl.decoding.temperature import adaptive_temperature, adaptive_temperature_learnt
from interplay.rl.now import Memory, Now
from interplay.rollout.request import Sampling
from interplay.schema.decoding import Decoding


class Member(NamedTuple):
    """A decoding."""

    sampling: Callable[..., Sampling]
    """`(spec, sampling, memory)`: how tokens are drawn, given how they would be without it."""
    learn: Callable[..., None]
    """`(spec, batch, now)`: what is remembered of the batch that a step learns from, before it does."""


MEMBERS: dict[str, Member] = {"adaptive_temperature": Member(adaptive_temperature, adaptive_temperature_learnt)}


def decoded(spec: Decoding | None, sampling: Sampling, memory: Memory) -> Sampling:
    """How tokens are drawn by the member that `spec` names."""
    return MEMBERS[spec.name].sampling(spec, sampling, memory) if spec else sampling


def learnt(spec: Decoding | None, batch: Batch, now: Now) -> None:
    """Have the member that `spec` names remember what it must."""
    if spec:
        MEMBERS[spec.name].learn(spec, batch, now)
