"""Steps that use judged samples of the rows: pass rate, rejection sampling, preference pairs, pairs labelled by raters."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from interplay.core.model import PermanentError
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps.filter import assign_bands
from interplay.data.steps.spec import Difficulty, PassRate, PreferencePairs, RatedPairs, RejectionSampling
from interplay.tasks.verdict import Row

# Steps that use which samples of a row are right.


Judging = PassRate | Difficulty | RejectionSampling | PreferencePairs
SampleStep = Judging | RatedPairs
"""Steps that read samples."""


def filter_pass_rate(spec: PassRate, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows with low to high right samples among the first `of`. Counts: too_hard, too_easy. Raises PermanentError where a row has
    fewer samples."""
    low, high, of = spec.limits()
    right = [sum(judged[:of]) for judged in _judged_samples(spec, rows, inputs)]
    kept = [row for row, n in zip(rows, right, strict=True) if low <= n <= high]
    return StepResult(kept, {"too_hard": sum(n < low for n in right), "too_easy": sum(n > high for n in right)})


def label_difficulty(spec: Difficulty, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Bands by share of right samples. Raises PermanentError where a row has none."""
    return assign_bands(spec, rows, [sum(judged) / len(judged) for judged in _judged_samples(spec, rows, inputs)])


def rejection_sampling(spec: RejectionSampling, rows: list[Row], inputs: StepInputs) -> StepResult:
    """The rows with a right sample as their solution, up to `per_prompt` rows of each, in the order of the samples. Counts: rows
    without a right sample (never_right), rows whose right samples were all truncated (only_truncated), right_samples, and rows
    after the first of a question (further). Raises PermanentError where a row has no samples."""
    kept, counts = [], Counter[str]()
    for row, judged in zip(rows, _judged_samples(spec, rows, inputs), strict=True):
        samples = inputs.samples[row.set, row.index]
        right = [sample for sample, is_right in zip(samples, judged, strict=True) if is_right]
        ended = dict.fromkeys(sample["completion"] for sample in right if not sample["truncated"])
        texts = list(ended)[: spec.per_prompt]
        counts["right_samples"] += len(right)
        counts["never_right"] += not right
        counts["only_truncated"] += bool(right) and not texts
        counts["further"] += max(0, len(texts) - 1)
        kept += [transform_row(row, spec.name, solution=text) for text in texts]
    return StepResult(kept, dict(counts))


def make_preference_pairs(spec: PreferencePairs, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Pairs of a right and a wrong sample of a row, up to `per_prompt` of each row. Counts: rows without a right completion
    (never_right), of the others those without a wrong one (never_wrong), and pairs after the first of a question (further).
    Raises PermanentError where a row has no samples."""
    kept, counts = [], Counter[str]()
    for row, judged in zip(rows, _judged_samples(spec, rows, inputs), strict=True):
        ended = [
            (s["completion"], right) for s, right in zip(inputs.samples[row.set, row.index], judged, strict=True) if is_usable(s)
        ]
        good = [text for text, right in ended if right] if spec.chosen == "sample" else [row.solution]
        random = inputs.random("pairs", row.set, row.index)
        right, wrong = (_shuffled(texts, random) for texts in (good, [text for text, right in ended if not right]))
        counts["never_right"] += not right
        counts["never_wrong"] += bool(right) and not wrong
        number = min(spec.per_prompt, max(len(right), len(wrong))) if right and wrong else 0
        counts["further"] += max(0, number - 1)
        pairs = [(right[i % len(right)], wrong[i % len(wrong)]) for i in range(number)]
        kept += [transform_row(row, spec.name, solution=chosen, rejected=rejected) for chosen, rejected in pairs]
    return StepResult(kept, dict(counts))


def is_usable(sample: Mapping[str, Any]) -> bool:
    """Whether a sample is neither empty nor truncated."""
    return bool(sample["completion"]) and not sample["truncated"]


def _shuffled(texts: Sequence[str], random: np.random.Generator) -> list[str]:
    """The distinct texts in random order."""
    distinct = list(dict.fromkeys(texts))
    return [distinct[i] for i in random.permutation(len(distinct))]


def _judged_samples(spec: Judging, rows: list[Row], inputs: StepInputs) -> list[list[bool]]:
    """Whether each sample of each row is right."""
    return [[bool(sample[spec.by]) for sample in samples_of(spec, row, inputs)] for row in rows]


def samples_of(spec: SampleStep, row: Row, inputs: StepInputs) -> list[dict[str, Any]]:
    """The samples of a row. Raises PermanentError where it has fewer than the step needs."""
    found = inputs.samples.get((row.set, row.index), [])
    if len(found) < spec.samples():
        raise PermanentError(
            f"curate: step {inputs.number} ({spec.name}): row {inputs.row_name(row)} has {len(found)} samples of the "
            f"{spec.samples()} that the step needs; raise num_samples of the evaluation"
        )
    return found


# Pairs labelled by simulated raters of different preferences.


Sample = Mapping[str, Any]
RATERS: dict[str, Callable[[RatedPairs, Sample], float]] = {
    "shorter": lambda spec, sample: -len(sample["completion"]),
    "longer": lambda spec, sample: len(sample["completion"]),
    "more_steps": lambda spec, sample: sample["completion"].count(spec.separator),
    "fewer_steps": lambda spec, sample: -sample["completion"].count(spec.separator),
    "right": lambda spec, sample: float(sample[spec.by]),
}
"""A rater's score of a sample: higher is better."""


def make_rated_pairs(spec: RatedPairs, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Up to `per_prompt` labelled pairs of different samples of each row. Counts: rows without two samples that a rater scores
    differently (never_apart), pairs after the first of a question (further), and pairs of each rater. Raises PermanentError where
    a row has fewer than two samples."""
    kept, counts = [], Counter[str]()
    for row in rows:
        random = inputs.random("raters", row.set, row.index)
        by_text = {sample["completion"]: sample for sample in samples_of(spec, row, inputs) if is_usable(sample)}
        raters = [spec.raters[i] for i in random.permutation(len(spec.raters))]
        if random.random() < spec.told:
            start = row.op % len(spec.raters)
            raters = [*spec.raters[start:], *spec.raters[:start]]
        made = _draw_pairs(spec, raters, list(by_text.values()), random)
        counts["never_apart"] += not made
        counts["further"] += max(0, len(made) - 1)
        for rater, better, worse in made:
            counts[rater] += 1
            kept.append(transform_row(row, spec.name, solution=better["completion"], rejected=worse["completion"], rater=rater))
    return StepResult(kept, dict(counts))


def _draw_pairs(
    spec: RatedPairs, raters: Sequence[str], samples: Sequence[Sample], random: np.random.Generator
) -> list[tuple[str, Sample, Sample]]:
    """(rater, chosen, rejected) of each pair, no two pairs of the same samples; raters alternate."""
    every = list(combinations(samples, 2))
    found: list[tuple[str, Sample, Sample]] = []
    for place in random.permutation(len(every)).tolist():
        if len(found) == spec.per_prompt:
            break
        first = len(found) % len(raters)
        in_turn = [*raters[first:], *raters[:first]]
        label = next(filter(None, (_rate_pair(spec, rater, *every[place]) for rater in in_turn)), None)
        if label:
            rater, better, worse = label
            wrong = bool(spec.noise) and random.random() < spec.noise
            found.append((rater, worse, better) if wrong else (rater, better, worse))
    return found


def _rate_pair(spec: RatedPairs, rater: str, a: Sample, b: Sample) -> tuple[str, Sample, Sample] | None:
    """(rater, chosen, rejected) of two samples; None where the rater scores them equally."""
    of_a, of_b = RATERS[rater](spec, a), RATERS[rater](spec, b)
    return None if of_a == of_b else (rater, a, b) if of_a > of_b else (rater, b, a)
