"""Steps are regressed on what they gain (Direct Advantage Policy Optimization, arXiv:2412.18279)."""

import torch
from torch import Tensor

from interplay.rl.losses.terms import Seen
from interplay.schema.loss import DirectAdvantageLoss

STEPS = "steps"
"""Name among what is prepared: (n,T) int64, the number of the step of its row that a token belongs to."""


def direct_advantage(spec: DirectAdvantageLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """(direct_beta (log pi - log pi_ref) - A)^2 of each step, log-probabilities summed over its tokens in the mask and A their
    mean advantage, shared out evenly among them. `step_error` sums over tokens what their step is off. Raises ValueError without
    a reference."""
    if seen.reference is None:
        raise ValueError("the loss `direct_advantage` needs a reference")
    steps = seen.prepared[STEPS]
    empty = torch.zeros(len(steps), int(steps.max()) + 1, dtype=seen.logp.dtype)

    def total(values: Tensor) -> Tensor:
        return empty.scatter_add(1, steps, values * seen.mask)

    tokens = total(torch.ones_like(seen.logp)).clamp(min=1)
    error = (spec.direct_beta * total(seen.logp - seen.reference) - total(seen.advantage) / tokens) ** 2
    off = error.detach().gather(1, steps) * seen.mask
    return (error / tokens).gather(1, steps) * seen.mask, {"step_error": off.sum()}
