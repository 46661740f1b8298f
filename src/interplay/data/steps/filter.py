"""Steps that filter, label or rewrite rows by their own content (length, bands, duplicates, contamination, a chat template, a
function of the study's own), or by judged samples of them (pass rate, rejection sampling, preference pairs)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from interplay.core import extension, model
from interplay.data import similarity, tokenizer
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps import spec as steps
from interplay.tasks import transcripts
from interplay.tasks.families import judge_family
from interplay.tasks.spec import FAMILIES
from interplay.tasks.verdict import Row

# Labels.


def label_rows(spec: steps.Label, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Bands by op, or by characters of prompt or solution."""
    return assign_bands(spec, rows, [row.op if spec.by == "op" else len(getattr(row, spec.by)) for row in rows])


def assign_bands(spec: steps.Bands, rows: list[Row], values: Sequence[float]) -> StepResult:
    """Rows with the first band that contains their value. Counts: rows by band, and those in none. A label does not count as a
    transform of the row."""
    places = rank_shares(values) if spec.edges == "quantile" else list(values)
    found = [next((name for name, (low, high) in spec.bands.items() if low <= place <= high), None) for place in places]
    counts = {f"band {name}": found.count(name) for name in spec.bands} | {"in no band": found.count(None)}
    return StepResult([row if name is None else replace(row, band=name) for row, name in zip(rows, found, strict=True)], counts)


def rank_shares(values: Sequence[float]) -> list[float]:
    """The mid-rank of each value as a share, in (0, 1): the share of smaller values and half that of equal ones."""
    each = np.asarray(values, dtype=float)
    ordered = np.sort(each)
    ends = np.searchsorted(ordered, each, "left") + np.searchsorted(ordered, each, "right")
    return (ends / (2 * max(1, len(each)))).tolist()


# Selection by rows alone.


def take_rows(spec: steps.Take, rows: list[Row], inputs: StepInputs) -> StepResult:
    """`size` rows, in an order drawn from the stage's seed."""
    order = inputs.random("take").permutation(len(rows))[: spec.size]
    return StepResult([rows[i] for i in order], {})


