"""Steps that choose, label, order or spoil rows."""

from typing import Literal

from interplay.schema.base import Count
from interplay.schema.steps.step import StepModel


class Take(StepModel):
    """The first rows in an order drawn from the stage's seed."""

    name: Literal["take"] = "take"
    size: Count
    """Rows that stay; all, where there are fewer."""
