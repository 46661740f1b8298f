"""Decoding seam: the distribution that rollouts are drawn from (adaptive temperature, lagged nucleus)."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch

from interplay.core import extension
from interplay.model.decoder import Decoder
from interplay.model.heads import Lagged
from interplay.rl.batch import Batch
from interplay.rl.spec import AdaptiveTemperature, Decoding, LaggedNucleus
from interplay.rl.step_context import Memory, StepContext
from interplay.rollout.request import Heat, Sampling, Scale, scale_of

# A copy of the policy that lags behind it, in whose nucleus it acts (NLPO, arXiv:2210.01241).


def lagged_nucleus(spec: LaggedNucleus, policy: Decoder) -> Lagged:
    """The policy with a copy of it as it stands."""
    return Lagged(policy, copy.deepcopy(policy).requires_grad_(False), spec.top_p)


def lagged_nucleus_followed(spec: LaggedNucleus, lagged: Lagged, step: int) -> None:
    """Every `sync_every` steps the copy becomes what the policy is after the step."""
    if step % spec.sync_every == 0:
        with torch.no_grad():
            for mine, other in zip(lagged.copy.parameters(), lagged.policy.parameters(), strict=True):
                mine.copy_(other)


# Temperatures that follow a token's entropy (HAPO, heterogeneous tokens).


SCALE = "adaptive_temperature"
"""Name in the memory: (3,) float64, what the entropies of the last batch were (`Scale`)."""


def adaptive_temperature(spec: AdaptiveTemperature, sampling: Sampling, memory: Memory) -> Sampling:
    """With a temperature for each token, as soon as there was a batch."""
    if SCALE not in memory.tensors:
        return sampling
    return sampling._replace(heat=Heat(spec.temperature_tau, Scale(*memory.tensors[SCALE].tolist())))


def adaptive_temperature_learnt(spec: AdaptiveTemperature, batch: Batch, now: StepContext) -> None:
    """What the entropies of the batch were is remembered; nothing of an empty one."""
    if scale := scale_of(now.entropy(batch)[batch.mask()], spec.entropy_pivot):
        now.memory.tensors[SCALE] = torch.tensor(scale, dtype=torch.float64)


# The table of decodings, by the `name` of their spec.


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
    "custom": Member(extension.call),
    "lagged_nucleus": Member(lag=lagged_nucleus, follow=lagged_nucleus_followed),
}


def decode_sampling(spec: Decoding | None, sampling: Sampling, memory: Memory) -> Sampling:
    """How tokens are drawn by the member that `spec` names."""
    member = MEMBERS[spec.name].sampling if spec else None
    return member(spec, sampling, memory) if member else sampling


def update_decoding(spec: Decoding | None, batch: Batch, now: StepContext) -> None:
    """Have the member that `spec` names remember what it must."""
    member = MEMBERS[spec.name].learn if spec else None
    if member:
        member(spec, batch, now)


def lagged_policy(spec: Decoding | None, policy: Decoder) -> Lagged | None:
    """The policy with the copy in whose nucleus it acts; None: it acts freely."""
    member = MEMBERS[spec.name].lag if spec else None
    return member(spec, policy) if member else None


def update_lagged(spec: Decoding | None, lagged: Lagged | None, step: int) -> None:
    """Have the copy follow the policy after a step."""
    member = MEMBERS[spec.name].follow if spec else None
    if member:
        member(spec, lagged, step)
