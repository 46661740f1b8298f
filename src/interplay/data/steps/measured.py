"""Steps that use which samples of a row a model got right: pass rate, rejection sampling, preference pairs, rated pairs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from interplay.core.model import PermanentError
from interplay.data.steps.sift import assign_bands
from interplay.data.steps.spec import Difficulty, PassRate, PreferencePairs, RatedPairs, RejectionSampling
from interplay.data.steps.step import Inputs, Made, changed
from interplay.tasks.verdict import Row

# Steps that go by which samples of a row a model got right.


Judging = PassRate | Difficulty | RejectionSampling | PreferencePairs
Reading = Judging | RatedPairs
"""Steps that read samples."""


def pass_rate(spec: PassRate, rows: list[Row], inputs: Inputs) -> Made:
    """Rows with low to high right samples among the first `of`. Counts: too_hard, too_easy. Raises PermanentError where a row has
    fewer samples."""
    low, high, of = spec.limits()
    right = [sum(judged[:of]) for judged in _judged(spec, rows, inputs)]
    kept = [row for row, n in zip(rows, right, strict=True) if low <= n <= high]
    return Made(kept, {"too_hard": sum(n < low for n in right), "too_easy": sum(n > high for n in right)})


def difficulty(spec: Difficulty, rows: list[Row], inputs: Inputs) -> Made:
    """Bands by share of right samples. Raises PermanentError where a row has none."""
    return assign_bands(spec, rows, [sum(judged) / len(judged) for judged in _judged(spec, rows, inputs)])


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


def preference_pairs(spec: PreferencePairs, rows: list[Row], inputs: Inputs) -> Made:
    """Pairs of a right and a wrong sample of a row, up to `per_prompt` of each. Counts: rows without a right completion to choose
    (never_right), of the others those without a wrong one to reject (never_wrong), and pairs made beyond the first of a question
    (further). Raises PermanentError where a row has no samples."""
    kept, counts = [], Counter[str]()
    for row, judged in zip(rows, _judged(spec, rows, inputs), strict=True):
        ended = [
            (s["completion"], right) for s, right in zip(inputs.samples[row.set, row.index], judged, strict=True) if finished(s)
        ]
        good = [text for text, right in ended if right] if spec.chosen == "sample" else [row.solution]
        random = inputs.random("pairs", row.set, row.index)
        right, wrong = (_shuffled(texts, random) for texts in (good, [text for text, right in ended if not right]))
        counts["never_right"] += not right
        counts["never_wrong"] += bool(right) and not wrong
        number = min(spec.per_prompt, max(len(right), len(wrong))) if right and wrong else 0
        counts["further"] += max(0, number - 1)
        pairs = [(right[i % len(right)], wrong[i % len(wrong)]) for i in range(number)]
        kept += [changed(row, spec.name, solution=chosen, rejected=rejected) for chosen, rejected in pairs]
    return Made(kept, dict(counts))


def finished(sample: Mapping[str, Any]) -> bool:
    """Whether a sample says something and ended by itself."""
    return bool(sample["completion"]) and not sample["truncated"]


def _shuffled(texts: Sequence[str], random: np.random.Generator) -> list[str]:
    """The texts, each once, in an order drawn anew."""
    distinct = list(dict.fromkeys(texts))
    return [distinct[i] for i in random.permutation(len(distinct))]


def _judged(spec: Judging, rows: list[Row], inputs: Inputs) -> list[list[bool]]:
    """Whether each sample of each row is right."""
    return [[bool(sample[spec.by]) for sample in samples_of(spec, row, inputs)] for row in rows]


def samples_of(spec: Reading, row: Row, inputs: Inputs) -> list[dict[str, Any]]:
    """The samples of a row. Raises PermanentError where it has fewer than the step counts."""
    found = inputs.samples.get((row.set, row.index), [])
    if len(found) < spec.samples():
        raise PermanentError(
            f"curate: step {inputs.number} ({spec.name}): row {inputs.name(row)} has {len(found)} samples of the "
            f"{spec.samples()} that are counted; let the evaluation draw more"
        )
    return found


# The step that labels pairs of samples as raters of different tastes would.


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
