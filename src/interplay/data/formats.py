"""Published formats of question-answering files: `parse_<format>(raw, where) -> Entry`, and the table of formats."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interplay.data.json_objects import (
    Entry,
    Found,
    ItemError,
    check_encodable,
    item_name,
    json_kind,
    list_field,
    nothing_left,
    read_lines,
    read_members,
    text_field,
)
from interplay.tasks import multihop, qa
from interplay.tasks.family import Item, Paragraph
from interplay.tasks.qa import equal, number_values
from interplay.tasks.verdict import normalise

# GSM8K (arXiv:2110.14168): `question, answer`, the answer a worked solution with `<<48/2=24>>` marks, whose last line is `####
# 24`.


_NOTE = re.compile(r"<<[^<>]*>>")
_FINAL = "####"


def parse_gsm8k(raw: dict[str, Any], where: str) -> Entry:
    """An item; its op is the number of lines of its solution."""
    question, worked = text_field(raw, "question"), text_field(raw, "answer", words=False)
    before, mark, after = worked.rpartition(_FINAL)
    gold = after.strip().replace(",", "")
    if not mark or not gold:
        raise ItemError("missing_field", f"answer has no final line '{_FINAL} <number>'", item_name(raw))
    if not number_values(gold):
        raise ItemError("broken", f"final answer {gold[:40]!r} is not a number", item_name(raw))
    steps = tuple(line for line in (_NOTE.sub("", line).strip() for line in before.split("\n")) if line)
    problem = qa.Problem(question.strip(), (gold,), steps, item_name(raw) or where)
    return Entry(item_name(raw) or question, problem, max(1, len(steps)))


# HotpotQA (arXiv:1809.09600), distractor and fullwiki, and what 2WikiMultihopQA shares with it: `_id, question, answer, type,
# supporting_facts [[title, sentence]], context [[title, [sentence, ...]]]`.


def parse_hotpotqa(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are the documents that hold supporting facts."""
    item = read_hotpotqa(raw, where)
    return Entry(item.id, multihop.plain_problem(item), item.hops)


