"""Question-answering files in published formats: JSON objects read one by one, `parse_<format>(raw, where) -> Entry`
(data.foreign has the table of formats). A defective object is reported and the others are read."""

import re
from typing import Any, NamedTuple

from interplay.data.sets import ItemError, json_kind
from interplay.tasks import multihop, programs, qa, transcripts, verdict
from interplay.tasks.environments import sandbox
from interplay.tasks.family import Item, Paragraph

# Items and defects.

MOST_KEYS = 8
"""Keys of an object that a message lists."""


class Entry(NamedTuple):
    """One item of a file."""

    id: str
    """Its id; an item without one is identified by its question."""
    problem: multihop.Problem | qa.Problem | programs.Problem | transcripts.Passage
    op: int
    """Hops, or lines of the solution; 0 of text, which asks nothing."""


def text_field(raw: dict[str, Any], key: str, words: bool = True) -> str:
    """A field that must hold text; `words`: whose normalised form must not be empty. Raises ItemError."""
    value = raw.get(key)
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise ItemError("missing_field", f"{key} is {value}, which is no answer")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise ItemError("broken", f"{key} is {json_kind(value)} and should be text")
    if not value or not value.strip():
        there = f"missing (there are {', '.join(map(str, list(raw)[:MOST_KEYS]))})"
        raise ItemError("missing_field", f"{key} is {there if value is None else 'empty'}")
    if words and not verdict.normalise(value):
        raise empty_when_normalised(key, value)
    return value


def empty_when_normalised(key: str, value: str) -> ItemError:
    """The defect of a text whose normalised form is empty, so that no completion could match it as an answer."""
    left = "without articles and punctuation, as scorers compare, nothing is left"
    return ItemError("missing_field", f"{key} is {value.strip()[:40]!r}: {left}")


def list_field(raw: dict[str, Any], key: str) -> list[Any]:
    """A field that must hold a list that is not empty. Raises ItemError."""
    value = raw.get(key)
    if value is not None and not isinstance(value, list):
        raise ItemError("broken", f"{key} is {json_kind(value)} and should be a list")
    if not value:
        raise ItemError("missing_field", f"{key} is {'missing' if value is None else 'empty'}")
    return value


def item_name(raw: dict[str, Any]) -> str:
    """The id of the item, or an empty text."""
    value = raw.get("_id", raw.get("id"))
    return str(value) if isinstance(value, (str, int)) else ""


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
        raise ItemError("missing_field", f"answer has no final line '{_FINAL} <number>'")
    if not qa.number_values(gold):
        raise ItemError("broken", f"final answer {gold[:40]!r} is not a number")
    steps = tuple(line for line in (_NOTE.sub("", line).strip() for line in before.split("\n")) if line)
    problem = qa.Problem(question.strip(), (gold,), steps, item_name(raw) or where)
    return Entry(item_name(raw) or question, problem, max(1, len(steps)))


# MATH (arXiv:2103.03874), `problem, level, solution`, its subset of 500 with `answer`, and AIME's sets, `problem, answer`.


def parse_math(raw: dict[str, Any], where: str) -> Entry:
    """An item; its op is MATH's level, else 1; the answer is its own, or in the last box of its solution."""
    raw = {str(key).lower(): value for key, value in raw.items()}
    worked, level = raw.get("solution") or "", re.search(r"\d+", str(raw.get("level", "")))
    answer = _boxed(worked) if isinstance(worked, str) and "answer" not in raw else raw.get("answer")
    if answer is None:
        raise ItemError("missing_field", "answer is missing, and the solution has none in a box")
    given = {"question": text_field(raw, "problem"), "answer": answer, "solution": worked}
    given["id"] = raw.get("unique_id", raw.get("id"))
    return parse_jsonl(given, where)._replace(op=int(level[0]) if level else 1)


# LongBench (arXiv:2308.14508): `input, context, answers, dataset, _id`; its parts with questions and short answers.


