"""Steps that put a question into another form, or split its solution."""

from typing import Literal

from interplay.schema.base import Count
from interplay.schema.steps.step import StepModel


class Choice(StepModel):
    """An open question as multiple choice, keys balanced over the set (Cog-DRIFT, arXiv:2604.04767)."""

    name: Literal["choice"] = "choice"
    options: Count = 4
    """Options of a question, the right one included."""
