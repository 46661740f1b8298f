"""One step against the gold graph: what it says about which node, and what of that is wrong."""

from functools import lru_cache
from typing import NamedTuple

from interplay.tasks.op_dag.graph import REVERSE, Form, Problem, forms
from interplay.tasks.op_dag.parse import Part, Step, reduce

VALUED, NAMED, BAD_VALUE, BAD_PARENTS, BAD_OPERATOR, EXTRA, UNREADABLE = (1 << bit for bit in range(7))
"""Bits of an effect: states a value; names parents; and what is wrong with it."""

Effect = tuple[int, int]
"""The place of the node that a step is about, and its bits. Places from `necessary` on are not in the gold graph."""


class Layout(NamedTuple):
    """The gold graph laid out for judging; lists hold one entry per necessary node."""

    problem: Problem
    places: dict[str, int]
    """Name -> place, of all nodes."""
    parents: list[frozenset[str]]
    named: list[Part]
    """The definition as `parse` would read it, without expression and form."""
    forms: list[Form]
    operands: list[tuple[Form, ...]]
    """Values of the parents, and the constant, sorted."""


@lru_cache(maxsize=1024)
def layout(problem: Problem) -> Layout:
    """The layout of a problem."""
    nodes, values = problem.nodes[: problem.necessary], forms(problem)
    letters = [tuple(problem.nodes[parent].name for parent in node.parents) for node in nodes]
    constants: list[tuple[Form, ...]] = [() if node.constant is None else ((0, node.constant),) for node in nodes]
    operands = [[values[parent] for parent in node.parents] for node in nodes]
    return Layout(
        problem=problem,
        places={node.name: place for place, node in enumerate(problem.nodes)},
        parents=[frozenset(names) for names in letters],
        named=[
            Part((), names, own, frozenset(node.operator), None, False, True)
            for names, own, node in zip(letters, constants, nodes, strict=True)
        ],
        forms=values,
        operands=[tuple(sorted([*own, *constant])) for own, constant in zip(operands, constants, strict=True)],
    )


def judge(truth: Layout, step: Step) -> Effect:
    """The effect of a step that mentions no name but those of nodes."""
    if not step.name:
        return _equation(truth, step)
    place = truth.places[step.name]
    if place >= truth.problem.necessary:
        return place, EXTRA
    named, worked = truth.named[place], step.worked
    bits = _value(truth, place, step)
    if step.named:
        bits |= NAMED
        if step.letters != truth.parents[place]:
            bits |= BAD_PARENTS
        elif step.named.operands != named.operands or len(step.named.letters) != len(named.letters):
            bits |= BAD_VALUE
        if step.named.operators != named.operators or ("-" in named.operators and step.named.letters != named.letters):
            bits |= BAD_OPERATOR
    if worked and worked.operands != truth.operands[place]:
        bits |= BAD_VALUE
    if worked and worked.operators != named.operators:
        bits |= BAD_OPERATOR
    return place, bits


def judge_scoped(
    truth: Layout, step: Step, reached: frozenset[str], operators: frozenset[str], values: dict[str, Form]
) -> Effect:
    """The effect of a step about a necessary node whose definition goes through names of the completion's own: `reached` are
    the nodes and `operators` the signs found by following them, `values` the forms of all names it mentions."""
    place = truth.places[step.name]
    bits = _value(truth, place, step) | NAMED
    if reached != truth.parents[place]:
        bits |= BAD_PARENTS
    if operators != truth.named[place].operators or (
        step.worked and step.named and step.worked.operators != step.named.operators
    ):
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
