"""A step of the study's own."""

from dataclasses import fields, replace
from typing import Any

from interplay.data.steps.step import Inputs, Made
from interplay.schema import custom
from interplay.schema.base import UserError, nearest
from interplay.schema.steps.own import CustomStep
from interplay.tasks.row import Row
from interplay.tasks.table import JUDGES

COLUMNS = [field.name for field in fields(Row)]
NUMBERS = ("set", "index", "op")
LISTS = ("transforms",)
"""Columns that hold a number, and a list of texts; the others hold text."""


def own(spec: CustomStep, rows: list[Row], inputs: Inputs) -> Made:
    """What the function makes of the rows. Counts: changed. Raises UserError when it fails, and when it returns
    something else than rows that can be judged."""
    given = {(row.set, row.index): row for row in rows}
    before = set(rows)
    made = custom.call(spec, custom.load(spec), [_columns(row) for row in rows])
    if not isinstance(made, list):
        raise _no_rows(spec, f"not {type(made).__name__}")
    found, changed = [], 0
    for values in made:
        row = _row(spec, values, given)
        if row not in before:
            _check(spec, row)
            changed += 1
            row = replace(row, transforms=(*row.transforms, f"custom:{spec.function.rpartition(':')[2]}"))
        found.append(row)
    return Made(found, {"changed": changed})


def _columns(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COLUMNS} | {"transforms": list(row.transforms)}


def _row(spec: CustomStep, values: Any, given: dict[tuple[int, int], Row]) -> Row:
    """The row of a dict. It belongs to one that the function was given: `set` and `index` say which. A function that knows
    nothing of pairs makes none."""
    try:
        values = {"rejected": "", "rater": "", **values}
        odd = next((name for name in COLUMNS if not _fits(name, values[name])), None)
        if odd:
            raise _no_rows(spec, f"{odd} is {type(values[odd]).__name__}")
        row = Row(**{**values, "transforms": tuple(values["transforms"])})
        known = given[row.set, row.index]
    except (TypeError, KeyError) as error:
        raise _no_rows(spec, f"{type(error).__name__}: {error}") from None
    return replace(row, origin=known.origin)


def _fits(column: str, value: Any) -> bool:
    if column in LISTS:
        return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    return isinstance(value, int) and not isinstance(value, bool) if column in NUMBERS else isinstance(value, str)


def _check(spec: CustomStep, row: Row) -> None:
    """Raises UserError where later steps and judges could not read a row."""
    if row.family not in JUDGES:
        raise UserError(
            f"{spec.function}: family = '{row.family[:40]}' of row {row.index} judges nothing{nearest(row.family, JUDGES)}"
        )
    try:
        JUDGES[row.family].loads(row.graph)
        int(row.key, 16)
    except Exception as error:  # a graph may be wrong in any way
        raise UserError(
            f"{spec.function}: graph or key of row {row.index} is none of {row.family} ({type(error).__name__}: {error})"
        ) from None


def _no_rows(spec: CustomStep, found: str) -> UserError:
    columns = ", ".join(COLUMNS)
    return UserError(
        f"{spec.function}: must return a list of rows with the columns {columns}, set and index as they were ({found})"
    )
