r"""Arithmetic with a tool. The prompt is an expression, `(12-5)*7?`; the policy writes `calc(12-5)` and reads `7`, and boxes the
value in the end, `\boxed{49}`. The tool has a parser of its own: nothing that a model writes is ever evaluated as code."""

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from interplay.core.random import Draw, stream, stream_key
from interplay.tasks import family, transcripts, verdict
from interplay.tasks.environments.spec import Calculator

LONGEST, MOST = 100, 10**18
"""Most characters that the tool reads, and the size from which on it gives no value."""
CALL = re.compile(r"\s*calc\((.*)\)\s*")
TOKEN = re.compile(r"\d{1,18}|[-+*()]")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Problem(NamedTuple):
    """An expression."""

    mode: str
    expression: str
    single: bool
    """Whether the tool takes one operator at a time."""


def value(text: str) -> int:
    """The value of an expression of integers, + - * and brackets. Raises ValueError for any other text, and where it is too long
    or the value of a part too large."""
    tokens = TOKEN.findall(text)
    if len(text) > LONGEST or "".join(tokens) != text:
        raise ValueError(f"no expression: {text[:LONGEST]!r}")
    tokens.reverse()
    found = _sum(tokens)
    if tokens:
        raise ValueError(f"more than an expression: {text!r}")
    return found


def _sum(tokens: list[str]) -> int:
    """The value of the sum that ends a reversed list of tokens, which is consumed."""
    return _joined(tokens, "+-", _product)


def _product(tokens: list[str]) -> int:
    return _joined(tokens, "*", _factor)


def _joined(tokens: list[str], signs: str, part: Callable[[list[str]], int]) -> int:
    total = part(tokens)
    while tokens and tokens[-1] in signs:
        total = OPERATIONS[tokens.pop()](total, part(tokens))
        if abs(total) >= MOST:
            raise ValueError("too large")
    return total


def _factor(tokens: list[str]) -> int:
    first = tokens.pop() if tokens else "end"
    if first.isdigit():
        return int(first)
    if first == "-":
        return -_factor(tokens)
    if first == "(":
        found = _sum(tokens)
        if tokens and tokens.pop() == ")":
            return found
    raise ValueError(f"unexpected token: {first}")


def generate(task: Calculator, seed: int, index: int, op: int) -> Problem:
    """The expression of the task at (seed, index) with `op` operators: a random tree, all of whose inner parts are in
    brackets."""
    draw = stream("calculator", seed, index, op, task.operators, task.largest)
    return Problem("calculator", _tree(draw, task, op, True), task.single)


def _tree(draw: Draw, task: Calculator, op: int, top: bool) -> str:
    if not op:
        return str(draw() % (task.largest + 1))
    left = draw() % op
    sides = _tree(draw, task, left, False), _tree(draw, task, op - 1 - left, False)
    whole = task.operators[draw() % len(task.operators)].join(sides)
    return whole if top else f"({whole})"


def calculate(problem: Problem, expression: str) -> str | None:
    """The value of an expression as the tool says it; None where it takes none such."""
    try:
        return f"{value(expression)}\n" if not problem.single or SINGLE.fullmatch(expression) else None
    except ValueError:
        return None


SINGLE = re.compile(r"-?\d+[-+*](?:-?\d+|\(-\d+\))")
"""The input of a tool that takes one operator at a time."""
INNER = re.compile(r"\((-?\d+)([-+*])(-?\d+)\)")
"""A bracket with one operator."""


def expert(problem: Problem) -> list[str]:
    """The turns of an expert who evaluates the first bracket with one operator until none is left."""
    left, turns = f"({problem.expression})", []
    while part := INNER.search(left):
        turns.append(f"calc({part[1]}{part[2]}{part[3]})")
        left = left[: part.start()] + str(value(part[0])) + left[part.end() :]
    return [*turns, f"{verdict.BOX}{left}}}"]


def solve(prompt: str, task: Calculator, replies: family.Replies) -> str:
    """The value of the expression in a prompt, one operator after the other. Raises ValueError where it is no prompt."""
    left = f"({prompt.removesuffix(chr(10)).removesuffix('?')})"
    while part := INNER.search(left):
        found = OPERATIONS[part[2]](int(part[1]), int(part[3]))
        left = left[: part.start()] + str(found) + left[part.end() :]
    return str(int(left))


CALCULATOR = transcripts.tool_environment(
    CALL,
    calculate,
    prompt=lambda problem: f"{problem.expression}?\n",
    answer=lambda problem: str(value(problem.expression)),
    name="calculator",
    generate=generate,
    solve=solve,
    loads=family.from_json(Problem),
    structure=lambda problem: f"{stream_key('calculator', problem.expression):016x}",
    # Digits one by one.
    vocabulary=lambda task: ["calc(", ")", "(", verdict.BOX, "}", "error", "\n", "?", "-", *"+*", *"0123456789"],
    expert=expert,
)
