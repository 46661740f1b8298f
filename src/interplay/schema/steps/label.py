"""Steps that say how difficult rows are, by giving them a band."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from interplay.schema.steps.step import StepModel

Intervals = Annotated[dict[str, tuple[float, float]], Field(min_length=1)]


class Bands(StepModel):
    """What the labelling steps share."""

    LEAVES_QUESTIONS: ClassVar[bool] = True
    bands: Intervals
    """Name -> [low, high], both included; the first that holds a row's value becomes its band. A row in none keeps the band that
    it has, and is counted."""
    edges: Literal["value", "quantile"] = "value"
    """Whether low and high are values, or shares of the rows in ascending order of value, equal values sharing a place."""

    @field_validator("bands")
    @classmethod
    def _ordered(cls, value: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in value.items():
            if low > high:
                raise ValueError(f"band '{name}' must be [low, high] with low <= high, not {[low, high]}")
        return value

    @model_validator(mode="after")
    def _shares(self) -> "Bands":
        for name, (low, high) in self.bands.items():
            if self.edges == "quantile" and not 0 <= low <= high <= 1:
                raise ValueError(f"band '{name}': quantiles lie in [0, 1], unlike {[low, high]}")
        return self


class Label(Bands):
    """Bands by what a row itself tells."""

    name: Literal["label"] = "label"
    by: Literal["op", "prompt", "solution"] = "op"
    """op: operations, hops or levels; prompt, solution: characters."""


class Difficulty(Bands):
    """Bands by the share of right samples: the lower, the harder. All samples of the evaluation count."""

    READS_SAMPLES: ClassVar[bool] = True
    name: Literal["difficulty"] = "difficulty"
    by: Literal["strict", "answer"] = "strict"
    """What counts as right: process and answer, or the answer alone."""
