r"""How a multi-hop question reads.

`published` is prose as in LoongRL's data (arXiv:2510.19363): numbered passages, one-pair JSON objects strewn after sentences,
an instruction. `terse` is for tiny models with a tokenizer of words: the sentences alone, then what is asked; the solution is
keys, facts, citations and answer, each where there are any. A prompt of two lines, and its solution:

    Ada's mother is Bea. {"K7": "M2"}. Bea's boss is Cid. {"M2": "Who is the boss of the mother of Ada?"}. Key K7?
    K7>M2: Ada's mother is Bea. Bea's boss is Cid. \boxed{Cid}

Asked plainly, the question itself stands for `Key K7?`. Blanks belong to the piece before them, so that a key or a name is one
and the same token everywhere."""

from json.encoder import encode_basestring
from typing import Literal, NamedTuple

from interplay.tasks.multihop.problem import Paragraph, Problem
from interplay.tasks.verdict import BOX

Style = Literal["published", "terse"]
LETTERS, DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
SHORT = tuple(letter + digit for letter in LETTERS for digit in DIGITS)
"""Keys of two characters, each one token of the words tokenizer."""
MOST_CHUNKS = 128
LINK, COLON = ">", ": "
CITE, CITED = "<useful_chunks>", "</useful_chunks>"
FORGOTTEN = "?"
"""Stands for the head in a prompt that does not name it."""
FINAL = " Reason step by step, and put the final answer in \\boxed{}."
PLAIN = "Answer the question from the passages above.\nQuestion: {question}"
PAIRS = "Hidden among the passages above are pairs of a key and a value. "
ASKS = {
    "plain": PLAIN,
    "long": PLAIN,
    "keychain": f"{PAIRS}Following them from key to value leads to a question. One question is the right one; {{start}} "
    "Find it first, then answer it from the passages.",
    "needle": f"{PAIRS}What is the value of the key {{start}}?",
    "citation": "Answer the question from the chunks above. Think first; then list the tags of all chunks that the answer "
    f"needs between {CITE} and {CITED}, once; then answer.\nQuestion: {{question}}",
}
STARTS = {
    True: "its chain of consecutive pairs starts from the key {head}.",
    False: "where its chain of consecutive pairs starts is not said.",
}
TERSE = {
    "plain": "{question}\n",
    "long": "{question}\n",
    "citation": "{question}\n",
    "keychain": "Key {start}?\n",
    "needle": "Value of {start}?\n",
}


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins; the solution ends in the
    answer."""

    prompt: str
    solution: str
    answer: str


def pieces() -> list[str]:
    """What a tokenizer of words needs beside the words of documents and questions to read the terse style in few tokens."""
    frame = ["Key ", "Value of ", "?", "?\n", LINK, COLON, '{"', '": "', '"}. ', ". ", ".", BOX, "}", CITE, f"{CITED} "]
    return [*frame, *SHORT, *(tag(number) for number in range(MOST_CHUNKS))]


def tag(number: int) -> str:
    """What marks a document that can be cited."""
    return f"<chunk_{number}>"


def pair(key: str, value: str) -> str:
    """A pair, as JSON, as it is inserted behind a sentence."""
    return f" {{{encode_basestring(key)}: {encode_basestring(value)}}}."


def render(problem: Problem, style: Style, tagged: bool = False) -> Rendered:
    """Prompt, gold solution and answer. Tagged: each step of the source's reasoning is followed by the tag of its document."""
    steps = _tagged(problem) if tagged else problem.steps
    return Rendered(prompt(problem, style), _solution(problem, style, steps), problem.answers[0])


def prompt(problem: Problem, style: Style) -> str:
    """What the model reads."""
    return "".join([*document_texts(problem, style), ask(problem, style)])


def document_texts(problem: Problem, style: Style) -> list[str]:
    """The documents as shown, each with the pairs in it and all that stands before the next."""
    inserted: dict[int, list[tuple[int, str]]] = {}
    pairs = [chain.pairs() for chain in problem.chains]
    for spot in problem.spots:
        inserted.setdefault(spot.document, []).append((spot.offset, pair(*pairs[spot.chain][spot.link])))
    return [
        frame(number, document, with_pairs(document.text, inserted.get(number, [])), problem.mode, style)
        for number, document in enumerate(problem.documents)
    ]


def with_pairs(text: str, inserted: list[tuple[int, str]]) -> str:
    """The text with pairs at offsets, put in from the last to the first, so that no offset moves."""
    for offset, inserted_text in sorted(inserted, reverse=True):
        text = text[:offset] + inserted_text + text[offset:]
    return text


def frame(number: int, document: Paragraph, text: str, mode: str, style: Style) -> str:
    """One document with its number or tag and its title, as the style shows them."""
    if style == "terse":
        return f"{text}{tag(number) if mode == 'citation' else ''} "  # behind the text, so that it is read on with the text
    name = tag(number) if mode == "citation" else f"Passage {number + 1}:"
    title = f"{document.title}\n" if document.title else ""
    return f"{name}\n{title}{text}\n\n"


def ask(problem: Problem, style: Style) -> str:
    """What stands behind the documents."""
    head = problem.keys[0] if problem.keys and problem.head else FORGOTTEN
    if style == "terse":
        return TERSE[problem.mode].format(question=problem.item.question, start=head)
    start = STARTS[problem.head].format(head=f'"{head}"') if problem.mode == "keychain" else f'"{head}"'
    return ASKS[problem.mode].format(question=problem.item.question, start=start) + FINAL + "\n"


def _solution(problem: Problem, style: Style, steps: tuple[str, ...]) -> str:
    """Keys, facts, citations and answer, each where there are any."""
    boxed = f"{BOX}{problem.answers[0]}}}"
    cited = [CITE + "".join(tag(number) for number in problem.useful) + CITED] if problem.mode == "citation" else []
    if style == "terse":
        keys = LINK.join(problem.keys) + COLON if problem.keys else ""
        return keys + " ".join([*steps, *cited, boxed])
    parts = []
    if problem.keys:
        parts.append("The keys are " + " -> ".join(problem.keys) + ".")
        parts += [f"The question is: {problem.item.question}"] if problem.mode == "keychain" else []
    parts += steps or (() if problem.mode == "needle" else _facts(problem))
    return " ".join([*parts, *cited, f"The answer is {boxed}."])


def _tagged(problem: Problem) -> tuple[str, ...]:
    """The steps, each followed by the tag of its document, where steps and supporting sentences go together one by one."""
    supporting = problem.item.supporting
    if len(supporting) != len(problem.steps):
        return problem.steps
    documents = [problem.own[paragraph] for paragraph, _ in supporting]
    return tuple(step + tag(document) for document, step in zip(documents, problem.steps, strict=True))


def _facts(problem: Problem) -> list[str]:
    """The supporting sentences, for sources without reasoning of their own."""
    paragraphs = problem.item.paragraphs
    return [paragraphs[paragraph].sentences[sentence].strip() for paragraph, sentence in problem.item.supporting]
