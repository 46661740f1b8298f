"""Reading prompts that a model wrote: what generation writes is read back, and what is no problem is told apart by name."""

import pytest
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_cases import cases

from interplay.tasks.op_dag.dag import Node, Problem, dumps, loads, structure
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import render
from interplay.tasks.op_dag.terse_prompts import FLAWS, parse_prompt, solve
from interplay.tasks.op_dag.terse_verifier import verify
from interplay.tasks.spec import Verify

TASK = OpDag(modulus=7, letters=10)
REVERSE = OpDag(modulus=7, letters=10, modes={"reverse": 1.0})
INTEGERS = OpDag(modulus=None, letters=10, max_value=20, modes={"forward": 0.5, "reverse": 0.5})


@examples(150)
@given(cases())
def test_what_the_task_writes_is_read_back(case: tuple[OpDag, Problem]) -> None:
    task, problem = case
    shown = render(problem, task)
    found = parse_prompt(shown.prompt + "a3,b2", task)
    assert isinstance(found, Problem), found
    again = render(found, task)
    assert (again.prompt, again.answer) == (shown.prompt, shown.answer)
    assert (found.op, structure(found)) == (problem.op, structure(problem))
    assert verify(found, shown.solution, Verify()).strict
    assert verify(problem, again.solution, Verify()).strict
    assert loads(dumps(found)) == found


def test_a_problem_by_hand() -> None:
    found = parse_prompt(".da*c,c3..,a2,ec-4?d|", TASK)
    leaves = (Node("c", "", (), 3), Node("a", "", (), 2))
    assert found == Problem(
        mode="forward",
        modulus=7,
        nodes=(*leaves, Node("d", "*", (1, 0), None), Node("e", "-", (0,), 4)),
        necessary=3,
        values=(3, 2, 6),
        slopes=(0, 0, 0),
        order=(2, 0, 1, 3),
        filler=(1, 0, 2, 0, 0),
    )
    assert (found.op, found.answer) == (4, 6)
    asked = parse_prompt("a_,ba*2,cb+3?c=1|", REVERSE)
    assert isinstance(asked, Problem)
    assert asked.answer == 6, "2x + 3 = 1 modulo 7"
    assert (asked.values, asked.slopes) == ((6, 5, 1), (1, 2, 2))


@pytest.mark.parametrize(
    ("text", "task", "flaw"),
    [
        ("a3,ba+2?b", TASK, "unfinished"),
        ("", TASK, "unfinished"),
        ("|", TASK, "grammar"),
        ("a3|", TASK, "grammar"),
        ("?a|", TASK, "grammar"),
        ("a3?|", TASK, "grammar"),
        ("a3?ab|", TASK, "grammar"),
        ("a3,?a|", TASK, "grammar"),
        ("a3?a?a|", TASK, "grammar"),
        ("a3?a=3|", TASK, "grammar"),  # forward problems alone
        ("a_?a|", TASK, "grammar"),  # an unknown, and nothing said of it
        ("a7?a|", TASK, "grammar"),  # no residue
        ("a03?a|", TASK, "grammar"),
        ("a-3?a|", TASK, "grammar"),
        ("a3+2?a|", TASK, "grammar"),  # two constants
        ("a3,b2+a?b|", TASK, "grammar"),  # the constant comes last
        ("a3,ba+2*2?b|", TASK, "grammar"),
        ("a3,c2,ba+c*2?b|", TASK, "grammar"),  # two operators
        ("a3,c2,d2,ba+c+d?b|", TASK, "grammar"),  # more parents than the task has
        ("a3,ba+a?b|", TASK, "grammar"),  # a name twice
        ("a3,b(a+2)*2?b|", TASK, "grammar"),
        ("a3,k2?a|", TASK, "grammar"),  # no letter of the task
        ("a3,bk?a|", TASK, "grammar"),
        ("a3.,b.2?a|", TASK, "grammar"),
        ("a3,ba*2?b|", OpDag(letters=10, operators="+-"), "grammar"),
        ("a" + "9" * 400 + "?a|", TASK, "grammar"),
        ("a3,a3?a|", TASK, "repeated"),
        ("a3,ba+c?b|", TASK, "undefined"),
        ("a3,bd+1?a|", TASK, "undefined"),  # in a distractor, too
        ("a3?b|", TASK, "undefined"),
        ("ab,ba?a|", TASK, "circular"),
        ("aa+1?a|", TASK, "circular"),
        ("a3,bc,cb?a|", TASK, "circular"),
        ("a_,b3,cb+1?c=4|", REVERSE, "unanswerable"),  # the goal does not hang on the unknown
        ("a_,ba-a?b=0|", REVERSE, "grammar"),
        ("a_,ba*2,ca*5,db+c?d=3|", REVERSE, "unanswerable"),  # 2x + 5x = 0 modulo 7
        ("a_,ba,cb*a?c=2|", REVERSE, "unanswerable"),  # not linear
        ("a_,b_,cb+a?c=2|", REVERSE, "grammar"),
        ("a_,ba+1?b=9|", REVERSE, "grammar"),
        ("a_,ba+1?b=|", REVERSE, "grammar"),
        ("a_,ba+1?b|", REVERSE, "grammar"),
        ("a_,ba*2?b=3|", INTEGERS, "unanswerable"),
        ("a_,ba+5?b=3|", INTEGERS, "range"),
        ("a3,ba*9?b|", INTEGERS, "range"),
        ("a3,ba-4?b|", INTEGERS, "range"),
    ],
)
def test_what_is_no_problem_says_why(text: str, task: OpDag, flaw: str) -> None:
    assert parse_prompt(text, task) == flaw


@examples(300)
@given(st.text(alphabet="abc_.,|?=#()+-*019é\n", max_size=30), st.sampled_from([TASK, REVERSE, INTEGERS]))
def test_any_text_is_a_problem_that_the_solver_answers_alike_or_has_a_flaw(text: str, task: OpDag) -> None:
    found = parse_prompt(text + "|", task)
    if isinstance(found, str):
        assert found in FLAWS
        return
    shown = render(found, task)
    assert (text + "|").startswith(shown.prompt)
    assert solve(shown.prompt, task) == shown.answer
