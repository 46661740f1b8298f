"""The table of decodings, by the `name` of their spec."""

from collections.abc import Callable
from typing import NamedTuple

from interplay.model.decoder import Decoder
from interplay.model.nucleus import Lagged
from interplay.rl.batch import Batch
from interplay.rl.decoding.nucleus import lagged_nucleus, lagged_nucleus_followed
from interplay.rl.decoding.temperature import adaptive_temperature, adaptive_temperature_learnt
from interplay.rl.now import Memory, Now
from interplay.rollout.request import Sampling
from interplay.schema.decoding import Decoding


class Member(NamedTuple):
    """A decoding."""

    sampling: Callable[..., Sampling] | None = None
    """`(spec, sampling, memory)`: how tokens are drawn, given how they would be without it."""
    learn: Callable[..., None] | None = None
    """`(spec, batch, now)`: what is remembered of the batch that a step learns from, before it does."""
    lag: Callable[..., Lagged] | None = None
    """`(spec, policy)`: the copy in whose nucleus the policy acts, when a run begins."""
    follow: Callable[..., None] | None = None
    """`(spec, lagged, step)`: what becomes of the copy after a step."""


MEMBERS: dict[str, Member] = {
    "adaptive_temperature": Member(adaptive_temperature, adaptive_temperature_learnt),
    "lagged_nucleus": Member(lag=lagged_nucleus, follow=lagged_nucleus_followed),
}


def decoded(spec: Decoding | None, sampling: Sampling, memory: Memory) -> Sampling:
    """How tokens are drawn by the member that `spec` names."""
    member = MEMBERS[spec.name].sampling if spec else None
    return member(spec, sampling, memory) if member else sampling


def learnt(spec: Decoding | None, batch: Batch, now: Now) -> None:
    """Have the member that `spec` names remember what it must."""
    member = MEMBERS[spec.name].learn if spec else None
    if member:
        member(spec, batch, now)


def lagging(spec: Decoding | None, policy: Decoder) -> Lagged | None:
    """The policy with the copy in whose nucleus it acts; None: it acts freely."""
    member = MEMBERS[spec.name].lag if spec else None
    return member(spec, policy) if member else None


def followed(spec: Decoding | None, lagged: Lagged | None, step: int) -> None:
    """Have the copy follow the policy after a step."""
    member = MEMBERS[spec.name].follow if spec else None
    if member:
        member(spec, lagged, step)
