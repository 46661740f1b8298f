"""A question, its answer and the worked solution."""

import json
from typing import NamedTuple

from interplay.tasks.answer import BOX

INSTRUCTION = "Reason step by step, and put the final answer in \\boxed{}."


class Problem(NamedTuple):
    """One question."""

    question: str
    answers: tuple[str, ...]
    """Acceptable answers, the canonical one first."""
    steps: tuple[str, ...] = ()
    """Lines of the worked solution; empty where the source has none."""
    id: str = ""
    """The source's own name for it."""


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins."""

    prompt: str
    solution: str
    answer: str


def render(problem: Problem) -> Rendered:
    """The question and an instruction; the worked solution and the answer in a box."""
    solution = "\n".join([*problem.steps, f"The answer is {BOX}{problem.answers[0]}}}."])
    return Rendered(f"{problem.question}\n{INSTRUCTION}\n", solution, problem.answers[0])


def dumps(problem: Problem) -> str:
    """JSON, the same for equal problems."""
    return json.dumps(problem._asdict(), separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem of `dumps`."""
    data = json.loads(text)
    return Problem(data["question"], tuple(data["answers"]), tuple(data["steps"]), data["id"])
