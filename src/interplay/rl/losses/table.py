"""The table of policy losses, by the `name` of their spec. Weights over tokens, the KL term and the entropy bonus are alike for
all of them."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from interplay.rl.losses.clipped import clipped
from interplay.rl.losses.gates import sapo
from interplay.rl.losses.terms import Seen, k3
from interplay.schema.loss import Loss


class Member(NamedTuple):
    """A loss."""

    loss: Callable[..., tuple[Tensor, dict[str, Tensor]]]
    """`(spec, Seen) -> (loss of each token (n,T), sums)`; the sums are scalars over the tokens of the mask, logged as means."""
    sums: tuple[str, ...] = ()
    """Names of the sums."""


MEMBERS: dict[str, Member] = {
    "clipped": Member(clipped, ("clip_fraction",)),
    "sapo": Member(sapo),
}


def token_losses(spec: Loss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each token (n,T) by the member that `spec` names, with `beta` times the k3 estimate of the KL divergence from
    the reference where there is one; and its sums, `kl` among them."""
    per_token, sums = MEMBERS[spec.name].loss(spec, seen)
    if seen.reference is None:
        return per_token, sums
    kl = k3(seen.reference - seen.logp)
    return per_token + spec.beta * kl, {**sums, "kl": (kl.detach() * seen.mask).sum()}
