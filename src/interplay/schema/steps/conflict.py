"""The step that sets contexts against what a model knows by heart (KnowPO, arXiv:2408.03297)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.schema.base import Share
from interplay.schema.steps.step import StepModel

Facts = Annotated[int, Field(ge=1, le=64)]


class ConflictPairs(StepModel):
    """Each question about a fact that is learnt by heart (bios, level parametric) behind a context, as a pair. A contradicting
    context states another value and is to be followed; an irrelevant one does not say what is asked, and the answer is the one
    known by heart. What is rejected either answers by heart where the context says otherwise (contextual ignorance) or with
    another fact of the context (contextual over-inclusion). Other rows are dropped and counted. The band stays, the gold becomes
    the answer that is to be given, and the judge tells both errors by name: a set made by this step is an evaluation, too."""

    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["conflict_pairs"] = "conflict_pairs"
    contradicting: Share = 0.5
    """Share of the rows whose context contradicts; the others' is irrelevant."""
    ignorance: Share = 0.5
    """Of the rows whose context contradicts the share whose rejected completion answers by heart; that of the others takes
    another fact of the context. Behind irrelevant contexts it always does."""
    context: tuple[Facts, Facts] = (2, 4)
    """Fewest and most facts of a context, the contradicting one included. The irrelevant ones are invented: first the same
    relation of somebody else, then another one of the same person, then another one of somebody else, and so on."""
    rewrite: bool = True
    """Whether an answer by heart is written as one from the context is, with the fact before the box. False: the box alone, so
    that its length tells where an answer comes from (the imbalance that the paper's rewriting takes away)."""

    @model_validator(mode="after")
    def _possible(self) -> "ConflictPairs":
        low, high = self.context
        if low > high:
            raise ValueError(f"context must be [low, high] with low <= high, not {list(self.context)}")
        if low < 2 and self.contradicting and self.ignorance < 1:
            raise ValueError("context must have 2 facts at least, one of which over-inclusion takes; or write ignorance: 1")
        return self

    @property
    def edits(self) -> bool:
        """The rows' own gold does not know the context."""
        return True
