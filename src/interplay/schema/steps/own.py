"""A step of the study's own."""

from interplay.schema.custom import Custom
from interplay.schema.steps.step import StepModel


class CustomStep(Custom, StepModel):
    """A function of the study's own, `function(rows, **options) -> rows`, over all rows as dicts of the columns. It may drop,
    order, change and repeat rows; those that it changes carry its name among their transforms."""
