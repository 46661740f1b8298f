"""When two rows ask the same: by text, by near text, by text up to names, by structure, by origin."""

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from interplay.data.shingles import NAME, Near, shingled
from interplay.schema.steps.sift import Alike
from interplay.tasks import qa
from interplay.tasks.row import Row
from interplay.tasks.table import item, opened

LETTERS = re.compile(r"[A-Za-z]|\d+|[^\s.A-Za-z\d]")
"""Tokens of op_dag's terse prompts: letters, numbers and signs, without the dots that mean nothing."""
WORDS = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[+\-*/^=<>]")
"""Tokens of prose, without punctuation but with the signs of arithmetic: 12 + 3 and 12 - 3 are two questions."""
NAMES = re.compile(r"[A-ZÀ-ÖØ-Þ]\w*(?:[ -][A-ZÀ-ÖØ-Þ]\w*)*|\d+(?:[.,]\d+)*|[^\W\d_]+|[+\-*/^=<>]")
"""Tokens of prose with a run of capitalised words as one: a name, as far as can be told without knowing the language. The first
word of a sentence may be one by mistake; it is so in every copy."""


class Finder(Protocol):
    """Rows that were added, to be found by others that are like them. Rows go by their number."""

    def add(self, row: int) -> None:
        """Let later ones be compared with this row."""

    def find(self, row: int) -> int | None:
        """The row that was added first of those that are alike."""


class Same:
    """Alike is who has an equal key."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self.keys = keys
        self.first: dict[Hashable, int] = {}

    def add(self, row: int) -> None:
        """Let later ones be compared with this row."""
        self.first.setdefault(self.keys[row], row)

    def find(self, row: int) -> int | None:
        """The row that was added first of those with its key."""
        return self.first.get(self.keys[row])


def finders(how: Alike, rows: Sequence[Row], n: int, threshold: float) -> list[Finder]:
    """What finds rows that are alike in this sense, among all of `rows`. A question in another form is compared as the
    question that it is: options and the like, which are drawn, would hide that two ask the same."""
    rows = [opened(row) for row in rows]
    if how == "ngram":
        return [Near(shingled(_numbered(rows, plain_tokens), n), threshold)]
    if how == "renamed":
        tokens = _numbered(rows, named_tokens)
        whole = [canonical(one) for one in tokens]
        known: dict[tuple[int, ...], int] = {}
        # A terse problem with one sign changed is another problem: only all of it counts.
        parts = [
            [known.setdefault(all_, len(known) + 1)] if row.family == "op_dag" else one
            for row, one, all_ in zip(rows, tokens, whole, strict=True)
        ]
        return [Same(whole), Near(shingled(parts, n), threshold)]
    return [Same([KEYS[how](row) for row in rows])]


def question(row: Row) -> str:
    """What a row asks: of a question over documents the question and the facts that it needs, of a plain question itself without
    what is said around it, of any other the prompt."""
    if row.family == "qa":
        return qa.loads(row.graph).question
    found = item(row)
    if found is None:
        return row.prompt
    facts = (found.paragraphs[paragraph].sentences[sentence] for paragraph, sentence in found.supporting)
    return " ".join([found.question, *facts])


KEYS: dict[str, Callable[[Row], Hashable]] = {
    "exact": lambda row: " ".join(question(row).split()),
    "structural": lambda row: row.key,
    "origin": lambda row: row.origin,
}


def plain_tokens(row: Row) -> list[tuple[str, bool]]:
    """(token, False) of the question: characters of op_dag, words of prose in lower case."""
    if row.family == "op_dag":
        return [(token, False) for token in LETTERS.findall(row.prompt)]
    return [(token.lower(), False) for token in WORDS.findall(question(row))]


def named_tokens(row: Row) -> list[tuple[str, bool]]:
    """(token, whether it is a name) of the question: letters of op_dag; capitalised words and numbers of prose."""
    if row.family == "op_dag":
        return [(token, token.isalpha()) for token in LETTERS.findall(row.prompt)]
    return [(token, token[0].isupper() or token[0].isdigit()) for token in NAMES.findall(question(row))]


def canonical(tokens: Sequence[int]) -> tuple[int, ...]:
    """Tokens with each name numbered by its first appearance."""
    first: dict[int, int] = {}
    return tuple(NAME + first.setdefault(token, len(first)) if token >= NAME else token for token in tokens)


def _numbered(rows: Sequence[Row], tokens: Callable[[Row], list[tuple[str, bool]]]) -> list[list[int]]:
    """Each row's tokens as integers from 1 on, names from NAME on."""
    known: dict[tuple[str, bool], int] = {}
    return [[known.setdefault(token, len(known) + 1 + NAME * token[1]) for token in tokens(row)] for row in rows]
