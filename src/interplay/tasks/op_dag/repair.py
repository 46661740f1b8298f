"""The first wrong step of a solution, what should stand in its place, and how the solution would go on from there."""

from typing import NamedTuple

from interplay.tasks.op_dag.graph import FORWARD, Problem, unfolding
from interplay.tasks.op_dag.judge import BAD_PARENTS, BAD_VALUE, EXTRA, UNREADABLE, VALUED, Effect, judge, layout
from interplay.tasks.op_dag.parse import parse
from interplay.tasks.op_dag.render import ANSWER, SECTION, STEP, sentences


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
    for start, text in steps(completion):
        effect = _effect(problem, text)
        if effect is None:
            return None
        unfolded = len(said.defined) == problem.necessary
        if _wrong(problem, effect, said, unfolded):
            return Wrong(start, effect[0], said)
        (said.valued if unfolded else said.defined).add(effect[0])
    return None


def steps(completion: str) -> list[tuple[int, str]]:
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
