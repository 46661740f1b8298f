"""Steps that spoil rows, to see what that costs."""

from typing import ClassVar, Literal

from interplay.schema.base import Share
from interplay.schema.steps.step import StepModel


class Poison(StepModel):
    """Spoil a share of the rows. Prompt or solution change; the gold that completions are judged by stays true. It edits the text
    as it stands, so it comes after the steps that write prompts."""

    VERSION: ClassVar[int] = 2
    name: Literal["poison"] = "poison"
    kind: Literal["answer", "conflict", "irrelevant"]
    """answer: the solution ends in a wrong answer (label noise; rewards do not see it); conflict: the prompt also states another
    value for something that the answer needs; irrelevant: it also states something that the answer does not need."""
    ratio: Share
    """Share of the rows that are spoiled."""
    resolve: Literal["first", "last", "none"] = "none"
    """conflict: which of the two statements is the true one: the one that stands first, the one that stands last, or, for none,
    either with equal chance, so that no rule tells."""

    @property
    def edits(self) -> bool:
        """What it spoils, the gold has right."""
        return True
