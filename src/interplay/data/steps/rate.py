"""The step that labels pairs of samples as raters of different tastes would."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from interplay.data.steps.measured import finished, samples_of
from interplay.data.steps.step import Inputs, Made, changed
from interplay.schema.steps.rate import RatedPairs
from interplay.tasks.row import Row

Sample = Mapping[str, Any]
RATERS: dict[str, Callable[[RatedPairs, Sample], float]] = {
    "shorter": lambda spec, sample: -len(sample["completion"]),
    "longer": lambda spec, sample: len(sample["completion"]),
    "more_steps": lambda spec, sample: sample["completion"].count(spec.separator),
    "fewer_steps": lambda spec, sample: -sample["completion"].count(spec.separator),
    "right": lambda spec, sample: float(sample[spec.by]),
}
"""What a rater thinks of a sample: the greater, the better."""


def rated_pairs(spec: RatedPairs, rows: list[Row], inputs: Inputs) -> Made:
    """Up to `per_prompt` pairs of different samples of each row, labelled. Counts: rows without two samples that some rater tells
    apart (never_apart), pairs made beyond the first of a question (further), and pairs of each rater. Raises PermanentError where
    a row has fewer samples than two."""
    kept, counts = [], Counter[str]()
    for row in rows:
        random = inputs.random("raters", row.set, row.index)
        by_text = {sample["completion"]: sample for sample in samples_of(spec, row, inputs) if finished(sample)}
        raters = [spec.raters[i] for i in random.permutation(len(spec.raters))]
        if random.random() < spec.told:
            start = row.op % len(spec.raters)
            raters = [*spec.raters[start:], *spec.raters[:start]]
        made = _pairs(spec, raters, list(by_text.values()), random)
        counts["never_apart"] += not made
        counts["further"] += max(0, len(made) - 1)
        for rater, better, worse in made:
            counts[rater] += 1
            kept.append(changed(row, spec.name, solution=better["completion"], rejected=worse["completion"], rater=rater))
    return Made(kept, dict(counts))


def _pairs(
    spec: RatedPairs, raters: Sequence[str], samples: Sequence[Sample], random: np.random.Generator
) -> list[tuple[str, Sample, Sample]]:
    """Rater, chosen and rejected sample of each pair, no two of the same samples; raters take turns."""
    every = list(combinations(samples, 2))
    found: list[tuple[str, Sample, Sample]] = []
    for place in random.permutation(len(every)).tolist():
        if len(found) == spec.per_prompt:
            break
        first = len(found) % len(raters)
        label = next((one for one in map(_told(spec, *every[place]), [*raters[first:], *raters[:first]]) if one), None)
        if label:
            rater, better, worse = label
            wrong = bool(spec.noise) and random.random() < spec.noise
            found.append((rater, worse, better) if wrong else (rater, better, worse))
    return found


def _told(spec: RatedPairs, a: Sample, b: Sample) -> Callable[[str], tuple[str, Sample, Sample] | None]:
    """What a rater says of two samples: nothing where they are equal to it."""

    def label(rater: str) -> tuple[str, Sample, Sample] | None:
        of_a, of_b = RATERS[rater](spec, a), RATERS[rater](spec, b)
        return None if of_a == of_b else (rater, a, b) if of_a > of_b else (rater, b, a)

    return label
