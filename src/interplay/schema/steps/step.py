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
