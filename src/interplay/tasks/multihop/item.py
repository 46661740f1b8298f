"""A multi-hop question with its documents, whatever it comes from: a file in a published format, or synthetic biographies."""

import json
from typing import Any, NamedTuple


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


def packed(item: Item) -> dict[str, Any]:
    """As plain JSON data."""
    return item._asdict() | {"paragraphs": [list(paragraph) for paragraph in item.paragraphs]}


def unpacked(data: dict[str, Any]) -> Item:
    """The item of `packed`, also once it was written as JSON and read again."""
    paragraphs = tuple(Paragraph(title, tuple(sentences)) for title, sentences in data["paragraphs"])
    pairs = tuple((paragraph, sentence) for paragraph, sentence in data["supporting"])
    texts = {name: tuple(data[name]) for name in ("answers", "steps")}
    return Item(**{**data, **texts, "paragraphs": paragraphs, "supporting": pairs})


def dumps(item: Item) -> str:
    """JSON, the same for equal items."""
    return json.dumps(packed(item), separators=(",", ":"))


def loads(text: str) -> Item:
    """The item of `dumps`."""
    return unpacked(json.loads(text))
