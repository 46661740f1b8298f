"""Questions that a program answers (program synthesis, arXiv:2108.07732): the completion holds a Python program, which is run
against the tests of its row in the sandbox of the tool `python` (tasks.environments.sandbox).

A test is `assert EXPRESSION == VALUE` with a literal value, as in MBPP. The program and the expression run in the sandbox, where
no test is known; the value that comes out is compared outside it, so that an object which says that it equals everything
passes nothing. Each test has a fresh interpreter, and nothing is left of the tests before it."""

import ast
import re
from collections.abc import Iterable
from typing import NamedTuple

from interplay.tasks import family
from interplay.tasks.environments import sandbox
from interplay.tasks.environments.spec import PythonTool
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict, first_error

INSTRUCTION = "Write a Python program in a code block."
TOOL = PythonTool(seconds=1.0, megabytes=32, longest=10_000)
"""Limits of a program with one test."""
MOST_TESTS = 20
BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n?```|$)", re.DOTALL)


class Test(NamedTuple):
    """One of a row."""

    call: str
    """The expression, such as `add(1, 2)`."""
    value: str
    """What it must come to, a literal."""


class Problem(NamedTuple):
    """A question with tests."""

    question: str
    tests: tuple[Test, ...]
    program: str
    """One that passes; empty: none is known."""
    id: str = ""
    """The source's own name for it."""


def read_test(text: str) -> Test:
    """`assert EXPRESSION == VALUE` with a literal value. Raises ValueError for other texts."""
    try:
        match ast.parse(text.strip()).body:
            case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
                return Test(ast.unparse(left), repr(ast.literal_eval(right)))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ValueError(f"{text.strip()[:60]!r} is no `assert EXPRESSION == VALUE` with a literal value")


def render(problem: Problem) -> family.Rendered:
    """The question and an instruction; the program in a code block; the values of the tests. The tests are not shown."""
    solution = f"```python\n{problem.program}\n```" if problem.program else ""
    return family.Rendered(f"{problem.question}\n{INSTRUCTION}\n", solution, said_of(test.value for test in problem.tests))


def said_of(values: Iterable[str]) -> str:
    """What a program came to, as answers are compared and voted on: two programs that pass the same tests say the same."""
    return "; ".join(values)


def program_of(completion: str) -> str:
    """The program of a completion: its last code block, which may be cut, or all of it where it has none."""
    blocks = BLOCK.findall(completion)
    return (blocks[-1] if blocks else completion).strip("\n")


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """The verdict on any text; its score is the share of tests passed, and all must be. Never raises on account of the text.
    Errors: truncated (no program), raised (it fails, gives no data, or a limit stops it), answer (a test fails)."""
    program = program_of(completion)
    found = sandbox.evaluate(program, [test.call for test in problem.tests], TOOL) if program.strip() else []
    passed = [_equal(one, test.value) for one, test in zip(found, problem.tests, strict=False)]
    share = sum(passed) / len(problem.tests)
    broken = not any(one.fine for one in found)
    error = first_error(truncated=not program.strip(), raised=broken, answer=share < 1)
    return Verdict(share == 1, share == 1, share, error, said=said_of(one.shown for one in found))


def _equal(found: sandbox.Value, value: str) -> bool:
    """Whether a value is the literal, outside the sandbox, where no object of a program gets."""
    try:
        return found.fine and bool(found.value == ast.literal_eval(value))
    except RecursionError:
        return False


loads = family.from_json(Problem)
"""The inverse of `dumps`."""


def dumps(problem: Problem) -> str:
    """JSON, the same for equal problems."""
    return family.compact_json(problem._asdict())


PROGRAMS = family.Family(name="programs", errors=("truncated", "raised", "answer"), loads=loads, verify=verify)
