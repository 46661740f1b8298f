"""The C files of op_dag: they find what Python finds, on any text, and Python alone does where there is no compiler."""

import logging
import re

import op_dag_cases as terse_cases
import op_dag_prose_cases as prose_cases
import pytest
from conftest import examples
from hypothesis import given, strategies as st

from interplay.tasks.op_dag import dag, prose, prose_verifier, terse, terse_verifier
from interplay.tasks.spec import Verify

OPTIONS = [Verify(), Verify(operator=True, arithmetic=True, extra_nodes="penalised")]
CHARACTERS = st.characters(codec="utf-8") | st.sampled_from("aAxq0123456789+-*/()=_,|#.;: \n\x1c\u00a0\u3000é")
PROSE = st.sampled_from(
    ["Define ", " as ", " as x; ", "Q", "x", "; ", "so ", " = ", "3", " + ", " - ", " * ", "(", ")", ". ", "We know ", ": ", " / ", "2*x",
     "we don't know its value yet but will find it out later", "Answer: 3.", "<answer> 3 </answer>", "</answer>", "</solution>", "-",
     "+-", "--", "123456789012345678", "_", "=", " = 2*x + Q", "x*x", " + x = ", "(x - 3)", "a = a * a; ", "a = a + a; ", " = 4 / 2", "can't"]
)  # fmt: skip
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 10**6), st.integers(0, 40)), max_size=6)
compiled = pytest.mark.skipif(not dag._library(), reason="no C compiler")


def spoilt(text: str, edits: list[tuple[int, int, int, int]], pieces: list[str]) -> str:
    """The text with some of it cut out, and copies of other parts or further pieces in place of that."""
    for (spot, cut, source, length), piece in zip(edits, [*pieces, *[""] * len(edits)], strict=False):
        spot, source = spot % (len(text) + 1), source % (len(text) + 1)
        text = text[:spot] + (piece or text[source : source + length]) + text[spot + cut :]
    return text


@compiled
@examples(400)
@given(
    prose_cases.cases(),
    st.sampled_from([None, (400, 1500)]),
    EDITS,
    st.lists(PROSE | st.text(CHARACTERS, max_size=3), max_size=6),
)
def test_prose_is_judged_as_by_python(case, length, edits, pieces):
    task, problem = case
    solution = prose.render(problem, task.model_copy(update={"length": length})).solution
    known = False
    for text in (solution, spoilt(solution, edits, []), spoilt(solution, edits, pieces), "".join(pieces)):
        for options in OPTIONS:
            found = dag.compiled("judge_prose", problem, text, prose_verifier.WEIGHTS, dag.asked_for(options))
            known |= text is solution and found is not None
            assert found in (None, prose_verifier.judge(problem, text, options))
    assert known  # gold is never left to Python


CHAINS = [
    "15*x + 24 = 54",
    "T = 54",
    "T = 15*x + 24",
    "a t 2*x = 6",
    "15*x = 31",
    "x = 30 / 15",
    "x = 1 / 2",
    "q = 3",
    "54",
    "x = = 2",
    "é = 2",
]


@compiled
@examples(300)
@given(st.lists(st.tuples(st.sampled_from(CHAINS), st.sampled_from(", :;.")), min_size=1, max_size=5))
def test_equations_of_a_sentence_are_marked_as_by_python_whatever_stands_beside_them(chains):
    definitions = prose_cases.LINE_GOLD.partition("We know")[0]
    text = f"{definitions}{''.join(chain + end for chain, end in chains)} . Answer: 2."
    for options in OPTIONS:
        found = dag.compiled("judge_prose", prose_cases.line(), text, prose_verifier.WEIGHTS, dag.asked_for(options))
        assert found in (None, prose_verifier.judge(prose_cases.line(), text, options))


def test_an_equation_counts_only_in_a_sentence_that_can_be_read():
    problem = prose_cases.line()
    read, unread = (
        prose_cases.LINE_GOLD,
        prose_cases.LINE_GOLD.replace("the equation: 15*x", "t 15*x").replace("15*x + 24 = 54. M", "15*x = 54. M"),
    )
    assert prose_verifier.verify(problem, read, Verify()).strict
    assert not prose_verifier.verify(problem, unread, Verify()).strict


