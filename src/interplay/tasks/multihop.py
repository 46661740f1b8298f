r"""Questions over documents that take several facts to answer: plain, hidden behind chains of keys, or with citations; their
text and their verifier.

The `published` style is prose as in LoongRL's data (arXiv:2510.19363): numbered passages, JSON objects of one pair inserted after
sentences, an instruction. `terse` is for tiny models with a tokenizer of words: the sentences alone, then the question; the
solution is keys, facts, citations and answer, where there are any. A prompt of two lines, and its solution:

    Ada's mother is Bea. {"K7": "M2"}. Bea's boss is Cid. {"M2": "Who is the boss of the mother of Ada?"}. Key K7?
    K7>M2: Ada's mother is Bea. Bea's boss is Cid. \boxed{Cid}

Without keys the question itself takes the place of `Key K7?`. Blanks belong to the piece before them, so that a key or a name is
the same token everywhere."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from json.encoder import encode_basestring
from typing import Any, Literal, NamedTuple

from interplay.tasks import spec, verdict
from interplay.tasks.family import Family, Item, Paragraph, Rendered, compact_json, from_json

Mode = Literal["plain", "long", "keychain", "needle", "citation", "multi_value", "multi_query", "variables"]
LISTS = ("multi_value", "multi_query", "variables")
"""Modes whose answer is a list, in any order."""

STOP = re.compile(r"""(?<!\b[A-Z])(?<!\b(?:Mr|Ms|Dr|St|Jr|Sr|No|vs))(?<!\bMrs)[.?!]["')\]]*(?=\s+["'(\[]?[A-Z0-9]|\s*$)""")
"""The end of a sentence in running text: a stop before a new sentence or the end of the text. Initials and the commonest titles
do not count."""
ENDING = re.compile(r"""[.?!]["')\]]*$""")


class Chain(NamedTuple):
    """Keys that lead to a question (keychain), a key and its value (needle), or keys and values of a list."""

    keys: tuple[str, ...]
    """The head first. Each is the key of a pair whose value is the next one, or for the last one the question; of a needle, the
    last one is a value only. multi_value: a key and its values; multi_query: keys, each before its value; variables: a value,
    and variables each of which is assigned the one before it."""
    question: str
    """The value of the last key; empty for a needle."""

    def pairs(self, mode: Mode) -> list[tuple[str, str]]:
        """(key, value) in the order of the chain."""
        if mode == "multi_value":
            return [(self.keys[0], value) for value in self.keys[1:]]
        if mode == "multi_query":
            return list(zip(self.keys[::2], self.keys[1::2], strict=True))
        if mode == "variables":
            return list(zip(self.keys[1:], self.keys, strict=False))
        return list(zip(self.keys, (*self.keys[1:], self.question) if self.question else self.keys[1:], strict=False))


class Spot(NamedTuple):
    """The place of a pair."""

    document: int
    offset: int
    """Characters of the document's text before the pair: the end of a sentence."""
    chain: int
    link: int
    """Its number in the chain."""


class Problem(NamedTuple):
    """One question with the documents and keys of its prompt."""

    mode: Mode
    """plain: the item's own documents and its question; long: with further documents; keychain: the question is at the end of a
    chain of keys; needle: the value of a key; multi_value, multi_query, variables: a list; citation: the documents are tagged,
    and the solution names the useful ones."""
    item: Item
    documents: tuple[Paragraph, ...]
    """All documents in the order shown."""
    own: tuple[int, ...]
    """Place among the documents of each paragraph of the item, in the item's order."""
    chains: tuple[Chain, ...] = ()
    true: int = 0
    """Number of the chain that leads to the item's question, or of the needle that the question is about."""
    spots: tuple[Spot, ...] = ()
    """Places of all pairs, in the order of the text."""
    head: bool = True
    """Whether the prompt names the head."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that the gold solution traces, in order; empty without keys."""
        return self.chains[self.true].keys if self.chains else ()

    @property
    def answers(self) -> tuple[str, ...]:
        """Acceptable answers."""
        if self.mode in LISTS:
            return (", ".join(self.keys[1::2] if self.mode == "multi_query" else self.keys[1:]),)
        return self.keys[-1:] if self.mode == "needle" else self.item.answers

    @property
    def steps(self) -> tuple[str, ...]:
        """Gold reasoning after the keys, one sentence per hop; empty where the source has none."""
        return () if self.mode in ("needle", *LISTS) else self.item.steps

    @property
    def useful(self) -> tuple[int, ...]:
        """Numbers of the documents that the answer needs, in the order of the hops."""
        return tuple(dict.fromkeys(self.own[paragraph] for paragraph, _ in self.item.supporting))


def plain_problem(item: Item) -> Problem:
    """The item with its documents in their original order."""
    return Problem("plain", item, item.paragraphs, tuple(range(len(item.paragraphs))))


def sentence_ends(document: Paragraph) -> list[int]:
    """Offsets in the document's text at which a sentence ends, ascending: of the source's own sentences those that end in a stop,
    else by STOP."""
    if len(document.sentences) < 2:
        return [match.end() for match in STOP.finditer(document.text)]
    found, end = [], -1
    for sentence in map(str.strip, document.sentences):
        end += 1 + len(sentence)
        if ENDING.search(sentence):
            found.append(end)
    return found


def dumps(problem: Problem) -> str:
    """JSON, the same for equal problems. The item's paragraphs are stored among the documents only."""
    bare = problem.item._replace(paragraphs=())
    return compact_json(problem._replace(item=bare))


def loads(text: str) -> Problem:
    """The inverse of `dumps`."""
    stored = _stored_problem(text)
    paragraphs = tuple(stored.documents[place] for place in stored.own)
    return stored._replace(item=stored.item._replace(paragraphs=paragraphs))


_stored_problem = from_json(Problem)


# Text.


Style = Literal["published", "terse"]
LETTERS, DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
SHORT = tuple(letter + digit for letter in LETTERS for digit in DIGITS)
"""Keys of two characters, each one token of the words tokenizer."""
MOST_CHUNKS = 128
LINK, COLON = ">", ": "
CITE, CITED = "<useful_chunks>", "</useful_chunks>"
FORGOTTEN = "?"
"""Replaces the head in a prompt that does not name it."""
TEXTS: dict[str, Any] = json.loads(files("interplay.tasks").joinpath("multihop.json").read_text("utf-8"))
"""Question lines by style and mode; of keychain also with (`named`) or without the head; `final` ends the published ones."""


def terse_pieces() -> list[str]:
    """The pieces of the terse style for a tokenizer of words, in addition to the words of documents and questions."""
    frame = ["Key ", "Value of ", "?", "?\n", LINK, COLON, '{"', '": "', '"}. ', ". ", ".", verdict.BOX, "}", CITE, f"{CITED} "]
    return [*frame, *SHORT, *(tag(number) for number in range(MOST_CHUNKS))]


def tag(number: int) -> str:
    """The tag of a document that can be cited."""
    return f"<chunk_{number}>"


def key_pair(key: str, value: str) -> str:
    """The JSON of a pair, as inserted after a sentence."""
    return f" {{{encode_basestring(key)}: {encode_basestring(value)}}}."


def render(problem: Problem, style: Style, tagged: bool = False) -> Rendered:
    """Prompt, gold solution and answer. Tagged: each step of the source's reasoning is followed by the tag of its document."""
    steps = _tagged(problem) if tagged else problem.steps
    return Rendered(prompt_text(problem, style), _solution(problem, style, steps), problem.answers[0])


def prompt_text(problem: Problem, style: Style) -> str:
    """What the model reads."""
    return "".join([*document_texts(problem, style), question_text(problem, style)])


def document_texts(problem: Problem, style: Style) -> list[str]:
    """The documents of a prompt, each with its pairs and the separator before the next."""
    inserted: dict[int, list[tuple[int, str]]] = {}
    pairs = [chain.pairs(problem.mode) for chain in problem.chains]
    for spot in problem.spots:
        inserted.setdefault(spot.document, []).append((spot.offset, key_pair(*pairs[spot.chain][spot.link])))
    return [
        document_frame(number, document, with_pairs(document.text, inserted.get(number, [])), problem.mode, style)
        for number, document in enumerate(problem.documents)
    ]


def with_pairs(text: str, inserted: list[tuple[int, str]]) -> str:
    """The text with pairs at offsets, inserted from the last to the first, so that no offset moves."""
    for offset, inserted_text in sorted(inserted, reverse=True):
        text = text[:offset] + inserted_text + text[offset:]
    return text


def document_frame(number: int, document: Paragraph, text: str, mode: str, style: Style) -> str:
    """One document with its number or tag and its title, in a style."""
    if style == "terse":
        return f"{text}{tag(number) if mode == 'citation' else ''} "  # after the text, so that a reader meets it with the text
    name = tag(number) if mode == "citation" else f"Passage {number + 1}:"
    title = f"{document.title}\n" if document.title else ""
    return f"{name}\n{title}{text}\n\n"


def question_text(problem: Problem, style: Style) -> str:
    """The text after the documents."""
    head = problem.keys[0] if problem.keys and problem.head else FORGOTTEN
    head = ", ".join(problem.keys[::2]) if problem.mode == "multi_query" else head
    if style == "terse":
        return TEXTS["terse"][problem.mode].format(question=problem.item.question, start=head)
    start = f'"{head}"'
    if problem.mode == "keychain":
        start = TEXTS["named" if problem.head else "unnamed"].format(head=start)
    return TEXTS["published"][problem.mode].format(question=problem.item.question, start=start) + TEXTS["final"] + "\n"


def _solution(problem: Problem, style: Style, steps: tuple[str, ...]) -> str:
    """Keys, facts, citations and answer, where there are any."""
    boxed = f"{verdict.BOX}{problem.answers[0]}}}"
    cited = [CITE + "".join(tag(number) for number in problem.useful) + CITED] if problem.mode == "citation" else []
    if style == "terse":
        keys = LINK.join(problem.keys) + COLON if problem.keys else ""
        return keys + " ".join([*steps, *cited, boxed])
    parts = []
    if problem.keys:
        parts.append("The keys are " + " -> ".join(problem.keys) + ".")
        parts += [f"The question is: {problem.item.question}"] if problem.mode == "keychain" else []
    parts += steps or (() if problem.mode in ("needle", *LISTS) else supporting_sentences(problem.item))
    return " ".join([*parts, *cited, f"The answer is {boxed}."])


def _tagged(problem: Problem) -> tuple[str, ...]:
    """The steps, each followed by the tag of its document, where there are as many steps as supporting sentences."""
    supporting = problem.item.supporting
    if len(supporting) != len(problem.steps):
        return problem.steps
    documents = [problem.own[paragraph] for paragraph, _ in supporting]
    return tuple(step + tag(document) for document, step in zip(documents, problem.steps, strict=True))


def supporting_sentences(item: Item) -> list[str]:
    """The sentences that the answer needs, in the order of the hops."""
    return [item.paragraphs[paragraph].sentences[sentence].strip() for paragraph, sentence in item.supporting]


# Citations of chunks (LongRLVR, arXiv:2603.02146).
#
# F_beta(Z, G) = (1 + beta^2) P R / (beta^2 P + R) of the list Z against the useful set G. Precision divides by the length of
# the raw list, so that naming a document twice costs; recall counts the set.


BETA = 2.0
NUMBER = re.compile(r"\d+")
MOST_DIGITS, NO_CHUNK = 9, -1


def cited_chunks(completion: str) -> list[int] | None:
    """The numbers in the list of a completion, repeats included; NO_CHUNK for one with more digits than any chunk's. None where a
    tag is missing or repeated, or where the answer precedes the list: such a completion scores 0."""
    if any(completion.count(mark) != 1 for mark in (CITE, CITED, verdict.BOX)):
        return None
    start, end = completion.index(CITE) + len(CITE), completion.index(CITED)
    if not start <= end < completion.index(verdict.BOX):
        return None
    return [_number(digits.lstrip("0")) for digits in NUMBER.findall(completion[start:end])]


def _number(digits: str) -> int:
    """The number; a model may write more digits than Python's `int` accepts."""
    return int(digits or "0") if len(digits) <= MOST_DIGITS else NO_CHUNK


def f_beta(cited: Sequence[int], useful: Sequence[int], beta: float = BETA) -> float:
    """F_beta of a list against the useful documents; 0 where they have no number in common."""
    hits = len(set(cited) & set(useful))
    if not hits:
        return 0.0
    precision, recall = hits / len(cited), hits / len(set(useful))
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def trivial_score(problem: Problem) -> float:
    """The score of citing every chunk; 0 in modes without citations."""
    return f_beta(range(len(problem.documents)), problem.useful) if problem.mode == "citation" else 0.0


# The verifier.


WORD = re.compile(r"[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")


def verify(problem: Problem, completion: str, options: spec.Verify) -> verdict.Verdict:
    """Answer: exact match after normalisation. Strict: also all keys of the true chain in order and of no other chain, every
    hop of the gold reasoning stated and none contradicted, and in citation mode exactly the useful chunks, once each. Score: F1
    of the answer; in citation mode F_2 of the citations, and 0 where their format is invalid. Error: the first of
    `truncated` (no answer, or too many), `chain`, `step`, `citation`, `answer`."""
    said = None if verdict.is_answer_dump(completion) else verdict.extract_answer(completion)
    if said is None:
        return verdict.Verdict(False, False, 0.0, "truncated")
    reasoning = completion.rpartition(verdict.BOX)[0]
    listing = problem.mode in LISTS
    right = verdict.f1(said, problem.answers) == 1 if listing else verdict.exact_match(said, problem.answers)
    listed = cited_chunks(completion) if problem.mode == "citation" else []
    if listed is None:
        return verdict.Verdict(False, False, 0.0, "citation", said=said)
    score = f_beta(listed, problem.useful) if problem.mode == "citation" else verdict.f1(said, problem.answers)
    error = verdict.first_error(
        chain=not traced(problem, reasoning),
        step=not stated(problem.steps, reasoning),
        citation=problem.mode == "citation" and sorted(listed) != sorted(problem.useful),
        answer=not right,
    )
    return verdict.Verdict(error == "none", right, score, error, said=said)


def traced(problem: Problem, reasoning: str) -> bool:
    """Whether the keys of the true chain are named in order, and no other key is."""
    known = {key for chain in problem.chains for key in chain.keys}
    named = [word for word in WORD.findall(reasoning) if word in known]
    left = iter(problem.keys if problem.mode in LISTS else named)
    return set(named) <= set(problem.keys) and all(key in left for key in problem.keys)


def stated(steps: tuple[str, ...], reasoning: str) -> bool:
    """Whether every hop is stated and no statement contradicts one."""
    said = plain_text(reasoning)
    return all(_states(plain_text(step), said) for step in steps) and not contradicts(steps, said)


def contradicts(steps: tuple[str, ...], said: str) -> bool:
    """Whether a text, as `plain_text` gives it, has one of these sentences up to its verb and continues differently."""
    return any(not _always(stem, rest, said) for stem, rest in _cut(steps))


@lru_cache(maxsize=1024)
def _cut(steps: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each sentence cut after its verb; where it has no known verb, before its last word. Without sentences that another one of
    them would contradict: files hold such reasoning, for example `what is`, repeated."""
    found, gold = [], plain_text(" ".join(steps))
    for step in map(plain_text, steps):
        verb = verdict.VERB.search(step)
        end = verb.end() if verb else step.rfind(" ") + 1
        found += [(step[:end], step[end:])] if end else []
    return [(stem, rest) for stem, rest in found if _always(stem, rest, gold)]


def _always(stem: str, rest: str, said: str) -> bool:
    """Whether a text continues with `rest` wherever it has the stem."""
    return stem not in said or all(_goes_on(said, place, rest) for place in _ends_of(stem, said))


def _states(step: str, said: str) -> bool:
    return step in said and any(_goes_on(said, place, "") for place in _ends_of(step, said))


def _ends_of(part: str, said: str) -> list[int]:
    """The ends of those occurrences of a part that begin a word."""
    return [match.end() for match in re.finditer(rf"(?<!\w){re.escape(part)}", said)]


def _goes_on(said: str, place: int, rest: str) -> bool:
    end = place + len(rest)
    return said[place:end] == rest and not said[end : end + 1].isalnum()


def plain_text(words: str) -> str:
    """Lower case, single blanks, no stop at the end."""
    return " ".join(words.lower().split()).rstrip(".?!")


def statements(problem: Problem, completion: str) -> list[verdict.Statement]:
    """Links of the chain and facts that a completion states; a key of another chain is another value of its link."""
    places = {key: f"link {at}" for chain in problem.chains for at, key in enumerate(chain.keys)}
    named = [word for word in WORD.findall(completion.partition(verdict.BOX)[0]) if word in places]
    links = [verdict.Statement(places[key], key, True) for key in named]
    return links + verdict.fact_statements(problem.steps, problem.item.question, completion)


MULTIHOP = Family(
    name="multihop",
    errors=("truncated", "chain", "step", "citation", "answer"),
    loads=loads,
    verify=verify,
    trivial_score=trivial_score,
    item=lambda problem: problem.item,
    statements=statements,
)