def parse_longbench(raw: dict[str, Any], where: str) -> Entry:
    """A question over one document, of one hop."""
    if raw.get("dataset") in ("gov_report", "qmsum", "multi_news", "vcsum", "samsum", "lcc", "repobench-p"):
        raise ItemError("unanswerable", f"{raw['dataset']} is scored by ROUGE or edit similarity, which are not here")
    answers = [str(answer).strip() for answer in list_field(raw, "answers") if verdict.normalise(str(answer))]
    given = {"_id": item_name(raw), "question": raw.get("input"), "answer": (answers or [""])[0], "type": raw.get("dataset")}
    given |= {"context": [["", [text_field(raw, "context").strip()]]], "supporting_facts": [["", 0]]}
    item = read_hotpotqa(given, where)._replace(answers=tuple(dict.fromkeys(answers)))
    return Entry(item.id, multihop.plain_problem(item), 1)


# HotpotQA (arXiv:1809.09600), distractor and fullwiki, and what 2WikiMultihopQA shares with it: `_id, question, answer, type,
# supporting_facts [[title, sentence]], context [[title, [sentence, ...]]]`.


def parse_hotpotqa(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are the documents that hold supporting facts."""
    item = read_hotpotqa(raw, where)
    return Entry(item.id, multihop.plain_problem(item), item.hops)


def read_hotpotqa(raw: dict[str, Any], where: str) -> Item:
    """The question with its documents. Raises ItemError."""
    question, answer = text_field(raw, "question"), text_field(raw, "answer")
    paragraphs = tuple(map(_paragraph, list_field(raw, "context")))
    supporting = tuple(dict.fromkeys(_fact(paragraphs, given) for given in list_field(raw, "supporting_facts")))
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


def _paragraph(given: Any) -> Paragraph:
    match given:
        case [str() as title, [*sentences]] if all(isinstance(sentence, str) for sentence in sentences):
            return Paragraph(title, tuple(sentences))
    raise ItemError("broken", "context should hold [title, [sentence, ...]] pairs")


def _fact(paragraphs: tuple[Paragraph, ...], given: Any) -> tuple[int, int]:
    """Paragraph and sentence of a supporting fact; of several paragraphs with its title, the first that has the sentence."""
    match given:
        case [str() as title, int() as sentence] if sentence >= 0:
            for number, paragraph in enumerate(paragraphs):
                if paragraph.title == title and sentence < len(paragraph.sentences):
                    return number, sentence
            raise ItemError("unanswerable", f"supporting fact [{title!r}, {sentence}] is not in the context")
    raise ItemError("broken", "supporting_facts should hold [title, sentence number] pairs")


# Any questions and answers, one JSON object per line: `question` and `answer` (text or a number); optional: `id`, `aliases`
# (further answers) and `solution` (worked text, one step per line).


def parse_jsonl(raw: dict[str, Any], where: str) -> Entry:
    """An item; its op is the number of lines of its solution, 1 where it has none."""
    if isinstance(raw.get("question"), list):
        raw = {**raw, "question": _last_of(raw["question"], "user")}
    question, answer = text_field(raw, "question"), text_field(raw, "answer", words=False)
    aliases, solution = raw.get("aliases") or [], raw.get("solution") or ""
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ItemError("broken", "aliases should be a list of texts")
    if not isinstance(solution, str):
        raise ItemError("broken", "solution should be text")
    if not qa.equal(answer, [answer]):  # such as the word `the`; the letter `A` and the sign `+` are answers
        raise empty_when_normalised("answer", answer)
    if verdict.BOX in answer:  # the last of two boxes would be read, which is not this answer
        raise ItemError("broken", f"answer is {answer.strip()[:40]!r}: write it without the box")
    answers = dict.fromkeys([answer.strip(), *(alias.strip() for alias in aliases if alias.strip())])
    steps = tuple(line.strip() for line in solution.split("\n") if line.strip())
    problem = qa.Problem(question.strip(), tuple(answers), steps, item_name(raw) or where)
    return Entry(item_name(raw) or question, problem, max(1, len(steps)))


def parse_program(raw: dict[str, Any], where: str) -> Entry:
    """A question with tests; its op is the number of lines of its program, 1 where none is known. Raises UserError where the
    sandbox is not installed."""
    sandbox.check_tool("python")
    question, given, program = text_field(raw, "question"), list_field(raw, "tests"), raw.get("solution") or ""
    if not isinstance(program, str):
        raise ItemError("broken", "solution should be text, a program")
    if len(given) > programs.MOST_TESTS:
        raise ItemError("broken", f"there are {len(given)} tests, and at most {programs.MOST_TESTS} are run")
    try:
        tests = tuple(programs.read_test(str(one)) for one in given)
    except ValueError as error:
        raise ItemError("broken", f"tests: {error}") from None
    problem = programs.Problem(question.strip(), tests, program.strip("\n"), item_name(raw) or where)
    return Entry(item_name(raw) or question, problem, max(1, len(program.strip().splitlines())))


# Chats: `messages [{role, content}]` that end with an assistant's.


def parse_messages(raw: dict[str, Any], where: str) -> Entry:
    """The assistant's last message is the solution with the answer, the last one of a user before it the question."""
    chat = list_field(raw, "messages")
    said = _last_of(chat, "assistant")
    while chat[-1].get("role") != "assistant":
        chat = chat[:-1]
    marked, given = said.rpartition(_FINAL)[2].strip() if _FINAL in said else "", raw.get("answer")
    answer = (_boxed(said) or marked or said) if given in (None, "") else given
    return parse_jsonl({"solution": said if answer != said else "", **raw, "question": chat, "answer": answer}, where)


def _boxed(text: str) -> str | None:
    """What the last box of a text holds; None where there is no box: a # is no mark of an answer here."""
    return verdict.extract_answer(text) if verdict.BOX in text else None


def _last_of(chat: list[Any], role: str) -> str:
    """The content of the last message of a role. Raises ItemError."""
    for message in reversed(chat):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise ItemError("broken", "a chat should hold objects with role and content, both text")
        if message.get("role") == role:
            return str(message["content"])
    raise ItemError("missing_field", f"a chat without a message of the {role}")


# Text: a document, `text`, or a chat, `messages [{role, content}]`, of any number of turns.


NEAR_EMPTY = 20
"""Letters and digits that a document has at least."""
REPLACED = "\ufffd"
"""What a decoder writes for bytes that are no text."""


def parse_text(raw: dict[str, Any], where: str) -> Entry:
    """A document."""
    text = text_field(raw, "text", words=False)
    count = sum(map(str.isalnum, text[: 100 * NEAR_EMPTY]))
    if count < NEAR_EMPTY:
        raise ItemError("near_empty", f"text has {count} letters and digits, and fewer than {NEAR_EMPTY} teach nothing")
    if REPLACED in text:
        at = text.index(REPLACED)
        raise ItemError("broken", f"text was not decoded: character {at + 1} replaces bytes that are no text")
    return _passage(raw, transcripts.Passage(text), text)


def parse_chat(raw: dict[str, Any], where: str) -> Entry:
    """A chat, up to the last message of its assistant."""
    chat = list_field(raw, "messages")
    _last_of(chat, transcripts.ASSISTANT)
    read: list[Any] = [message for message in chat if isinstance(message, dict) and isinstance(message.get("content"), str)]
    said = [(message.get("role"), message["content"]) for message in read]
    if len(said) < len(chat) or not all(isinstance(role, str) and role for role, _ in said):
        raise ItemError("broken", "a chat should hold objects with role and content, both text")
    if empty := [place for place, (_, content) in enumerate(said, 1) if not content.strip()]:
        raise ItemError("near_empty", f"message {empty[0]} of the chat is empty")
    if said[0][0] == transcripts.ASSISTANT:
        raise ItemError("broken", "a chat should begin with a message of the user or the system")
    while said[-1][0] != transcripts.ASSISTANT:
        said.pop()
    return _passage(raw, transcripts.Passage("", tuple(said)), "\n".join(f"{role}: {content}" for role, content in said))


def _passage(raw: dict[str, Any], passage: transcripts.Passage, content: str) -> Entry:
    """With its own licence, where the row names one. Its id is its content."""
    if transcripts.MARK in content or transcripts.MARK in passage.text:
        raise ItemError("broken", "a text has the character U+001E, which separates turns here")
    own = raw.get("licence")
    if own is not None and not isinstance(own, str):
        raise ItemError("broken", f"licence is {json_kind(own)} and should be text")
    return Entry(" ".join(content.split()), passage._replace(licence=own or ""), 0)


# MuSiQue (arXiv:2108.00573), Ans and Full: `id, question, answer, answer_aliases, answerable, paragraphs [{idx, title,
# paragraph_text, is_supporting}], question_decomposition [{question, answer, paragraph_support_idx}]`.


def parse_musique(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are its supporting paragraphs; its reasoning is the single-hop questions with their answers. A paragraph is
    one text, which counts as one sentence."""
    question, answer = text_field(raw, "question"), text_field(raw, "answer")
    if raw.get("answerable") is False:
        raise ItemError("unanswerable", "it is declared not answerable")
    given = list_field(raw, "paragraphs")
    if not all(isinstance(part, dict) for part in given):
        raise ItemError("broken", "paragraphs should hold objects")
    supporting = tuple((number, 0) for number, part in enumerate(given) if part.get("is_supporting") is True)
    if not supporting:
        raise ItemError("unanswerable", "none of its paragraphs is supporting")
    aliases = raw.get("answer_aliases") or []
    if not isinstance(aliases, list):
        raise ItemError("broken", f"answer_aliases is {json_kind(aliases)} and should be a list of texts")
    aliases = [alias for alias in aliases if isinstance(alias, str) and verdict.normalise(alias)]
    item = Item(
        id=item_name(raw),
        question=question.strip(),
        answers=tuple(dict.fromkeys(map(str.strip, [answer, *aliases]))),
        paragraphs=tuple(map(_musique_paragraph, given)),
        supporting=_in_order(raw, given, supporting),
        hops=len(supporting),
        type=item_name(raw).partition("__")[0],
        steps=_steps(raw),
    )
    return Entry(item.id, multihop.plain_problem(item), item.hops)


def _musique_paragraph(part: dict[str, Any]) -> Paragraph:
    title, body = part.get("title"), part.get("paragraph_text")
    if not isinstance(title, str) or not isinstance(body, str):
        raise ItemError("broken", "each of paragraphs should have a title and a paragraph_text")
    return Paragraph(title, (body,))


def _in_order(raw: dict[str, Any], given: list[Any], supporting: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The supporting paragraphs in the order of the hops that use them, where the source gives one."""
    needed = [hop.get("paragraph_support_idx") for hop in _hops(raw)]
    indices = [part.get("idx", number) for number, part in enumerate(given)]
    for key, values in (("idx", indices), ("paragraph_support_idx", needed)):
        odd = next((value for value in values if isinstance(value, (dict, list))), None)
        if odd is not None:
            raise ItemError("broken", f"{key} is {json_kind(odd)} and should be a number")
    places = {index: number for number, index in enumerate(indices)}
    order = [places[index] for index in needed if index is not None and index in places]
    return tuple(sorted(supporting, key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order)))


def _hops(raw: dict[str, Any]) -> list[dict[str, Any]]:
    hops = raw.get("question_decomposition") or []
    if not isinstance(hops, list) or not all(isinstance(hop, dict) for hop in hops):
        raise ItemError("broken", "question_decomposition should hold objects")
    return hops


def _steps(raw: dict[str, Any]) -> tuple[str, ...]:
    """`Who wrote X? Ann.` or `X, author: Ann.` per hop, `#1` replaced by the first answer."""
    said: list[str] = []
    answers: list[str] = []
    for hop in _hops(raw):
        question, answer = hop.get("question"), hop.get("answer")
        if not isinstance(question, str) or not isinstance(answer, str):
            raise ItemError("broken", "each of question_decomposition should have a question and an answer")
        for number in reversed(range(len(answers))):
            question = question.replace(f"#{number + 1}", answers[number])
        filled = question.replace(" >> ", ", ").replace(" ?", "?").strip()
        said.append(f"{filled}{'' if filled.endswith('?') else ':'} {answer.strip()}.")
        answers.append(answer.strip())
    return tuple(said)


# 2WikiMultihopQA (2020.coling-main.580): HotpotQA's fields, and `evidences [[subject, relation, object]]`.


def parse_twowiki(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are its evidences, whose triples are also the reasoning. Without evidences, as HotpotQA."""
    item = read_hotpotqa(raw, where)
    evidences = raw.get("evidences") or []
    if not isinstance(evidences, list):
        raise ItemError("broken", f"evidences is {json_kind(evidences)} and should be a list")
    steps = tuple(map(_step, evidences))
    item = item._replace(steps=steps, hops=len(steps) or item.hops)
    return Entry(item.id, multihop.plain_problem(item), item.hops)


def _step(evidence: Any) -> str:
    match evidence:
        case [str() as subject, str() as relation, str() as thing]:
            return f"{subject}, {relation}: {thing}."
    raise ItemError("broken", "evidences should hold [subject, relation, object] triples")
