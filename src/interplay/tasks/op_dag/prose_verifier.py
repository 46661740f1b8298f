"""The verifier of the prose surface: judges a completion step by step against the gold graph (arXiv:2512.07783, section 2,
scope-aware and symbolic), as op_dag.terse_verifier does for the terse surface, and the row of the family.

A necessary node is right if a sentence defines it by its full name, states its value, names its parents, and no statement about
it is wrong:
- parents: the set of nodes that the letters of its sentence depend on, through intermediate results, equals the gold set. A
  letter refers to its last binding; one that is unbound, or bound to a node that no sentence has valued yet, is a wrong parent.
- value: the number (in reverse mode the linear form in the unknown, whichever letter it has) equals the gold one, all sides of a
  chain are equal, and the substituted numbers are the values of the letters. A node with two values is wrong. Equations must hold
  at the unknown's true value; a wrong one counts against the goal.
- operator (an option): the nodes and constants are combined as in the gold, in any algebraically equal way. Without the option
  another combination passes where its constants are the gold ones and the value is right, as published."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from interplay.tasks.family import Generator, Rates
from interplay.tasks.op_dag import dag, prose, prose_parser, prose_problems, terse
from interplay.tasks.op_dag.prose import UNKNOWN, VALUE_UNKNOWN, Node, Problem
from interplay.tasks.op_dag.prose_parser import PRIME, UNBOUND_PLACE, UNKNOWN_BOUND, Bound, Bounds, Define, Letters
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

VALUED, NAMED, BAD_VALUE, BAD_PARENTS, BAD_OPERATOR, *_ = dag.BITS

# Matching: sentences equal to the gold ones up to letters are recognised by one comparison of text and a few of letters, without
# parsing. The effect is that of the general way below, which takes the other sentences.
#
# The first letter of each clause is the sentence's own and has a fixed offset, as have the letters that it reads: the letters are
# picked out by offset and substituted into the gold text, which must then equal the sentence.


_READ, _OWN = 0xE000, 0xF000
"""Private code points in place of letters: from _READ the operands of a node, by rank; from _OWN the letters that it binds, its
own last."""
_SLOT = re.compile(f"([{chr(_READ)}-{chr(_OWN + 255)}{UNKNOWN}])")
_GOAL = chr(_READ)
_ALL = frozenset(terse.LETTERS)
_KNOW = "We know "


class SentenceShape(NamedTuple):
    """The gold sentence of a node after `Define <name> as <letter>; `, independent of names."""

    length: int
    text: str
    """With %s for letters."""
    letters: Any
    """Getter of the letters of a text of that length: a tuple, or one letter if there is only one."""
    reads: tuple[tuple[int, int], ...]
    """(letter, operand): the first letter that refers to each operand."""
    twins: tuple[tuple[int, int], ...]
    """(first, again): letters that have to be equal."""
    first: Any
    """Getter of the distinct letters."""
    different: int
    own: Any
    """Getter of the letters that the sentence binds, the node's last."""
    bound: int
    """The number of letters that it binds."""


class Line(NamedTuple):
    """The gold sentence of one node."""

    shape: SentenceShape
    place: int
    bits: int
    """The node's bits (op_dag.dag) after this sentence."""
    reads: tuple[int, ...]
    """Places of the parents, and last of the unknown."""
    codes: tuple[int, ...]
    """The codes of the letters that it binds (prose_parser.Letters)."""


class Script(NamedTuple):
    """The gold sentences of a problem."""

    lines: dict[str, Line | None]
    """`Define <name> as ` -> the text after the letter; None for the unknown."""
    equation: frozenset[str]
    """The sentences that solve the equation, without stops."""
    goal: int
    expected: list[int]
    """Bits of each necessary node that is right."""


@lru_cache(maxsize=1024)
def script(problem: Problem) -> Script:
    """The script of a problem."""
    values, reverse = dag.forms(problem), problem.mode == dag.REVERSE
    nodes = problem.nodes[: problem.necessary]
    expected = dag.expected_bits(problem)
    lines = {
        f"Define {node.name} as ": _line(place, node, values, bits, reverse)
        for place, (node, bits) in enumerate(zip(nodes, expected, strict=True))
    }
    solved = prose.equation_sentences(_GOAL, values[-1], problem.values[-1]) if reverse else []
    sentences = frozenset([line for text in solved for line in text.split(".") if line])
    return Script(lines, sentences, problem.goal, expected)


def _line(place: int, node: Node, values: list[dag.Form], bits: int, reverse: bool) -> Line | None:
    signs = {parent: chr(_READ + rank) for rank, parent in enumerate(node.parents)}
    if reverse:
        signs[0] = UNKNOWN
    tail = prose.node_sentence(node, signs, values, place, map(chr, range(_OWN, _OWN + 64)), reverse)[1]
    if tail == VALUE_UNKNOWN:
        return None
    shape = _shape(tail)
    codes = (*[prose_parser.intermediate_code(place, number) for number in range(shape.bound - 1)], place)
    return Line(shape, place, bits, (*node.parents, 0), codes)


