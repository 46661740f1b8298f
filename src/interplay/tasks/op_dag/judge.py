"""One step against the gold graph, and the verdict that follows from all steps; shared by both surfaces of op_dag."""

from functools import lru_cache
from typing import NamedTuple

from interplay.tasks.op_dag.graph import REVERSE, Form, Problem, forms
from interplay.tasks.op_dag.parse import Step, reduce
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

# One step against the gold graph: what it says about which node, and what of that is wrong.


VALUED, NAMED, BAD_VALUE, BAD_PARENTS, BAD_OPERATOR, EXTRA, UNREADABLE = (1 << bit for bit in range(7))
"""Bits of an effect: states a value; names parents; and what is wrong with it."""

Effect = tuple[int, int]
"""The place of the node that a step is about, and its bits. Places from `necessary` on are not in the gold graph."""


class Layout(NamedTuple):
    """A problem at hand for judging."""

    problem: Problem
    places: dict[str, int]
    """Name -> place, of all nodes."""
    forms: list[Form]
    """The linear form of each necessary node."""


@lru_cache(maxsize=1024)
def layout(problem: Problem) -> Layout:
    """The layout of a problem."""
    return Layout(problem, {node.name: place for place, node in enumerate(problem.nodes)}, forms(problem))


def judge(truth: Layout, step: Step) -> Effect:
    """The effect of a step that mentions no name but those of nodes."""
    if not step.name:
        return _equation(truth, step)
    place = truth.places[step.name]
    if place >= truth.problem.necessary:
        return place, EXTRA
    node, named, worked = truth.problem.nodes[place], step.named, step.worked
    letters = tuple([truth.problem.nodes[parent].name for parent in node.parents])
    constant: tuple[Form, ...] = () if node.constant is None else ((0, node.constant),)
    bits = _value(truth, place, step)
    if named:
        bits |= NAMED
        if step.letters != set(letters):
            bits |= BAD_PARENTS
        elif named.operands != constant or len(named.letters) != len(letters):
            bits |= BAD_VALUE
        if named.operators != set(node.operator) or (node.operator == "-" and named.letters != letters):
            bits |= BAD_OPERATOR
    if worked:
        if worked.operands != tuple(sorted([truth.forms[parent] for parent in node.parents] + list(constant))):
            bits |= BAD_VALUE
        if worked.operators != set(node.operator):
            bits |= BAD_OPERATOR
    return place, bits


def judge_scoped(
    truth: Layout, step: Step, reached: frozenset[str], operators: frozenset[str], values: dict[str, Form]
) -> Effect:
    """The effect of a step about a necessary node whose definition goes through names of the completion's own: `reached` are
    the nodes and `operators` the signs found by following them, `values` the forms of all names it mentions."""
    place = truth.places[step.name]
    node = truth.problem.nodes[place]
    bits = _value(truth, place, step) | NAMED
    if reached != {truth.problem.nodes[parent].name for parent in node.parents}:
        bits |= BAD_PARENTS
    if operators != set(node.operator) or (step.worked and step.named and step.worked.operators != step.named.operators):
        bits |= BAD_OPERATOR
    if not agrees(truth, step, values):
        bits |= BAD_VALUE
    return place, bits


def agrees(truth: Layout, step: Step, values: dict[str, Form]) -> bool:
    """Whether the numbers put in are the values of the letters and the constants of the definition; yes where none are put in."""
    if not step.worked or not step.named:
        return True
    if any(letter not in values for letter in step.named.letters):
        return False
    modulus = truth.problem.modulus
    expected = [reduce(values[letter], modulus) for letter in step.named.letters] + list(step.named.operands)
    return step.worked.operands == tuple(sorted(expected))


def _value(truth: Layout, place: int, step: Step) -> int:
    if step.value is None:
        return 0 if step.sound else BAD_VALUE
    return VALUED if step.sound and step.value == truth.forms[place] else VALUED | BAD_VALUE


def _equation(truth: Layout, step: Step) -> Effect:
    """A step without a name must hold at the unknown's true value; a wrong one is charged to the goal's value."""
    problem = truth.problem
    if problem.mode != REVERSE or step.letters or len(step.numbers) < 2 or None in step.numbers:
        return problem.necessary, UNREADABLE
    sides = {reduce((0, a * problem.answer + b), problem.modulus) for a, b in filter(None, step.numbers)}
    return problem.goal, 0 if len(sides) == 1 else BAD_VALUE


# From what was said about each node to a verdict; shared by the surfaces of op_dag.


_OPERATOR_FREE = ~BAD_OPERATOR


def tally(
    state: list[int], expected: list[int], options: Verify, readable: bool, extra: int, answer: str | None, gold: int
) -> Verdict:
    """The verdict on a completion: `state` and `expected` hold the bits of each necessary node (op_dag.judge), said and right;
    `readable` is whether all of it could be read, `extra` the number of other names, `answer` the answer (None: there is
    none)."""
    nodes = len(expected)
    right, said = answer == str(gold), answer or ""
    penalised = extra > 0 and options.extra_nodes == "penalised"
    if state == expected and readable and right and not penalised:
        return Verdict(True, True, 1.0, "none", 0, 0, 0, extra, nodes, said)
    if not options.operator:
        state = [bits & _OPERATOR_FREE for bits in state]
    missing = value = dependency = operator = correct = 0
    for bits, wanted in zip(state, expected, strict=True):
        if bits == wanted:
            correct += 1
        elif not bits & VALUED:
            missing += 1
        else:
            value += bool(bits & BAD_VALUE)
            dependency += bool(bits & BAD_PARENTS or wanted & NAMED & ~bits)
            operator += bool(bits & BAD_OPERATOR)
    error = (
        "truncated" if answer is None
        else "parse" if not readable
        else "missing_node" if missing
        else "dependency" if dependency
        else "operator" if operator
        else "value" if value
        else "extra_node" if penalised
        else "answer" if not right
        else "none"
    )  # fmt: skip
    return Verdict(error == "none", right, correct / nodes, error, value, dependency, missing, extra, nodes, said)
