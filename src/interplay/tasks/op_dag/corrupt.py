"""Corrupted prompts and solutions: wrong answers, one wrong operation propagated, conflicting or irrelevant statements, and
the repair of the first wrong step."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeVar

from interplay.tasks.op_dag.graph import FORWARD, Draw, Node, Problem, unfolding
from interplay.tasks.op_dag.judge import BAD_PARENTS, BAD_VALUE, EXTRA, UNREADABLE, VALUED, Effect, judge, layout
from interplay.tasks.op_dag.parse import parse
from interplay.tasks.op_dag.render import ANSWER, ASK, FILLER, LETTERS, SECTION, STEP, sentences

# Prompts and solutions that say something wrong or needless. The graph stays the truth: what it holds is what is judged.
#
# Each takes the problem and a text, and draws from `draw`, uniform integers in [0, 2**32).


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


# The first wrong step of a solution, what should stand in its place, and how the solution would go on from there.


class Repair(NamedTuple):
    """A solution that is right up to a step."""

    prefix: str
    """What stands before the wrong step, with the sign that ends it."""
    step: str
    """The right step in its place."""
    suffix: str
    """How the gold goes on from there, to the answer."""
    answers: bool
    """Whether the right step gives the goal its value, and so gives the answer away."""


class Said(NamedTuple):
    """What the steps before a place said."""

    defined: set[int]
    """Nodes that a goal_first solution has unfolded; all of them in a leaf_first one."""
    valued: set[int]
    """Nodes that were given their value, after all was unfolded."""


class Wrong(NamedTuple):
    """The first wrong step of a solution."""

    start: int
    """Place of its first character."""
    about: int
    """Place of the node that it is about."""
    said: Said
    """What stood before it."""


def repair(problem: Problem, completion: str, goal_first: bool) -> Repair | None:
    """The repair of a completion of a forward problem, of its first wrong step; None where it has none."""
    wrong = first_wrong(problem, completion, goal_first)
    return None if wrong is None else _made(problem, completion[: wrong.start], wrong.about, wrong.said, goal_first)


def first_wrong(problem: Problem, completion: str, goal_first: bool) -> Wrong | None:
    """The first wrong step before the answer; None where there is none, where a step names what is no node of the problem before
    one is (names of the completion's own are not followed here), and in reverse problems.

    A step is wrong when it is unreadable, is about a node that the goal does not need or that had its turn, says a wrong value or
    wrong parents, values a node before its parents, or values one with parents before the goal is unfolded."""
    if problem.mode != FORWARD:
        return None
    said = Said(set() if goal_first else set(range(problem.necessary)), set())
    for start, text in repair_steps(completion):
        effect = _effect(problem, text)
        if effect is None:
            return None
        unfolded = len(said.defined) == problem.necessary
        if _wrong(problem, effect, said, unfolded):
            return Wrong(start, effect[0], said)
        (said.valued if unfolded else said.defined).add(effect[0])
    return None


def repair_steps(completion: str) -> list[tuple[int, str]]:
    """(place of its first character, text) of every step before the answer."""
    found, start = [], 0
    for text in completion.partition(ANSWER)[0].replace(SECTION, STEP).split(STEP):
        if text:
            found.append((start, text))
        start += len(text) + 1
    return found


def _effect(problem: Problem, text: str) -> Effect | None:
    """What a step says; None where it goes through names that are no nodes."""
    step, plan = parse(text, problem.modulus), layout(problem)
    if step is None:
        return problem.necessary, UNREADABLE
    return judge(plan, step) if step.letters.union(step.name) <= plan.places.keys() else None


def _wrong(problem: Problem, effect: Effect, said: Said, unfolded: bool) -> bool:
    place, bits = effect
    if place >= problem.necessary or bits & (UNREADABLE | EXTRA | BAD_VALUE | BAD_PARENTS):
        return True
    parents = set(problem.nodes[place].parents)
    if not unfolded:  # the definition of a leaf is its value
        return place in said.defined or bool(bits & VALUED and parents)
    return not bits & VALUED or place in said.valued or not parents <= said.valued


def _made(problem: Problem, before: str, about: int, said: Said, goal_first: bool) -> Repair:
    """The step that should stand here is the gold one about the same node, where that may come now; else the first gold one that
    may. The sign before it is the gold's, too: to go on to the next section too early is part of the wrong step."""
    texts, order = sentences(problem), unfolding(problem)
    unfolded = len(said.defined) == problem.necessary
    here, done = (order[::-1], said.valued) if unfolded else (order, said.defined)
    wording = texts.definitions if not unfolded else texts.evaluations if goal_first else texts.whole
    left = [place for place in here if place not in done]
    may = [place for place in left if not unfolded or said.valued.issuperset(problem.nodes[place].parents)]
    if not may:
        return Repair(before, "", f"{ANSWER}{problem.answer}", True)
    place = about if about in may else may[0]
    head = before.rstrip(STEP + SECTION)
    first = unfolded and goal_first and not said.valued
    prefix = head + (SECTION if first else STEP) if head else ""
    suffix = "".join(STEP + wording[other] for other in left if other != place)
    if not unfolded:
        suffix += SECTION + STEP.join(texts.evaluations[other] for other in reversed(order))
    return Repair(prefix, wording[place], f"{suffix}{ANSWER}{problem.answer}", unfolded and place == problem.goal)
