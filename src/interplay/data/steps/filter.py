"""Steps that filter, label or rewrite rows by their own content: length, bands, duplicates, contamination, a chat template, a
function of the study's own."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from interplay.core import extension, model
from interplay.data import similarity
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps import spec as steps
from interplay.data.tokenizer import tokenizer_folder
from interplay.tasks.family import judge_family
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
    if row.family not in FAMILIES:
        nearest = model.nearest_name(row.family, FAMILIES)
        raise model.UserError(f"{spec.function}: family = '{row.family[:40]}' of row {row.index} has no verifier{nearest}")
    try:
        judge_family(row.family).loads(row.graph)
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
    """Render every prompt. Raises PermanentError where the model has no template."""
    # Imported here, since the import takes two seconds. The library runs the template in a sandbox.
    from transformers import AutoTokenizer

    folder = tokenizer_folder(inputs.folders["tokenizer"])
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not tokenizer.chat_template:
        raise model.PermanentError(f"chat_template: {folder} has no chat template; remove the step, or start from a chat model")
    before = [{"role": "system", "content": spec.system}] if spec.system is not None else []

    def rendered(prompt: str) -> str:
        messages = [*before, {"role": "user", "content": prompt}]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    return StepResult([transform_row(row, "chat_template", prompt=rendered(row.prompt)) for row in rows], {"changed": len(rows)})
