"""Near-duplicate detection: the exact Jaccard join of n-gram sets, and comparison by text, names, structure or origin."""

import re
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np

from interplay.data.steps.spec import Alike
from interplay.tasks import qa
from interplay.tasks.family import multihop_item, open_question
from interplay.tasks.verdict import Row

# Which texts are near copies of each other: the exact join of sets of n-grams by Jaccard similarity, with prefix filtering
# (Bayardo, Ma and Srikant, WWW 2007; PPJoin's ordering): two sets that are alike share one of their rarest members.


NAME = 1 << 32
"""A token from here on is a name: within an n-gram it counts by where it first stands there."""
CHUNK = 1 << 20
"""Tokens whose n-grams are made at once."""
EPSILON = 1e-9


class Shingled(NamedTuple):
    """The n-grams of texts, each text's without repeats and the rarest first."""

    ranks: np.ndarray
    """(S,) int64: n-grams of all texts, one text after another, numbered by rarity over all of them."""
    starts: np.ndarray
    """(T+1,) int64: text t owns ranks[starts[t]:starts[t+1]]."""

    def of(self, text: int) -> np.ndarray:
        """The n-grams of one text."""
        return self.ranks[self.starts[text] : self.starts[text + 1]]


def shingled(texts: Sequence[Sequence[int]], n: int) -> Shingled:
    """N-grams of texts given as tokens (small integers above 0; names from NAME on). A text of fewer than n tokens has one, all
    of it."""
    parts = [_hashes(texts[low:high], low, n) for low, high in _chunks(texts)]
    hashes = np.concatenate([part[0] for part in parts] or [np.zeros(0, np.uint64)])
    owners = np.concatenate([part[1] for part in parts] or [np.zeros(0, np.int64)])
    known, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    rank_of = np.empty(len(known), np.int64)
    rank_of[np.lexsort((known, counts))] = np.arange(len(known))
    ranks = rank_of[inverse]
    order = np.lexsort((ranks, owners))
    return Shingled(ranks[order], np.searchsorted(owners[order], np.arange(len(texts) + 1)))


