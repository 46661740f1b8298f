"""A table of corruptions of gold solutions in prose, forward and reverse, each with the verdict that it must get: first as published
(operators not looked at, further nodes allowed), then with both options."""

import re
from collections.abc import Callable, Iterator
from itertools import count, islice

import pytest
from op_dag_prose_cases import FORWARD, REVERSE, case, judged as verify

from interplay.tasks.op_dag.prose import Problem
from interplay.tasks.spec import Verify

PLAIN = Verify()
EXACT = Verify(operator=True, extra_nodes="penalised")
MODES = {"forward": FORWARD, "reverse": REVERSE}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTER = re.compile(r"(?<![\w'-])[A-Za-z](?![\w'-])")
Corruption = Callable[[Problem, str], str]


def suitable(mode: str) -> Iterator[tuple[Problem, str]]:
    """Problems with two leaves and a distractor whose goal is a plain sum of two nodes, neither of them the first, that comes to
    something else than it is put together from (3 + 4 = 7, and not x + 2 = x + 2)."""
    for index in count():
        _, problem, solution = case(9, index, width=(2, 2), distractors=(1, 3), **MODES[mode])
        goal = problem.nodes[problem.goal]
        sides = [sorted(each.split(" + ")) for each in sentences(solution)[-1].rstrip(".").split(" = ")]
        plain = len(goal.parents) == 2 and goal.constant is None and not goal.minus and 0 not in goal.parents
        if plain and problem.necessary > 4 and sides[-1] != sides[-2]:
            yield problem, solution


def letter(problem: Problem, solution: str, place: int) -> str:
    """The letter of a node."""
    found = re.search(rf"Define {re.escape(problem.nodes[place].name)} as (.);", solution)
    assert found
    return found[1]


def unused(solution: str) -> str:
    """A letter that the solution does not take."""
    return next(each for each in LETTERS if each != "x" and each not in LETTER.findall(solution))


def sentences(solution: str) -> list[str]:
    """Those that define a node, in their order."""
    return re.findall(r" Define [^.]*\.", solution)


def of_goal(change: Callable[[Problem, str, str], str]) -> Corruption:
    """The same change of the sentence about the goal, which is the last."""

    def changed(problem: Problem, solution: str) -> str:
        last = sentences(solution)[-1]
        return solution.replace(last, change(problem, solution, last))

    return changed


def side(number: int, new: str) -> Corruption:
    """The goal's sentence with one side of `L = a + b = 3 + 4 = 7` put otherwise, or with one side less."""

    def change(problem: Problem, solution: str, last: str) -> str:
        sides = last.removesuffix(".").split(" = ")
        sides[number : (number + 1) or None] = [new] if new else []
        return " = ".join(sides) + "."

    return of_goal(change)


def parent_as(other: Callable[[Problem, str], str]) -> Corruption:
    """The goal's sentence with another letter for its first parent."""
    return of_goal(
        lambda problem, solution, last: last.replace(
            f" = {letter(problem, solution, problem.nodes[problem.goal].parents[0])} +", f" = {other(problem, solution)} +"
        )
    )


def stranger(problem: Problem, solution: str) -> str:
    """The letter of a node that the goal does not read."""
    goal = problem.nodes[problem.goal]
    return letter(problem, solution, next(place for place in range(1, problem.goal) if place not in goal.parents))


def without(number: int) -> Corruption:
    return lambda problem, solution: solution.replace(sentences(solution)[number], "", 1)


def added(text: str) -> Corruption:
    """One more sentence behind the first one."""
    return lambda problem, solution: solution.replace(first := sentences(solution)[0], f"{first} {text}", 1)


def extra(problem: Problem, solution: str) -> str:
    name = next(node.name for node in problem.nodes[problem.necessary :] if not node.total)
    return added(f"Define {name} as {unused(solution)}; so {unused(solution)} = 2.")(problem, solution)


def renamed(problem: Problem, solution: str) -> str:
    kept = {"x": "x"} if problem.mode == "reverse" else {}
    free = iter([each for each in reversed(LETTERS) if each not in kept])
    names = {each: kept.get(each) or next(free) for each in dict.fromkeys(LETTER.findall(solution))}
    return LETTER.sub(lambda found: names[found[0]], solution)


def renamed_once(problem: Problem, solution: str) -> str:
    """A parent of the goal under another letter where it is defined, and the old one where it is read."""
    place = problem.nodes[problem.goal].parents[0]
    old, new = letter(problem, solution, place), unused(solution)
    own = sentences(solution)[place]
    return solution.replace(own, own.replace(f" as {old};", f" as {new};").replace(f"so {old} =", f"so {new} ="))


def turned(problem: Problem, solution: str) -> str:
    """What is read now stands behind what reads it."""
    own = sentences(solution)
    return solution.replace("".join(own), "".join(reversed(own)))


def other_order(problem: Problem, solution: str) -> str:
    """The second leaf as late as can be, right before the first that reads it, or right behind the first leaf."""
    own = sentences(solution)
    leaf = next(place for place in range(1, len(own)) if not problem.nodes[place].parents)
    reader = min(place for place, node in enumerate(problem.nodes[: len(own)]) if leaf in node.parents)
    rest = [*own[:leaf], *own[leaf + 1 :]]
    to = reader - 1 if reader - 1 != leaf else 1
    return solution.replace("".join(own), "".join([*rest[:to], own[leaf], *rest[to:]]))


