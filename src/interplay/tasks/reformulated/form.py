"""The form that a question was put into, with the question's own gold."""

import json
from types import ModuleType
from typing import Any, NamedTuple

CHOICES = {"four_choice": 4, "ten_choice": 10}
"""Formats with options, and how many."""
CLOZE, TRUE_FALSE, OPEN = "cloze", "true_false", "open"
FORMATS = (*CHOICES, CLOZE, TRUE_FALSE, OPEN)
HIDDEN = "_"
"""Stands for a character of the answer that a cloze does not show."""
KEYS = "abcdefghij"
"""Keys of options. Small letters: every alphabet of op_dag with ten letters has them."""


class Form(NamedTuple):
    """One question in one format."""

    format: str
    """One of FORMATS."""
    family: str
    """Whose question it is."""
    graph: str
    """Its gold, for that family's `loads`."""
    gold: str
    """The right answer to the open question."""
    options: tuple[str, ...] = ()
    """Of a choice, in the order shown; one of them is the gold."""
    mask: str = ""
    """Of a cloze: the answer with HIDDEN in place of some characters."""
    statement: str = ""
    """Of true_false: the answer that is proposed."""

    @property
    def key(self) -> str:
        """The key of the right option."""
        return KEYS[self.options.index(self.gold)]


class Loaded(NamedTuple):
    """A form with the problem inside it."""

    form: Form
    judge: ModuleType
    """The inner family."""
    inner: Any
    """As its `loads` gives it."""


def dumps(form: Form) -> str:
    """JSON, the same for equal forms."""
    return json.dumps(form._asdict(), separators=(",", ":"))


def read(text: str) -> Form:
    """The form of `dumps`."""
    raw = json.loads(text)
    return Form(**{**raw, "options": tuple(raw["options"])})


def loads(text: str) -> Loaded:
    """The form of `dumps`, with the problem inside it."""
    from interplay.tasks.table import judge  # the table knows this family, too

    form = read(text)
    module = judge(form.family)
    return Loaded(form, module, module.loads(form.graph))
