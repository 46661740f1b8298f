"""Members of the sampler seam: which prompts a step draws."""

from typing import Annotated, Literal

from pydantic import Field

from interplay.schema.base import Model
from interplay.schema.custom import Custom
from interplay.schema.samplers.ada_rft import AdaRftSampler
from interplay.schema.samplers.adaptive import EdgeSampler, LearnedMixtureSampler, RetainHardestSampler, SingleStreamSampler
from interplay.schema.samplers.format_ladder import FormatLadderSampler
from interplay.schema.samplers.gain_rl import GainRlSampler
from interplay.schema.samplers.order import EasyToHardSampler, HardFirstSampler, Paced, PhasesSampler
from interplay.schema.samplers.pcl import PclSampler


class UniformSampler(Model):
    """Every prompt once per epoch, in an order drawn from the seed."""

    name: Literal["uniform"] = "uniform"


Sampler = Annotated[
    UniformSampler
    | EasyToHardSampler
    | HardFirstSampler
    | EdgeSampler
    | SingleStreamSampler
    | RetainHardestSampler
    | PhasesSampler
    | LearnedMixtureSampler
    | PclSampler
    | GainRlSampler
    | AdaRftSampler
    | FormatLadderSampler
    | Custom,
    Field(discriminator="name"),
]


def reads_offline(sampler: Model) -> bool:
    """Whether the member learns from samples that were made before the first step."""
    adaptive = (EdgeSampler, SingleStreamSampler, RetainHardestSampler, PhasesSampler)
    return isinstance(sampler, adaptive) or (isinstance(sampler, Paced | AdaRftSampler) and sampler.by == "pass_rate")


def expects(sampler: Model) -> bool:
    """Whether the member expects a pass rate of each prompt that it draws."""
    return isinstance(sampler, EdgeSampler | SingleStreamSampler | RetainHardestSampler | PhasesSampler | PclSampler)
