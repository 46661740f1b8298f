"""Knowledge conflicts (KnowPO): what a context says against what is known by heart, which completion of a pair is rejected, and
what the judge calls either error."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from bios_cases import SMALL
from pydantic import ValidationError

from interplay.data.curate import StepInputs, StepResult
from interplay.data.steps.conflict import make_conflict_pairs
from interplay.data.steps.context_spec import ConflictPairs
from interplay.tasks.facts.chains import Fact
from interplay.tasks.facts.people import Problem, world
from interplay.tasks.facts.questions import BIOS, CONFLICTS, Conflict, dumps_conflict, sentences
from interplay.tasks.facts.spec import Bios
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row

TASK = Bios(**SMALL, level="parametric")
KNOWN, TOLD, BESIDE = Fact("Ada", "boss", "Eva"), Fact("Ada", "boss", "Dov"), Fact("Bea", "boss", "Cid")
AGAINST = Conflict(Problem("parametric", "terse", 0, (TOLD,), (BESIDE, TOLD)), KNOWN)
ASIDE = Conflict(Problem("parametric", "terse", 0, (KNOWN,), (BESIDE,)), KNOWN)


def rows(size: int, task: Bios = TASK) -> list[Row]:
    return [row(task, index) for index in range(size)]


def row(task: Bios, index: int) -> Row:
    problem = BIOS.generate(task, 0, index, 1)
    prompt, solution, answer = BIOS.render(problem, task)
    return Row(
        *(0, index, "mem", 1, problem.mode, prompt, solution, answer, BIOS.dumps(problem)),
        *(BIOS.structure(problem), "bios", f"{'a' * 12}:{index}"),
    )


def made(size: int = 40, seed: int = 0, task: Bios = TASK, **keys: object) -> StepResult:
    return make_conflict_pairs(ConflictPairs.model_validate(keys), rows(size, task), StepInputs(0, {}, seed))


def error(one: Row, completion: str) -> str:
    return CONFLICTS.verify(CONFLICTS.loads(one.graph), completion, Verify()).error


@pytest.mark.parametrize(
    ("conflict", "said", "expected"),
    [
        (AGAINST, "Dov", "none"),
        (AGAINST, "Eva", "ignorance"),
        (AGAINST, "Cid", "over_inclusion"),
        (AGAINST, "Fay", "wrong_hop"),
        (ASIDE, "Eva", "none"),
        (ASIDE, "Cid", "over_inclusion"),
        (ASIDE, "Dov", "wrong_hop"),
    ],
)
def test_the_judge_says_whose_a_wrong_answer_is_by_hand(conflict: Conflict, said: str, expected: str) -> None:
    verdict = CONFLICTS.verify(conflict, f"Ada's boss is {said}. \\boxed{{{said}}}", Verify())
    assert (verdict.error, verdict.strict, verdict.answer) == (expected, expected == "none", expected == "none")
    assert CONFLICTS.verify(conflict, "Ada's boss is Eva.", Verify()).error == "truncated"
    assert CONFLICTS.loads(dumps_conflict(conflict)) == conflict


def test_a_pair_prefers_the_context_that_says_it_and_what_is_known_where_none_does() -> None:
    """In the prompt's own words: who reads it with the context first and then with the world gets the chosen answer."""
    facts = world(TASK).facts
    found = made().rows
    assert len(found) == 40
    for one in found:
        asked = re.search(r"(?:Who|What) is the (\w+) of (\w+)\?\n$", one.prompt)
        assert asked
        about = (asked[2], asked[1])
        shown = {fact[:2]: fact.object for fact in sentences(one.prompt[: asked.start()]) or []}
        assert one.answer == shown.get(about, facts[about])
        assert (one.mode == "contradicting") == (about in shown)
        assert shown.get(about) != facts[about]
        assert one.solution == f"{about[0]}'s {about[1]} is {one.answer}. \\boxed{{{one.answer}}}"
        assert error(one, one.solution) == "none"
        assert error(one, one.rejected) in ("ignorance", "over_inclusion")
        ignored = error(one, one.rejected) == "ignorance"
        assert one.rejected == one.solution.replace(f" {one.answer}.", f" {said(one)}.").replace(
            f"{{{one.answer}", f"{{{said(one)}"
        )
        assert said(one) == facts[about] if ignored else said(one) in shown.values()


