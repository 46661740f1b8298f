"""MuSiQue (arXiv:2108.00573), Ans and Full: `id, question, answer, answer_aliases, answerable, paragraphs [{idx, title,
paragraph_text, is_supporting}], question_decomposition [{question, answer, paragraph_support_idx}]`."""

from typing import Any

from interplay.data.formats.entry import Entry, ItemError, encodable, kind, listed, name, text
from interplay.tasks import multihop
from interplay.tasks.multihop.item import Item, Paragraph
from interplay.tasks.text import normalise


def parse(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are its supporting paragraphs, the single-hop questions and their answers its reasoning. A paragraph is one
    text here, so that its first sentence is all of it."""
    question, answer = text(raw, "question"), text(raw, "answer")
    if raw.get("answerable") is False:
        raise ItemError("unanswerable", "it is declared not answerable", name(raw))
    given = listed(raw, "paragraphs")
    if not all(isinstance(part, dict) for part in given):
        raise ItemError("broken", "paragraphs should hold objects", name(raw))
    supporting = tuple((number, 0) for number, part in enumerate(given) if part.get("is_supporting") is True)
    if not supporting:
        raise ItemError("unanswerable", "none of its paragraphs is supporting", name(raw))
    aliases = raw.get("answer_aliases") or []
    if not isinstance(aliases, list):
        raise ItemError("broken", f"answer_aliases is {kind(aliases)} and should be a list of texts", name(raw))
    aliases = [alias for alias in aliases if isinstance(alias, str) and normalise(alias)]
    item = Item(
        id=name(raw),
        question=question.strip(),
        answers=tuple(dict.fromkeys([answer.strip(), *(encodable(alias.strip(), name(raw)) for alias in aliases)])),
        paragraphs=tuple(_paragraph(raw, part) for part in given),
        supporting=_in_order(raw, given, supporting),
        hops=len(supporting),
        type=name(raw).partition("__")[0],
        steps=_steps(raw),
    )
    return Entry(item.id, multihop.plain(item), item.hops)


def _paragraph(raw: dict[str, Any], part: dict[str, Any]) -> Paragraph:
    title, body = part.get("title"), part.get("paragraph_text")
    if not isinstance(title, str) or not isinstance(body, str):
        raise ItemError("broken", "each of paragraphs should have a title and a paragraph_text", name(raw))
    return Paragraph(encodable(title, name(raw)), (encodable(body, name(raw)),))


def _in_order(raw: dict[str, Any], given: list[Any], supporting: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The supporting paragraphs in the order of the hops that need them, where the source says so."""
    needed = [hop.get("paragraph_support_idx") for hop in _hops(raw)]
    indices = [part.get("idx", number) for number, part in enumerate(given)]
    for key, values in (("idx", indices), ("paragraph_support_idx", needed)):
        odd = next((value for value in values if isinstance(value, (dict, list))), None)
        if odd is not None:
            raise ItemError("broken", f"{key} is {kind(odd)} and should be a number", name(raw))
    places = {index: number for number, index in enumerate(indices)}
    order = [places[index] for index in needed if index is not None and index in places]
    return tuple(sorted(supporting, key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order)))


def _hops(raw: dict[str, Any]) -> list[dict[str, Any]]:
    hops = raw.get("question_decomposition") or []
    if not isinstance(hops, list) or not all(isinstance(hop, dict) for hop in hops):
        raise ItemError("broken", "question_decomposition should hold objects", name(raw))
    return hops


def _steps(raw: dict[str, Any]) -> tuple[str, ...]:
    """`Who wrote X? Ann.` or `X, author: Ann.` per hop, `#1` filled in with the first answer."""
    said: list[str] = []
    answers: list[str] = []
    for hop in _hops(raw):
        question, answer = hop.get("question"), hop.get("answer")
        if not isinstance(question, str) or not isinstance(answer, str):
            raise ItemError("broken", "each of question_decomposition should have a question and an answer", name(raw))
        filled = _filled(question, answers).replace(" >> ", ", ").replace(" ?", "?").strip()
        said.append(encodable(f"{filled}{'' if filled.endswith('?') else ':'} {answer.strip()}.", name(raw)))
        answers.append(answer.strip())
    return tuple(said)


def _filled(question: str, answers: list[str]) -> str:
    """The question with the answers of earlier hops in the place of their numbers."""
    for number in reversed(range(len(answers))):
        question = question.replace(f"#{number + 1}", answers[number])
    return question
