"""The parser of the prose surface: sentences that define a node, claims of equality, and the answer; and the bindings of letters
as a completion is read. A letter refers to its last binding, so that it may be rebound.

Model text is split by regular expressions and never evaluated as code; a sentence without letters and numbers (no `=`, no
`Define`) is ignored, as published."""

import re
import struct
from functools import lru_cache
from hashlib import shake_128
from typing import NamedTuple

from interplay.tasks.op_dag import dag, terse
from interplay.tasks.op_dag.prose import VALUE_UNKNOWN, Node, Problem

_LONGEST = 120
_DEFINE = re.compile(r"Define (.+?) as ([A-Za-z])(?:;(.*))?", re.DOTALL)
_ANSWER = re.compile(r"Answer: *([^.\n]*)\.")
_RESULT = re.compile(r"-?(?:[0-9]+\*)?[A-Za-z](?:[-+][0-9]+)?|-?[0-9]+(?:[-+](?:[0-9]+\*)?[A-Za-z])?")
_QUOTIENT = re.compile(r"(-?[0-9]{1,9})/(-?[0-9]{1,9})")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:'t)?")


class Side(NamedTuple):
    """One side of a chain of equals."""

    part: terse.Part
    letters: str
    """Its letters, each once."""
    form: dag.Form | None
    """Its value where it has at most one letter, which is taken for the unknown; else, or where it is not linear, None."""
    result: bool
    """Whether its text is a number or a linear form with one term of each kind."""


class Clause(NamedTuple):
    """`E = b + c = 3 + 4 = 7`."""

    letter: str
    sides: tuple[Side, ...]


class Define(NamedTuple):
    """A sentence that defines a node."""

    name: str
    letter: str
    clauses: tuple[Clause, ...]
    value_unknown: bool
    """Whether it states that the value is not known yet."""


class Claim(NamedTuple):
    """A sentence of equalities without a name: the steps of an equation."""

    chains: tuple[tuple[Side | dag.Form | None, ...], ...]
    """A quotient is its value, None where that is no integer."""


Sentence = Define | Claim


def split_sentences(completion: str) -> tuple[list[str], str | None]:
    """The sentences with content, and the answer: the text between the tags, which must both be present, else after the last
    `Answer:`; None where there is neither."""
    body, mark, rest = completion.partition("<answer>")
    if mark:
        inside, end, _ = rest.partition("</answer>")
        answer = inside.strip() if end else None
    else:
        found = _ANSWER.findall(body)
        answer = found[-1].strip() if found else None
    return [text for text in body.replace("</solution>", ".").split(".") if "=" in text or "Define" in text], answer


@lru_cache(maxsize=1 << 14)
def parse_sentence(text: str) -> Sentence | None:
    """A sentence, or None if it cannot be parsed."""
    text = text.strip()
    found = _DEFINE.fullmatch(text)
    if found is None:
        return None if text.startswith("Define") else _claim(text)
    name, letter, rest = found.groups()
    clauses = []
    value_unknown = False
    for piece in (rest or "").split(";"):
        piece = piece.strip().removeprefix("so ")
        if piece == VALUE_UNKNOWN:
            value_unknown = True
        elif piece:
            clause = _clause(piece)
            if clause is None:
                return None
            clauses.append(clause)
    return Define(name, letter, tuple(clauses), value_unknown)


def is_intermediate(sentence: Define, number: int) -> bool:
    """Whether a clause that binds the node's own letter is an intermediate result, since a later one reads the letter."""
    later = sentence.clauses[number + 1 :]
    return any([sentence.letter in clause.sides[0].letters for clause in later if clause.letter == sentence.letter])


def _clause(text: str) -> Clause | None:
    letter, *texts = text.replace(" ", "").split("=")
    sides = [parse_side(text) for text in texts]
    if len(letter) != 1 or not letter.isalpha() or not letter.isascii() or not sides or None in sides:
        return None
    return Clause(letter, tuple(filter(None, sides)))


@lru_cache(maxsize=1 << 15)
def parse_side(text: str) -> Side | None:
    """One side of a chain, without blanks; None where it is no expression."""
    if len(text) > _LONGEST:
        return None
    text = text.replace("+-", "-").replace("--", "+")
    part = terse.parse_part(text, None)
    if part is None:
        return None
    letters = "".join(dict.fromkeys(part.letters))
    form = terse.evaluate(part.expression, {letters: (1, 0)}, None) if len(letters) == 1 else part.form
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


