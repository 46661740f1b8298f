"""Documents of a context: the fillers, its length, and the places of the item's own documents."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from interplay.tasks import family, multihop, verdict
from interplay.tasks.families import multihop_item

# The questions and documents of a stage's rows, from which contexts are built. Draws do not depend on the order of the rows.


@dataclass(frozen=True, slots=True)
class Entry:
    """A row's item. Documents are given by their numbers in the library."""

    row: verdict.Row
    item: family.Item
    question: str
    """Normalised."""
    plain: str
    """The question as `plain_text` gives it."""
    documents: tuple[int, ...]
    needed: frozenset[int]
    """Documents that the answer needs; all, where the source does not give them."""


@dataclass
class Library:
    """Items, and their distinct documents in the order of their normalised text."""

    entries: list[Entry]
    """In the order of the rows."""
    documents: list[family.Paragraph]
    titles: list[str]
    """Normalised title of each document."""
    texts: list[str]
    """The text of each document as `plain_text` gives it."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Token counts, cached by document."""

    @cached_property
    def sorted(self) -> list[Entry]:
        """The items in an order that does not depend on that of the rows."""
        return sorted(self.entries, key=lambda entry: (entry.row.origin, entry.item.id, entry.question))

    def fillers(self, entry: Entry, taken: frozenset[int], random: np.random.Generator) -> Iterator[int]:
        """Documents of other items in random order, no title twice, without those taken by number or title, those that contain
        the item's question, and those that contradict its facts."""
        titles = {self.titles[number] for number in taken} - {""}
        for number in shuffle_lazily(random, len(self.documents)):
            if number not in taken and self.titles[number] not in titles and self.fit(entry, [number]):
                titles |= {self.titles[number]} - {""}
                yield number

    def fit(self, entry: Entry, numbers: Iterable[int]) -> bool:
        """Whether none of these documents is empty, contains the item's question or contradicts its facts."""
        question, steps = entry.plain, entry.item.steps
        texts = [self.texts[number] for number in numbers]
        return not any(not text or question in text or multihop.contradicts(steps, text) for text in texts)

    def distractors(self, entry: Entry, random: np.random.Generator) -> Iterator[Entry]:
        """Other questions in random order, no text twice, without those with the item's id or origin, those whose text contains
        its text or is contained in it, and those whose documents are all among the item's own or share a title with one of them
        but not the text, since one entity must not be described in two ways."""
        own = {self.titles[number]: number for number in entry.documents if self.titles[number]}
        seen = set[str]()
        for number in shuffle_lazily(random, len(self.sorted)):
            other = self.sorted[number]
            named = bool(entry.item.id) and other.item.id == entry.item.id  # files may give no ids
            same = named or other.row.origin == entry.row.origin or other.question in seen
            if same or not other.question or other.question in entry.question or entry.question in other.question:
                continue
            known = other.needed.intersection(entry.documents)
            if known != other.needed and all(own.get(self.titles[i], i) == i for i in other.needed - known):
                seen.add(other.question)
                yield other

    def count_tokens(self, number: int, count: Callable[[family.Paragraph], int]) -> int:
        """Tokens of a document as rendered; counted once."""
        if number not in self.sizes:
            self.sizes[number] = count(self.documents[number])
        return self.sizes[number]


def build_library(rows: Sequence[verdict.Row], needed_only: bool = False) -> tuple[Library, int]:
    """The library of the rows that have documents, and the number of rows without; of each item all documents, or only those that
    its answer needs."""
    found = [(row, asked) for row in rows if (asked := multihop_item(row)) is not None]
    if needed_only:
        found = [(row, needed_documents(asked)) for row, asked in found]
    keys: dict[str, str] = {}
    texts: dict[str, family.Paragraph] = {}
    for _, asked in found:
        for paragraph in asked.paragraphs:
            if paragraph.text not in keys:
                keys[paragraph.text] = verdict.normalise(paragraph.text)
            text = keys[paragraph.text]
            texts[text] = min(texts.get(text, paragraph), paragraph)
    ordered = sorted(texts)
    numbers = {text: number for number, text in enumerate(ordered)}
    entries = []
    for row, asked in found:
        documents = tuple(numbers[keys[paragraph.text]] for paragraph in asked.paragraphs)
        needed = frozenset(documents[paragraph] for paragraph, _ in asked.supporting) or frozenset(documents)
        entries.append(
            Entry(row, asked, verdict.normalise(asked.question), multihop.plain_text(asked.question), documents, needed)
        )
    documents_in_order = [texts[text] for text in ordered]
    titles = [verdict.normalise(document.title) for document in documents_in_order]
    plains = [multihop.plain_text(document.text) for document in documents_in_order]
    return Library(entries, documents_in_order, titles, plains), len(rows) - len(found)


def needed_documents(asked: family.Item) -> family.Item:
    """The item with only the documents that its answer needs; all, where the source does not give them."""
    kept = sorted({paragraph for paragraph, _ in asked.supporting}) or range(len(asked.paragraphs))
    moved = {paragraph: place for place, paragraph in enumerate(kept)}
    supporting = tuple((moved[paragraph], sentence) for paragraph, sentence in asked.supporting)
    return asked._replace(paragraphs=tuple(asked.paragraphs[paragraph] for paragraph in kept), supporting=supporting)