@lru_cache(maxsize=1 << 14)
def _shape(tail: str) -> SentenceShape:
    """The shape of a gold sentence with private code points for letters."""
    pieces = _SLOT.split(tail)
    signs = [-1 if sign == UNKNOWN else ord(sign) - _READ for sign in pieces[1::2]]
    first: dict[int, int] = {}
    for at, sign in enumerate(signs):
        first.setdefault(sign, at)
    own = sorted([sign for sign in first if sign >= _OWN - _READ])
    starts = accumulate(map(len, pieces))
    return SentenceShape(
        length=len(tail),
        text="%s".join(pieces[::2]),
        letters=itemgetter(*list(starts)[:-1:2]),
        reads=tuple([(at, sign) for sign, at in first.items() if sign < _OWN - _READ]),
        twins=tuple([(first[sign], at) for at, sign in enumerate(signs) if first[sign] != at]),
        first=itemgetter(*first.values()),
        different=len(first),
        own=itemgetter(*[first[sign] for sign in own]),
        bound=len(own),
    )


def match_sentence(gold: Script, letters: Letters, state: list[int], text: str) -> bool:
    """Whether a sentence (without enclosing blanks and without a stop) is the gold one up to letters. If so its letters are bound
    and the bits of its node are added to `state`; else nothing is changed."""
    head, _, tail = text.partition("; ")
    if head[:-1] not in gold.lines:
        return _solves(gold, letters, text)
    line = gold.lines[head[:-1]]
    if line is None:
        return _names_unknown(letters, state, head[-1], tail)
    shape = line.shape
    if len(tail) != shape.length:
        return False
    found = shape.letters(tail)
    own = shape.own(found)
    if shape.text % found != tail or own[-1] != head[-1] or not _fit(line, letters, found, own):
        return False
    bits = line.bits
    for parent in line.reads[:-1]:
        if not state[parent] & VALUED:
            bits |= BAD_PARENTS
    state[line.place] |= bits
    letters.codes.update(zip(own, line.codes, strict=True))
    return True


def _fit(line: Line, letters: Letters, found: Sequence[str], own: Sequence[str]) -> bool:
    """Whether the letters of a sentence are bound to the right operands, and those that it binds are distinct letters."""
    shape, codes = line.shape, letters.codes
    for at, rank in shape.reads:
        if codes.get(found[at]) != line.reads[rank]:
            return False
    for at, again in shape.twins:
        if found[at] != found[again]:
            return False
    if len(set(shape.first(found))) < shape.different or not _ALL.issuperset(own):
        return False
    return not letters.unknown or letters.unknown not in own


def _names_unknown(letters: Letters, state: list[int], letter: str, tail: str) -> bool:
    """Bind the unknown's letter, if it has none yet."""
    if tail != VALUE_UNKNOWN or letters.unknown or letter not in _ALL:
        return False
    letters.name_unknown(letter)
    state[0] |= VALUED
    return True


def _solves(gold: Script, letters: Letters, text: str) -> bool:
    """Whether a sentence is a gold sentence of the equation, with the unknown's gold letter."""
    if not gold.equation or letters.unknown != UNKNOWN or letters.codes.get(UNKNOWN) != 0:
        return False
    spot = len(_KNOW)
    if text.startswith(_KNOW) and len(text) > spot:
        sign = _GOAL if letters.codes.get(text[spot]) == gold.goal else "?"
        text = f"{_KNOW}{sign}{text[spot + 1 :]}"
    return text in gold.equation


# Judging the other sentences.


class Gold(NamedTuple):
    """The gold of a problem; lists have one entry per necessary node."""

    problem: Problem
    places: dict[str, int]
    """Full name -> place, of all nodes."""
    forms: list[dag.Form]
    bounds: Bounds
    parents: list[frozenset[int]]
    prints: list[int]
    """Fingerprints of the definitions (prose_parser.Bound)."""
    constants: list[tuple[int, ...]]


class Reading(NamedTuple):
    """The state of a completion after some sentences."""

    letters: Letters
    state: list[int]
    """Bits of each necessary node."""
    extras: set[str]
    """Names of other nodes."""


@lru_cache(maxsize=1024)
def gold(problem: Problem) -> Gold:
    """The gold of a problem."""
    nodes, values = problem.nodes[: problem.necessary], dag.forms(problem)
    return Gold(
        problem=problem,
        places={node.name: place for place, node in enumerate(problem.nodes)},
        forms=values,
        bounds=Bounds(nodes, values),
        parents=[frozenset(node.parents) for node in nodes],
        prints=[_print(node) for node in nodes],
        constants=[() if node.constant is None else (node.constant,) for node in nodes],
    )


