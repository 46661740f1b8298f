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

from functools import lru_cache
from typing import NamedTuple

from interplay.tasks import family, spec, verdict
from interplay.tasks.op_dag import dag, prose, prose_parser, prose_problems, terse
from interplay.tasks.op_dag.prose import UNKNOWN, VALUE_UNKNOWN, Node, Problem
from interplay.tasks.op_dag.prose_parser import (
    PRIME,
    UNBOUND_PLACE,
    UNKNOWN_BOUND,
    WEIGHTS,
    Bound,
    Bounds,
    Define,
    Letters,
    intermediate_code,
)

VALUED, NAMED, BAD_VALUE, BAD_PARENTS, BAD_OPERATOR, *_ = dag.BITS


class Gold(NamedTuple):
    """The gold of a problem, for sentences that are not the gold ones; lists have one entry per necessary node."""

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


def verify(problem: Problem, completion: str, options: spec.Verify) -> verdict.Verdict:
    """The verdict on any text as a solution of the problem. Never raises on account of the text."""
    found = dag.compiled("judge_prose", problem, completion, WEIGHTS, options.operator)
    return dag.conclude(judge(problem, completion, options) if found is None else found, problem, options)


def judge(problem: Problem, completion: str, options: spec.Verify) -> dag.Counts:
    """The counts of a completion, which prose_verdict.c finds, too."""
    known = script(problem)
    texts, answer = prose_parser.split_sentences(completion)
    reading = Reading(Letters(), [0] * problem.necessary, set())
    readable = True
    for text in texts:
        text = text.strip()
        if not match_sentence(known, reading.letters, reading.state, text):
            readable &= _read(gold(problem), reading, text)
    return dag.tally(reading.state, known.expected, options, readable, len(reading.extras), answer)


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
    rates=family.Rates(950, 3500, 416, 1470),
)


# Gold sentences of the prose surface, up to letters, recognised without parsing.
#
# The offsets of letters in a gold sentence follow from the numbers before them: the letters are read there, the gold sentence is
# written with them, and the two are compared. The effect is that which parsing finds, as for all other sentences.


VALUED, NAMED, _BAD_VALUE, BAD_PARENTS, *_REST = dag.BITS
_SO = len("so ")
_FIRST, _SECOND = len("a = "), len("a = b + ")
"""Offsets of the operands in `a = b + c = ...`."""
_ALL = frozenset(terse.LETTERS)
_RIGHT = VALUED | NAMED
_GOAL = "@"
"""The goal's letter in `Script.equation`."""
_KNOW = "We know "


class Script(NamedTuple):
    """The gold sentences of a problem."""

    problem: Problem
    places: dict[str, int]
    """`Define <name> as ` -> place, of the necessary nodes."""
    forms: list[dag.Form]
    texts: list[str]
    """The forms as text."""
    equation: frozenset[str]
    """The sentences that solve the equation, without stops."""
    expected: list[int]
    """Bits of each necessary node that is right."""


@dag.keep_by_identity
def script(problem: Problem) -> Script:
    """The script of a problem."""
    nodes = problem.nodes[: problem.necessary]
    places = {f"Define {node[0]} in {node[1]} as ": place for place, node in enumerate(nodes)}
    expected = [_RIGHT if node[3] else VALUED for node in nodes]
    forms = dag.forms(problem)
    if problem.mode == dag.FORWARD:
        return Script(problem, places, forms, list(map(str, problem.values)), frozenset(), expected)
    texts = [prose.form_text(form) for form in forms]
    solved = prose.equation_sentences(_GOAL, forms[-1], problem.values[-1])
    return Script(problem, places, forms, texts, frozenset([text[:-1] for text in solved]), expected)


def match_sentence(gold: Script, letters: Letters, state: list[int], text: str) -> bool:
    """Whether a sentence (without enclosing blanks and without a stop) is the gold one up to letters. If so its letters are bound
    and the bits of its node are added to `state`; else nothing is changed."""
    head, _, tail = text.partition("; ")
    place = gold.places.get(head[:-1])
    if place is None:
        return _solves(gold, letters, text)
    letter, unknown, codes = head[-1], letters.unknown, letters.codes
    if letter not in _ALL:
        return False
    _, _, _, reads, constant, operator, _ = gold.problem.nodes[place]
    if not reads:
        if constant is None:
            return _names_unknown(letters, state, letter, tail)
        if tail != f"so {letter} = {constant}" or letter == unknown:
            return False
        state[place] |= VALUED
        codes[letter] = place
        return True
    reverse = bool(gold.equation)
    if reverse and unknown != UNKNOWN:
        return False  # forms have the gold letter of the unknown
    first = reads[0]
    if len(reads) > 1:
        return _match_operands(gold, letters, state, place, letter, tail)
    value, own = gold.texts[first], ""
    if constant is None:
        operand = tail[_SO + _FIRST : _SO + _FIRST + 1]
        expected = f"so {letter} = {operand} = {value}"
    else:
        own, operand = tail[:1], tail[_FIRST : _FIRST + 1]
        worked = f"({constant}) * ({value})" if reverse and operator == "*" else f"{constant} {operator} {value}"
        expected = f"{own} = {operand} = {value}; so {letter} = {constant} {operator} {own} = {worked} = {gold.texts[place]}"
    if tail != expected or codes.get(operand) != first or operand == letter or letter == unknown:
        return False
    if own:
        if own in (operand, letter, unknown) or own not in _ALL:
            return False
        codes[own] = intermediate_code(place, 0)
    codes[letter] = place
    state[place] |= _RIGHT if state[first] & VALUED else _RIGHT | BAD_PARENTS
    return True


