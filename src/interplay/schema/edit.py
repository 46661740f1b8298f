"""Members of the edit seam: what is done to a batch before it is trained on."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from interplay.schema.base import Count, Model

Part = Annotated[float, Field(gt=0, le=1)]


class DynamicSampling(Model):
    """Drop groups without an advantage, as where all rewards are equal, and draw fresh prompts in their place (DAPO,
    arXiv:2503.14476)."""

    VERSION: ClassVar[int] = 2
    """2: judged by the advantage, so that with spans a group of equal rewards and different spans stays."""
    name: Literal["dynamic_sampling"] = "dynamic_sampling"
    max_num_gen_batches: Count = 3
    """Rounds of generation per step at most; 1 only drops."""


class D3S(Model):
    """Learn from the rows whose advantages differ most, and from those of their tokens that matter most (D3S, arXiv:2509.22115).

    Both shares go linearly from their first value, at the first step, to their second, at the last. Advantages stay as they were:
    nothing is normalised again. With scope `group` and tokens [1, 1], rows are chosen as in PODS (arXiv:2504.13818)."""

    SCHEDULED: ClassVar[bool] = True
    name: Literal["d3s"] = "d3s"
    samples: tuple[Part, Part] = (0.25, 0.5)
    """Share of the rows that bear loss which is kept: those with the largest variance of advantages, that is the most negative
    and the most positive ones."""
    tokens: tuple[Part, Part] = (0.2, 0.4)
    """Share of the kept rows' tokens that bear loss: those with the largest |advantage| * entropy. Below 1 it costs a forward
    pass over the kept rows, for the entropies."""
    scope: Literal["batch", "group"] = "batch"
    """Among which rows the variance is made large: all of the step, or each group's own."""


Edit = Annotated[DynamicSampling | D3S, Field(discriminator="name")]
