"""Matched budgets: refused while planning where specs tell, judged by the report where only records do."""

from pathlib import Path
from typing import Any

import pytest
import report_study as report
from hypothesis import given, strategies as st
from test_arms import configs, study

from interplay.core.model import UserError
from interplay.report.claim_spec import Claim
from interplay.report.spec import Match, ReportArm, budget_spread, matched_stages
from interplay.report.stats import budget, contrast, frame
from interplay.report.stats.frame import Results
from interplay.study.expand import plan_study

__all__ = ["configs"]

RL = "rl: {path: [base, rl], control: base}"
LONG = "long: {path: [base, rl], control: rl, set: {rl.steps: 8}}"
HARD = "hard: {path: [base, rl], control: rl, set: {rl.data: {hard: 1.0}}}"


def planned(configs: Path, match: str, *arms: str) -> None:
    study(configs, RL, *arms, more=f"match: {match}")
    plan_study(configs, "mine", "smoke")


@pytest.mark.parametrize("budget", ["tokens", "flops", "rollouts"])
def test_a_plan_with_equal_budgets_passes_and_one_with_others_is_refused_with_the_numbers(configs: Path, budget: str) -> None:
    match = f"{{budget: {budget}, accounting: paper, among: [rl, %s]}}"
    planned(configs, match % "hard", HARD)
    with pytest.raises(
        UserError, match=f"mine.yaml:[0-9]+: match.0?.*tolerance = 0.05: {budget} differ by 50.0%: rl [0-9,]+, lo"
    ):
        planned(configs, match % "long", LONG)
    planned(configs, match.replace("paper", "paper, tolerance: 0.5") % "long", LONG)


def test_what_the_arms_share_counts_only_where_stages_names_it(configs: Path) -> None:
    """Beside the base's 100,000 tokens, the difference between 20,480 and 40,960 hardly shows."""
    match = "[{budget: tokens, accounting: paper, tolerance: 0.2, among: [rl, long]%s}]"
    planned(configs, match % ", stages: [base, rl]", LONG)
    with pytest.raises(UserError, match=r"tokens differ by 50\.0%: rl 20,480, long 40,960"):
        planned(configs, match % "", LONG)


WRONG = {
    "an arm that is not there": ("{budget: tokens, among: [rl, logn]}", "among = 'logn': no such arm; did you mean 'long'"),
    "a stage that is not there": ("{budget: tokens, among: [rl, long], stages: [mid]}", "stages = 'mid': on the path of none"),
    "one arm": ("{budget: tokens, among: [rl]}", "two different arms"),
    "one arm twice": ("{budget: tokens, among: [rl, rl]}", "two different arms"),
    "an unknown budget": ("{budget: hours, among: [rl, long]}", "hours"),
    "a budget that nobody spends": (
        "{budget: rollouts, accounting: paper, among: [rl, long], stages: [base]}",
        "none of these arms spends any",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_match_is_refused_that_names(case: str, configs: Path) -> None:
    match, words = WRONG[case]
    with pytest.raises(UserError) as caught:
        planned(configs, match, LONG)
    assert words in str(caught.value)


def test_a_realised_match_is_left_to_the_report(configs: Path) -> None:
    planned(configs, "{budget: tokens, among: [rl, long]}", LONG)


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 10**15), min_size=1))
def test_the_spread_is_a_share_of_the_largest(numbers: dict[str, int]) -> None:
    assert 0 <= budget_spread(numbers) < 1
    assert (budget_spread(numbers) == 0) == (len(set(numbers.values())) == 1)
    assert budget_spread({**numbers, "most": 2 * max(numbers.values())}) >= 0.5


def test_shared_stages_are_left_out_of_what_counts() -> None:
    rows = [
        ReportArm.model_validate(report.arm("a", 0, ["base:pretrain:b", "rl:rl:ra"], "e")),
        ReportArm.model_validate(report.arm("c", 0, ["base:pretrain:b", "mid:midtrain:m", "rl:rl:rc"], "f")),
        ReportArm.model_validate(report.arm("other", 0, ["base:pretrain:x"], "g")),
    ]
    match = Match(budget="tokens", among=["a", "c"])
    assert digests(match, rows) == {"a": ["ra"], "c": ["m", "rc"]}
    assert digests(match.model_copy(update={"stages": ["base", "rl"]}), rows) == {"a": ["b", "ra"], "c": ["b", "rc"]}
    rows[0] = rows[0].model_copy(update={"path": [rows[0].path[0].model_copy(update={"step": 3}), rows[0].path[1]]})
    assert digests(match, rows) == {"a": ["b", "ra"], "c": ["b", "m", "rc"]}, "another checkpoint of the base is not shared"


def digests(match: Match, rows: list[ReportArm]) -> dict[str, list[str]]:
    return {arm: [stage.digest for stage in stages] for arm, stages in matched_stages(match, rows).items()}


# -- judged from the records -------------------------------------------------------------------------------------------------

SEEDS = 3
RL_SPEC = {
    "steps": 4,
    "prompts_per_step": 5,
    "minibatches": 1,
    "reward": {"name": "outcome"},
    "max_completion_length": 30,
    "method": {"allocation": {"num_generations": 2}, "loss": {"num_iterations": 1, "beta": 0.0}},
}