def _match_operands(gold: Script, letters: Letters, state: list[int], place: int, letter: str, tail: str) -> bool:
    """`match_sentence` of a node with two parents or more: `tail` follows the definition of `letter`."""
    node, codes, unknown = gold.problem.nodes[place], letters.codes, letters.unknown
    operands, own, text = _written(gold, node, place, letter, tail)
    if text != tail:
        return False
    bits = _RIGHT
    for parent, operand in zip(node[3], operands, strict=False):
        if codes.get(operand) != parent:
            return False
        if not state[parent] & VALUED:
            bits |= BAD_PARENTS
    for number, each in enumerate(own):
        if each in operands or each == unknown or each not in _ALL or each in own[:number]:
            return False
    state[place] |= bits
    for number, each in enumerate(own[:-1]):
        codes[each] = intermediate_code(place, number)
    codes[letter] = place
    return True


def _written(gold: Script, node: Node, place: int, letter: str, tail: str) -> tuple[list[str], list[str], str]:
    """The letters of two operands or more and those that are bound, the node's own last, as `tail` has them if it is the gold
    sentence, and the gold sentence with them."""
    _, _, _, reads, constant, operator, minus = node
    texts, reverse = gold.texts, bool(gold.equation)
    if constant is None and len(reads) == 2:
        first, second = tail[_SO + _FIRST : _SO + _FIRST + 1], tail[_SO + _SECOND : _SO + _SECOND + 1]
        left, right, sign = texts[reads[0]], texts[reads[1]], "-" if minus else "+"
        worked = f"({left}) - ({right})" if minus and reverse else f"{left} {sign} {right}"
        return [first, second], [letter], f"so {letter} = {first} {sign} {second} = {worked} = {texts[place]}"
    operands, own, chain, value = _folded(gold, node, letter, tail, reverse and minus)
    if constant is None:
        return operands, own, f"{chain} = {texts[place]}"
    worked = f"({constant}) * ({value})" if reverse and operator == "*" else f"{constant} {operator} {value}"
    return operands, [*own, letter], f"{chain}so {letter} = {constant} {operator} {own[-1]} = {worked} = {texts[place]}"


def _folded(gold: Script, node: Node, letter: str, tail: str, brackets: bool) -> tuple[list[str], list[str], str, str]:
    """The sums of two or more operands in pairs: letters of the operands and those that are bound, the clauses, and the last sum;
    without a constant the last clause is the node's own, and its value is left out."""
    _, _, _, reads, constant, _, minus = node
    forms, texts, sign = gold.forms, gold.texts, "-" if minus else "+"
    operands: list[str] = []
    own: list[str] = []
    chain = total = ""
    value, form = texts[reads[0]], forms[reads[0]]
    for number, parent in enumerate(reads[1:], start=2):
        ends = number == len(reads) and constant is None
        start = len(chain) + _SO if ends else len(chain)
        if not operands:
            total = tail[start + _FIRST : start + _FIRST + 1]
            operands.append(total)
        made = letter if ends else tail[start : start + 1]
        operand = tail[start + _SECOND : start + _SECOND + 1]
        left, right = (f"({value})", f"({texts[parent]})") if brackets else (value, texts[parent])
        operands.append(operand)
        own.append(made)
        if ends:
            return operands, own, f"{chain}so {made} = {total} {sign} {operand} = {left} {sign} {right}", ""
        other = forms[parent]
        form = (form[0] - other[0], form[1] - other[1]) if minus else (form[0] + other[0], form[1] + other[1])
        value = prose.form_text(form)
        chain = f"{chain}{made} = {total} {sign} {operand} = {left} {sign} {right} = {value}; "
        total = made
    return operands, own, chain, value


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
        sign = _GOAL if letters.codes.get(text[spot]) == gold.problem.goal else "?"
        text = f"{_KNOW}{sign}{text[spot + 1 :]}"
    return text in gold.equation