def _chunks(texts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Ranges of texts of about CHUNK tokens."""
    ends = np.cumsum([len(text) for text in texts])
    cuts = np.flatnonzero(np.diff(ends // CHUNK)) + 1
    bounds = [0, *cuts.tolist(), len(texts)]
    return [(low, high) for low, high in pairwise(bounds) if low < high]


def _hashes(texts: Sequence[Sequence[int]], first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(hash, number of its text) of every distinct n-gram of each text; the first text has number `first`."""
    lengths = np.array([max(len(text), n) for text in texts])
    flat = np.zeros(int(lengths.sum()), np.int64)
    begins = np.cumsum(lengths) - lengths
    for begin, text in zip(begins.tolist(), texts, strict=True):
        flat[begin : begin + len(text)] = text
    counts = lengths - n + 1
    owners = np.repeat(np.arange(len(texts)), counts)
    at = np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    made = np.zeros(len(at), np.uint64)
    for place in range(n):
        token = flat[at + place]
        value = token.copy()
        if token.size and token.max() >= NAME:
            for before in range(place, -1, -1):
                value[(token >= NAME) & (flat[at + before] == token)] = NAME + before
        made = _mix(made * np.uint64(0x9E3779B97F4A7C15) + value.astype(np.uint64) + np.uint64(1))
    order = np.lexsort((made, owners))
    made, owners = made[order], owners[order]
    fresh = np.ones(len(made), bool)
    fresh[1:] = (made[1:] != made[:-1]) | (owners[1:] != owners[:-1])
    return made[fresh], owners[fresh] + first


def _mix(number: np.ndarray) -> np.ndarray:
    """A 64-bit finaliser (Stafford's variant 13 of MurmurHash3's)."""
    number = (number ^ number >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ number >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return number ^ number >> np.uint64(31)


class Near:
    """Texts that were added, to be found by others that are like them."""

    def __init__(self, grams: Shingled, threshold: float) -> None:
        self.grams, self.threshold = grams, threshold
        self.sizes: list[int] = np.diff(grams.starts).tolist()
        self.postings: dict[int, list[int]] = {}
        """N-gram -> the added texts among whose rarest it is, in order."""
        self.sets: dict[int, frozenset[int]] = {}
        """N-grams of the texts that were compared."""

    def add(self, text: int) -> None:
        """Let later ones be compared with this text."""
        for rank in self._rarest(text):
            self.postings.setdefault(rank, []).append(text)

    def find(self, text: int) -> int | None:
        """The text that was added first of those whose similarity is at least the threshold, itself left out."""
        met = {other for rank in self._rarest(text) for other in self.postings.get(rank, ()) if other != text}
        least, most = self.threshold * self.sizes[text] - EPSILON, self.sizes[text] / self.threshold + EPSILON
        fitting = sorted(other for other in met if least <= self.sizes[other] <= most)
        return next((other for other in fitting if self._alike(self._set(text), self._set(other))), None)

    def _rarest(self, text: int) -> list[int]:
        """As many of its rarest n-grams as leave too few for a text that has none of them to be alike."""
        mine = self.grams.of(text)
        return mine[: len(mine) - ceil(self.threshold * len(mine) - EPSILON) + 1].tolist()

    def _set(self, text: int) -> frozenset[int]:
        if text not in self.sets:
            self.sets[text] = frozenset(self.grams.of(text).tolist())
        return self.sets[text]

    def _alike(self, mine: frozenset[int], other: frozenset[int]) -> bool:
        common = len(mine & other)
        return common >= self.threshold * (len(mine) + len(other) - common) - EPSILON


# When two rows ask the same: by text, by near text, by text up to names, by structure, by origin.


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
    rows = [open_question(row) for row in rows]
    if how == "ngram":
        return [Near(shingled(_numbered(rows, plain_tokens), n), threshold)]
    if how == "renamed":
        tokens = _numbered(rows, named_tokens)
        whole = [canonical_names(one) for one in tokens]
        known: dict[tuple[int, ...], int] = {}
        # A terse problem with one sign changed is another problem: only all of it counts.
        parts = [
            [known.setdefault(all_, len(known) + 1)] if row.family == "op_dag" else one
            for row, one, all_ in zip(rows, tokens, whole, strict=True)
        ]
        return [Same(whole), Near(shingled(parts, n), threshold)]
    return [Same([KEYS[how](row) for row in rows])]


def question_text(row: Row) -> str:
    """What a row asks: of a question over documents the question and the facts that it needs, of a plain question itself without
    what is said around it, of any other the prompt."""
    if row.family == "qa":
        return qa.loads(row.graph).question
    found = multihop_item(row)
    if found is None:
        return row.prompt
    facts = (found.paragraphs[paragraph].sentences[sentence] for paragraph, sentence in found.supporting)
    return " ".join([found.question, *facts])


KEYS: dict[str, Callable[[Row], Hashable]] = {
    "exact": lambda row: " ".join(question_text(row).split()),
    "structural": lambda row: row.key,
    "origin": lambda row: row.origin,
}


def plain_tokens(row: Row) -> list[tuple[str, bool]]:
    """(token, False) of the question: characters of op_dag, words of prose in lower case."""
    if row.family == "op_dag":
        return [(token, False) for token in LETTERS.findall(row.prompt)]
    return [(token.lower(), False) for token in WORDS.findall(question_text(row))]


def named_tokens(row: Row) -> list[tuple[str, bool]]:
    """(token, whether it is a name) of the question: letters of op_dag; capitalised words and numbers of prose."""
    if row.family == "op_dag":
        return [(token, token.isalpha()) for token in LETTERS.findall(row.prompt)]
    return [(token, token[0].isupper() or token[0].isdigit()) for token in NAMES.findall(question_text(row))]


def canonical_names(tokens: Sequence[int]) -> tuple[int, ...]:
    """Tokens with each name numbered by its first appearance."""
    first: dict[int, int] = {}
    return tuple(NAME + first.setdefault(token, len(first)) if token >= NAME else token for token in tokens)


def _numbered(rows: Sequence[Row], tokens: Callable[[Row], list[tuple[str, bool]]]) -> list[list[int]]:
    """Each row's tokens as integers from 1 on, names from NAME on."""
    known: dict[tuple[str, bool], int] = {}
    return [[known.setdefault(token, len(known) + 1 + NAME * token[1]) for token in tokens(row)] for row in rows]
