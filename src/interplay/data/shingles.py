"""Which texts are near copies of each other: the exact join of sets of n-grams by Jaccard similarity, with prefix filtering
(Bayardo, Ma and Srikant, WWW 2007; PPJoin's ordering): two sets that are alike share one of their rarest members."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import numpy as np

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
