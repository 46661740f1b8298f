"""Judges a completion step by step against the gold graph (arXiv:2512.07783, section 2, made scope-aware and symbolic), as
op_dag.verify does for the terse surface.

A necessary node is right when a sentence defines it by its full name, states its value, names its parents, and nothing said about
it is wrong:
- parents: the set of nodes that the letters of its sentence come down to, through intermediate results, equals the gold set. A
  letter means what it was last bound to; one bound to nothing, or to a node that no sentence has valued yet, is a wrong parent.
- value: the number (in reverse mode the linear form in the unknown, whatever letter that has) equals the gold one, everything in
  a chain of equals is equal, and the numbers put in are the values of the letters. A node said to be two things is wrong.
  Equations must hold at the unknown's true value; a wrong one is charged to the goal.
- operator (an option): the nodes and constants are combined as in the gold, in any algebraically equal way. Without the option
  another combination passes where its constants are the gold ones and the value is right, as published."""

from functools import lru_cache
from typing import NamedTuple

from interplay.schema.verify import Verify
from interplay.tasks.op_dag.graph import REVERSE, Form
from interplay.tasks.op_dag.judge import BAD_OPERATOR, BAD_PARENTS, BAD_VALUE, NAMED, VALUED
from interplay.tasks.op_dag.tally import tally
from interplay.tasks.op_dag_prose.graph import Node, Problem, forms
from interplay.tasks.op_dag_prose.match import bound, match
from interplay.tasks.op_dag_prose.parse import Claim, Define, Side, parse, split
from interplay.tasks.op_dag_prose.scope import NOTHING, PRIME, UNBOUND, UNKNOWN_BOUND, Bound, Said, said, weight, worth
from interplay.tasks.verdict import Verdict


class Gold(NamedTuple):
    """What right solutions of a problem say; lists hold one entry per necessary node."""

    problem: Problem
    places: dict[str, int]
    """Full name -> place, of all nodes."""
    forms: list[Form]
    parents: list[frozenset[int]]
    prints: list[int]
    """Fingerprints of the definitions (scope.Bound)."""
    constants: list[tuple[int, ...]]
    expected: list[int]
    """Bits of a node that is right."""


class Reading(NamedTuple):
    """A completion as far as it has been read."""

    letters: dict[str, Bound]
    state: list[int]
    """Bits of each necessary node."""
    extras: set[str]
    """Names of other nodes."""


@lru_cache(maxsize=1024)
def gold(problem: Problem) -> Gold:
    """The gold of a problem."""
    nodes = problem.nodes[: problem.necessary]
    return Gold(
        problem=problem,
        places={node.name: place for place, node in enumerate(problem.nodes)},
        forms=forms(problem),
        parents=[frozenset(node.parents) for node in nodes],
        prints=[_print(node) for node in nodes],
        constants=[() if node.constant is None else (node.constant,) for node in nodes],
        expected=[VALUED | NAMED if node.parents else VALUED for node in nodes],
    )


def _print(node: Node) -> int:
    """The fingerprint of a definition."""
    weights = [weight(parent) for parent in node.parents]
    total = weights[0] - weights[1] if node.minus else sum(weights)
    if node.constant is not None:
        total = total * node.constant if node.operator == "*" else total + node.constant
    return total % PRIME


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text as a solution of the problem. Never raises on account of the text."""
    truth = gold(problem)
    texts, answer = split(completion)
    known = match(problem, texts)
    state = [bits if place in known.places else 0 for place, bits in enumerate(truth.expected)]
    if known.sentences == len(texts):
        return tally(state, truth.expected, options, True, 0, answer, problem.answer)
    bounds = {chr(code): bound(problem, truth.forms, sign) for code, sign in known.signs.items()}
    reading = Reading({letter: found for letter, found in bounds.items() if found}, state, set())
    readable, unknown = True, known.unknown
    for text in texts[known.sentences :]:
        sentence = parse(text)
        if sentence is None:
            readable = False
        elif isinstance(sentence, Claim):
            if not _holds(truth, reading, sentence):
                reading.state[problem.goal] |= BAD_VALUE
        else:
            if sentence.untold and problem.mode == REVERSE and truth.places.get(sentence.name) == 0:
                unknown = sentence.letter
            _read(truth, reading, sentence, unknown)
            if unknown and reading.letters[unknown] != UNKNOWN_BOUND:
                unknown = ""  # the letter now stands for something else
    return tally(reading.state, truth.expected, options, readable, len(reading.extras), answer, problem.answer)


def _read(truth: Gold, reading: Reading, sentence: Define, unknown: str) -> None:
    """Judge a sentence about a node, and bind its letters."""
    place = truth.places.get(sentence.name, NOTHING)
    necessary = 0 <= place < truth.problem.necessary
    bits = VALUED if necessary and sentence.untold and unknown == sentence.letter and place == 0 else 0
    form = None
    for number, clause in enumerate(sentence.clauses):
        found = said(clause, reading.letters, unknown)
        if clause.letter != sentence.letter or _read_on(sentence, number):
            bits |= 0 if found.sound and found.follows else BAD_VALUE
            reading.letters[clause.letter] = found.bound
        else:
            bits |= _bits(truth, reading, place, found) if necessary else 0
            form = found.bound.form
    if necessary:
        reading.state[place] |= bits
        form = truth.forms[place]
    else:
        reading.extras.add(sentence.name)
    reading.letters[sentence.letter] = Bound(frozenset((place,)), form, weight(place) if place >= 0 else 0, ())


def _read_on(sentence: Define, number: int) -> bool:
    """Whether a clause about the node's own letter is an intermediate result, since a later one about it reads the letter."""
    later = sentence.clauses[number + 1 :]
    return any([sentence.letter in clause.sides[0].letters for clause in later if clause.letter == sentence.letter])


def _bits(truth: Gold, reading: Reading, place: int, found: Said) -> int:
    """What a clause says about a necessary node, and what of that is wrong."""
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


def _holds(truth: Gold, reading: Reading, claim: Claim) -> bool:
    """Whether all that is said to be equal is, at the unknown's true value."""
    answer = truth.problem.answer
    for chain in claim.chains:
        numbers = set()
        for side in chain:
            if isinstance(side, Side):
                bounds = {letter: reading.letters.get(letter, UNBOUND) for letter in side.letters}
                form = worth(side.part.expression, bounds)[0]
            else:
                form = side
            numbers.add(None if form is None else form[0] * answer + form[1])
        if None in numbers or len(numbers) > 1:
            return False
    return True
