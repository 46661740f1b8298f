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

from interplay.tasks.op_dag.graph import REVERSE, Form
from interplay.tasks.op_dag.judge import BAD_OPERATOR, BAD_PARENTS, BAD_VALUE, NAMED, VALUED, tally
from interplay.tasks.op_dag_prose.graph import Node, Problem, forms
from interplay.tasks.op_dag_prose.match import match, script
from interplay.tasks.op_dag_prose.parse import Claim, Define, Side, parse, read_on, split
from interplay.tasks.op_dag_prose.scope import NOTHING, PRIME, UNKNOWN_BOUND, Bound, Bounds, Letters, Said, said, weight, worth
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict


class Gold(NamedTuple):
    """What right solutions of a problem say; lists hold one entry per necessary node."""

    problem: Problem
    places: dict[str, int]
    """Full name -> place, of all nodes."""
    forms: list[Form]
    bounds: Bounds
    parents: list[frozenset[int]]
    prints: list[int]
    """Fingerprints of the definitions (scope.Bound)."""
    constants: list[tuple[int, ...]]


class Reading(NamedTuple):
    """A completion as far as it has been read."""

    letters: Letters
    state: list[int]
    """Bits of each necessary node."""
    extras: set[str]
    """Names of other nodes."""


@lru_cache(maxsize=1024)
def gold(problem: Problem) -> Gold:
    """The gold of a problem."""
    nodes, values = problem.nodes[: problem.necessary], forms(problem)
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
    weights = [weight(parent) for parent in node.parents]
    total = weights[0] - weights[1] if node.minus else sum(weights)
    if node.constant is not None:
        total = total * node.constant if node.operator == "*" else total + node.constant
    return total % PRIME


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text as a solution of the problem. Never raises on account of the text."""
    known = script(problem)
    texts, answer = split(completion)
    reading = Reading(Letters(), [0] * problem.necessary, set())
    readable = True
    for text in texts:
        text = text.strip()
        if not match(known, reading.letters, reading.state, text):
            readable &= _read(gold(problem), reading, text)
    return tally(reading.state, known.expected, options, readable, len(reading.extras), answer, problem.answer)


def _read(truth: Gold, reading: Reading, text: str) -> bool:
    """Judge a sentence; False where it cannot be read."""
    reading.letters.bounds = truth.bounds
    sentence = parse(text)
    if isinstance(sentence, Define):
        _define(truth, reading, sentence)
    elif sentence is not None and not _holds(truth, reading, sentence):
        reading.state[truth.problem.goal] |= BAD_VALUE
    return sentence is not None


def _define(truth: Gold, reading: Reading, sentence: Define) -> None:
    """Judge a sentence about a node, and bind its letters."""
    place, letters = truth.places.get(sentence.name, NOTHING), reading.letters
    if sentence.untold and place == 0 and truth.problem.mode == REVERSE:
        letters.name_unknown(sentence.letter)
    necessary = 0 <= place < truth.problem.necessary
    unknown = letters.unknown
    bits = VALUED if necessary and sentence.untold and unknown == sentence.letter and place == 0 else 0
    form = None
    for number, clause in enumerate(sentence.clauses):
        found = said(clause, letters)
        if clause.letter != sentence.letter or read_on(sentence, number):
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
        letters.bind(sentence.letter, Bound(frozenset((place,)), form, weight(place) if place >= 0 else 0, ()))
    if necessary and (place or truth.problem.mode != REVERSE or unknown == sentence.letter):
        letters.codes[sentence.letter] = place  # so that sentences that match may read it
    if unknown and letters[unknown] != UNKNOWN_BOUND:
        letters.unknown = ""  # the letter now stands for something else


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
                bounds = {letter: reading.letters[letter] for letter in side.letters}
                form = worth(side.part.expression, bounds)[0]
            else:
                form = side
            numbers.add(None if form is None else form[0] * answer + form[1])
        if None in numbers or len(numbers) > 1:
            return False
    return True
