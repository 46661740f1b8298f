"""The verifier of the prose surface: judges a completion step by step against the gold graph (arXiv:2512.07783, section 2,
scope-aware and symbolic), as op_dag.terse_verifier does for the terse surface, and the row of the family.

A necessary node is right if a sentence defines it by its full name, states its value, names its parents, and no statement about
it is wrong:
- parents: the set of nodes that the letters of its sentence depend on, through intermediate results, equals the gold set. A
  letter refers to its last binding; one that is unbound, or bound to a node that no sentence has valued yet, is a wrong parent.
- value: the number (in reverse mode the linear form in the unknown, whichever letter it has) equals the gold one, all sides of a
  chain are equal, and the substituted numbers are the values of the letters. A node with two values is wrong. Equations must hold
  at the unknown's true value; a wrong one counts against the goal, and so does a reverse solution that never sets the goal's form
  in the unknown equal to its given value.
- operator (an option): the nodes and constants are combined as in the gold, in any algebraically equal way. Without the option
  another combination passes where its constants are the gold ones and the value is right, as published."""

from functools import lru_cache
from typing import NamedTuple

from interplay.tasks import family, spec, verdict
from interplay.tasks.op_dag import dag, prose, prose_parser, prose_problems
from interplay.tasks.op_dag.prose import Node, Problem
from interplay.tasks.op_dag.prose_parser import PRIME, UNBOUND_PLACE, UNKNOWN_BOUND, WEIGHTS, Bound, Define, Letters

VALUED, NAMED, BAD_VALUE, BAD_PARENTS, BAD_OPERATOR, *_ = dag.BITS


class Gold(NamedTuple):
    """The gold of a problem; lists have one entry per necessary node."""

    problem: Problem
    places: dict[str, int]
    """Full name -> place, of all nodes."""
    forms: list[dag.Form]
    bounds: list[Bound]
    """The values of letters that are bound to the nodes."""
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
        bounds=[Bound(frozenset((at,)), form, prose_parser.node_weight(at), ()) for at, form in enumerate(values)],
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


def verify(problem: Problem, completion: str, options: spec.Verify) -> verdict.Verdict:
    """The verdict on any text as a solution of the problem. Never raises on account of the text."""
    found = dag.compiled("judge_prose", problem, completion, WEIGHTS, dag.asked_for(options))
    return dag.conclude(judge(problem, completion, options) if found is None else found, problem, options)


def judge(problem: Problem, completion: str, options: spec.Verify) -> dag.Counts:
    """The counts of a completion, which prose_verdict.c finds, too."""
    truth = gold(problem)
    texts, answer = prose_parser.split_sentences(completion)
    reading = Reading(Letters(), [0] * problem.necessary, set())
    readable = all([_read(truth, reading, text) for text in texts])
    expected = [VALUED | NAMED if parents else VALUED for parents in truth.parents]
    expected[problem.goal] |= dag.STATED if problem.mode == dag.REVERSE else 0
    return dag.tally(reading.state, expected, options, readable, len(reading.extras), answer)


def _read(truth: Gold, reading: Reading, text: str) -> bool:
    """Judge a sentence; False where it cannot be parsed."""
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
        letters.unknown = sentence.letter
        letters[sentence.letter] = UNKNOWN_BOUND
    necessary = 0 <= place < truth.problem.necessary
    unknown = letters.unknown
    bits = VALUED if necessary and sentence.value_unknown and unknown == sentence.letter and place == 0 else 0
    form = None
    for number, clause in enumerate(sentence.clauses):
        found = prose_parser.clause_statement(clause, letters)
        if clause.letter != sentence.letter or prose_parser.is_intermediate(sentence, number):
            bits |= 0 if found.sound and found.follows else BAD_VALUE
            letters[clause.letter] = found.bound
        else:
            bits |= _bits(truth, reading, place, found) if necessary else 0
            form = found.bound.form
    if necessary:
        reading.state[place] |= bits
        letters[sentence.letter] = truth.bounds[place]
    else:
        reading.extras.add(sentence.name)
        weight = prose_parser.node_weight(place) if place >= 0 else 0
        letters[sentence.letter] = Bound(frozenset((place,)), form, weight, ())
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
    """Whether the sides of all chains are equal at the unknown's true value. A chain with the goal's form in the unknown and its
    given value marks the goal."""
    problem, answer = truth.problem, truth.problem.answer
    for chain in claim.chains:
        numbers, sides = set(), set()
        for side in chain:
            if isinstance(side, prose_parser.Side):
                bounds = {letter: reading.letters[letter] for letter in side.letters}
                form = prose_parser.resolve(side.part.expression, bounds)[0]
                if form == truth.forms[problem.goal] and side.letters == reading.letters.unknown:
                    sides.add("equation")
            else:
                form = side
            if form == (0, problem.values[-1]):
                sides.add("given")
            numbers.add(None if form is None else form[0] * answer + form[1])
        if None in numbers or len(numbers) > 1:
            return False
        if problem.mode == dag.REVERSE and len(sides) == 2:
            reading.state[problem.goal] |= dag.STATED
    return True


OP_DAG_PROSE = family.Generator(
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
    calls=dag.calls,
    rates=family.Rates(950, 3500, 416, 1470),
)