def read_hotpotqa(raw: dict[str, Any], where: str) -> Item:
    """The question with its documents. Raises ItemError."""
    question, answer = text_field(raw, "question"), text_field(raw, "answer")
    paragraphs = tuple(_paragraph(raw, given) for given in list_field(raw, "context"))
    supporting = tuple(dict.fromkeys(_fact(raw, paragraphs, given) for given in list_field(raw, "supporting_facts")))
    documents = {paragraph for paragraph, _ in supporting}
    kind = raw.get("type")
    return Item(
        id=item_name(raw),
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
            return Paragraph(
                check_encodable(title, item_name(raw)), tuple(check_encodable(sentence, item_name(raw)) for sentence in sentences)
            )
    raise ItemError("broken", "context should hold [title, [sentence, ...]] pairs", item_name(raw))


def _fact(raw: dict[str, Any], paragraphs: tuple[Paragraph, ...], given: Any) -> tuple[int, int]:
    """Paragraph and sentence of a supporting fact; of several paragraphs with its title, the first that has the sentence."""
    match given:
        case [str() as title, int() as sentence] if sentence >= 0:
            for number, paragraph in enumerate(paragraphs):
                if paragraph.title == title and sentence < len(paragraph.sentences):
                    return number, sentence
            raise ItemError("unanswerable", f"supporting fact [{title!r}, {sentence}] is not in the context", item_name(raw))
    raise ItemError("broken", "supporting_facts should hold [title, sentence number] pairs", item_name(raw))


# Any questions and answers, one JSON object a line: `question` and `answer` (text or a number); if there, `id`, `aliases`
# (further answers) and `solution` (worked text, one step a line).


def parse_jsonl(raw: dict[str, Any], where: str) -> Entry:
    """An item; its op is the number of lines of its solution, 1 where it has none."""
    question, answer = text_field(raw, "question"), text_field(raw, "answer", words=False)
    aliases, solution = raw.get("aliases") or [], raw.get("solution") or ""
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ItemError("broken", "aliases should be a list of texts", item_name(raw))
    if not isinstance(solution, str):
        raise ItemError("broken", "solution should be text", item_name(raw))
    if not equal(answer, [answer]):  # as of the word `the`; the letter `A` and the sign `+` are answers
        raise nothing_left("answer", answer, item_name(raw))
    answers = [answer, *(check_encodable(alias, item_name(raw)) for alias in aliases if alias.strip())]
    steps = tuple(line.strip() for line in check_encodable(solution, item_name(raw)).split("\n") if line.strip())
    problem = qa.Problem(question.strip(), tuple(dict.fromkeys(a.strip() for a in answers)), steps, item_name(raw) or where)
    return Entry(item_name(raw) or question, problem, max(1, len(steps)))


# MuSiQue (arXiv:2108.00573), Ans and Full: `id, question, answer, answer_aliases, answerable, paragraphs [{idx, title,
# paragraph_text, is_supporting}], question_decomposition [{question, answer, paragraph_support_idx}]`.


def parse_musique(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are its supporting paragraphs, the single-hop questions and their answers its reasoning. A paragraph is one
    text here, so that its first sentence is all of it."""
    question, answer = text_field(raw, "question"), text_field(raw, "answer")
    if raw.get("answerable") is False:
        raise ItemError("unanswerable", "it is declared not answerable", item_name(raw))
    given = list_field(raw, "paragraphs")
    if not all(isinstance(part, dict) for part in given):
        raise ItemError("broken", "paragraphs should hold objects", item_name(raw))
    supporting = tuple((number, 0) for number, part in enumerate(given) if part.get("is_supporting") is True)
    if not supporting:
        raise ItemError("unanswerable", "none of its paragraphs is supporting", item_name(raw))
    aliases = raw.get("answer_aliases") or []
    if not isinstance(aliases, list):
        raise ItemError("broken", f"answer_aliases is {json_kind(aliases)} and should be a list of texts", item_name(raw))
    aliases = [alias for alias in aliases if isinstance(alias, str) and normalise(alias)]
    item = Item(
        id=item_name(raw),
        question=question.strip(),
        answers=tuple(dict.fromkeys([answer.strip(), *(check_encodable(alias.strip(), item_name(raw)) for alias in aliases)])),
        paragraphs=tuple(_musique_paragraph(raw, part) for part in given),
        supporting=_in_order(raw, given, supporting),
        hops=len(supporting),
        type=item_name(raw).partition("__")[0],
        steps=_steps(raw),
    )
    return Entry(item.id, multihop.plain_problem(item), item.hops)


def _musique_paragraph(raw: dict[str, Any], part: dict[str, Any]) -> Paragraph:
    title, body = part.get("title"), part.get("paragraph_text")
    if not isinstance(title, str) or not isinstance(body, str):
        raise ItemError("broken", "each of paragraphs should have a title and a paragraph_text", item_name(raw))
    return Paragraph(check_encodable(title, item_name(raw)), (check_encodable(body, item_name(raw)),))


def _in_order(raw: dict[str, Any], given: list[Any], supporting: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The supporting paragraphs in the order of the hops that need them, where the source says so."""
    needed = [hop.get("paragraph_support_idx") for hop in _hops(raw)]
    indices = [part.get("idx", number) for number, part in enumerate(given)]
    for key, values in (("idx", indices), ("paragraph_support_idx", needed)):
        odd = next((value for value in values if isinstance(value, (dict, list))), None)
        if odd is not None:
            raise ItemError("broken", f"{key} is {json_kind(odd)} and should be a number", item_name(raw))
    places = {index: number for number, index in enumerate(indices)}
    order = [places[index] for index in needed if index is not None and index in places]
    return tuple(sorted(supporting, key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order)))


def _hops(raw: dict[str, Any]) -> list[dict[str, Any]]:
    hops = raw.get("question_decomposition") or []
    if not isinstance(hops, list) or not all(isinstance(hop, dict) for hop in hops):
        raise ItemError("broken", "question_decomposition should hold objects", item_name(raw))
    return hops


def _steps(raw: dict[str, Any]) -> tuple[str, ...]:
    """`Who wrote X? Ann.` or `X, author: Ann.` per hop, `#1` filled in with the first answer."""
    said: list[str] = []
    answers: list[str] = []
    for hop in _hops(raw):
        question, answer = hop.get("question"), hop.get("answer")
        if not isinstance(question, str) or not isinstance(answer, str):
            raise ItemError("broken", "each of question_decomposition should have a question and an answer", item_name(raw))
        filled = _filled(question, answers).replace(" >> ", ", ").replace(" ?", "?").strip()
        said.append(check_encodable(f"{filled}{'' if filled.endswith('?') else ':'} {answer.strip()}.", item_name(raw)))
        answers.append(answer.strip())
    return tuple(said)


def _filled(question: str, answers: list[str]) -> str:
    """The question with the answers of earlier hops in the place of their numbers."""
    for number in reversed(range(len(answers))):
        question = question.replace(f"#{number + 1}", answers[number])
    return question


# 2WikiMultihopQA (2020.coling-main.580): HotpotQA's fields, and `evidences [[subject, relation, object]]`.


def parse_twowiki(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are its evidences, whose triples are also the reasoning. Without evidences, as HotpotQA."""
    item = read_hotpotqa(raw, where)
    evidences = raw.get("evidences") or []
    if not isinstance(evidences, list):
        raise ItemError("broken", f"evidences is {json_kind(evidences)} and should be a list", item_name(raw))
    steps = tuple(_step(raw, evidence) for evidence in evidences)
    item = item._replace(steps=steps, hops=len(steps) or item.hops)
    return Entry(item.id, multihop.plain_problem(item), item.hops)


def _step(raw: dict[str, Any], evidence: Any) -> str:
    match evidence:
        case [str() as subject, str() as relation, str() as thing]:
            return check_encodable(f"{subject}, {relation}: {thing}.", item_name(raw))
    raise ItemError("broken", "evidences should hold [subject, relation, object] triples", item_name(raw))


# The table of formats: how a file is cut into objects, and how an object becomes a problem.


class Reader(NamedTuple):
    """One format."""

    cut: Callable[[Path], Iterator[Found]]
    parse: Callable[[dict[str, Any], str], Entry]
    """Object and place -> problem; raises ItemError."""
    family: str
    """Who judges its rows."""


FORMATS: dict[str, Reader] = {
    "hotpotqa": Reader(read_members, parse_hotpotqa, "multihop"),
    "2wikimultihopqa": Reader(read_members, parse_twowiki, "multihop"),
    "musique": Reader(read_lines, parse_musique, "multihop"),
    "gsm8k": Reader(read_lines, parse_gsm8k, "qa"),
    "jsonl": Reader(read_lines, parse_jsonl, "qa"),
}
