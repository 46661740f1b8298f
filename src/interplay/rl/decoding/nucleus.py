"""A copy of the policy that lags behind it, in whose nucleus it acts (NLPO, arXiv:2210.01241)."""

import copy

import torch

from interplay.model.decoder import Decoder
from interplay.model.nucleus import Lagged
from interplay.schema.decoding import LaggedNucleus


def lagged_nucleus(spec: LaggedNucleus, policy: Decoder) -> Lagged:
    """The policy with a copy of it as it stands."""
    return Lagged(policy, copy.deepcopy(policy).requires_grad_(False), spec.top_p)


def lagged_nucleus_followed(spec: LaggedNucleus, lagged: Lagged, step: int) -> None:
    """Every `sync_every` steps the copy becomes what the policy is after the step."""
    if step % spec.sync_every == 0:
        with torch.no_grad():
            for mine, other in zip(lagged.copy.parameters(), lagged.policy.parameters(), strict=True):
                mine.copy_(other)
