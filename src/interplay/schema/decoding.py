"""Members of the decoding seam: what tokens of rollouts are drawn from, where that is not the policy at the run's temperature."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from interplay.schema.base import Count, Model, Share


class AdaptiveTemperature(Model):
    """A temperature for each token (HAPO, heterogeneous tokens): that of the run times 1 + temperature_tau h. h in [-1, 1] is the
    log entropy of what the token would be drawn from, less the `entropy_pivot` quantile over the tokens that the last step learnt
    from, over the largest such value on its side of 0; the first step has one temperature. Ratios are of the policy at the run's
    temperature, as released. Costs a forward pass over the batch."""

    ENGINES: ClassVar[tuple[str, ...]] = ("native", "hf", "vllm")
    """Those that decode so."""
    name: Literal["adaptive_temperature"] = "adaptive_temperature"
    temperature_tau: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Largest change of the temperature, as a share of it."""
    entropy_pivot: Share = 0.8
    """Quantile at which h is 0."""


class LaggedNucleus(Model):
    """Tokens within the nucleus of a copy of the policy that lags behind it (NLPO, arXiv:2210.01241): the likeliest tokens of the
    copy, at temperature 1, whose probabilities sum to `top_p`. The policy, renormalised over them, is what is sampled, and what
    log-probabilities, ratios, entropies and the divergence from the reference are of. The copy decodes beside the policy, and
    passes beside it wherever a batch passes."""

    ENGINES: ClassVar[tuple[str, ...]] = ("native",)
    """Those that decode so."""
    name: Literal["lagged_nucleus"] = "lagged_nucleus"
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    """1: all tokens, so that nothing is masked."""
    sync_every: Count = 20
    """Steps after which the copy becomes the policy as it then stands."""


Decoding = Annotated[AdaptiveTemperature | LaggedNucleus, Field(discriminator="name")]
