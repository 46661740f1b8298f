"""The table of policy losses, by the `name` of their spec. Weights over tokens, the KL term and the entropy bonus are alike for
all of them."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from interplay.rl.losses.clipped import clipped
from interplay.rl.losses.covariance import clip_cov, clip_cov_tokens, kl_cov, kl_cov_tokens
from interplay.rl.losses.direct import direct_advantage
from interplay.rl.losses.disco import disco, disco_weights
from interplay.rl.losses.distil import distil
from interplay.rl.losses.gates import geo_mean, gpg, sapo, vespo
from interplay.rl.losses.heterogeneous import hapo_token, heterogeneity
from interplay.rl.losses.terms import Seen, Whole, k3, truncated_weight
from interplay.schema.loss import Loss, RatioLoss


class Member(NamedTuple):
    """A loss."""

    loss: Callable[..., tuple[Tensor, dict[str, Tensor]]]
    """`(spec, Seen) -> (loss of each token (n,T), sums)`; the sums are scalars over the tokens of the mask, logged as means."""
    sums: tuple[str, ...] = ()
    """Names of the sums."""
    prepare: Callable[..., dict[str, Tensor]] | None = None
    """`(spec, Whole) -> (N,T) tensors by name`: what the loss must know of the whole optimiser step, at the price of a forward
    pass; they come back as `Seen.prepared`."""
    every_row: bool = False
    """Whether rows without an advantage have a gradient, too."""


FIRST_TURN = "first_turn"
"""Name among what is prepared: (N,T) float, 1 for the tokens of an episode's first turn; there where the loss asks for it."""
CLIPS = ("clip_fraction",)
MEMBERS: dict[str, Member] = {
    "clipped": Member(clipped, CLIPS),
    "sapo": Member(sapo),
    "vespo": Member(vespo, ("phi",)),
    "geo_mean": Member(geo_mean, CLIPS),
    "gpg": Member(gpg),
    "clip_cov": Member(clip_cov, CLIPS, clip_cov_tokens),
    "kl_cov": Member(kl_cov, (), kl_cov_tokens, every_row=True),
    "disco": Member(disco, (), disco_weights, every_row=True),
    "hapo_token": Member(hapo_token, CLIPS, heterogeneity),
    "distil": Member(distil, ("divergence", *CLIPS)),
    "direct_advantage": Member(direct_advantage, ("step_error",)),
}


def token_losses(spec: Loss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each token (n,T) by the member that `spec` names, weighed for the engine where the spec asks, with `beta` times
    the k3 estimate of the KL divergence from the reference where there is one; and its sums, `kl` among them."""
    per_token, sums = MEMBERS[spec.name].loss(spec, seen)
    if isinstance(spec, RatioLoss) and spec.vllm_importance_sampling_clip_max is not None:
        per_token = per_token * truncated_weight(spec.vllm_importance_sampling_clip_max, seen)
    if seen.reference is None:
        return per_token, sums
    kl = k3(seen.reference - seen.logp)
    beta = spec.beta + spec.first_turn_beta * seen.prepared[FIRST_TURN] if spec.first_turn_beta else spec.beta
    return per_token + beta * kl, {**sums, "kl": (kl.detach() * seen.mask).sum()}


def prepared(spec: Loss, whole: Whole) -> dict[str, Tensor]:
    """What the member reads off a whole optimiser step, (N,T) each; nothing for most."""
    prepare = MEMBERS[spec.name].prepare
    return prepare(spec, whole) if prepare else {}
