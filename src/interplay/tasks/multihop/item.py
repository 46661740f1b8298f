"""A multi-hop question with its documents, whatever it comes from: a file in a published format, or synthetic biographies."""

import json
from typing import NamedTuple


class Paragraph(NamedTuple):
    """One document."""

    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """Its sentences as one text."""
        return " ".join(sentence.strip() for sentence in self.sentences)


class Item(NamedTuple):
    """One question."""

    id: str
    question: str
    answers: tuple[str, ...]
    """Acceptable answers, the canonical one first."""
    paragraphs: tuple[Paragraph, ...]
    supporting: tuple[tuple[int, int], ...]
    """(paragraph, sentence) of each fact that the answer needs; all of a paragraph's sentences where only it is known."""
    hops: int
    """Facts that lead to the answer."""
    type: str
    """The source's own class of question, such as bridge or comparison."""
    steps: tuple[str, ...] = ()
    """The gold reasoning, one sentence per hop; empty where the source has none."""


def dumps(item: Item) -> str:
    """JSON, the same for equal items."""
    return json.dumps(item._asdict() | {"paragraphs": [list(p) for p in item.paragraphs]}, separators=(",", ":"))


def loads(text: str) -> Item:
    """The item of `dumps`."""
    data = json.loads(text)
    paragraphs = tuple(Paragraph(title, tuple(sentences)) for title, sentences in data.pop("paragraphs"))
    pairs = tuple((paragraph, sentence) for paragraph, sentence in data.pop("supporting"))
    answers, steps = tuple(data.pop("answers")), tuple(data.pop("steps"))
    return Item(paragraphs=paragraphs, supporting=pairs, answers=answers, steps=steps, **data)