def said(one: Row) -> str:
    return one.rejected.rpartition("{")[2].removesuffix("}")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {"ignorance": 10, "over_inclusion": 10, "irrelevant": 20}),
        ({"contradicting": 1.0, "ignorance": 1.0}, {"ignorance": 40, "over_inclusion": 0, "irrelevant": 0}),
        ({"contradicting": 0.0}, {"ignorance": 0, "over_inclusion": 0, "irrelevant": 40}),
        ({"contradicting": 0.75, "ignorance": 0.2}, {"ignorance": 6, "over_inclusion": 24, "irrelevant": 10}),
    ],
)
def test_the_shares_of_the_errors_are_what_was_asked_for(keys: dict, expected: dict[str, int]) -> None:
    result = made(**keys)
    assert result.counts == {**expected, "not_by_heart": 0, "no_context": 0}
    found = Counter("irrelevant" if one.mode == "irrelevant" else error(one, one.rejected) for one in result.rows)
    assert found == Counter(expected)


def test_contexts_have_as_many_facts_as_asked_and_lead_with_what_looks_like_the_answer() -> None:
    for one in made(context=[3, 3]).rows:
        problem, known = CONFLICTS.loads(one.graph)
        assert len(problem.context) == len({fact[:2] for fact in problem.context}) == 3
        beside = [fact for fact in problem.context if fact[:2] != known[:2]]
        assert any(fact.relation == known.relation for fact in beside)
        assert any(fact.subject == known.subject for fact in beside)
        assert not {fact.object for fact in beside} & {known.object, problem.answer}


def test_without_rewriting_only_answers_by_heart_are_bare() -> None:
    for one in made(rewrite=False).rows:
        known = CONFLICTS.loads(one.graph).known.object
        for text, answer in ((one.solution, one.answer), (one.rejected, said(one))):
            assert (text == f"\\boxed{{{answer}}}") == (answer == known)
            assert text.endswith(f"\\boxed{{{answer}}}")


def test_other_questions_are_dropped_and_so_are_those_for_which_there_are_no_names() -> None:
    iid = BIOS.generate(Bios(**SMALL, level="iid"), 0, 0, 2)
    other = replace(row(TASK, 0), graph=BIOS.dumps(iid), mode="iid")
    assert make_conflict_pairs(ConflictPairs(), [other], StepInputs(0, {}, 0)) == StepResult(
        [], {"ignorance": 0, "over_inclusion": 0, "irrelevant": 0, "not_by_heart": 1, "no_context": 0}
    )
    assert made(1).counts["no_context"] == 1, "one fact alone has nobody else's"


def test_a_row_draws_its_context_by_itself_and_from_the_seed() -> None:
    keys = {"contradicting": 0.0}
    all_, backwards = made(20, **keys).rows, make_conflict_pairs(ConflictPairs(**keys), rows(20)[::-1], StepInputs(0, {}, 0)).rows
    assert all_ == backwards[::-1]
    assert all_ != made(20, seed=1, **keys).rows
    again = made(200).rows
    facts = {one.key: CONFLICTS.loads(one.graph).known for one in again}
    assert all(facts[one.key] == CONFLICTS.loads(one.graph).known for one in again), "another fact, another key"
    assert len({one.prompt for one in again}) > 190 > len(facts), "contexts are new; up to names, some are alike"
    assert {one.key for one in all_}.isdisjoint(row.key for row in rows(20))


def test_prose_stays_prose() -> None:
    task = TASK.model_copy(update={"surface": "prose"})
    assert any(re.search(r"\. The \w+ of \w+ is |is the \w+ of \w+\.", one.prompt) for one in made(task=task).rows)


@pytest.mark.parametrize("keys", [{"context": [3, 2]}, {"context": [1, 2]}, {"context": [0, 2]}, {"contradicting": 1.5}])
def test_what_cannot_be_is_refused(keys: dict) -> None:
    with pytest.raises(ValidationError):
        ConflictPairs.model_validate(keys)
    assert ConflictPairs(context=(1, 2), ignorance=1.0).context == (1, 2)
