"""Steps that label pairs of completions as raters of different tastes would."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from interplay.schema.base import Count, Share
from interplay.schema.steps.step import StepModel

Rater = Literal["shorter", "longer", "more_steps", "fewer_steps", "right"]


class RatedPairs(StepModel):
    """Pairs of samples of a row, each labelled by one of several raters, whose name stays in the column `rater`. What a rater
    prefers is a score that can be worked out, so that raters may be set against each other and are true to themselves: synthetic
    users as in FSPO (arXiv:2502.19312) and MiCRo (arXiv:2505.24846), whose own raters are language models and people."""

    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["rated_pairs"] = "rated_pairs"
    raters: Annotated[list[Rater], Field(min_length=1)] = ["shorter", "more_steps", "right"]
    """shorter, longer: by characters; more_steps, fewer_steps: by separators; right: by the verifier's word. Each pair has one of
    them, by turns in an order drawn from the stage's seed; one that finds both equal leaves the pair to the next."""
    told: Share = 0.0
    """Share of the rows whose first rater is number op modulo their number, so that the question says something of who rates, as
    its topic does among people; that of the others is drawn."""
    per_prompt: Count = 1
    """Pairs that a row gives at most, each a row of its own. Samples that are equal, empty or cut are in none."""
    separator: str = Field(default=",", min_length=1)
    """What stands between steps."""
    by: Literal["strict", "answer"] = "strict"
    """What counts as right: process and answer, or the answer alone."""
    noise: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Chance that a label is the wrong way round: a rater's inconsistency."""

    @property
    def edits(self) -> bool:
        """The gold does not know the sampled completions."""
        return True

    def samples(self) -> int:
        """A pair has two."""
        return 2
