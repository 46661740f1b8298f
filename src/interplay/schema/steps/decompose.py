"""Steps that take a solution apart: into subproblems, at its first wrong step, into single steps. All of op_dag, whose gold graph
says what each part is."""

from typing import ClassVar, Literal

from interplay.schema.base import Count
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
