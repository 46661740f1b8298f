"""Base of the steps."""

from typing import ClassVar

from interplay.schema.base import Model


class StepModel(Model):
    """What a step reads beside the rows is known to the planner from its class."""

    READS_TOKENIZER: ClassVar[bool] = False
    """Whether it counts tokens."""
    READS_SAMPLES: ClassVar[bool] = False
    """Whether it reads the samples of an evaluation of the rows."""
    COMPARES: ClassVar[bool] = False
    """Whether it compares the rows with other problem sets."""
    LEAVES_QUESTIONS: ClassVar[bool] = False
    """Whether the rows that it leaves ask what they asked before: only such a step may stand before one that reads samples, which
    are samples of the rows as they came."""

    WRITES_ANEW: ClassVar[bool] = False
    """Whether it writes prompts or solutions from the gold, or adds to them as if nothing stood around them: what `edits` says
    would be lost or broken."""

    @property
    def edits(self) -> bool:
        """Whether it alters a prompt or a solution in a way that the gold does not know of."""
        return False

    def samples(self) -> int:
        """Samples that each row needs, of a step that reads any."""
        return 1