def shuffle_lazily(random: np.random.Generator, total: int) -> Iterator[int]:
    """0..total-1 in random order, one by one: a lazy Fisher-Yates shuffle."""
    moved: dict[int, int] = {}
    for start in range(0, total, BLOCK):
        ends = range(start, min(start + BLOCK, total))
        for place, other in zip(ends, random.integers(np.array(ends), total).tolist(), strict=True):
            yield moved.get(other, other)
            moved[other] = moved.pop(place, place)


BLOCK = 64
"""Random numbers drawn at once."""


# A context of a given length: its documents, and the places of the item's own.


PATIENCE = 32
"""Consecutive documents that are too long before one is shortened."""
MAX_SHORTENED = 8
"""Documents that may be shortened."""
DEVIATION = 0.35
"""Standard deviation of the published gaussian placement, on a range of -1..1."""


class Fill(NamedTuple):
    """Chosen documents and their tokens."""

    documents: list[family.Paragraph]
    tokens: int


class Part(NamedTuple):
    """A document, or the first sentences of one."""

    source: int
    tokens: int
    document: family.Paragraph


class FillerQueue:
    """The fillers of one row, drawn lazily and kept, since a context may be filled more than once."""

    def __init__(self, library: Library, order: Iterator[int], count: Callable[[family.Paragraph], int]) -> None:
        self.library, self.order, self.count = library, order, count
        self.drawn: list[int] = []
        self.left = True
        """Whether there may be fillers not yet drawn."""

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
        """Documents of room - margin to room + margin tokens in total. Documents too long for the remaining room are skipped; at
        the end one of them is shortened to whole sentences, or replaces another. None where that does not suffice."""
        chosen: list[int] = []
        skipped: list[int] = []
        total, failed = 0, 0
        if total >= room - margin:
            return Fill([], 0) if total <= room + margin else None
        for number in self:
            size = self.library.count_tokens(number, self.count)
            if total + size <= room + margin:
                chosen.append(number)
                total, failed = total + size, 0
                if total >= room - margin:
                    return Fill([self.library.documents[i] for i in chosen], total)
            else:
                skipped.append(number)
                failed += 1
                if failed == PATIENCE:
                    break
        return self._complete(chosen, skipped[-PATIENCE:], room, margin)

    def _complete(self, chosen: list[int], skipped: list[int], room: float, margin: float) -> Fill | None:
        """Fill the remaining room with skipped documents, whole or shortened: one added to the chosen ones or in place of one of
        them; else the largest that fits, and again."""
        kept = [Part(number, self.library.sizes[number], self.library.documents[number]) for number in chosen]
        parts = [Part(number, self.library.sizes[number], self.library.documents[number]) for number in skipped]
        if found := _add_or_replace(kept, parts, room, margin):
            return found  # first without shortening, which needs token counts
        total = sum(part.tokens for part in kept)
        short = [(part.source, each) for part in parts[:MAX_SHORTENED] for each in shorten_document(part.document)]
        for source, each in short:
            parts.append(Part(source, self.count(each), each))
            if abs(total + parts[-1].tokens - room) <= margin:  # the one that is found below, before the others are counted
                return Fill([*[part.document for part in kept], each], total + parts[-1].tokens)
        while not (found := _add_or_replace(kept, parts, room, margin)):
            missing = room - sum(part.tokens for part in kept)
            fitting = [part for part in parts if part.tokens < missing]
            if not fitting:
                return None
            kept.append(max(fitting, key=lambda part: part.tokens))
            parts = [part for part in parts if part.source != kept[-1].source]
        return found


def _add_or_replace(kept: list[Part], parts: list[Part], room: float, margin: float) -> Fill | None:
    """The kept parts with one more, added or in place of one of them."""
    total = sum(part.tokens for part in kept)
    for place in range(-1, len(kept)):
        rest = total - (kept[place].tokens if place >= 0 else 0)
        for part in parts:
            if abs(rest + part.tokens - room) <= margin:
                documents = [other.document for i, other in enumerate(kept) if i != place]
                return Fill([*documents, part.document], rest + part.tokens)
    return None


def shorten_document(document: family.Paragraph) -> Iterator[family.Paragraph]:
    """The document without its last sentence, without its last two, and so on."""
    for end in reversed(multihop.sentence_ends(document)[:-1]):
        yield family.Paragraph(document.title, (document.text[:end],))


def draw_places(placement: str, own: int, total: int, random: np.random.Generator) -> list[int]:
    """Distinct places of the item's own documents among all, in random order."""
    if placement == "gaussian":
        return _gaussian_places(own, total, random)
    if placement == "uniform":
        return random.permutation(total)[:own].tolist()
    first = {"start": 0, "end": total - own}
    middles = [int((i + 0.5) * total / own) for i in range(own)]  # of `own` equal parts
    chosen = [first[placement] + i for i in range(own)] if placement in first else middles
    return [chosen[i] for i in random.permutation(own)]


def _gaussian_places(own: int, total: int, random: np.random.Generator) -> list[int]:
    """Places drawn around the middle, clamped to the ends; a taken place is replaced by a random free one, as in the released
    code."""
    chosen: list[int] = []
    for position in np.clip(random.normal(0, DEVIATION, own), -1, 1):
        place = round(float(position + 1) / 2 * (total - 1))
        if place in chosen:
            free = sorted(set(range(total)) - set(chosen))
            place = free[random.integers(len(free))]
        chosen.append(place)
    return chosen