def filter_length(spec: steps.Length, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows with low to high tokens. Counts: too_short, too_long."""
    parts = ("prompt", "solution") if spec.part == "both" else (spec.part,)
    sizes = [sum(inputs.count_tokens(getattr(row, part)) for part in parts) for row in rows]
    kept = [row for row, size in zip(rows, sizes, strict=True) if spec.low <= size <= spec.high]
    return StepResult(kept, {"too_short": sum(n < spec.low for n in sizes), "too_long": sum(n > spec.high for n in sizes)})


# Duplicates among the rows, and rows like those of other sets.


def deduplicate(spec: steps.Deduplicate, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows that duplicate no kept row before them. Counts: duplicates, under the key `alike`."""
    indexes = similarity.duplicate_indexes(spec.how, rows, spec.n, spec.threshold)
    kept = []
    for number, row in enumerate(rows):
        if all(index.find(number) is None for index in indexes):
            kept.append(row)
            for index in indexes:
                index.add(number)
    return StepResult(kept, {"alike": len(rows) - len(kept)})


def filter_contamination(spec: steps.Contamination, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows without a match in the sets to compare with. Counts: matched rows, by the first criterion that they meet. Raises
    PermanentError when there are any and the step refuses them."""
    matches = match_rows(spec, rows, inputs.against)
    counts = Counter(how for how, _ in matches.values())
    if matches and spec.action == "refuse":
        number, (how, other) = min(matches.items())
        twin = inputs.against[other]
        found = ", ".join(f"{how} {counts[how]}" for how in spec.how if counts[how])
        first = f"{inputs.row_name(rows[number])} matches {inputs.other_row_name(twin)} ({how})"
        refused = f"{model.plural(len(matches), 'row')} of {len(rows)} match rows that must not be used in training ({found})"
        raise model.PermanentError(
            f"curate: step {inputs.number} (contamination): {refused}; the first: {first}; change the set, or drop such rows "
            "with action: drop"
        )
    return StepResult([row for number, row in enumerate(rows) if number not in matches], {how: counts[how] for how in spec.how})


def match_rows(spec: steps.Contamination, rows: list[Row], others: list[Row]) -> dict[int, tuple[steps.Criterion, int]]:
    """Number of a row -> (the first criterion by which it matches one of the others, the number of that one)."""
    found: dict[int, tuple[steps.Criterion, int]] = {}
    both = others + rows
    for how in spec.how:
        for index in similarity.duplicate_indexes(how, both, spec.n, spec.threshold):
            for number in range(len(others)):
                index.add(number)
            for number in range(len(rows)):
                other = None if number in found else index.find(len(others) + number)
                if other is not None:
                    found[number] = (how, other)
    return found


# A function of the study's own.


COLUMNS = [field.name for field in fields(Row)]
NUMBERS = ("set", "index", "op")
LISTS = ("transforms",)
"""Columns of numbers, and of lists of texts; the others are texts."""


def apply_custom(spec: steps.CustomStep, rows: list[Row], inputs: StepInputs) -> StepResult:
    """The rows that the function returns. Counts: changed. Raises UserError when it fails, or does not return rows that can be
    judged."""
    given = {(row.set, row.index): row for row in rows}
    before = set(rows)
    made = extension.call(spec, [asdict(row) | {"transforms": list(row.transforms)} for row in rows])
    if not isinstance(made, list):
        raise _invalid_result(spec, f"not {type(made).__name__}")
    found, changed = [], 0
    for values in made:
        row = _parse_row(spec, values, given)
        if row not in before:
            _check_readable(spec, row)
            changed += 1
            row = replace(row, transforms=(*row.transforms, f"custom:{spec.function.rpartition(':')[2]}"))
        found.append(row)
    return StepResult(found, {"changed": changed})


def _parse_row(spec: steps.CustomStep, values: Any, given: dict[tuple[int, int], Row]) -> Row:
    """The row of a dict; `set` and `index` identify the input row that it was made from. Missing columns of pairs are empty."""
    try:
        values = {"rejected": "", "rater": "", **values}
        odd = next((name for name in COLUMNS if not _has_type(name, values[name])), None)
        if odd:
            raise _invalid_result(spec, f"{odd} is {type(values[odd]).__name__}")
        row = Row(**{**values, "transforms": tuple(values["transforms"])})
        known = given[row.set, row.index]
    except (TypeError, KeyError) as error:
        raise _invalid_result(spec, f"{type(error).__name__}: {error}") from None
    return replace(row, origin=known.origin)


def _has_type(column: str, value: Any) -> bool:
    if column in LISTS:
        return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    return isinstance(value, int) and not isinstance(value, bool) if column in NUMBERS else isinstance(value, str)


def _check_readable(spec: steps.CustomStep, row: Row) -> None:
    """Raises UserError where later steps and verifiers could not parse a row."""
    try:
        family = judge_family(row.family)
    except KeyError:
        nearest = model.nearest_name(row.family, FAMILIES)
        message = f"{spec.function}: family = '{row.family[:40]}' of row {row.index} has no verifier{nearest}"
        raise model.UserError(message) from None
    try:
        family.loads(row.graph)
        int(row.key, 16)
    except Exception as error:  # a parser may fail in any way
        raise model.UserError(
            f"{spec.function}: graph or key of row {row.index} does not parse as {row.family} ({type(error).__name__}: {error})"
        ) from None


def _invalid_result(spec: steps.CustomStep, found: str) -> model.UserError:
    columns = ", ".join(COLUMNS)
    return model.UserError(
        f"{spec.function}: must return a list of rows with the columns {columns}, set and index as they were ({found})"
    )


# Chat templates.


def apply_chat_template(spec: steps.ChatTemplate, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Render every prompt, and every chat with all of its turns. Raises PermanentError where the model has no template, or one
    that alters earlier messages."""
    folder = tokenizer.tokenizer_folder(inputs.folders["tokenizer"])
    chat = tokenizer.chat_tokenizer(folder)
    before = [{"role": "system", "content": spec.system}] if spec.system is not None else []

    def rendered(said: Sequence[tuple[str, str]]) -> str:
        messages = [{"role": role, "content": content} for role, content in said]
        own = [] if messages[0]["role"] == "system" else before
        return str(chat.apply_chat_template([*own, *messages], tokenize=False, add_generation_prompt=True))

    def templated(row: Row) -> Row:
        if row.mode != transcripts.CHAT:
            return transform_row(row, "chat_template", prompt=rendered([("user", row.prompt)]))
        try:
            pieces = transcripts.chat_pieces(transcripts.TEXT.loads(row.graph).messages, rendered)
        except ValueError as error:
            raise model.PermanentError(f"chat_template: {folder}: {error}; take another template") from None
        # The corpus writes the end token after each turn, which most templates do, too.
        rest = [piece.removeprefix(chat.eos_token or "") if place % 2 else piece for place, piece in enumerate(pieces[1:])]
        return transform_row(row, "chat_template", prompt=pieces[0], solution=transcripts.MARK.join(rest))

    return StepResult([templated(row) for row in rows], {"changed": len(rows)})


# Steps that use which samples of a row are right.


Judging = steps.PassRate | steps.Difficulty | steps.RejectionSampling | steps.PreferencePairs
SampleStep = Judging | steps.RatedPairs
"""Steps that read samples."""


def filter_pass_rate(spec: steps.PassRate, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows with low to high right samples among the first `of`. Counts: too_hard, too_easy. Raises PermanentError where a row has
    fewer samples."""
    low, high, of = spec.limits()
    right = [sum(judged[:of]) for judged in _judged_samples(spec, rows, inputs)]
    kept = [row for row, n in zip(rows, right, strict=True) if low <= n <= high]
    return StepResult(kept, {"too_hard": sum(n < low for n in right), "too_easy": sum(n > high for n in right)})


def label_difficulty(spec: steps.Difficulty, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Bands by share of right samples. Raises PermanentError where a row has none."""
    return assign_bands(spec, rows, [sum(judged) / len(judged) for judged in _judged_samples(spec, rows, inputs)])


def rejection_sampling(spec: steps.RejectionSampling, rows: list[Row], inputs: StepInputs) -> StepResult:
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


def make_preference_pairs(spec: steps.PreferencePairs, rows: list[Row], inputs: StepInputs) -> StepResult:
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
        raise model.PermanentError(
            f"curate: step {inputs.number} ({spec.name}): row {inputs.row_name(row)} has {len(found)} samples of the "
            f"{spec.samples()} that the step needs; raise num_samples of the evaluation"
        )
    return found


# Pairs labelled by simulated raters of different preferences.


Sample = Mapping[str, Any]
RATERS: dict[str, Callable[[steps.RatedPairs, Sample], float]] = {
    "shorter": lambda spec, sample: -len(sample["completion"]),
    "longer": lambda spec, sample: len(sample["completion"]),
    "more_steps": lambda spec, sample: sample["completion"].count(spec.separator),
    "fewer_steps": lambda spec, sample: -sample["completion"].count(spec.separator),
    "right": lambda spec, sample: float(sample[spec.by]),
}
"""A rater's score of a sample: higher is better."""


def make_rated_pairs(spec: steps.RatedPairs, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Up to `per_prompt` labelled pairs of different samples of each row. Counts: rows without two samples that a rater scores
    differently (never_apart), pairs after the first of a question (further), and pairs of each rater. Raises PermanentError where
    a row has fewer than two samples."""
    kept, counts = [], Counter[str]()
    places: dict[str, int] = {rater: place for place, rater in enumerate(spec.raters)}
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
            prompt = f"{places[rater]}{row.prompt}" if spec.stated else row.prompt
            pair = {"solution": better["completion"], "rejected": worse["completion"], "rater": rater}
            kept.append(transform_row(row, spec.name, prompt=prompt, **pair))
    return StepResult(kept, dict(counts))


def _draw_pairs(
    spec: steps.RatedPairs, raters: Sequence[str], samples: Sequence[Sample], random: np.random.Generator
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


def _rate_pair(spec: steps.RatedPairs, rater: str, a: Sample, b: Sample) -> tuple[str, Sample, Sample] | None:
    """(rater, chosen, rejected) of two samples; None where the rater scores them equally."""
    of_a, of_b = RATERS[rater](spec, a), RATERS[rater](spec, b)
    return None if of_a == of_b else (rater, a, b) if of_a > of_b else (rater, b, a)
