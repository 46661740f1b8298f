"""Steps that go by which samples of a row a model got right."""

from collections import Counter

from interplay.data.steps.label import banded
from interplay.data.steps.step import Inputs, Made, changed
from interplay.schema.base import PermanentError
from interplay.schema.steps.label import Difficulty
from interplay.schema.steps.sift import PassRate, RejectionSampling
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


def rejection_sampling(spec: RejectionSampling, rows: list[Row], inputs: Inputs) -> Made:
    """The rows with a right sample, that sample being their solution; up to `per_prompt` rows of each, by number of the sample.
    Counts: rows that are never_right, rows whose right samples were all cut at the length limit (only_truncated), right samples,
    and rows made beyond the first of a question (further). Raises PermanentError where a row has no samples."""
    kept, counts = [], Counter[str]()
    for row, judged in zip(rows, _judged(spec, rows, inputs), strict=True):
        samples = inputs.samples[row.set, row.index]
        right = [sample for sample, is_right in zip(samples, judged, strict=True) if is_right]
        ended = dict.fromkeys(sample["completion"] for sample in right if not sample["truncated"])
        texts = list(ended)[: spec.per_prompt]
        counts["right_samples"] += len(right)
        counts["never_right"] += not right
        counts["only_truncated"] += bool(right) and not texts
        counts["further"] += max(0, len(texts) - 1)
        kept += [changed(row, spec.name, solution=text) for text in texts]
    return Made(kept, dict(counts))


def _judged(spec: PassRate | Difficulty | RejectionSampling, rows: list[Row], inputs: Inputs) -> list[list[bool]]:
    """Whether each sample of each row is right."""
    found = [[bool(sample[spec.by]) for sample in inputs.samples.get((row.set, row.index), ())] for row in rows]
    for row, judged in zip(rows, found, strict=True):
        if len(judged) < spec.samples():
            raise PermanentError(
                f"curate: step {inputs.number} ({spec.name}): row {inputs.name(row)} has {len(judged)} samples of the "
                f"{spec.samples()} that are counted; let the evaluation draw more"
            )
    return found
