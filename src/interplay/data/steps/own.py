"""A step of the study's own."""

from dataclasses import fields, replace
from typing import Any

from interplay.data.steps.step import Inputs, Made
from interplay.schema import custom
from interplay.schema.base import UserError
from interplay.schema.steps.own import CustomStep
from interplay.tasks.row import Row

COLUMNS = [field.name for field in fields(Row)]


def own(spec: CustomStep, rows: list[Row], inputs: Inputs) -> Made:
    """What the function makes of the rows. Counts: changed. Raises UserError when it returns something else than rows."""
    given = {(row.set, row.index): row for row in rows}
    before = set(rows)
    made = custom.load(spec)([_columns(row) for row in rows], **spec.options)
    found, changed = [], 0
    for values in made if isinstance(made, list) else [made]:
        row = _row(spec, values, given)
        if row not in before:
            changed += 1
            row = replace(row, transforms=(*row.transforms, f"custom:{spec.function.rpartition(':')[2]}"))
        found.append(row)
    return Made(found, {"changed": changed})


def _columns(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COLUMNS} | {"transforms": list(row.transforms)}


def _row(spec: CustomStep, values: Any, given: dict[tuple[int, int], Row]) -> Row:
    """The row of a dict. It belongs to one that the function was given: `set` and `index` say which."""
    try:
        row = Row(**{**values, "transforms": tuple(values["transforms"])})
        known = given[row.set, row.index]
    except (TypeError, KeyError) as error:
        raise UserError(
            f"{spec.function}: must return a list of rows with the columns {', '.join(COLUMNS)}, set and index as they were "
            f"({type(error).__name__}: {error})"
        ) from None
    return replace(row, origin=known.origin)
