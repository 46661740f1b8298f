"""Solutions in units (MinD): attempts that err, what is judged of several attempts, accuracy by cap, and the price on attempts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import world
import yaml
from conftest import ROOT, copy_configs
from pydantic import ValidationError
from reform_cases import INTEGERS, TASK, rows
from rl_cases import batch_of, now_of
from test_intervention import GOLD, NODES, PROBLEM, WHOLE

from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.data import sets, trajectory
from interplay.data.curate import StepInputs
from interplay.data.steps.context_spec import Units
from interplay.data.steps.reformulate import make_units
from interplay.data.steps.spec import CurateSpec
from interplay.data.trajectory import Segment
from interplay.evaluate import sampling
from interplay.evaluate.scores import judge_caps
from interplay.evaluate.spec import EvaluateSpec
from interplay.report import claim_spec
from interplay.report.metric_spec import check_metric, lower_is_better, measure_of
from interplay.report.shown_spec import SHARE
from interplay.report.stats import frame
from interplay.rl.advantages import advantages
from interplay.rl.shaping import shape_rewards
from interplay.rl.spec import Method
from interplay.study.expand import plan_study
from interplay.tasks.op_dag import dag
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import render
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.op_dag.terse_variants import with_wrong_operation
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, last_unit, split_units

SLIPPED = "cb*2,bd+a,d3,a1|a1,d3,b3+1=5,c5*2=10#10"
APART = Verify(separator="?")


def row(problem: dag.Problem = PROBLEM, solution: str = GOLD, index: int = 0) -> Row:
    answer = str(problem.answer)
    origin = f"{'a' * 12}:{index}"
    return Row(0, index, "id", 4, "forward", "p|", solution, answer, OP_DAG.dumps(problem), "ab", "op_dag", origin)


def scripted(*numbers: int) -> Iterator[int]:
    return iter(numbers)


# --- attempts that err ---


def test_a_slip_is_carried_on_to_the_answer_by_hand() -> None:
    draws = scripted(0, 0)  # the first of b and c, one residue further
    slipped = with_wrong_operation(PROBLEM, draws.__next__)
    assert slipped is not None
    assert slipped.values == (1, 3, 5, 10)
    assert render(slipped, TASK).solution == SLIPPED
    verdict = OP_DAG.verify(PROBLEM, SLIPPED, Verify())
    assert (verdict.strict, verdict.answer, verdict.error, verdict.value_mismatches) == (False, False, "value", 2)


def test_a_slip_that_does_not_reach_the_answer_is_drawn_again() -> None:
    # Modulo 4: b = 3 + 1 = 0 and c = 2 b = 0. With b = 2, c is 0 as before; then c itself slips, to 3.
    problem = PROBLEM._replace(modulus=4, values=(1, 3, 0, 0))
    slipped = with_wrong_operation(problem, scripted(0, 1, 1, 2).__next__)
    assert slipped is not None
    assert slipped.values == (1, 3, 0, 3)


def test_without_a_modulus_no_value_falls_below_zero() -> None:
    # b = 4 - 9 is refused; then b = 4 - 4 = 0, so that c is 0.
    slipped = with_wrong_operation(PROBLEM._replace(modulus=None), scripted(0, 0, 0, 5).__next__)
    assert slipped is not None
    assert slipped.values == (1, 3, 0, 0)


def test_where_nothing_is_worked_out_nobody_slips() -> None:
    problem = PROBLEM._replace(nodes=NODES[:1], necessary=1, values=(1,), slopes=(0,), order=(0,), filler=(0, 0))
    assert with_wrong_operation(problem, scripted().__next__) is None
    made = make_units(Units(shares=[0, 1], wrong=1.0), [row(problem, "a1|a1#1")], StepInputs(0, {}, 0)).rows[0]
    first, second = made.solution.split("?")
    assert second == "a1|a1#1"
    assert first.startswith("a1|a1#")
    assert not OP_DAG.verify(problem, first, Verify()).answer


# --- the step ---


@pytest.mark.parametrize("task", [TASK, INTEGERS, TASK.model_copy(update={"trace": "leaf_first"})])
def test_the_last_unit_is_the_gold_solution_and_those_before_it_err_or_repeat_it(task: OpDag) -> None:
    given = rows(200, task)
    made = make_units(Units(shares=[0.25, 0.25, 0.5], wrong=0.5), given, StepInputs(0, {}, 0))
    tried, erred = 0, 0
    for one, before in zip(made.rows, given, strict=True):
        *attempts, gold = one.solution.split("?")
        assert gold == before.solution
        assert replace(one, solution=before.solution, transforms=()) == before
        for attempt in attempts:
            tried, wrong = tried + 1, not sets.judge_completion(Verify(), before, attempt).answer
            assert wrong or attempt == gold
            assert not wrong or set(attempt.rpartition("#")[2]) <= set("0123456789")
            erred += wrong
        assert sets.judge_completion(APART, one, one.solution).strict
    numbers = [len(one.solution.split("?")) for one in made.rows]
    assert made.counts == {
        **{f"units_{n}": numbers.count(n) for n in (1, 2, 3)},
        "wrong": erred,
        "redundant": tried - erred,
    }
    # Two standard deviations of 200 draws with p = 1/2 are 14, of some 250 attempts 16.
    assert abs(numbers.count(3) - 100) < 20
    assert abs(erred - tried / 2) < 25


def test_the_shares_say_it_all_at_their_ends() -> None:
    given = rows(20)
    always = make_units(Units(shares=[0, 0, 1], wrong=0.0), given, StepInputs(0, {}, 0)).rows
    assert [one.solution for one in always] == ["?".join([before.solution] * 3) for before in given]
    never = make_units(Units(shares=[1.0], wrong=1.0), given, StepInputs(0, {}, 0)).rows
    assert [one.solution for one in never] == [before.solution for before in given]


def test_a_row_is_the_same_whatever_stands_around_it_and_others_are_dropped() -> None:
    given, spec = rows(12), Units(wrong=1.0)
    made = {one.origin: one for one in make_units(spec, given, StepInputs(0, {}, 0)).rows}
    backwards = {one.origin: one for one in make_units(spec, given[::-1], StepInputs(3, {}, 0)).rows}
    assert made == backwards
    assert made != {one.origin: one for one in make_units(spec, given, StepInputs(0, {}, 1)).rows}
    reverse = rows(3, TASK.model_copy(update={"modes": {"reverse": 1.0}}))
    other = make_units(spec, [*reverse, replace(given[0], family="qa")], StepInputs(0, {}, 0))
    assert (other.rows, other.counts) == ([], {"reverse": 3, "not_op_dag": 1})


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"shares": [0.5, 0.4]}, r"units.shares\n.*shares that sum to 1; these sum to 0.9"),
        ({"shares": []}, r"units.shares\n.*sum to 1; these sum to 0"),
        ({"separator": ""}, "at least 1 character"),
    ],
)
def test_what_makes_no_units_is_refused(step: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "units", **step}]})


def test_a_step_that_writes_from_the_gold_cannot_follow() -> None:
    with pytest.raises(ValidationError, match="which would undo units"):
        CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "units"}, {"name": "subproblems"}]})


# --- what is judged ---


def test_units_are_what_stands_between_separators() -> None:
    assert split_units("a?b?", "?") == ["a", "b", ""]
    assert split_units("a?b", "") == ["a?b"]
    assert (last_unit("a?b", "?"), last_unit("a", "?"), last_unit("a?", "?")) == ("b", "a", "")


@pytest.mark.parametrize(
    ("completion", "strict", "answer"),
    [
        (GOLD, True, True),
        (f"{SLIPPED}?{GOLD}", True, True),
        (f"{GOLD}?{SLIPPED}", False, False),
        (f"{GOLD}?c8#8", False, True),
        (f"{GOLD}?", False, False),  # a unit that was begun
        (f"?{WHOLE}", True, True),
    ],
)
def test_the_last_unit_is_judged(completion: str, strict: bool, answer: bool) -> None:
    verdict = sets.judge_completion(APART, row(), completion)
    assert (verdict.strict, verdict.answer) == (strict, answer)


def test_without_a_separator_a_completion_is_one_attempt() -> None:
    assert not sets.judge_completion(Verify(), row(), f"{GOLD}?{GOLD}").answer


# --- accuracy by cap ---


def test_samples_are_judged_as_if_they_had_been_stopped_by_hand() -> None:
    texts = [f"{SLIPPED}?{GOLD}", f"{GOLD}?c8#8?{SLIPPED}", GOLD]
    spec = EvaluateSpec(unit_caps=2, verify=APART)
    table = judge_caps(pa.table({"sample": [0, 1, 2]}), [row()] * 3, texts, spec)
    assert table.to_pydict() == {
        "sample": [0, 1, 2],
        "units": [2, 3, 1],
        "strict_cap@1": [False, True, True],
        "answer_cap@1": [False, True, True],
        "strict_cap@2": [True, False, True],
        "answer_cap@2": [True, True, True],
    }


def test_the_stage_tells_them_of_samples_prompts_and_bands_and_only_where_asked(tmp_path: Path) -> None:
    inputs = {"model": world.model(tmp_path, "m" * 12), "data": world.problem_set(tmp_path, "d" * 12, 13, split="test")}
    plain = EvaluateSpec(num_samples=4, max_completion_length=24, verify=APART)
    spec = plain.model_copy(update={"unit_caps": 3})
    told, bare = (sampling.evaluate_model(one, inputs, tmp_path / name, Run()) for one, name in ((spec, "a"), (plain, "b")))
    samples, prompts = (pq.read_table(tmp_path / "a" / f"{name}.parquet").to_pandas() for name in ("samples", "prompts"))
    other = pq.read_table(tmp_path / "b/samples.parquet").to_pandas()
    assert samples[other.columns].equals(other)
    units = samples["completion"].str.count(r"\?") + 1
    assert units.max() > 1, "the model writes separators"
    assert samples["units"].tolist() == units.tolist()
    assert prompts["units"].tolist() == units.groupby(samples["index"], sort=False).sum().tolist()
    assert told["all"]["units"] == pytest.approx(units.mean(), rel=1e-6)
    few = samples[units <= 3]
    assert few["strict_cap@3"].tolist() == few["strict"].tolist()
    assert few["answer_cap@3"].tolist() == few["answer"].tolist()
    for name in ("strict_cap@1", "answer_cap@2"):
        assert told["all"][name] == pytest.approx(samples[name].mean(), abs=1e-6)
        assert prompts[name].sum() == samples[name].sum()
    assert {key: value for key, value in told["all"].items() if key in bare["all"]} == bare["all"]
    assert "units" not in bare["all"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"unit_caps": 2}, "no separator of units; write verify.separator"),
        ({"unit_caps": 2, "verify": {"separator": "?"}, "episode": {"name": "retry"}}, "remove the episode"),
    ],
)
def test_caps_without_units_are_refused(spec: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EvaluateSpec.model_validate(spec)


def test_reports_read_them_as_shares_and_units_as_a_number_by_hand() -> None:
    block = pd.DataFrame({"n": [4, 4], "strict": [1, 2], "answer": [1, 2], "score": [1.0, 2.0]})
    block = block.assign(**{"strict_cap@1": [3, 1], "units": [6, 8]})
    assert frame.prompt_scores(block, "strict_cap@1").tolist() == [0.75, 0.25]
    assert frame.prompt_scores(block, "units").tolist() == [1.5, 2.0]
    assert frame.unavailable(block, "strict_cap@1") == ""
    assert frame.unavailable(block, "strict_cap@2") == "judges no stop after unit 2 (unit_caps: 2)"
    both = frame.merge_blocks([block, block.assign(units=[4, 4])])
    assert (both["units"].tolist(), both["strict_cap@1"].tolist()) == ([10, 12], [6, 2])
    assert measure_of("strict_cap@1") is SHARE
    assert measure_of("units").shown(1.5) == "1.50"
    assert lower_is_better("units")
    assert not lower_is_better("strict_cap@1")
    with pytest.raises(ValueError, match="is not a metric"):
        check_metric("strict_cap@0")


def test_a_claim_on_units_may_go_beyond_one_and_one_on_shares_may_not() -> None:
    claim_spec.Test(value="units", band="id", arm="a", within=(1.2, 3.0))
    claim_spec.Test(difference="units", band="id", arm="a", against="b", at_most=-1.5)
    with pytest.raises(ValidationError, match="fractions, not percent"):
        claim_spec.Test(value="strict_cap@1", band="id", arm="a", within=(1.2, 3.0))


def test_a_table_of_caps_that_no_evaluation_judges_is_refused_when_planned(tmp_path: Path) -> None:
    text = (ROOT / "configs/study/methods/mind.yaml").read_text()
    assert text.count("unit_caps: 3") == 1
    copy_configs(tmp_path)
    (tmp_path / "configs/study/methods/mind.yaml").write_text(text.replace("unit_caps: 3", "unit_caps: 2"))
    with pytest.raises(UserError, match=r"judges no stop after unit 3; give stages\.eval `unit_caps: 3`"):
        plan_study(tmp_path / "configs", "methods/mind", "smoke")


# --- the price ---


def test_mind_pays_right_completions_less_for_every_further_attempt_by_hand() -> None:
    method = Method.model_validate(yaml.safe_load((ROOT / "configs/method/mind.yaml").read_text()))
    batch = batch_of([1, 1, 0, 0], [0] * 4, completions=["x#1", "x#2?y#1?y#1", "x#3?y#2", "x"])
    now = now_of(shaping=method.shaping)
    paid = shape_rewards(batch, now)
    assert paid.rewards.tolist() == pytest.approx([1.0, 0.8, 0.0, 0.0])
    # Mean 0.45, deviations 0.55, 0.35, -0.45, -0.45; their squares sum to 0.83, by n - 1 = 3 the deviation is 0.52599.
    expected = np.array([0.55, 0.35, -0.45, -0.45]) / np.sqrt(0.83 / 3)
    assert advantages(method.advantage, paid, now)[:, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-3)


def test_turns_calls_and_answers_by_turn_are_counted_by_hand() -> None:
    said = [Segment("action", "calc(1)", 0, tool="calc"), Segment("observation", "1", 0), Segment("action", "2", 1, answer=True)]
    given_up = [Segment("action", "2", 0, answer=True), Segment("observation", "?", 0), Segment("action", "3", 1, answer=False)]
    table = trajectory.with_segments(pa.table({"sample": [0, 1, 2]}), [said, given_up, said[2:]], False)
    assert trajectory.count_turns(table, 2).drop(["sample", "segments"]).to_pydict() == {
        "turns": [2, 2, 1],
        "calls": [1, 0, 0],
        "answer_turn@1": [False, True, True],
        "answer_turn@2": [True, False, True],
    }


def test_what_is_revised_is_a_difference_that_may_be_negative(tmp_path: Path) -> None:
    inputs = {"model": world.model(tmp_path, "m" * 12), "data": world.problem_set(tmp_path, "d" * 12, 13, split="test")}
    retry = {"name": "retry", "max_turns": 2, "always": True, "feedback": "?"}
    spec = EvaluateSpec.model_validate({"num_samples": 4, "max_completion_length": 24, "episode": retry, "turns": True})
    told = sampling.evaluate_model(spec, inputs, tmp_path / "a", Run())
    prompts = pq.read_table(tmp_path / "a/prompts.parquet").to_pandas()
    assert told["all"]["answer_turn@2"] == told["turns"]["answer"]["2"]
    revised = (prompts["answer_turn@2"] - prompts["answer_turn@1"]) / 4
    assert frame.prompt_scores(prompts, "revised_turn@2").tolist() == revised.tolist()
    assert frame.unavailable(prompts, "answer_turn@3") == "has no turn 3 to judge (turns: true)"
    assert (
        parse_model(
            claim_spec.Test, {"value": "revised_turn@2", "band": "b", "arm": "rl", "at_most": -0.1}, KeyPlace("s")
        ).at_most
        == -0.1
    )
    with pytest.raises(UserError, match="one completion has one; add an episode"):
        parse_model(EvaluateSpec, {"turns": True}, KeyPlace("s"))
