"""What completions are worth that should state a chain of facts: worked by hand, and as properties."""

import pytest
from bios_cases import CHAIN, LOOKUP, places, tasks
from hypothesis import given, strategies as st

from interplay.tasks.facts import people
from interplay.tasks.facts.chains import Fact
from interplay.tasks.facts.questions import BIOS, step
from interplay.tasks.spec import Verify

FREE, PENALISED = Verify(), Verify(extra_nodes="penalised")
ONE, TWO, END = "Ada's mother is Bea.", "Bea's boss is Cid.", "\\boxed{Cid}"


@pytest.mark.parametrize(
    ("completion", "error", "answer", "score"),
    [
        (f"{ONE} {TWO} {END}", "none", True, 1.0),
        (f"The mother of Ada is Bea.\nCid is the boss of Bea. {END} and more", "none", True, 1.0),
        (f"{ONE} {TWO} {ONE} {END}", "none", True, 1.0),
        (f"{ONE} {TWO} \\boxed{{ Cid }}", "none", True, 1.0),
        (f"{ONE} {TWO}", "truncated", False, 1.0),
        (f"{ONE} {TWO} #Cid", "truncated", False, 0.0),
        ("", "truncated", False, 0.0),
        (f"Let us see. {ONE} {TWO} {END}", "parse", True, 0.0),
        (f"{ONE} {TWO} {END}{END}", "parse", True, 0.0),
        (f"{ONE} Bea's boss is Dov. \\boxed{{Dov}}", "wrong_hop", False, 0.5),
        (f"{ONE} Bea's boss is Dov. {TWO} {END}", "wrong_hop", True, 0.5),
        (f"Ada's mother is Dov. Dov's boss is Ada. {END}", "wrong_hop", True, 0.0),
        (f"{ONE} {TWO} Dov's boss is Bea. {END}", "wrong_hop", True, 1.0),
        (f"{TWO} {END}", "missing_hop", True, 0.5),
        (END, "missing_hop", True, 0.0),
        (f"Ada's boss is Bea. {TWO} {END}", "missing_hop", True, 0.5),
        (f"{TWO} {ONE} {END}", "order", True, 0.5),
        (f"{ONE} {TWO} \\boxed{{}}", "answer", False, 1.0),
        (f"{ONE} {TWO} \\boxed{{cid}}", "answer", False, 1.0),
        (f"{ONE} {TWO} \\boxed{{Bea Cid Dov}}", "answer", False, 1.0),
        (f"{ONE} {TWO} Dov's boss is Ada. {END}", "none", True, 1.0),
        (f"{ONE} {TWO} Zed's coach is Ada. {END}", "none", True, 1.0),
    ],
)
def test_verdicts_worked_by_hand(completion: str, error: str, answer: bool, score: float) -> None:
    verdict = BIOS.verify(CHAIN, completion, FREE)
    assert (verdict.error, verdict.answer, verdict.score, verdict.strict) == (error, answer, score, error == "none")


def test_facts_beside_the_chain_forfeit_strictness_where_they_are_penalised() -> None:
    verdict = BIOS.verify(CHAIN, f"{ONE} {TWO} Dov's boss is Ada. {END}", PENALISED)
    assert (verdict.error, verdict.extra, verdict.answer) == ("extra", 1, True)
    assert BIOS.verify(CHAIN, f"{ONE} {TWO} {END}", PENALISED).strict


def test_counts_stand_in_the_verdict_for_rewards_that_read_the_steps() -> None:
    verdict = BIOS.verify(CHAIN, f"Ada's mother is Dov. {TWO} {END}", FREE)
    assert (verdict.value_mismatches, verdict.missing, verdict.dependency_mismatches, verdict.nodes) == (1, 0, 0, 2)
    verdict = BIOS.verify(CHAIN, f"{TWO} {END}", FREE)
    assert (verdict.value_mismatches, verdict.missing, verdict.dependency_mismatches) == (0, 1, 0)
    verdict = BIOS.verify(CHAIN, f"{TWO} {ONE} {END}", FREE)
    assert (verdict.value_mismatches, verdict.missing, verdict.dependency_mismatches) == (0, 0, 1)


def test_stating_every_possible_fact_or_boxing_every_name_pays_nothing() -> None:
    names = ["Ada", "Bea", "Cid", "Dov"]
    everything = " ".join(f"Bea's boss is {name}." for name in names)
    assert BIOS.verify(LOOKUP, f"{everything} {END}", FREE).error == "wrong_hop"
    assert BIOS.verify(LOOKUP, f"{TWO} \\boxed{{{' '.join(names)}}}", FREE).answer is False
    assert BIOS.verify(LOOKUP, f"{TWO} " + END * 20, FREE)[:2] == (False, False)


@pytest.mark.parametrize(
    ("completion", "error"),
    [("Rome.", "none"), ("Rome", "truncated"), ("Oslo.", "answer"), ("Rome. Oslo.", "parse"), ("", "truncated"), (".", "answer")],
)
def test_a_statement_is_its_object_and_a_stop(completion: str, error: str) -> None:
    problem = people.Problem("statement", "terse", 0, (Fact("Ada", "city", "Rome"),), ())
    verdict = BIOS.verify(problem, completion, FREE)
    assert (verdict.error, verdict.strict, verdict.answer) == (error, error == "none", error in ("none", "parse"))


@given(st.data())
def test_a_gold_solution_with_one_hop_wrong_or_left_out_or_another_answer_is_never_strict(data: st.DataObject) -> None:
    task = data.draw(
        tasks(data.draw(st.sampled_from(["contextual", "parametric", "iid", "zero_shot", "in_context", "by_heart"])))
    )
    problem = BIOS.generate(task, *data.draw(places(task)))
    steps = [step(hop) for hop in problem.hops]
    place = data.draw(st.integers(0, len(steps) - 1))
    box = f"\\boxed{{{problem.answer}}}"
    hop = problem.hops[place]
    spoilt = [*steps[:place], step(hop._replace(object="Nobody")), *steps[place + 1 :]]
    verdict = BIOS.verify(problem, " ".join([*spoilt, box]), FREE)
    assert (verdict.error, verdict.answer, verdict.value_mismatches) == ("wrong_hop", True, 1)
    assert verdict.score == pytest.approx(1 - 1 / problem.op)
    shorter = [*steps[:place], *steps[place + 1 :]]
    assert BIOS.verify(problem, " ".join([*shorter, box]), FREE).error == "missing_hop"
    wrong = BIOS.verify(problem, " ".join([*steps, "\\boxed{Nobody}"]), FREE)
    assert (wrong.error, wrong.answer, wrong.said) == ("answer", False, "Nobody")
    if problem.op > 1:
        assert BIOS.verify(problem, " ".join([*steps[::-1], box]), FREE).error == "order"


@given(st.text(alphabet="Ada Beaosmthr'{}\\.boxd#", max_size=80))
def test_any_text_gets_a_verdict(completion: str) -> None:
    verdict = BIOS.verify(CHAIN, completion, FREE)
    assert 0 <= verdict.score <= 1
    assert verdict.strict == (verdict.error == "none")
    assert verdict.answer >= verdict.strict