def results(root: Path, gold_tokens: list[int], match: dict[str, Any], without: str = "") -> Results:
    """`rl` trains on 900 completion and 2 * 100 / 2 prompt tokens at each seed, `gold` on the given numbers of tokens."""
    inputs, arms = {"b": report.write_record(root, "b", "pretrain", {"tokens": 5000}, {"tokens": 5000, "parameters": 10})}, []
    for seed, tokens in enumerate(gold_tokens):
        made = {"completions": 40, "completion_tokens": 900, "prompt_tokens": 200}
        inputs[f"r{seed}"] = report.write_record(root, f"r{seed}", "rl", RL_SPEC, made, {"init": "b"})
        gold = {"tokens": tokens, "parameters": 10}
        inputs[f"g{seed}"] = report.write_record(root, f"g{seed}", "sft", {"tokens": 1000}, gold, {"init": "b"})
        for arm, kind, model in (("rl", "rl", "r"), ("gold", "sft", "g")):
            inputs[f"e{model}{seed}"] = report.write_evaluation(root, f"e{model}{seed}", {4: [9] * 20}, n=16)
            path = ["base:pretrain:b", f"{arm}:{kind}:{model}{seed}"]
            arms.append(report.arm(arm, seed, path, f"e{model}{seed}"))
    inputs.pop(without, None)
    return frame.read_results(report.spec(arms, match=[{"among": ["rl", "gold"], **match}]), inputs)


CLAIM = Claim.model_validate(
    {
        "says": "gold is no worse",
        "test": {"difference": "strict_pass@1", "band": "edge", "arm": "gold", "against": "rl", "at_least": -0.5},
    }
)


def test_arms_within_tolerance_are_matched_and_their_claims_judged(tmp_path: Path) -> None:
    """The means over seeds count: 1,000 and 970 differ by 3 %."""
    found = results(tmp_path, [940, 970, 1000], {"budget": "tokens"})
    (judged,) = budget.judge_all(found)
    assert judged.spent == {"rl": {0: 1000, 1: 1000, 2: 1000}, "gold": {0: 940, 1: 970, 2: 1000}}
    assert judged.means == {"rl": 1000, "gold": 970}
    assert judged.spread == pytest.approx(0.03)
    assert judged.verdict == "matched"
    assert contrast.judge_claim(found, CLAIM).verdict == "indicated"


def test_a_claim_that_compares_arms_of_a_failed_match_is_not_judged_and_says_why(tmp_path: Path) -> None:
    found = results(tmp_path, [800, 800, 800], {"budget": "tokens"})
    judged = contrast.judge_claim(found, CLAIM)
    assert judged.verdict == "not judged"
    assert judged.reason == "budgets not matched: realised tokens differ by 20.0%, 5.0% allowed: rl 1,000, gold 800"
    alone = Claim.model_validate(
        {"says": "so", "test": {"value": "strict_pass@1", "band": "edge", "arm": "rl", "within": [0.0, 0.9]}}
    )
    assert contrast.judge_claim(found, alone).verdict == "indicated", "it compares nothing"


def test_flops_charge_sampling_and_rollouts_only_rl(tmp_path: Path) -> None:
    flops, rollouts = (
        budget.judge_match(results(tmp_path / name, [1000] * SEEDS, {"budget": name, **more}), match)
        for name, more in (("flops", {"tolerance": 0.5}), ("rollouts", {}))
        for match in [Match(budget=name, among=["rl", "gold"], tolerance=0.5)]
    )
    assert flops.means == {"rl": 10 * (6 * 1000 + 2 * 1000), "gold": 10 * 6 * 1000}
    assert flops.verdict == "matched"
    assert rollouts.means == {"rl": 40, "gold": 0}
    assert rollouts.verdict == "not matched"


def test_paper_accounting_shows_the_planned_numbers(tmp_path: Path) -> None:
    found = results(tmp_path, [800] * SEEDS, {"budget": "tokens", "accounting": "paper", "tolerance": 0.6})
    assert budget.judge_all(found)[0].means == {"rl": 5 * 40 * 30 / 3, "gold": 1000}


def test_a_path_that_goes_on_from_a_checkpoint_is_charged_up_to_there(tmp_path: Path) -> None:
    spec = {"tokens": 1000, "batch_tokens": 100}
    inputs = {
        "long": report.write_record(tmp_path, "long", "pretrain", spec, {"tokens": 1040, "steps": 16, "parameters": 10}),
        "short": report.write_record(tmp_path, "short", "pretrain", {**spec, "tokens": 250}, {"tokens": 260, "parameters": 10}),
    }
    arms = [report.arm("a", 0, ["base:pretrain:long"], "e"), report.arm("b", 0, ["base:pretrain:short"], "f")]
    arms[0]["path"][0]["step"] = 4
    for accounting, expected in (("realised", {"a": 260, "b": 260}), ("paper", {"a": 400, "b": 250})):
        match = {"budget": "tokens", "accounting": accounting, "among": ["a", "b"], "tolerance": 0.5}
        assert budget.judge_all(frame.read_results(report.spec(arms, match=[match]), inputs))[0].means == expected


def test_an_arm_without_its_records_is_named_and_decides_nothing(tmp_path: Path) -> None:
    found = results(tmp_path, [800] * SEEDS, {"budget": "tokens"}, without="g1")
    (judged,) = budget.judge_all(found)
    assert judged.spent["gold"] == {0: 800, 1: None, 2: 800}
    assert (judged.verdict, judged.reason) == ("not judged", "realised tokens; not known of gold")
    assert budget.budget_obstacle(found, CLAIM.test) == ""


def test_budgets_are_plain_json(tmp_path: Path) -> None:
    (item,) = budget.as_json(budget.judge_all(results(tmp_path, [800] * SEEDS, {"budget": "tokens"})))
    assert item["spent"]["gold"] == {"0": 800, "1": 800, "2": 800}
    assert item["match"]["among"] == ["rl", "gold"]
