"""What the tests of op_dag share: every kind of task, drawn by hypothesis, and edits of gold solutions."""

from functools import partial
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from interplay.tasks.op_dag import dag, terse_verifier
from interplay.tasks.op_dag.dag import Problem
from interplay.tasks.op_dag.dag_growth import generate
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import render
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

REVERSE = {"reverse": 1.0}
INTEGERS = {"modulus": None}


@st.composite
def tasks(draw: st.DrawFn) -> OpDag:
    modulus = draw(st.sampled_from([None, 2, 3, 7, 97]))
    low = draw(st.integers(0, min(2, (modulus or 9) - 1)))
    high = draw(st.integers(low, (modulus or 10) - 1))
    few = draw(st.integers(0, 3))
    return OpDag.model_validate(
        {
            "modulus": modulus,
            "operators": draw(st.sampled_from(["+", "-", "*", "+-", "+*", "-*", "+-*"])),
            "letters": draw(st.sampled_from([26, 52])),
            "trace": draw(st.sampled_from(["goal_first", "leaf_first"])),
            "modes": draw(st.sampled_from([{"forward": 1.0}, {"reverse": 1.0}, {"forward": 0.5, "reverse": 0.5}])),
            "max_parents": draw(st.integers(1, 4)),
            "branching": draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])),
            "copies": draw(st.sampled_from([0.0, 0.15, 1.0])),
            "constants": (low, high),
            "max_value": draw(st.sampled_from([9, 30, 1000])),
            "distractors": (0, few),
            "filler": (0, draw(st.sampled_from([0, 20]))),
        }
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[OpDag, Problem]:
    task = draw(tasks())
    op = draw(st.integers(*task.ops()))
    return task, generate(task, draw(st.integers(0, 9)), draw(st.integers(0, 10**6)), op)


def case(op: int, index: int = 0, **knobs: object) -> tuple[OpDag, Problem, str]:
    """A task, its problem at (0, index) and the gold solution."""
    task = OpDag.model_validate(knobs)
    problem = generate(task, 0, index, op)
    return task, problem, render(problem, task).solution


def verdict_of(surface: ModuleType, problem: Any, completion: str, options: Verify) -> Verdict:
    """The verdict of a surface's verifier, which is that of its Python also where compiled code finds it."""
    verdict = surface.verify(problem, completion, options)
    assert verdict == dag.conclude(surface.judge(problem, completion, options), problem, options)
    return verdict


judged = partial(verdict_of, terse_verifier)


def consistent(verdict: Verdict) -> None:
    """What holds of the verdict on any text."""
    assert 0 <= verdict.score <= 1
    assert verdict.strict == (verdict.error == "none")
    assert verdict.answer or not verdict.strict
