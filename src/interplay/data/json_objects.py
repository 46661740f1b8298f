"""JSON objects from files, one a line or in a list; a defective object is reported and the others are read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from interplay.core.model import UserError
from interplay.tasks import multihop, qa
from interplay.tasks.verdict import normalise

# What every reader of a format gives back, and how it says that an item is not as it should be.


Reason = Literal["broken", "missing_field", "unanswerable", "duplicate_id"]


class ItemError(Exception):
    """What is wrong with an item. `id` is empty where it is not known."""

    def __init__(self, reason: Reason, message: str, id: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.id = reason, message, id


class Entry(NamedTuple):
    """One item of a file."""

    id: str
    """Its own name; an item without one goes by its question."""
    problem: multihop.Problem | qa.Problem
    op: int
    """Hops, or lines of the solution."""


def text_field(raw: dict[str, Any], key: str, words: bool = True) -> str:
    """A field that must hold text; `words`: of which something is left once it is normalised. Raises ItemError."""
    value = raw.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise ItemError("broken", f"{key} is {json_kind(value)} and should be text", item_name(raw))
    if not value or not value.strip():
        raise ItemError("missing_field", f"{key} is {'missing' if value is None else 'empty'}", item_name(raw))
    if words and not normalise(value):
        raise nothing_left(key, value, item_name(raw))
    return check_encodable(value, item_name(raw))


def nothing_left(key: str, value: str, id: str) -> ItemError:
    """A text that says nothing to scorers, so that as an answer no completion could give it."""
    left = "without articles and punctuation, as scorers compare, nothing is left"
    return ItemError("missing_field", f"{key} is {value.strip()[:40]!r}: {left}", id)


def list_field(raw: dict[str, Any], key: str) -> list[Any]:
    """A field that must hold a list with something in it. Raises ItemError."""
    value = raw.get(key)
    if value is not None and not isinstance(value, list):
        raise ItemError("broken", f"{key} is {json_kind(value)} and should be a list", item_name(raw))
    if not value:
        raise ItemError("missing_field", f"{key} is {'missing' if value is None else 'empty'}", item_name(raw))
    return value


def item_name(raw: dict[str, Any]) -> str:
    """The item's own name, or nothing."""
    value = raw.get("_id", raw.get("id"))
    return str(value) if isinstance(value, (str, int)) else ""


def json_kind(value: Any) -> str:
    """A JSON value's kind in words."""
    words = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "text"}
    return words.get(type(value), "null")


def check_encodable(value: str, id: str = "") -> str:
    """The text. Raises ItemError where it holds half a character (a lone surrogate), which no file can."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ItemError("broken", "a text holds half of a character (a lone surrogate)", id) from None
    return value


# Files of JSON objects: one a line, or in a list. A defective object leaves the others readable.


_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_BLANK = re.compile(r"\s*")


class Found(NamedTuple):
    """An object of a file, or why there is none."""

    where: str
    """`line 3` or `item 3`, from 1."""
    raw: dict[str, Any] | ItemError


def read_lines(path: Path) -> Iterator[Found]:
    """The objects of a file with one on each line; blank lines are passed over."""
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                yield Found(f"line {number}", _line(line.removeprefix(b"\xef\xbb\xbf")))


def _line(line: bytes) -> dict[str, Any] | ItemError:
    try:
        value = json.loads(line.decode())
    except json.JSONDecodeError as error:
        return ItemError("broken", f"not JSON ({error.msg}, column {error.colno})")
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        return ItemError("broken", f"not JSON ({error})")
    return value if isinstance(value, dict) else ItemError("broken", f"is {json_kind(value)} and should be an object")


def read_members(path: Path) -> Iterator[Found]:
    """The objects of a file that holds one list of them, each parsed by itself: where one is not JSON, its brackets tell where
    the next one starts. Raises UserError where the file is no list, or ends within it, or goes on after it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not text in UTF-8 (byte {error.start})") from None
    at, number = _blank(text, 0), 0
    if text[at : at + 1] != "[":
        raise UserError(f"{path}: {_spot(text, at)}: should be a JSON list that starts with '['")
    at = _blank(text, at + 1)
    while text[at : at + 1] != "]" or number == 0:
        if text[at : at + 1] == "]":
            break
        number += 1
        raw, end = _member(text, at)
        if isinstance(raw, ItemError) and end < 0:
            raise UserError(f"{path}: item {number}: {raw.message}; it never ends; mend the file there")
        yield Found(f"item {number}", raw)
        at = _blank(text, end)
        if text[at : at + 1] == ",":
            at = _blank(text, at + 1)
        elif text[at : at + 1] != "]":
            raise UserError(f"{path}: {_spot(text, at)}: after item {number} should be ',' or ']'")
    if _blank(text, at + 1) != len(text):
        raise UserError(f"{path}: {_spot(text, at + 1)}: the list ends and text goes on")


def _member(text: str, at: int) -> tuple[dict[str, Any] | ItemError, int]:
    """The object that starts at an offset, and the offset behind it; -1 where it never ends."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except json.JSONDecodeError as error:
        return ItemError("broken", f"not JSON ({error.msg}, {_spot(text, error.pos)})"), _closing(text, at)
    except (RecursionError, ValueError) as error:
        return ItemError("broken", f"not JSON ({error})"), _closing(text, at)
    return (value if isinstance(value, dict) else ItemError("broken", f"is {json_kind(value)} and should be an object")), end


def _closing(text: str, at: int) -> int:
    """The offset behind the bracket that closes the one at `at`; -1 where there is none."""
    depth = 0
    if text[at : at + 1] not in ("{", "["):
        return -1
    for found in _STRING_OR_BRACKET.finditer(text, at):
        depth += (found[0] in "{[") - (found[0] in "}]")
        if not depth:
            return found.end()
    return -1


def _blank(text: str, at: int) -> int:
    """The offset of what follows the blanks at `at`."""
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _spot(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
