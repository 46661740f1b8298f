"""Steps that go by how often a model was right on a row."""

from interplay.data.steps.label import banded
from interplay.data.steps.step import Inputs, Made
from interplay.schema.base import PermanentError
from interplay.schema.steps.label import Difficulty
from interplay.schema.steps.sift import PassRate
from interplay.tasks.row import Row


def pass_rate(spec: PassRate, rows: list[Row], inputs: Inputs) -> Made:
    """Rows with low to high right samples among the first `of`. Counts: too_hard, too_easy. Raises PermanentError where a row has
    fewer samples."""
    low, high, of = spec.limits()
    right = [sum(judged[:of]) for judged in _judged(spec, rows, inputs)]
    kept = [row for row, n in zip(rows, right, strict=True) if low <= n <= high]
    return Made(kept, {"too_hard": sum(n < low for n in right), "too_easy": sum(n > high for n in right)})


def difficulty(spec: Difficulty, rows: list[Row], inputs: Inputs) -> Made:
    """Bands by share of right samples. Raises PermanentError where a row has none."""
    return banded(spec, rows, [sum(judged) / len(judged) for judged in _judged(spec, rows, inputs)])


def _judged(spec: PassRate | Difficulty, rows: list[Row], inputs: Inputs) -> list[list[bool]]:
    """Whether each sample of each row is right."""
    found = [[bool(sample[spec.by]) for sample in inputs.samples.get((row.set, row.index), ())] for row in rows]
    for row, judged in zip(rows, found, strict=True):
        if len(judged) < spec.samples():
            raise PermanentError(
                f"curate: step {inputs.number} ({spec.name}): row {inputs.name(row)} has {len(judged)} samples of the "
                f"{spec.samples()} that are counted; let the evaluation draw more"
            )
    return found