@compiled
@examples(400)
@given(
    terse_cases.cases(),
    st.sampled_from([None, (60, 200)]),
    EDITS,
    st.lists(st.text(CHARACTERS, min_size=1, max_size=4), max_size=6),
)
def test_terse_is_judged_as_by_python(case, length, edits, pieces):
    task, problem = case
    solution = terse.render(problem, task.model_copy(update={"length": length})).solution
    for text in (solution, spoilt(solution, edits, []), spoilt(solution, edits, pieces), "".join(pieces)):
        for options in OPTIONS:
            found = dag.compiled("judge_terse", problem, text, dag.asked_for(options))
            assert found in (None, terse_verifier.judge(problem, text, options))
            assert found is not None or text is not solution or re.search(r"\d{15}", text)  # numbers beyond 64 bits


@compiled
@pytest.mark.parametrize("number", range(256))
def test_every_byte_at_every_place_of_a_short_text(number):
    for problem, solution in (
        (prose_cases.small(), prose_cases.FORWARD_GOLD[:64]),
        (prose_cases.line(), "Define a as x; so x = 2. x=2."),
    ):
        for spot in range(len(solution)):
            text = f"{solution[:spot]}{chr(number)}{solution[spot + 1 :]}"
            found = dag.compiled("judge_prose", problem, text, prose_verifier.WEIGHTS, False)
            assert found in (None, prose_verifier.judge(problem, text, OPTIONS[0]))
    _, problem, solution = terse_cases.case(4, 1, modes=terse_cases.REVERSE)
    for spot in range(len(solution)):
        text = f"{solution[:spot]}{chr(number)}{solution[spot + 1 :]}"
        found = dag.compiled("judge_terse", problem, text, False)
        assert found in (None, terse_verifier.judge(problem, text, OPTIONS[0]))


@compiled
@examples(200)
@given(prose_cases.cases(), terse_cases.cases())
def test_texts_and_structures_are_those_of_python(prose_case, terse_case):
    task, problem = prose_case
    assert dag.compiled("render_prose", problem, "Note. ") is not None
    assert prose.render(problem, task) == prose.render_in_python(problem, task)
    assert dag.compiled("structure_key", problem, True) == int(prose.structure_in_python(problem), 16)
    problem = terse_case[1]
    assert dag.compiled("structure_key", problem, False) == int(dag.structure_in_python(problem), 16)


@compiled
def test_what_the_c_files_do_not_know_is_left_to_python():
    problem = prose_cases.small()
    huge = problem._replace(values=(10**30, *problem.values[1:]))
    for odd in (
        huge,
        problem._replace(nodes=problem.nodes * 20),
        problem._replace(necessary=0),
        problem._replace(mode="sideways"),
        (),
        3,
    ):
        assert dag.compiled("judge_prose", odd, "Answer: 3.", prose_verifier.WEIGHTS, False) is None
        assert dag.compiled("structure_key", odd, True) is None
        assert dag.compiled("render_prose", odd, "") is None
        assert dag.compiled("judge_terse", odd, "#3", False) is None
    for text in ("\udc80", "x" * 70_000, "a = \u0663.", "Answer: 3\u00a0.", 3):
        assert dag.compiled("judge_prose", problem, text, prose_verifier.WEIGHTS, False) is None
    many = "".join(f"Define thing {number} as a; so a = 1. " for number in range(100))
    assert prose_cases.judged(problem, many, OPTIONS[1]).extra == 100


def test_without_a_compiler_python_does_it_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problem = prose_cases.small()
    before = prose_cases.judged(problem, prose_cases.FORWARD_GOLD, OPTIONS[1]), prose.structure(problem)
    monkeypatch.setenv("CC", "no-such-compiler")
    dag._library.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert dag.compiled("structure_key", problem, True) is None
        assert (prose_verifier.verify(problem, prose_cases.FORWARD_GOLD, OPTIONS[1]), prose.structure(problem)) == before
    finally:
        dag._library.cache_clear()
    assert "no-such-compiler" in caplog.text


@compiled
@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("so T = D + P = ", "so T = D + P = D + P + x - x = ", "none"),  # a later side that reads the unknown, too
        ("so T = D + P = ", "so T = D + P = D + P + k - k = ", "dependency"),
        ("as k; ", "as k; x = 1*x; ", "missing_node"),  # x is 1*x from there on, which is not the unknown itself
        ("as k; ", "as k; x = x; ", "none"),
        ("as T; so T = ", "as T; T = D + P = 7*x + 12 + 8*x + 12; so T = T = ", "none"),
    ],
)
def test_rare_steps_are_judged_as_by_python(old, new, error):
    text = prose_cases.LINE_GOLD.replace(old, new)
    assert text != prose_cases.LINE_GOLD
    assert prose_cases.judged(prose_cases.line(), text, OPTIONS[0]).error == error
