"""What the tests of op_dag_prose share: every kind of task, drawn by hypothesis, and two problems written by hand."""

from functools import partial

from hypothesis import strategies as st
from op_dag_cases import verdict_of
from op_dag_prose_text import read_problem

from interplay.tasks.op_dag import prose_verifier
from interplay.tasks.op_dag.prose import Problem, render
from interplay.tasks.op_dag.prose_problems import generate
from interplay.tasks.op_dag.spec import OpDagProse

REVERSE = {"modes": {"reverse": 1.0}}
FORWARD = {"modes": {"forward": 1.0}}
OWN = {
    "themes": {"garden": 1.0},
    "own": {
        "garden": {
            "places": [["Back Garden", "Old Yard", "Roof", "Hof"]],
            "types": [["red rose", "tulip", "fern", "oak"]],
            "things": "plants",
        }
    },
}

FORWARD_TEXT = (
    "The number of adult fox in Pine Ridge equals 3. The number of adult owl in Maple Creek equals 2 times the total number of adult "
    "animals in Pine Ridge. The number of adult bear in Pine Ridge equals 4 plus the number of adult fox in Pine Ridge. The number of "
    "adult owl in South Zoo equals 1. The number of adult crow in Maple Creek equals the difference between the number of adult owl "
    "in Maple Creek and the number of adult bear in Pine Ridge. The number of adult wolf in Pine Ridge equals the sum of the number "
    "of adult fox in Pine Ridge and the number of adult bear in Pine Ridge. How many adult crow does Maple Creek have?"
)
FORWARD_GOLD = (
    "Define adult fox in Pine Ridge as Q; so Q = 3. "
    "Define adult bear in Pine Ridge as a; R = Q = 3; so a = 4 + R = 4 + 3 = 7. "
    "Define adult wolf in Pine Ridge as b; so b = Q + a = 3 + 7 = 10. "
    "Define total number of adult animals in Pine Ridge as t; h = b + Q = 10 + 3 = 13; so t = h + a = 13 + 7 = 20. "
    "Define adult owl in Maple Creek as o; W = t = 20; so o = 2 * W = 2 * 20 = 40. "
    "Define adult crow in Maple Creek as C; so C = o - a = 40 - 7 = 33. Answer: 33."
)
REVERSE_TEXT = (
    "The total number of schools in Ruby Bay equals 38. The number of elementary school in Brightford exists, and its number is "
    "greater than 0. The number of public highschool in Ruby Bay equals 4 times the sum of the number of culinarian school in "
    "Brightford and the number of elementary school in Brightford. The number of culinarian school in Brightford equals 3 plus the "
    "number of elementary school in Brightford. The number of culinarian school in Ruby Bay equals the difference between the number "
    "of public highschool in Ruby Bay and the number of elementary school in Brightford. How many elementary school does Brightford "
    "have?"
)
REVERSE_GOLD = (
    "The question is difficult, so we use equations to solve it. Define elementary school in Brightford as x; we don't know its value "
    "yet but will find it out later. Define culinarian school in Brightford as k; E = x = x; so k = 3 + E = 3 + x = x + 3. Define "
    "public highschool in Ruby Bay as P; s = k + x = x + 3 + x = 2*x + 3; so P = 4 * s = (4) * (2*x + 3) = 8*x + 12. Define "
    "culinarian school in Ruby Bay as D; so D = P - x = (8*x + 12) - (x) = 7*x + 12. Define total number of schools in Ruby Bay as T; "
    "so T = D + P = 7*x + 12 + 8*x + 12 = 15*x + 24. We know T = 38, so we have 15*x + 24 = 38 and we solve it through the following "
    "steps: Simplifying the equation: 15*x + 24 = 38. Move all terms to one side: 15*x - 14 = 0. Isolate the term with x: 15*x = 14. "
    "Divide both sides by 15: x = 14 / 15. Solution: x = 14/15. Answer: 14/15."
)


def small() -> Problem:
    """The forward problem above."""
    return read_problem(FORWARD_TEXT)


def line() -> Problem:
    """The reverse problem above, with a total that has a solution."""
    return read_problem(REVERSE_TEXT.replace("equals 38", "equals 54"))


LINE_GOLD = (
    REVERSE_GOLD.replace("= 38", "= 54")
    .replace("- 14 =", "- 30 =")
    .replace("15*x = 14", "15*x = 30")
    .replace("14 / 15", "30 / 15")
).replace("14/15", "2")


@st.composite
def tasks(draw: st.DrawFn) -> OpDagProse:
    depth, width = draw(
        st.sampled_from([(None, None)] * 3 + [((3, 4), None), (None, (1, 2)), ((4, 5), (1, 2)), ((5, 6), (3, 3))])
    )
    return OpDagProse.model_validate(
        {
            **draw(st.sampled_from([{}, {"themes": {"zoo": 1.0}}, {"themes": {"film": 0.5, "school": 0.5}}, OWN])),
            "modes": draw(st.sampled_from([{"forward": 1.0}, {"reverse": 1.0}, {"forward": 0.5, "reverse": 0.5}])),
            "depth": depth,
            "width": width,
            "distractors": draw(st.sampled_from([None, (0, 0), (0, 2), (2, 2)])),
            "max_parents": draw(st.integers(3, 6)),
            "totals": draw(st.sampled_from([0.0, 0.5, 1.0])),
            "reuse": draw(st.sampled_from([0.0, 0.3, 1.0])),
            "constants": draw(st.sampled_from(["published", "uniform", {1: 0.5, 9: 0.5}])),
            "max_value": draw(st.sampled_from([200, 1000])),
            "note": draw(st.booleans()),
        }
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[OpDagProse, Problem]:
    task = draw(tasks())
    low, high = task.ops()
    op = draw(st.integers(low, min(high, 20)))
    return task, generate(task, draw(st.integers(0, 9)), draw(st.integers(0, 10**6)), op)


def case(op: int, index: int = 0, **knobs: object) -> tuple[OpDagProse, Problem, str]:
    """A task, its problem at (0, index) and the gold solution."""
    task = OpDagProse.model_validate(knobs)
    problem = generate(task, 0, index, op)
    return task, problem, render(problem, task).solution


judged = partial(verdict_of, prose_verifier)
