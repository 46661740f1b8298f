"""The questions and documents of a stage's rows, of which a row's context is made up. Whatever is drawn from them does not
depend on the order of the rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from interplay.tasks.multihop.item import Item, Paragraph
from interplay.tasks.multihop.verify import contradicts, plain
from interplay.tasks.row import Row
from interplay.tasks.table import item
from interplay.tasks.text import normalise


@dataclass(frozen=True, slots=True)
class Entry:
    """A row's item. Documents are numbers in the library."""

    row: Row
    item: Item
    question: str
    """Normalised."""
    plain: str
    """The question as `plain` gives it."""
    documents: tuple[int, ...]
    needed: frozenset[int]
    """Documents that the answer needs; all, where the source does not say which."""


@dataclass
class Library:
    """Items, and their distinct documents in the order of their normalised text."""

    entries: list[Entry]
    """In the order of the rows."""
    documents: list[Paragraph]
    titles: list[str]
    """Normalised title of each document."""
    texts: list[str]
    """The text of each as `plain` gives it."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Tokens of documents that were counted."""

    @cached_property
    def sorted(self) -> list[Entry]:
        """The items in an order that does not depend on that of the rows."""
        return sorted(self.entries, key=lambda entry: (entry.row.origin, entry.item.id, entry.question))

    def fillers(self, entry: Entry, taken: frozenset[int], random: np.random.Generator) -> Iterator[int]:
        """Documents of other items in random order, no title twice: none that is taken by number or by title, holds the item's
        question, or contradicts its facts."""
        titles = {self.titles[number] for number in taken} - {""}
        for number in draws(random, len(self.documents)):
            if number not in taken and self.titles[number] not in titles and self.fit(entry, [number]):
                titles |= {self.titles[number]} - {""}
                yield number

    def fit(self, entry: Entry, numbers: Iterable[int]) -> bool:
        """Whether none of these documents is empty, holds the item's question or contradicts its facts."""
        question, steps = entry.plain, entry.item.steps
        texts = [self.texts[number] for number in numbers]
        return not any(not text or question in text or contradicts(steps, text) for text in texts)

    def distractors(self, entry: Entry, random: np.random.Generator) -> Iterator[Entry]:
        """Other questions in random order: none with the item's id or origin, none that has its text, is part of it or holds
        it, no text twice, and none whose documents are all among the item's own, or have the title of one of them and another
        text: the same person or thing is not to be told of in two ways."""
        own = {self.titles[number]: number for number in entry.documents if self.titles[number]}
        asked = set[str]()
        for number in draws(random, len(self.sorted)):
            other = self.sorted[number]
            named = bool(entry.item.id) and other.item.id == entry.item.id  # files may give no ids
            same = named or other.row.origin == entry.row.origin or other.question in asked
            if same or not other.question or other.question in entry.question or entry.question in other.question:
                continue
            known = other.needed.intersection(entry.documents)
            if known != other.needed and all(own.get(self.titles[i], i) == i for i in other.needed - known):
                asked.add(other.question)
                yield other

    def size(self, number: int, count: Callable[[Paragraph], int]) -> int:
        """Tokens of a document as it is shown, counted once."""
        if number not in self.sizes:
            self.sizes[number] = count(self.documents[number])
        return self.sizes[number]


def library(rows: Sequence[Row], needed_only: bool = False) -> tuple[Library, int]:
    """The library of the rows that ask something over documents, and how many do not; of each item all documents, or those only
    that its answer needs."""
    found = [(row, asked) for row in rows if (asked := item(row)) is not None]
    if needed_only:
        found = [(row, reduced(asked)) for row, asked in found]
    keys: dict[str, str] = {}
    texts: dict[str, Paragraph] = {}
    for _, asked in found:
        for paragraph in asked.paragraphs:
            if paragraph.text not in keys:
                keys[paragraph.text] = normalise(paragraph.text)
            text = keys[paragraph.text]
            texts[text] = min(texts.get(text, paragraph), paragraph)
    ordered = sorted(texts)
    numbers = {text: number for number, text in enumerate(ordered)}
    entries = []
    for row, asked in found:
        documents = tuple(numbers[keys[paragraph.text]] for paragraph in asked.paragraphs)
        needed = frozenset(documents[paragraph] for paragraph, _ in asked.supporting) or frozenset(documents)
        entries.append(Entry(row, asked, normalise(asked.question), plain(asked.question), documents, needed))
    documents_in_order = [texts[text] for text in ordered]
    titles = [normalise(document.title) for document in documents_in_order]
    plains = [plain(document.text) for document in documents_in_order]
    return Library(entries, documents_in_order, titles, plains), len(rows) - len(found)


def reduced(asked: Item) -> Item:
    """The item with those documents only that its answer needs; all, where the source does not say which."""
    kept = sorted({paragraph for paragraph, _ in asked.supporting}) or range(len(asked.paragraphs))
    moved = {paragraph: place for place, paragraph in enumerate(kept)}
    supporting = tuple((moved[paragraph], sentence) for paragraph, sentence in asked.supporting)
    return asked._replace(paragraphs=tuple(asked.paragraphs[paragraph] for paragraph in kept), supporting=supporting)


def draws(random: np.random.Generator, total: int) -> Iterator[int]:
    """0..total-1 in random order, one by one: Fisher and Yates' shuffle that touches only what is drawn."""
    moved: dict[int, int] = {}
    for start in range(0, total, BLOCK):
        ends = range(start, min(start + BLOCK, total))
        for place, other in zip(ends, random.integers(np.array(ends), total).tolist(), strict=True):
            yield moved.get(other, other)
            moved[other] = moved.pop(place, place)


BLOCK = 64
"""Random numbers that are drawn at once."""
