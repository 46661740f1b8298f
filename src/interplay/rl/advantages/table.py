"""The table of advantages, by the `name` of their spec: `(spec, batch, now) -> (N,T) float32`, zero where the batch's mask is.
A member reads `now.memory` and writes it in LEARNT alone: dynamic sampling asks for advantages of batches that are thrown
away."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from interplay.rl.advantages.baselines import a_grae, leave_one_out, length_baseline, pass_k, tracked, whitened
from interplay.rl.advantages.gae import by_critic
from interplay.rl.advantages.group import group
from interplay.rl.advantages.role import role, role_learnt
from interplay.rl.advantages.segments import by_segments, numbered
from interplay.rl.advantages.shaped import copo, gtpo_entropy, xrpo
from interplay.rl.advantages.spans import by_spans
from interplay.rl.advantages.turns import igpo, turn_returns
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import Advantage

MEMBERS: dict[str, Callable[..., Tensor]] = {
    "group": group,
    "spans": by_spans,
    "turn_returns": turn_returns,
    "role": role,
    "igpo": igpo,
    "leave_one_out": leave_one_out,
    "whitened": whitened,
    "length_baseline": length_baseline,
    "pass_k": pass_k,
    "a_grae": a_grae,
    "copo": copo,
    "tracked": tracked,
    "xrpo": xrpo,
    "gtpo_entropy": gtpo_entropy,
    "gae": by_critic,
    "segments": by_segments,
}


STEPS: dict[str, Callable[..., Tensor]] = {"segments": numbered}
"""`(spec, batch, now) -> (N,T) int64`: the number of the step that each token belongs to, for members that judge steps."""
LEARNT: dict[str, Callable[..., None]] = {"role": role_learnt}
"""`(spec, batch, now)`: what a member remembers of the batch that a step learns from, once its advantages were taken."""


def cut(spec: Advantage, batch: Batch, now: Now) -> Batch:
    """The batch with the steps that the member judges, where it judges steps."""
    return replace(batch, steps=STEPS[spec.name](spec, batch, now)) if spec.name in STEPS else batch


def remember(spec: Advantage, batch: Batch, now: Now) -> None:
    """Have the member that `spec` names remember what it must."""
    if spec.name in LEARNT:
        LEARNT[spec.name](spec, batch, now)


def advantages(spec: Advantage, batch: Batch, now: Now) -> Tensor:
    """The member that `spec` names, applied to all rows of a step."""
    return MEMBERS[spec.name](spec, batch, now)
