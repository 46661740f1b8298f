"""Reading a completion: sentences that define a node, claims that something equals something, and the answer.

Model text is taken apart by regular expressions and never evaluated as code; a sentence that says nothing in letters and numbers
(no `=`, no `Define`) is passed over, as published."""

import re
from functools import lru_cache
from typing import NamedTuple

from interplay.tasks.op_dag.graph import Form
from interplay.tasks.op_dag.parse import Part, evaluate, part_cached
from interplay.tasks.op_dag_prose.render import UNTOLD

_LONGEST = 120
_DEFINE = re.compile(r"Define (.+?) as ([A-Za-z])(?:;(.*))?", re.DOTALL)
_ANSWER = re.compile(r"Answer: *([^.\n]*)\.")
_RESULT = re.compile(r"-?(?:[0-9]+\*)?[A-Za-z](?:[-+][0-9]+)?|-?[0-9]+(?:[-+](?:[0-9]+\*)?[A-Za-z])?")
_QUOTIENT = re.compile(r"(-?[0-9]{1,9})/(-?[0-9]{1,9})")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:'t)?")


class Side(NamedTuple):
    """One side of a chain of equals."""

    part: Part
    letters: str
    """Its letters, each once."""
    form: Form | None
    """What it comes to where it has at most one letter, which is taken for the unknown; else, or where it is not linear, None."""
    result: bool
    """Whether it is written as a number or a linear form with one term of each kind."""


class Clause(NamedTuple):
    """`E = b + c = 3 + 4 = 7`."""

    letter: str
    sides: tuple[Side, ...]


class Define(NamedTuple):
    """A sentence about a node."""

    name: str
    letter: str
    clauses: tuple[Clause, ...]
    untold: bool
    """Whether it says that the value will be found out later."""


class Claim(NamedTuple):
    """A sentence that says, of nothing by name, that things are equal: the steps of an equation."""

    chains: tuple[tuple[Side | Form | None, ...], ...]
    """A quotient is the number that it comes to, None where that is none."""


Sentence = Define | Claim


def split(completion: str) -> tuple[list[str], str | None]:
    """The sentences that say something, and what is answered: between the tags, which must both be there, else after the last
    `Answer:`; None where there is neither."""
    body, mark, rest = completion.partition("<answer>")
    if mark:
        said, end, _ = rest.partition("</answer>")
        answer = said.strip() if end else None
    else:
        found = _ANSWER.findall(body)
        answer = found[-1].strip() if found else None
    return [text for text in body.replace("</solution>", ".").split(".") if "=" in text or "Define" in text], answer


@lru_cache(maxsize=1 << 14)
def parse(text: str) -> Sentence | None:
    """What a sentence says, or None if that cannot be read."""
    text = text.strip()
    found = _DEFINE.fullmatch(text)
    if found is None:
        return None if text.startswith("Define") else _claim(text)
    name, letter, rest = found.groups()
    clauses = []
    untold = False
    for piece in (rest or "").split(";"):
        piece = piece.strip().removeprefix("so ")
        if piece == UNTOLD:
            untold = True
        elif piece:
            clause = _clause(piece)
            if clause is None:
                return None
            clauses.append(clause)
    return Define(name, letter, tuple(clauses), untold)


def read_on(sentence: Define, number: int) -> bool:
    """Whether a clause about the node's own letter is an intermediate result, since a later one about it reads the letter."""
    later = sentence.clauses[number + 1 :]
    return any([sentence.letter in clause.sides[0].letters for clause in later if clause.letter == sentence.letter])


def _clause(text: str) -> Clause | None:
    letter, *texts = text.replace(" ", "").split("=")
    sides = [side(text) for text in texts]
    if len(letter) != 1 or not letter.isalpha() or not letter.isascii() or not sides or None in sides:
        return None
    return Clause(letter, tuple(filter(None, sides)))


@lru_cache(maxsize=1 << 15)
def side(text: str) -> Side | None:
    """One side of a chain, without blanks; None where it is no expression."""
    if len(text) > _LONGEST:
        return None
    text = text.replace("+-", "-").replace("--", "+")
    part = part_cached(text, None)
    if part is None:
        return None
    letters = "".join(dict.fromkeys(part.letters))
    form = evaluate(part.expression, {letters: (1, 0)}, None) if len(letters) == 1 else part.form
    return Side(part, letters, form, _RESULT.fullmatch(text) is not None)


def _claim(text: str) -> Claim | None:
    chains = []
    for piece in re.split("[:,;]", text):
        if "=" in piece:
            sides = [_side_or_quotient(each) for each in _WORDS.sub(" ", piece).replace(" ", "").split("=")]
            if any([isinstance(each, str) for each in sides]):
                return None
            chains.append(tuple(each for each in sides if not isinstance(each, str)))
    return Claim(tuple(chains))


def _side_or_quotient(text: str) -> Side | Form | str | None:
    """A side; the number of a quotient, None where it has none; the text itself where it is neither."""
    found = _QUOTIENT.fullmatch(text)
    if found:
        above, below = int(found[1]), int(found[2])
        return (0, above // below) if below and above % below == 0 else None
    return side(text) or text
