"""Steps that choose rows by themselves."""

from interplay.data.steps.step import Inputs, Made
from interplay.schema.steps.sift import Length, Take
from interplay.tasks.row import Row


def take(spec: Take, rows: list[Row], inputs: Inputs) -> Made:
    """`size` rows, in an order drawn from the stage's seed."""
    order = inputs.random("take").permutation(len(rows))[: spec.size]
    return Made([rows[i] for i in order], {})


def length(spec: Length, rows: list[Row], inputs: Inputs) -> Made:
    """Rows with low to high tokens. Counts: too_short, too_long."""
    parts = ("prompt", "solution") if spec.part == "both" else (spec.part,)
    sizes = [sum(inputs.count_tokens(getattr(row, part)) for part in parts) for row in rows]
    kept = [row for row, size in zip(rows, sizes, strict=True) if spec.low <= size <= spec.high]
    return Made(kept, {"too_short": sum(n < spec.low for n in sizes), "too_long": sum(n > spec.high for n in sizes)})
