"""The step that gives rows a band by what they tell themselves, and what labelling steps share."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interplay.data.steps.step import Inputs, Made
from interplay.schema.steps.label import Bands, Label
from interplay.tasks.row import Row


def label(spec: Label, rows: list[Row], inputs: Inputs) -> Made:
    """Bands by op, or by characters of prompt or solution."""
    return banded(spec, rows, [row.op if spec.by == "op" else len(getattr(row, spec.by)) for row in rows])


def banded(spec: Bands, rows: list[Row], values: Sequence[float]) -> Made:
    """Rows with the first band that holds their value. Counts: rows by band, and those in none. A label is no change of the row:
    its transforms stay."""
    places = shares(values) if spec.edges == "quantile" else list(values)
    found = [next((name for name, (low, high) in spec.bands.items() if low <= place <= high), None) for place in places]
    counts = {f"band {name}": found.count(name) for name in spec.bands} | {"in no band": found.count(None)}
    return Made([row if name is None else replace(row, band=name) for row, name in zip(rows, found, strict=True)], counts)


def shares(values: Sequence[float]) -> list[float]:
    """Where each value lies in ascending order, in (0, 1): the share of smaller ones and half that of its equals."""
    each = np.asarray(values, dtype=float)
    ordered = np.sort(each)
    ends = np.searchsorted(ordered, each, "left") + np.searchsorted(ordered, each, "right")
    return (ends / (2 * max(1, len(each)))).tolist()
