"""Behaviours of traces, counted by hand."""

import pytest
from multihop_cases import item

from interplay.tasks import multihop, verdict
from interplay.tasks.family import Item, Paragraph
from interplay.tasks.op_dag import dag_growth, terse, terse_verifier
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.verdict import Statement, count_behaviours

TASK = OpDag(modulus=5, operators="+", letters=10, distractors=(0, 0))


def counts(statements: list[Statement]) -> tuple[int, ...]:
    return tuple(count_behaviours(statements).values())


def test_a_value_stated_again_is_a_recheck_and_another_one_a_backtrack() -> None:
    said = [("x", None, False), ("x", "3", True), ("y", "4", False), ("x", "3", True), ("y", "5", False), ("y", "5", False)]
    assert count_behaviours(Statement(*one) for one in said) == {"plans": 1, "retrievals": 1, "rechecks": 2, "backtracks": 1}
    assert counts([]) == (0, 0, 0, 0)


@pytest.fixture(scope="module")
def chain() -> tuple[object, str]:
    """The problem `a3`, `f = a + 3`: a node that the prompt gives, and one that is worked out from it."""
    for index in range(2000):
        problem = dag_growth.generate(TASK, 0, index, 2)
        if problem.mode == "forward" and problem.necessary == 2:
            return problem, terse.render(problem, TASK)[1]
    raise AssertionError("no such problem")


def test_steps_of_op_dag(chain: tuple[object, str]) -> None:
    problem, gold = chain
    unfolded, _, rest = gold.partition("|")
    worked, _, answer = rest.partition("#")
    given, last = worked.split(",")
    said = lambda text: counts(terse_verifier.statements(problem, text))  # noqa: E731
    assert said(gold) == (2, 1, 0, 0), "two steps unfold, and one of two values is the prompt's"
    assert said(f"{worked}#{answer}") == (0, 1, 0, 0)
    assert said(f"{unfolded}|{given},{last},{given}#{answer}") == (2, 1, 1, 0)
    other = str((int(last[-1]) + 1) % 5)
    assert said(f"{given},{last[:-1]}{other},{last}#{answer}") == (0, 1, 0, 1), "amended"
    assert said(f"{given},{last[:-1]}{other},{last},{last}#{answer}") == (0, 1, 1, 1), "and checked"
    assert said("") == said("#") == said("???,|||") == (0, 0, 0, 0)


def test_links_and_facts_of_a_chain_of_keys() -> None:
    """Two chains of two keys to the questions of two items."""
    asked, other = item(0), item(3)
    chains = (multihop.Chain(("K7", "M2"), asked.question), multihop.Chain(("P1", "Q5"), other.question))
    problem = multihop.Problem("keychain", asked, asked.paragraphs, (0, 1), chains)
    first, second = asked.steps
    said = lambda text: counts(multihop.statements(problem, text))  # noqa: E731
    gold = multihop.render(problem, "terse").solution
    assert gold == f"K7>M2: {first} {second} \\boxed{{Lima}}".replace("Lima", asked.answers[0])
    assert said(gold) == (0, 4, 0, 0), "two links and two facts"
    assert said(multihop.render(problem, "published").solution)[0] == 1, "the question, repeated"
    assert said(f"K7>Q5. No: K7>M2: {first} {second} \\boxed{{x}}") == (0, 4, 1, 1), (
        "a wrong link, amended after its head was named again"
    )
    wrong = first.replace("boss is", "boss is not")
    assert said(f"K7>M2: {wrong} {first} {first} {second} \\boxed{{x}}") == (0, 4, 1, 1)
    assert said(f"\\boxed{{x}} K7>M2: {first}") == (0, 0, 0, 0), "what follows the answer is no part of the trace"


def test_facts_of_questions_without_documents() -> None:
    asked = Item("i", "Who is it?", ("Cid",), (Paragraph("", ()),), (), 2, "", ("Ada's boss is Bea.", "Bea's boss is Cid."))
    found = verdict.fact_statements(
        asked.steps, asked.question, "Who is it? Ada's boss is Bea. Ada's boss is Bea. Cid was here. \\boxed{Cid}"
    )
    assert counts(found) == (1, 1, 1, 0)
