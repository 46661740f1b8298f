"""Steps that put a question into another form (Cog-DRIFT, arXiv:2604.04767). The stored answer stays the gold value, but for
true_false; an instance that is not valid is drawn again a few times, and what stays invalid is dropped and counted."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.schema.base import Count, Share
from interplay.schema.steps.step import StepModel

Distractors = Literal["same_set", "near"]
Format = Literal["four_choice", "ten_choice", "cloze", "true_false", "open"]


class Choice(StepModel):
    """An open question as multiple choice. Each key is right equally often over the set."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["choice"] = "choice"
    options: Literal[4, 10] = 4
    """Options of a question, the right one included."""
    distractors: Distractors = "same_set"
    """same_set: answers of other rows; near: other residues where there is a modulus, else whole numbers nearby, at random gaps,
    the right one equally often at each rank as far as no number below 0 is needed. Never one that means the same as the gold."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""


class Cloze(StepModel):
    """An open question with part of its answer shown: digits of a number, letters and digits of words."""

    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["cloze"] = "cloze"
    masked: tuple[Share, Share] = (0.5, 0.8)
    """Smallest and largest share of the characters that are hidden; at least one is hidden and at least one is visible."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""

    @model_validator(mode="after")
    def _ordered(self) -> "Cloze":
        if self.masked[0] > self.masked[1] or not self.masked[1]:
            raise ValueError(f"masked must be [low, high] with low <= high and 0 < high, not {list(self.masked)}")
        return self


class TrueFalse(StepModel):
    """An open question as a statement to judge; half of the statements hold."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["true_false"] = "true_false"
    distractors: Distractors = "same_set"
    """Where the answer of a statement that does not hold comes from, as in `choice`."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""


class Ladder(StepModel):
    """Each question in each format that is valid for it, easiest first: what the format_ladder sampler climbs."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["ladder"] = "ladder"
    formats: Annotated[list[Format], Field(min_length=1)] = ["four_choice", "ten_choice", "cloze", "open"]
    """From easy to hard, each once."""
    distractors: Distractors = "same_set"
    """As in `choice`."""
    masked: tuple[Share, Share] = (0.5, 0.8)
    """As in `cloze`."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""

    @model_validator(mode="after")
    def _once(self) -> "Ladder":
        if len(set(self.formats)) != len(self.formats):
            raise ValueError(f"formats must name each format once, not {self.formats}")
        Cloze(masked=self.masked)
        return self
