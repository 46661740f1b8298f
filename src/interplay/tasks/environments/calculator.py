r"""Arithmetic with a tool. The prompt is an expression, `(12-5)*7?`; the policy writes `calc(12-5)` and reads `7`, and boxes the
value in the end, `\boxed{49}`. The tool reads with a parser of its own: nothing that a model writes is ever evaluated."""

import json
import re
from typing import NamedTuple

from interplay.core.random import stream_key
from interplay.tasks.environments.games import Rendered, Replies, Reply, ended, transcript, worth
from interplay.tasks.environments.spec import Calculator
from interplay.tasks.op_dag.graph import Draw, stream
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Verdict

LONGEST, MOST = 100, 10**18
"""Characters that the tool reads, and the size from which it gives no value."""
CALL = re.compile(r"\s*calc\((.*)\)\s*")
TOKEN = re.compile(r"\d{1,18}|[-+*()]")
BROKEN = "error"


class Problem(NamedTuple):
    """An expression."""

    mode: str
    expression: str
    single: bool
    """Whether the tool takes one operator at a time."""


def value(text: str) -> int:
    """The value of an expression of whole numbers, + - * and brackets. Raises ValueError for any other text, and where it is too
    long or the value of a part too large."""
    tokens = TOKEN.findall(text)
    if len(text) > LONGEST or "".join(tokens) != text:
        raise ValueError(f"no expression: {text[:LONGEST]!r}")
    found, rest = _sum(tokens)
    if rest:
        raise ValueError(f"more than an expression: {text!r}")
    return found


def _sum(tokens: list[str]) -> tuple[int, list[str]]:
    total, rest = _product(tokens)
    while rest and rest[0] in "+-":
        sign = 1 if rest[0] == "+" else -1
        more, rest = _product(rest[1:])
        total = _held(total + sign * more)
    return total, rest


def _product(tokens: list[str]) -> tuple[int, list[str]]:
    total, rest = _factor(tokens)
    while rest and rest[0] == "*":
        more, rest = _factor(rest[1:])
        total = _held(total * more)
    return total, rest


def _factor(tokens: list[str]) -> tuple[int, list[str]]:
    if not tokens:
        raise ValueError("an expression breaks off")
    first, rest = tokens[0], tokens[1:]
    if first.isdigit():
        return int(first), rest
    if first == "-":
        found, rest = _factor(rest)
        return -found, rest
    if first == "(":
        found, rest = _sum(rest)
        if rest[:1] == [")"]:
            return found, rest[1:]
    raise ValueError(f"not expected here: {first}")


def _held(number: int) -> int:
    if abs(number) >= MOST:
        raise ValueError("too large")
    return number


def generate(task: Calculator, seed: int, index: int, op: int) -> Problem:
    """The expression of the task at (seed, index) with `op` operators: a random tree, all of whose inner parts stand in
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


def reply(problem: Problem, said: list[str]) -> Reply:
    """The value that the last turn asks for, or `error`; a box ends the episode."""
    if ended(said[-1]):
        return Reply("", True)
    return Reply(f"{_tool(problem, said[-1])}\n", False)


def _tool(problem: Problem, turn: str) -> str:
    call = CALL.fullmatch(turn)
    if not call:
        return BROKEN
    try:
        found = value(call[1])
    except ValueError:
        return BROKEN
    return BROKEN if problem.single and not SINGLE.fullmatch(call[1]) else str(found)


SINGLE = re.compile(r"-?\d+[-+*](?:-?\d+|\(-\d+\))")
"""What a tool takes that takes one operator."""
INNER = re.compile(r"\((-?\d+)([-+*])(-?\d+)\)")
"""A part that has one operator."""


def expert(problem: Problem) -> list[str]:
    """The turns of whoever works out the first part of one operator, again and again."""
    left, turns = f"({problem.expression})", []
    while part := INNER.search(left):
        turns.append(f"calc({part[1]}{part[2]}{part[3]})")
        left = left[: part.start()] + str(value(part[0])) + left[part.end() :]
    return [*turns, f"{BOX}{left}}}"]


def render(problem: Problem, task: Calculator) -> Rendered:
    """The expression, the expert's transcript, the value."""
    return Rendered(f"{problem.expression}?\n", transcript(expert(problem), lambda said: reply(problem, said)), answer(problem))


def answer(problem: Problem) -> str:
    """The value of the expression."""
    return str(value(problem.expression))


def solve(prompt: str, task: Calculator, ask: Replies) -> str:
    """The value of the expression in a prompt, one part of one operator after the other. Raises ValueError where it is no
    prompt."""
    left = f"({prompt.removesuffix(chr(10)).removesuffix('?')})"
    while part := INNER.search(left):
        a, b = int(part[1]), int(part[3])
        found = {"+": a + b, "-": a - b, "*": a * b}[part[2]]
        left = left[: part.start()] + str(found) + left[part.end() :]
    return str(int(left))


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Right: the last turn boxes the value. See tasks.environments.games.worth."""
    return worth(completion, lambda said: reply(problem, said), answer(problem))


def structure(problem: Problem) -> str:
    """16 hex digits of the expression."""
    return f"{stream_key('calculator', problem.expression):016x}"


def shared(problem: Problem) -> bool:
    """No problem belongs to every split."""
    return False


def dumps(problem: Problem) -> str:
    """JSON, one line."""
    return json.dumps(problem, separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    return Problem(*json.loads(text))


def alphabet(task: Calculator) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: Calculator) -> list[str]:
    """The pieces of a tokenizer of words: digits one by one."""
    return ["calc(", ")", "(", BOX, "}", BROKEN, "\n", "?", "-", *"+*", *"0123456789"]
