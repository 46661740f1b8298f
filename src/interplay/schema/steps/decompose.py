"""Steps that take a solution apart: into subproblems, at its first wrong step, into single steps; and one that puts several
attempts together. All of op_dag, whose gold graph says what each part is."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from interplay.schema.base import Count, Share
from interplay.schema.steps.step import StepModel


class Subproblems(StepModel):
    """Ask intermediate values, in order, within one completion (SCRL, arXiv:2605.22074). A question about fewer values than k
    asks all; one about a single value is dropped."""

    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["subproblems"] = "subproblems"
    k: Count | Literal["all"] = 4
    """Values that are asked, the question's own included."""


class Intervention(StepModel):
    """For wrong sampled solutions the right step in place of the first wrong one, as rows for SFT (InT, arXiv:2601.14209). A
    right step that gives the final value away is no intervention; neither are wrong answers without a wrong step."""

    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["intervention"] = "intervention"
    per_problem: Count = 1
    """Interventions that a problem gives at most: the first of its wrong samples that differ."""
    prefix: bool = True
    """Whether a row's solution begins with what stood before the wrong step; false: the intervention alone."""
    suffix: bool = False
    """Whether the gold goes on after it. Without, the solution is unfinished and has no end token, so that nothing teaches the
    model to stop there."""

    @property
    def edits(self) -> bool:
        """An unfinished solution must stay so."""
        return not self.suffix


class Atoms(StepModel):
    """Each step of a solution as a problem of its own, whose givens are the values that the step reads. One that belongs to
    another split than the whole problem is dropped and counted."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["atoms"] = "atoms"
    unique: bool = True
    """Leave out steps that an earlier row's is equal to, up to names."""


class Units(StepModel):
    """Solutions made of units: whole attempts, each of which ends in an answer, the last of them the gold solution (MinD,
    arXiv:2505.19788). The program writes the attempts before it, where the paper has a language model take long chains of thought
    apart: some err in one operation and go on from there, the others are right already, so that what follows only repeats them.
    Who judges such solutions names the separator, too (`verify.separator`)."""

    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["units"] = "units"
    shares: Annotated[list[Share], Field(min_length=1, max_length=16)] = [0.4, 0.4, 0.2]
    """Share of the rows whose solution has one unit, two, and so on; sums to 1."""
    wrong: Share = 0.5
    """Of the units before the last one the share that err; the others give the right answer already."""
    separator: Annotated[str, Field(min_length=1)] = "?"
    """Text between units, which the tokenizer knows and no solution holds: `?` stands in the prompts of op_dag alone."""

    @field_validator("shares")
    @classmethod
    def _whole(cls, value: list[float]) -> list[float]:
        if abs(sum(value) - 1) > 1e-6:
            raise ValueError(f"must sum to 1, not {sum(value):g}")
        return value

    @property
    def edits(self) -> bool:
        """The rows' own gold has one unit."""
        return True
