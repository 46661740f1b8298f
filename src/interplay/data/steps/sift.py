"""Steps that select or label rows by the rows alone: length, bands, duplicates, contamination."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interplay.core.model import PermanentError, plural
from interplay.data import near_duplicates
from interplay.data.steps.spec import Alike, Bands, Contamination, Deduplicate, Label, Length, Take
from interplay.data.steps.step import Inputs, Made
from interplay.tasks.verdict import Row

# The step that gives rows a band by what they tell themselves, and what labelling steps share.


def label_rows(spec: Label, rows: list[Row], inputs: Inputs) -> Made:
    """Bands by op, or by characters of prompt or solution."""
    return assign_bands(spec, rows, [row.op if spec.by == "op" else len(getattr(row, spec.by)) for row in rows])


def assign_bands(spec: Bands, rows: list[Row], values: Sequence[float]) -> Made:
    """Rows with the first band that holds their value. Counts: rows by band, and those in none. A label is no change of the row:
    its transforms stay."""
    places = rank_shares(values) if spec.edges == "quantile" else list(values)
    found = [next((name for name, (low, high) in spec.bands.items() if low <= place <= high), None) for place in places]
    counts = {f"band {name}": found.count(name) for name in spec.bands} | {"in no band": found.count(None)}
    return Made([row if name is None else replace(row, band=name) for row, name in zip(rows, found, strict=True)], counts)


def rank_shares(values: Sequence[float]) -> list[float]:
    """Where each value lies in ascending order, in (0, 1): the share of smaller ones and half that of its equals."""
    each = np.asarray(values, dtype=float)
    ordered = np.sort(each)
    ends = np.searchsorted(ordered, each, "left") + np.searchsorted(ordered, each, "right")
    return (ends / (2 * max(1, len(each)))).tolist()


# Steps that choose rows by themselves.


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


# Steps that compare rows with each other, or with the rows of other sets.


def deduplicate(spec: Deduplicate, rows: list[Row], inputs: Inputs) -> Made:
    """Rows that are like none before them that stayed. Counts: alike."""
    finders = near_duplicates.finders(spec.how, rows, spec.n, spec.threshold)
    kept = []
    for number, row in enumerate(rows):
        if all(finder.find(number) is None for finder in finders):
            kept.append(row)
            for finder in finders:
                finder.add(number)
    return Made(kept, {"alike": len(rows) - len(kept)})


def contamination(spec: Contamination, rows: list[Row], inputs: Inputs) -> Made:
    """Rows that are like none of the sets to compare with. Counts: rows that are, by the first way in which they are. Raises
    PermanentError when there are any and the step refuses them."""
    matches = matched(spec, rows, inputs.against)
    counts = Counter(how for how, _ in matches.values())
    if matches and spec.action == "refuse":
        number, (how, other) = min(matches.items())
        twin = inputs.against[other]
        ways = ", ".join(f"{how} {counts[how]}" for how in spec.how if counts[how])
        raise PermanentError(
            f"curate: step {inputs.number} (contamination): {plural(len(matches), 'row')} of {len(rows)} like rows that must not "
            f"be trained on ({ways}); the first: {inputs.name(rows[number])} is like {inputs.other(twin)} ({how}); mend the set, "
            "or drop such rows with action: drop"
        )
    return Made([row for number, row in enumerate(rows) if number not in matches], {how: counts[how] for how in spec.how})


def matched(spec: Contamination, rows: list[Row], others: list[Row]) -> dict[int, tuple[Alike, int]]:
    """Number of a row -> (the first way in which it is like one of the others, the number of that)."""
    found: dict[int, tuple[Alike, int]] = {}
    both = others + rows
    for how in spec.how:
        for finder in near_duplicates.finders(how, both, spec.n, spec.threshold):
            for number in range(len(others)):
                finder.add(number)
            for number in range(len(rows)):
                other = None if number in found else finder.find(len(others) + number)
                if other is not None:
                    found[number] = (how, other)
    return found
