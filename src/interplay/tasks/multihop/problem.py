"""A multi-hop question with its documents in the order shown, and what is hidden behind chains of keys."""

import json
import re
from typing import Any, Literal, NamedTuple

# A multi-hop question with its documents, whatever it comes from: a file in a published format, or synthetic biographies.


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


def pack_item(item: Item) -> dict[str, Any]:
    """As plain JSON data."""
    return item._asdict() | {"paragraphs": [list(paragraph) for paragraph in item.paragraphs]}


def unpack_item(data: dict[str, Any]) -> Item:
    """The item of `packed`, also once it was written as JSON and read again."""
    paragraphs = tuple(Paragraph(title, tuple(sentences)) for title, sentences in data["paragraphs"])
    pairs = tuple((paragraph, sentence) for paragraph, sentence in data["supporting"])
    texts = {name: tuple(data[name]) for name in ("answers", "steps")}
    return Item(**{**data, **texts, "paragraphs": paragraphs, "supporting": pairs})


def dumps_item(item: Item) -> str:
    """JSON, the same for equal items."""
    return json.dumps(pack_item(item), separators=(",", ":"))


def loads_item(text: str) -> Item:
    """The item of `dumps`."""
    return unpack_item(json.loads(text))


# A multi-hop question as it is put: with its documents in the order shown, and what is hidden among them.


Mode = Literal["plain", "long", "keychain", "needle", "citation"]

STOP = re.compile(r"""(?<!\b[A-Z])(?<!\b(?:Mr|Ms|Dr|St|Jr|Sr|No|vs))(?<!\bMrs)[.?!]["')\]]*(?=\s+["'(\[]?[A-Z0-9]|\s*$)""")
"""The end of a sentence in running text: a stop that what looks like a new sentence, or nothing, follows. Initials and the
commonest titles end none."""
ENDING = re.compile(r"""[.?!]["')\]]*$""")


class Chain(NamedTuple):
    """Keys that lead to a question (keychain), or a key and its value (needle)."""

    keys: tuple[str, ...]
    """The head first. Each is the key of one pair, whose value is the next one, and of the last one the question; of a needle,
    the last one is a value only."""
    question: str
    """What the last key leads to; empty for a needle."""

    def pairs(self) -> list[tuple[str, str]]:
        """(key, value) in the order of the chain."""
        return list(zip(self.keys, (*self.keys[1:], self.question) if self.question else self.keys[1:], strict=False))


class Spot(NamedTuple):
    """Where a pair stands."""

    document: int
    offset: int
    """Characters of the document's text before it: the end of a sentence."""
    chain: int
    link: int
    """Its number in the chain."""


class Problem(NamedTuple):
    """One question as it is put."""

    mode: Mode
    """plain: the item's own documents and its question; long: filled up with documents of others; keychain: the question at the
    end of a chain of keys; needle: the value of a key; citation: the documents are tagged and the useful ones to be named."""
    item: Item
    documents: tuple[Paragraph, ...]
    """All documents in the order shown."""
    own: tuple[int, ...]
    """Place among the documents of each paragraph of the item, in the item's order."""
    chains: tuple[Chain, ...] = ()
    true: int = 0
    """Number of the chain that leads to the item's question, or of the needle that is asked for."""
    spots: tuple[Spot, ...] = ()
    """Places of all pairs, in the order of the text."""
    head: bool = True
    """Whether the prompt names the head."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that the gold solution traces, in order; empty where nothing is hidden."""
        return self.chains[self.true].keys if self.chains else ()

    @property
    def answers(self) -> tuple[str, ...]:
        """Acceptable answers."""
        return self.keys[-1:] if self.mode == "needle" else self.item.answers

    @property
    def steps(self) -> tuple[str, ...]:
        """Gold reasoning after the keys, one sentence per hop; empty where the source has none."""
        return () if self.mode == "needle" else self.item.steps

    @property
    def useful(self) -> tuple[int, ...]:
        """Numbers of the documents that the answer needs, in the order of the hops."""
        return tuple(dict.fromkeys(self.own[paragraph] for paragraph, _ in self.item.supporting))


def plain(asked: Item) -> Problem:
    """The item with its documents in its own order."""
    return Problem("plain", asked, asked.paragraphs, tuple(range(len(asked.paragraphs))))


def item(problem: Problem) -> Item:
    """The question and its own documents."""
    return problem.item


def stops(document: Paragraph) -> list[int]:
    """Offsets in the document's text at which a sentence ends, ascending: where the source split it into sentences, those that
    end in a stop; else what looks like one."""
    if len(document.sentences) < 2:
        return [match.end() for match in STOP.finditer(document.text)]
    found, end = [], -1
    for sentence in document.sentences:
        end += 1 + len(sentence.strip())
        if ENDING.search(sentence.strip()):
            found.append(end)
    return found


def dumps(problem: Problem) -> str:
    """JSON, the same for equal problems. The item's paragraphs are among the documents and not written twice."""
    bare = problem.item._replace(paragraphs=())
    return json.dumps(problem._replace(item=bare), separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem of `dumps`."""
    mode, stored, shown, own, chains, true, spots, head = json.loads(text)
    documents = tuple(Paragraph(title, tuple(sentences)) for title, sentences in shown)
    ident, question, answers, _, supporting, hops, kind, steps = stored
    paragraphs = tuple(documents[place] for place in own)
    pairs = tuple((paragraph, sentence) for paragraph, sentence in supporting)
    whole = Item(ident, question, tuple(answers), paragraphs, pairs, hops, kind, tuple(steps))
    links = tuple(Chain(tuple(keys), question) for keys, question in chains)
    return Problem(mode, whole, documents, tuple(own), links, true, tuple(Spot(*spot) for spot in spots), head)
