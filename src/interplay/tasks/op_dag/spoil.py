"""Prompts and solutions that say something wrong or needless. The graph stays the truth: what it holds is what is judged.

Each takes the problem and a text, and draws from `draw`, uniform integers in [0, 2**32)."""

from collections.abc import Sequence
from math import prod
from typing import TypeVar

from interplay.tasks.op_dag.graph import Node, Problem
from interplay.tasks.op_dag.render import ANSWER, ASK, FILLER, LETTERS, STEP, sentences
from interplay.tasks.op_dag.stream import Draw

T = TypeVar("T")
SLIPS = 32
"""Slips that are drawn at most until one reaches the answer."""
NEAR = [n for n in range(-9, 10) if n]


def wrong_answer(problem: Problem, solution: str, draw: Draw) -> str:
    """The solution with another number behind its mark: a residue where there is a modulus, else one within 9 of the answer."""
    answer = problem.answer
    others = [n for n in (range(problem.modulus) if problem.modulus else range(max(0, answer - 9), answer + 10)) if n != answer]
    return f"{solution.rpartition(ANSWER)[0]}{ANSWER}{_pick(others, draw)}"


def slip(problem: Problem, draw: Draw) -> Problem | None:
    """The forward problem as somebody sees it who errs in one operation, and goes on from what came of it: its values, and so its
    solution, are wrong from there on, and so is the answer. A residue slips to another one, a number within 9 of it. None where
    nothing is to be worked out, or no slip that was drawn reaches the answer without a value below 0."""
    places = [place for place, node in enumerate(problem.nodes[: problem.necessary]) if node.operator]
    for _ in range(SLIPS if places else 0):
        place = _pick(places, draw)
        wrong = problem.values[place] + (1 + draw() % (problem.modulus - 1) if problem.modulus else _pick(NEAR, draw))
        values = _valued(problem, place, wrong % problem.modulus if problem.modulus else wrong)
        if values[-1] != problem.values[-1] and min(values) >= 0:
            return problem._replace(values=values)
    return None


def _valued(problem: Problem, slipped: int, wrong: int) -> tuple[int, ...]:
    """The values of the necessary nodes where that of one of them is given."""
    values: list[int] = []
    for place, node in enumerate(problem.nodes[: problem.necessary]):
        operands = [values[parent] for parent in node.parents]
        if node.constant is not None:
            operands.append(node.constant)
        worked = (
            prod(operands) if node.operator == "*"
            else 2 * operands[0] - sum(operands) if node.operator == "-"
            else sum(operands)
        )  # fmt: skip
        values.append(wrong if place == slipped else worked % problem.modulus if problem.modulus else worked)
    return tuple(values)


def conflict(problem: Problem, prompt: str, true_first: bool, draw: Draw) -> str | None:
    """The prompt with a second definition of a necessary node, in which its constant is another; `true_first`: somewhere behind
    the true one, else before it. None where no necessary node has a constant."""
    places = [place for place, node in enumerate(problem.nodes[: problem.necessary]) if node.constant is not None]
    if not places:
        return None
    place = _pick(places, draw)
    node = problem.nodes[place]
    most = problem.modulus or max(10, *(other.constant or 0 for other in problem.nodes)) + 1
    constant = _pick([n for n in range(0 if most == 2 else 1, most) if n != node.constant], draw)
    false = sentences(_with(problem, place, node._replace(constant=constant))).definitions[place]
    definitions, question = _split(prompt)
    true = [text.strip(FILLER) for text in definitions].index(sentences(problem).definitions[place])
    return _joined(definitions, false, range(true + 1, len(definitions) + 1) if true_first else range(true + 1), question, draw)


def irrelevant(problem: Problem, prompt: str, letters: str, draw: Draw) -> str | None:
    """The prompt with a definition that nothing reads, of one of the `letters` that it does not use. None where it uses all."""
    free = [letter for letter in letters if letter not in {node.name for node in problem.nodes}]
    constants = sorted({node.constant for node in problem.nodes if node.constant is not None})
    if not free or not constants:
        return None
    definitions, question = _split(prompt)
    text = f"{_pick(free, draw)}{_pick(constants, draw)}"
    return _joined(definitions, text, range(len(definitions) + 1), question, draw)


def letters(prompts: list[str]) -> str:
    """The letters that these prompts name nodes by, in the alphabet's order: a tokenizer that knows the prompts knows them."""
    used = set().union(*prompts)
    return "".join(letter for letter in LETTERS if letter in used)


def _split(prompt: str) -> tuple[list[str], str]:
    body, _, question = prompt.rpartition(ASK)
    return body.split(STEP), question


def _joined(definitions: list[str], text: str, gaps: range, question: str, draw: Draw) -> str:
    """The definitions with another one in one of the gaps (gap g stands before definition g)."""
    gap = _pick(list(gaps), draw)
    return STEP.join([*definitions[:gap], text, *definitions[gap:]]) + ASK + question


def _with(problem: Problem, place: int, node: Node) -> Problem:
    return problem._replace(nodes=(*problem.nodes[:place], node, *problem.nodes[place + 1 :]))


def _pick(items: Sequence[T], draw: Draw) -> T:
    return items[draw() % len(items)]
