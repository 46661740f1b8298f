"""The sampler that climbs from format to format (Cog-DRIFT)."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from interplay.schema.base import Count, Model, Share
from interplay.schema.steps.reformulate import Format


class FormatLadderSampler(Model):
    """Every question once per epoch, in the format that it has climbed to; for problem sets that the `ladder` step made
    (Cog-DRIFT, arXiv:2604.04767). A question starts in its easiest format; promotion is for good and clears its history."""

    name: Literal["format_ladder"] = "format_ladder"
    formats: Annotated[list[Format], Field(min_length=1)] = ["four_choice", "ten_choice", "cloze", "open"]
    """From easy to hard. A question's formats are those that it has rows in; a row of another mode must be its question's only
    one."""
    promotion: Literal["adaptive", "random", "fixed"] = "adaptive"
    """adaptive: a question whose mean score exceeds the threshold moves to its next format; random: a control, others of the
    step's questions move in their place, drawn from the seed; fixed: none moves."""
    rate: Share | None = None
    """Of random promotion: share of the step's questions that move; null: as many as the adaptive rule would move."""
    promote_on: Literal["answer", "reward"] = "answer"
    """The score: the share of right answers, or, as published, the mean reward, which a reward for form raises, too."""
    chance_correction: bool = True
    """Judge (mean - c) / (1 - c), where c is what guessing earns in the format; false, as published: the mean itself, which
    guessing among four options brings half way to the threshold."""
    threshold: Share = 0.5
    """What the rolling mean must exceed."""
    window: Count = 1
    """Batches of the question that the rolling mean spans; with fewer there is no promotion."""

    @model_validator(mode="after")
    def _consistent(self) -> "FormatLadderSampler":
        if len(set(self.formats)) != len(self.formats):
            raise ValueError(f"formats must name each format once, not {self.formats}")
        if self.rate is not None and self.promotion != "random":
            raise ValueError("rate is a key of random promotion only; take it away, or write promotion: random")
        return self
