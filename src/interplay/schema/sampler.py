"""Members of the sampler seam: which prompts a step draws."""

from typing import Annotated, Literal

from pydantic import Field

from interplay.schema.base import Model
from interplay.schema.custom import Custom


class UniformSampler(Model):
    """Every prompt once per epoch, in an order drawn from the seed."""

    name: Literal["uniform"] = "uniform"


Sampler = Annotated[UniformSampler | Custom, Field(discriminator="name")]
