"""Members of the decoding seam: what tokens of rollouts are drawn from, where that is not the policy at the run's temperature."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from interplay.schema.base import Model, Share


class AdaptiveTemperature(Model):
    """A temperature for each token (HAPO, heterogeneous tokens): that of the run times 1 + temperature_tau h. h in [-1, 1] is the
    log entropy of what the token would be drawn from, less the `entropy_pivot` quantile over the tokens that the last step learnt
    from, over the largest such value on its side of 0; the first step has one temperature. Ratios are of the policy at the run's
    temperature, as released. Costs a forward pass over the batch."""

    ENGINES: ClassVar[tuple[str, ...]] = ("native", "hf")
    """Those that decode so."""
    name: Literal["adaptive_temperature"] = "adaptive_temperature"
    temperature_tau: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Largest change of the temperature, as a share of it."""
    entropy_pivot: Share = 0.8
    """Quantile at which h is 0."""


Decoding = AdaptiveTemperature