def _side_or_quotient(text: str) -> Side | dag.Form | str | None:
    """A side; the value of a quotient, None where it is no integer; the text itself where it is neither."""
    found = _QUOTIENT.fullmatch(text)
    if found:
        above, below = int(found[1]), int(found[2])
        return (0, above // below) if below and above % below == 0 else None
    return parse_side(text) or text


# Bindings of letters.


UNBOUND_PLACE = -1
"""The place of unbound letters, and of names that are no nodes."""
PRIME = 2**61 - 1
_MOST = 10**15
"""Larger numbers count as no value: repeated products are unbounded."""
_WEIGHTS = [int.from_bytes(shake_128(bytes([place])).digest(7)) for place in range(256)]
WEIGHTS = struct.pack("256Q", *_WEIGHTS)
"""For prose_verdict.c."""


class Bound(NamedTuple):
    """The value of a letter."""

    reach: frozenset[int]
    """The nodes that it depends on; UNBOUND_PLACE is no node of the problem."""
    form: dag.Form | None
    print: int
    """Fingerprint of its expression: the polynomial in the nodes, evaluated at fixed random numbers modulo a large prime. Equal
    polynomials have equal fingerprints, others practically never."""
    constants: tuple[int, ...]
    """The constants of its expression."""


class Statement(NamedTuple):
    """What a clause states about its letter."""

    bound: Bound
    named: bool
    """Whether it has letters."""
    value: dag.Form | None
    """The end of the chain, if it is a number or a linear form."""
    sound: bool
    """Whether all sides without letters except the unknown's are equal, and the substituted numbers are the letters' values."""
    follows: bool
    """Whether the value, where there is one, is that of the first expression."""


def node_weight(place: int) -> int:
    """The random number of a node in fingerprints."""
    return _WEIGHTS[place % len(_WEIGHTS)]


UNBOUND = Bound(frozenset((UNBOUND_PLACE,)), None, 0, ())
UNKNOWN_BOUND = Bound(frozenset((0,)), (1, 0), node_weight(0), ())


class Letters(dict[str, Bound]):
    """Letter -> its value in a completion up to the current sentence."""

    unknown = ""
    """The unknown's letter; empty where there is none."""

    def __missing__(self, letter: str) -> Bound:
        return UNBOUND


def clause_statement(clause: Clause, letters: Letters) -> Statement:
    """What a clause states under these bindings."""
    sides, unknown = clause.sides, letters.unknown
    first, last = sides[0], sides[-1]
    plain = [side for side in sides if not side.letters or side.letters == unknown]
    sound, value = True, None
    if plain:
        form = plain[0].form
        sound = form is not None and all([side.form == form for side in plain])
        if plain[-1] is last and last.result:
            value = last.form
    names = first.letters
    for side in sides[1:]:
        if side.letters and side.letters != unknown:
            names += side.letters.replace(unknown, "") if unknown else side.letters
    bounds = {letter: letters[letter] for letter in names}
    derived, print_ = resolve(first.part.expression, bounds)
    if sound and first.letters and None not in [bounds[letter].form for letter in first.letters]:
        sound = _substituted(clause, [bound.form for bound in map(bounds.__getitem__, first.part.letters) if bound.form])
    constants = [number for _, number in first.part.operands]
    for letter in first.part.letters:
        constants += bounds[letter].constants
    reach = frozenset().union(*[bound.reach for bound in bounds.values()]) if bounds else frozenset()
    found = Bound(reach, derived if value is None else value, print_, tuple(sorted(constants[:99])))
    return Statement(found, bool(bounds), value, sound, value is None or value == derived)


def _substituted(clause: Clause, known: list[dag.Form]) -> bool:
    """Whether the numbers substituted into the first expression are the values of its letters; True without any, or where the
    values depend on the unknown, whose terms have many spellings."""
    first = clause.sides[0].part
    if any([slope for slope, _ in known]):
        return True
    for side in clause.sides[1:]:
        if not side.letters and len(side.part.operands) > 1:
            given = [abs(number) for _, number in known] + [abs(number) for _, number in first.operands]
            return sorted([abs(number) for _, number in side.part.operands]) == sorted(given)
    return True


def resolve(expression: terse.Expression, bounds: dict[str, Bound]) -> tuple[dag.Form | None, int]:
    """The linear form of an expression, None where a letter has none or a product is not linear, and its fingerprint."""
    slope = rest = print_ = term_slope = term_rest = term_print = 0
    known = True
    for operator, operand in expression:
        form, number = _operand(operand, bounds)
        if form is None:
            known, form = False, (0, 0)
        if operator == "*":
            known = known and not (term_slope and form[0])
            term_slope, term_rest = term_slope * form[1] + form[0] * term_rest, term_rest * form[1]
            term_print = term_print * number % PRIME
        else:
            slope, rest, print_ = slope + term_slope, rest + term_rest, print_ + term_print
            term_slope, term_rest, term_print = (*form, number) if operator == "+" else (-form[0], -form[1], -number)
    form = (slope + term_slope, rest + term_rest)
    return form if known and abs(form[0]) + abs(form[1]) < _MOST else None, (print_ + term_print) % PRIME


def _operand(operand: terse.Operand, bounds: dict[str, Bound]) -> tuple[dag.Form | None, int]:
    if isinstance(operand, str):
        bound = bounds[operand]
        return bound.form, bound.print
    if isinstance(operand, terse.Bracket):
        return resolve(operand.inside, bounds)
    return operand, operand[1]


# The graphs of prose solutions and problems for data.similarity.


_UNKNOWN_LEAF = terse.Definition(numbers=((1, 0),))


class Meaning(NamedTuple):
    """The definition of a letter, with intermediate results resolved."""

    operators: frozenset[str]
    reads: tuple[str, ...]
    """Full names, in order."""
    numbers: tuple[dag.Form, ...]


def stated_graph(completion: str) -> terse.Graph:
    """The graph that a completion states, right or not, by full names; unreadable sentences are ignored. The first definition
    with operands counts, another only where there is none. An unbound letter is a name of its own."""
    found: terse.Graph = {}
    letters: dict[str, Meaning] = {}
    for text in split_sentences(completion)[0]:
        sentence = parse_sentence(text.strip())
        if isinstance(sentence, Define):
            for one in _definitions(sentence, letters):
                if sentence.name not in found or (one.reads and not found[sentence.name].reads):
                    found[sentence.name] = one
            letters[sentence.letter] = Meaning(frozenset(), (sentence.name,), ())
    return terse.with_all_names(found)


def gold_graph(problem: Problem) -> terse.Graph:
    """The graph that gold solutions state: the necessary nodes."""
    nodes = problem.nodes[: problem.necessary]
    return {node.name: _gold(node, [nodes[parent].name for parent in node.parents], problem.mode) for node in nodes}


def _gold(node: Node, reads: list[str], mode: str) -> terse.Definition:
    if node.constant is None and not reads:
        return terse.Definition() if mode == dag.FORWARD else _UNKNOWN_LEAF
    joined = {"-"} if node.minus else {"+"} if len(reads) > 1 else set()
    operators = joined | ({node.operator} if node.operator else set())
    numbers: tuple[dag.Form, ...] = () if node.constant is None else ((0, node.constant),)
    return terse.Definition(tuple(sorted(operators)), tuple(reads), numbers)


def _definitions(sentence: Define, letters: dict[str, Meaning]) -> list[terse.Definition]:
    """The definitions of a sentence, clause by clause; binds its intermediate letters."""
    definitions = [_UNKNOWN_LEAF] if sentence.value_unknown else []
    for number, clause in enumerate(sentence.clauses):
        meaning = _clause_meaning(clause, letters)
        if clause.letter != sentence.letter or is_intermediate(sentence, number):
            letters[clause.letter] = meaning
        else:
            definitions.append(terse.Definition(tuple(sorted(meaning.operators)), meaning.reads, meaning.numbers))
    return definitions


def _clause_meaning(clause: Clause, letters: dict[str, Meaning]) -> Meaning:
    part = clause.sides[0].part
    read = [letters.get(letter, Meaning(frozenset(), (letter,), ())) for letter in part.letters]
    return Meaning(
        operators=part.operators.union(*[one.operators for one in read]),
        reads=tuple([name for one in read for name in one.reads]),
        numbers=tuple(sorted([*part.operands, *[number for one in read for number in one.numbers]])),
    )