def values_alone(problem: Problem, solution: str) -> str:
    """Every right value and no way to it."""
    own = sentences(solution)
    bare = [
        re.sub(r"; .* = ([^=.]*)\.", r"; so \1.", text).replace("; so ", f"; so {text.split(' as ')[1][0]} = ") for text in own
    ]
    told = [old if "= " not in old else new for old, new in zip(own, bare, strict=True)]
    return solution.replace("".join(own), "".join(told))


def lucky(problem: Problem, solution: str) -> str:
    """A wrong value of a parent, carried on in the text, and the right answer all the same."""
    place = problem.nodes[problem.goal].parents[0]
    own = sentences(solution)[place]
    return solution.replace(own, re.sub(r" = [^=.]*\.$", " = 77.", own))


def other_name(problem: Problem, solution: str) -> str:
    return solution.replace(f"Define {problem.nodes[problem.goal].name} as", "Define tin soldier in Old Town as")


def answered(text: str) -> Corruption:
    return lambda problem, solution: re.sub(r"<answer>.*", text, solution)


TABLE: dict[str, tuple[Corruption, str, str]] = {
    "wrong value": (side(-1, "999"), "value", "value"),
    "value not worked out": (side(-1, ""), "missing_node", "missing_node"),
    "unreadable value": (side(-1, "many"), "parse", "parse"),
    "wrong numbers put in": (side(-2, "1 + 1"), "value", "value"),
    "no numbers put in": (side(-2, ""), "none", "none"),
    "wrong parent": (parent_as(stranger), "dependency", "dependency"),
    "letter bound to nothing": (parent_as(lambda _, solution: unused(solution)), "dependency", "dependency"),
    "one parent less": (
        of_goal(lambda problem, solution, last: re.sub(r"= . \+ (.) =", r"= \1 =", last)), "dependency", "dependency"
    ),
    "unnamed operands": (of_goal(lambda problem, solution, last: re.sub(r"= . \+ . =", "=", last)), "dependency", "dependency"),
    "another operator, right value": (
        of_goal(lambda problem, solution, last: re.sub(r"= (.) \+ (.) =", r"= \1 - \2 =", last)), "none", "operator"
    ),
    "operands the other way round": (
        of_goal(lambda problem, solution, last: re.sub(r"= (.) \+ (.) =", r"= \2 + \1 =", last)), "none", "none"
    ),
    "missing step": (without(-1), "missing_node", "missing_node"),
    "missing step that others read": (without(1), "missing_node", "missing_node"),
    "extra step": (extra, "none", "extra_node"),
    "remark": (added("Let us go on."), "none", "none"),
    "claim that does not hold": (added("2 + 2 = 5."), "value", "value"),
    "claim that holds": (added("2 + 2 = 4."), "none", "none"),
    "all letters renamed": (renamed, "none", "none"),
    "one letter renamed where it is bound": (renamed_once, "dependency", "dependency"),
    "another order of evaluation": (other_order, "none", "none"),
    "right values, no way": (values_alone, "dependency", "dependency"),
    "right answer by a wrong value": (lucky, "value", "value"),
    "another name": (other_name, "missing_node", "missing_node"),
    "wrong answer": (answered("<answer> 998 </answer>"), "answer", "answer"),
    "no answer": (answered(""), "truncated", "truncated"),
    "answer cut off": (answered("<answer> 3"), "truncated", "truncated"),
    "two answers": (answered("<answer> 3 4 </answer>"), "answer", "answer"),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", TABLE)
def test_each_kind_of_corruption_gets_its_verdict(kind: str, mode: str) -> None:
    corrupt, plain, exact = TABLE[kind]
    changed = 0
    for problem, solution in islice(suitable(mode), 10):
        text = corrupt(problem, solution)
        changed += text != solution  # a graph may allow no other order
        assert (verify(problem, text, PLAIN).error, verify(problem, text, EXACT).error) == (plain, exact), text
    assert changed >= 5


@pytest.mark.parametrize(("mode", "error"), [("forward", "dependency"), ("reverse", "missing_node")])
def test_steps_before_what_they_read_are_wrong(mode: str, error: str) -> None:
    """In reverse mode forms in an unknown that has no name yet are no values."""
    for problem, solution in islice(suitable(mode), 10):
        assert verify(problem, turned(problem, solution), EXACT).error == error


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"Isolate the term with x: .*?\.", "Isolate the term with x: 1*x = 99."),
        (r"Divide both sides by ([0-9]+): x = ", r"Divide both sides by \1: x = 1 + "),
        (r"Solution: x = [0-9]+", "Solution: x = 98"),
        (r"We know . = ", "We know x = "),
    ],
)
def test_an_equation_solved_wrongly_is_a_wrong_value(old: str, new: str) -> None:
    for problem, solution in islice(suitable("reverse"), 10):
        text = re.sub(old, new, solution)
        verdict = verify(problem, text, PLAIN)
        assert text != solution
        assert (verdict.error, verdict.answer) in (("value", True), ("parse", True))
