"""A step of the study's own (`file.py:function`), and the step that applies a chat template."""

from dataclasses import fields, replace
from typing import Any

from interplay.core import extension
from interplay.core.model import PermanentError, UserError, nearest_name
from interplay.data.steps.spec import ChatTemplate, CustomStep
from interplay.data.steps.step import Inputs, Made, changed
from interplay.data.tokenizer import tokenizer_folder
from interplay.tasks.families import JUDGES
from interplay.tasks.verdict import Row

# A step of the study's own.


COLUMNS = [field.name for field in fields(Row)]
NUMBERS = ("set", "index", "op")
LISTS = ("transforms",)
"""Columns that hold a number, and a list of texts; the others hold text."""


def own(spec: CustomStep, rows: list[Row], inputs: Inputs) -> Made:
    """What the function makes of the rows. Counts: changed. Raises UserError when it fails, and when it returns
    something else than rows that can be judged."""
    given = {(row.set, row.index): row for row in rows}
    before = set(rows)
    made = extension.call(spec, [_columns(row) for row in rows])
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
            f"{spec.function}: family = '{row.family[:40]}' of row {row.index} judges nothing{nearest_name(row.family, JUDGES)}"
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


# Prompts in a chat model's own form.


def chat_template(spec: ChatTemplate, rows: list[Row], inputs: Inputs) -> Made:
    """Render every prompt. Raises PermanentError where the model has no template."""
    # Imported here: two seconds that no other step need pay. The template runs in the library's sandbox.
    from transformers import AutoTokenizer

    folder = tokenizer_folder(inputs.folders["tokenizer"])
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not tokenizer.chat_template:
        raise PermanentError(f"chat_template: {folder} has no chat template; take the step away, or start from a chat model")
    before = [{"role": "system", "content": spec.system}] if spec.system is not None else []

    def rendered(prompt: str) -> str:
        messages = [*before, {"role": "user", "content": prompt}]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    return Made([changed(row, "chat_template", prompt=rendered(row.prompt)) for row in rows], {"changed": len(rows)})
