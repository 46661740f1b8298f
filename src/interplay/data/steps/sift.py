"""Steps that choose rows."""

from interplay.data.steps.step import Inputs, Made
from interplay.schema.steps.sift import Take
from interplay.tasks.row import Row


def take(spec: Take, rows: list[Row], inputs: Inputs) -> Made:
    """`size` rows, in an order drawn from the stage's seed."""
    order = inputs.random("take").permutation(len(rows))[: spec.size]
    return Made([rows[i] for i in order], {})
