"""HotpotQA (arXiv:1809.09600), distractor and fullwiki, and what 2WikiMultihopQA shares with it: `_id, question, answer, type,
supporting_facts [[title, sentence]], context [[title, [sentence, ...]]]`."""

from typing import Any

from interplay.data.formats.entry import Entry, ItemError, encodable, listed, name, text
from interplay.tasks import multihop
from interplay.tasks.multihop.item import Item, Paragraph


def parse(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are the documents that hold supporting facts."""
    item = read(raw, where)
    return Entry(item.id, multihop.plain(item), item.hops)


def read(raw: dict[str, Any], where: str) -> Item:
    """The question with its documents. Raises ItemError."""
    question, answer = text(raw, "question"), text(raw, "answer")
    paragraphs = tuple(_paragraph(raw, given) for given in listed(raw, "context"))
    supporting = tuple(dict.fromkeys(_fact(raw, paragraphs, given) for given in listed(raw, "supporting_facts")))
    documents = {paragraph for paragraph, _ in supporting}
    kind = raw.get("type")
    return Item(
        id=name(raw),
        question=question.strip(),
        answers=(answer.strip(),),
        paragraphs=paragraphs,
        supporting=supporting,
        hops=len(documents),
        type=kind if isinstance(kind, str) else "",
    )


def _paragraph(raw: dict[str, Any], given: Any) -> Paragraph:
    match given:
        case [str() as title, [*sentences]] if all(isinstance(sentence, str) for sentence in sentences):
            return Paragraph(encodable(title, name(raw)), tuple(encodable(sentence, name(raw)) for sentence in sentences))
    raise ItemError("broken", "context should hold [title, [sentence, ...]] pairs", name(raw))


def _fact(raw: dict[str, Any], paragraphs: tuple[Paragraph, ...], given: Any) -> tuple[int, int]:
    """Paragraph and sentence of a supporting fact; of several paragraphs with its title, the first that has the sentence."""
    match given:
        case [str() as title, int() as sentence] if sentence >= 0:
            for number, paragraph in enumerate(paragraphs):
                if paragraph.title == title and sentence < len(paragraph.sentences):
                    return number, sentence
            raise ItemError("unanswerable", f"supporting fact [{title!r}, {sentence}] is not in the context", name(raw))
    raise ItemError("broken", "supporting_facts should hold [title, sentence number] pairs", name(raw))
