"""What every reader of a format gives back, and how it says that an item is not as it should be."""

from typing import Any, Literal, NamedTuple

from interplay.tasks import multihop, qa
from interplay.tasks.text import normalise

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


def text(raw: dict[str, Any], key: str, words: bool = True) -> str:
    """A field that must hold text; `words`: of which something is left once it is normalised. Raises ItemError."""
    value = raw.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise ItemError("broken", f"{key} is {kind(value)} and should be text", name(raw))
    if not value or not value.strip():
        raise ItemError("missing_field", f"{key} is {'missing' if value is None else 'empty'}", name(raw))
    if words and not normalise(value):
        raise nothing_left(key, value, name(raw))
    return encodable(value, name(raw))


def nothing_left(key: str, value: str, id: str) -> ItemError:
    """A text that says nothing to scorers, so that as an answer no completion could give it."""
    left = "without articles and punctuation, as scorers compare, nothing is left"
    return ItemError("missing_field", f"{key} is {value.strip()[:40]!r}: {left}", id)


def listed(raw: dict[str, Any], key: str) -> list[Any]:
    """A field that must hold a list with something in it. Raises ItemError."""
    value = raw.get(key)
    if value is not None and not isinstance(value, list):
        raise ItemError("broken", f"{key} is {kind(value)} and should be a list", name(raw))
    if not value:
        raise ItemError("missing_field", f"{key} is {'missing' if value is None else 'empty'}", name(raw))
    return value


def name(raw: dict[str, Any]) -> str:
    """The item's own name, or nothing."""
    value = raw.get("_id", raw.get("id"))
    return str(value) if isinstance(value, (str, int)) else ""


def kind(value: Any) -> str:
    """A JSON value's kind in words."""
    words = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "text"}
    return words.get(type(value), "null")


def encodable(value: str, id: str = "") -> str:
    """The text. Raises ItemError where it holds half a character (a lone surrogate), which no file can."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ItemError("broken", "a text holds half of a character (a lone surrogate)", id) from None
    return value