def _print(node: Node) -> int:
    """The fingerprint of a definition."""
    weights = [prose_parser.node_weight(parent) for parent in node.parents]
    total = weights[0] - weights[1] if node.minus else sum(weights)
    if node.constant is not None:
        total = total * node.constant if node.operator == "*" else total + node.constant
    return total % PRIME


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """The verdict on any text as a solution of the problem. Never raises on account of the text."""
    known = script(problem)
    texts, answer = prose_parser.split_sentences(completion)
    reading = Reading(Letters(), [0] * problem.necessary, set())
    readable = True
    for text in texts:
        text = text.strip()
        if not match_sentence(known, reading.letters, reading.state, text):
            readable &= _read(gold(problem), reading, text)
    return dag.tally(reading.state, known.expected, options, readable, len(reading.extras), answer, problem.answer)


def _read(truth: Gold, reading: Reading, text: str) -> bool:
    """Judge a sentence; False where it cannot be parsed."""
    reading.letters.bounds = truth.bounds
    sentence = prose_parser.parse_sentence(text)
    if isinstance(sentence, Define):
        _define(truth, reading, sentence)
    elif sentence is not None and not _holds(truth, reading, sentence):
        reading.state[truth.problem.goal] |= BAD_VALUE
    return sentence is not None


def _define(truth: Gold, reading: Reading, sentence: Define) -> None:
    """Judge the definition of a node, and bind its letters."""
    place, letters = truth.places.get(sentence.name, UNBOUND_PLACE), reading.letters
    if sentence.value_unknown and place == 0 and truth.problem.mode == dag.REVERSE:
        letters.name_unknown(sentence.letter)
    necessary = 0 <= place < truth.problem.necessary
    unknown = letters.unknown
    bits = VALUED if necessary and sentence.value_unknown and unknown == sentence.letter and place == 0 else 0
    form = None
    for number, clause in enumerate(sentence.clauses):
        found = prose_parser.clause_statement(clause, letters)
        if clause.letter != sentence.letter or prose_parser.is_intermediate(sentence, number):
            bits |= 0 if found.sound and found.follows else BAD_VALUE
            letters.bind(clause.letter, found.bound)
        else:
            bits |= _bits(truth, reading, place, found) if necessary else 0
            form = found.bound.form
    if necessary:
        reading.state[place] |= bits
        letters.bind(sentence.letter, truth.bounds[place])
    else:
        reading.extras.add(sentence.name)
        letters.bind(sentence.letter, Bound(frozenset((place,)), form, prose_parser.node_weight(place) if place >= 0 else 0, ()))
    if necessary and (place or truth.problem.mode != dag.REVERSE or unknown == sentence.letter):
        letters.codes[sentence.letter] = place  # so that matching sentences may read it
    if unknown and letters[unknown] != UNKNOWN_BOUND:
        letters.unknown = ""  # the letter is bound to something else now


def _bits(truth: Gold, reading: Reading, place: int, found: prose_parser.Statement) -> int:
    """The bits of a clause about a necessary node."""
    bits = NAMED if found.named else 0
    parents = truth.parents[place]
    if found.value is not None:
        bits |= VALUED if found.value == truth.forms[place] else VALUED | BAD_VALUE
    if not found.sound:
        bits |= BAD_VALUE
    if found.named and found.bound.reach != parents:
        return bits | BAD_PARENTS
    if not all([reading.state[parent] & VALUED for parent in parents]):
        bits |= BAD_PARENTS
    if found.named and found.bound.print != truth.prints[place]:
        bits |= BAD_OPERATOR if found.bound.constants == truth.constants[place] else BAD_VALUE
    return bits


def _holds(truth: Gold, reading: Reading, claim: prose_parser.Claim) -> bool:
    """Whether the sides of all chains are equal at the unknown's true value."""
    answer = truth.problem.answer
    for chain in claim.chains:
        numbers = set()
        for side in chain:
            if isinstance(side, prose_parser.Side):
                bounds = {letter: reading.letters[letter] for letter in side.letters}
                form = prose_parser.resolve(side.part.expression, bounds)[0]
            else:
                form = side
            numbers.add(None if form is None else form[0] * answer + form[1])
        if None in numbers or len(numbers) > 1:
            return False
    return True


OP_DAG_PROSE = Generator(
    name="op_dag_prose",
    errors=dag.ERRORS,
    generate=prose_problems.generate,
    render=prose.render,
    solve=prose_problems.solve,
    loads=prose.loads,
    verify=verify,
    structure=prose.structure,
    dumps=prose.dumps,
    characters=prose.alphabet,
    vocabulary=prose.vocabulary,
    rates=Rates(950, 3500, 416, 1470),
)
