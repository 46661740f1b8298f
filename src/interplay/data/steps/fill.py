"""A context of a given length: which documents go into it, and where the item's own stand."""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from interplay.data.steps.documents import Library
from interplay.tasks.multihop.item import Paragraph
from interplay.tasks.multihop.problem import stops

PATIENCE = 32
"""Documents in a row that are too long before one is shortened."""
FEW = 8
"""Documents that may be shortened."""
DEVIATION = 0.35
"""Of the published gaussian placement, on a range of -1..1."""


class Fill(NamedTuple):
    """Chosen documents and their tokens."""

    documents: list[Paragraph]
    tokens: int


class Part(NamedTuple):
    """A document, or the first sentences of one."""

    source: int
    tokens: int
    document: Paragraph


class Shelf:
    """The fillers of one row, drawn as far as they are needed and remembered, since a context may be filled more than once."""

    def __init__(self, library: Library, order: Iterator[int], count: Callable[[Paragraph], int]) -> None:
        self.library, self.order, self.count = library, order, count
        self.drawn: list[int] = []
        self.left = True
        """Whether there may be fillers that were not drawn yet."""

    def __iter__(self) -> Iterator[int]:
        for place in itertools.count():
            if place == len(self.drawn):
                following = next(self.order, None)
                if following is None:
                    self.left = False
                    return
                self.drawn.append(following)
            yield self.drawn[place]

    def fill(self, room: float, margin: float) -> Fill | None:
        """Documents of room - margin to room + margin tokens. Those that are too long for what is left are passed over; in the
        end one of them is shortened to whole sentences, or takes the place of another. None where that does not help."""
        chosen: list[int] = []
        passed: list[int] = []
        total, vain = 0, 0
        if total >= room - margin:
            return Fill([], 0) if total <= room + margin else None
        for number in self:
            size = self.library.size(number, self.count)
            if total + size <= room + margin:
                chosen.append(number)
                total, vain = total + size, 0
                if total >= room - margin:
                    return Fill([self.library.documents[i] for i in chosen], total)
            else:
                passed.append(number)
                vain += 1
                if vain == PATIENCE:
                    break
        return self._finished(chosen, passed[-PATIENCE:], room, margin)

    def _finished(self, chosen: list[int], passed: list[int], room: float, margin: float) -> Fill | None:
        """What is still missing made up of documents that were passed over, whole or shortened: one beside those that were
        chosen or in the place of one of them; else the largest that fits, and the same again."""
        kept = [Part(number, self.library.sizes[number], self.library.documents[number]) for number in chosen]
        parts = [Part(number, self.library.sizes[number], self.library.documents[number]) for number in passed]
        if found := _one_more(kept, parts, room, margin):
            return found  # to shorten documents is to count their tokens, which takes time
        parts += [Part(number, self.count(short), short) for number, _, long in parts[:FEW] for short in shortened(long)]
        while not (found := _one_more(kept, parts, room, margin)):
            missing = room - sum(part.tokens for part in kept)
            fitting = [part for part in parts if part.tokens < missing]
            if not fitting:
                return None
            kept.append(max(fitting, key=lambda part: part.tokens))
            parts = [part for part in parts if part.source != kept[-1].source]
        return found


def _one_more(kept: list[Part], parts: list[Part], room: float, margin: float) -> Fill | None:
    """All that are kept, and one of the parts beside them or in the place of one of them."""
    total = sum(part.tokens for part in kept)
    for place in range(-1, len(kept)):
        rest = total - (kept[place].tokens if place >= 0 else 0)
        for part in parts:
            if abs(rest + part.tokens - room) <= margin:
                documents = [other.document for i, other in enumerate(kept) if i != place]
                return Fill([*documents, part.document], rest + part.tokens)
    return None


def shortened(document: Paragraph) -> Iterator[Paragraph]:
    """The document without its last sentence, without its last two, and so on."""
    for end in reversed(stops(document)[:-1]):
        yield Paragraph(document.title, (document.text[:end],))


def slots(placement: str, own: int, total: int, random: np.random.Generator) -> list[int]:
    """Distinct places of the item's own documents among all, in random order."""
    if placement == "gaussian":
        return _gaussian(own, total, random)
    if placement == "uniform":
        return random.permutation(total)[:own].tolist()
    first = {"start": 0, "end": total - own}
    chosen = [first[placement] + i for i in range(own)] if placement in first else spread(own, total)
    return [chosen[i] for i in random.permutation(own)]


def spread(own: int, total: int) -> list[int]:
    """Places in the middle of as many equal parts."""
    return [int((i + 0.5) * total / own) for i in range(own)]


def _gaussian(own: int, total: int, random: np.random.Generator) -> list[int]:
    """Places drawn around the middle, clamped to the ends; a place that is taken is replaced by a random free one, as
    released."""
    chosen: list[int] = []
    for position in np.clip(random.normal(0, DEVIATION, own), -1, 1):
        place = round(float(position + 1) / 2 * (total - 1))
        if place in chosen:
            free = sorted(set(range(total)) - set(chosen))
            place = free[random.integers(len(free))]
        chosen.append(place)
    return chosen
