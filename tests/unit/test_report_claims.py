from pathlib import Path

import pytest
import report_study as study
from pydantic import ValidationError

from interplay.report.spec import Claim
from interplay.report.stats import contrast, frame
from interplay.report.stats.frame import Results

LIFTED = [[9] * 20, [10] * 20, [11] * 20]
"""Strict counts of 16 samples on the 20 edge prompts at each seed: 56, 62.5 and 69 %, so +50 points [34, 66] on the base."""
BASE = [2] * 20
"""12.5 %."""


def results(
    root: Path, seeds: int = 3, lifted: list[list[int]] = LIFTED, shared: bool = True, before: list[int] = BASE
) -> Results:
    inputs = {}
    arms = []
    for seed in range(seeds):
        base = "b" if shared else f"b{seed}"
        if base not in inputs:
            inputs[base] = study.write_evaluation(root, base, {4: before}, n=16)
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", {4: lifted[seed]}, n=16)
        arms += [study.arm("base", seed, ["base:pretrain:m"], base), study.arm("rl", seed, ["rl:rl:m"], f"r{seed}")]
    return frame.read_results(study.spec(arms), inputs)


def judge(found: Results, **test: object) -> contrast.JudgedClaim:
    return contrast.judge_claim(found, Claim.model_validate({"says": "so", "test": {"band": "edge", **test}}))


DIFFERENCE = {"difference": "strict_pass@1", "arm": "rl", "against": "base"}


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        ({"at_least": 0.10}, "supported"),
        ({"at_least": 0.50}, "no information"),
        ({"at_least": 0.70}, "refuted"),
        ({"at_most": 0.70}, "supported"),
        ({"at_most": 0.50}, "no information"),
        ({"at_most": 0.10}, "refuted"),
    ],
)
def test_a_difference_is_judged_by_the_side_its_interval_lies_on(tmp_path: Path, bound: dict, verdict: str) -> None:
    judged = judge(results(tmp_path), **DIFFERENCE, **bound)
    assert judged.verdict == verdict
    assert "uncertain over 3 seeds, one base" in judged.reason


@pytest.mark.parametrize(
    ("within", "verdict"), [([0.3, 0.9], "supported"), ([0.6, 0.9], "no information"), ([0.0, 0.4], "refuted")]
)
def test_a_value_is_judged_by_whether_its_interval_lies_inside(tmp_path: Path, within: list[float], verdict: str) -> None:
    assert judge(results(tmp_path), value="strict_pass@1", arm="rl", within=within).verdict == verdict


def test_a_shared_base_is_judged_over_prompts_and_the_reason_says_so(tmp_path: Path) -> None:
    judged = judge(results(tmp_path), value="strict_pass@1", arm="base", within=[0.05, 0.5])
    assert judged.verdict == "supported"
    assert judged.reason.endswith("uncertain over 20 prompts (one model, shared by 3 seeds)")


def test_fewer_than_twenty_prompts_of_a_shared_base_are_not_judged(tmp_path: Path) -> None:
    judged = judge(results(tmp_path, before=BASE[1:]), value="strict_pass@1", arm="base", within=[0.05, 0.5])
    assert (judged.verdict, judged.reason) == ("not judged", "19 prompts, and a verdict over prompts needs 20")


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_are_not_judged_but_estimated(tmp_path: Path, seeds: int) -> None:
    judged = judge(results(tmp_path, seeds), **DIFFERENCE, at_least=0.1)
    assert judged.verdict == "not judged"
    assert judged.reason.startswith(f"{seeds} seed")
    assert "a verdict needs 3" in judged.reason
    assert judged.estimate.value == pytest.approx(0.4375 + (seeds - 1) / 32)


def test_two_models_behind_three_seeds_are_not_judged(tmp_path: Path) -> None:
    found = results(tmp_path)
    arms = [
        arm.model_copy(update={"evaluations": {"eval": "r0"}}) if arm.evaluations["eval"] == "r1" else arm
        for arm in found.spec.arms
    ]
    judged = judge(found._replace(spec=found.spec.model_copy(update={"arms": arms})), **DIFFERENCE, at_least=0.1)
    assert judged.verdict == "not judged"
    assert judged.reason == "3 seeds share 2 models, and a verdict over seeds needs 3"


def test_a_missing_evaluation_is_not_judged_and_named(tmp_path: Path) -> None:
    found = results(tmp_path)
    del found.prompts["r2"]
    judged = judge(found, **DIFFERENCE, at_least=0.1)
    assert judged.verdict == "not judged"
    assert judged.reason == "missing: evaluation r2 of rl at seed 2 is not there"


def test_bases_of_their_own_are_another_question_than_a_shared_base(tmp_path: Path) -> None:
    judged = judge(results(tmp_path, shared=False), **DIFFERENCE, at_least=0.1)
    assert judged.reason.endswith("uncertain over 3 seeds")


def test_no_gain_at_any_seed_supports_a_bound_only_as_tight_as_the_prompts_allow(tmp_path: Path) -> None:
    found = results(tmp_path, lifted=[BASE] * 3)
    assert judge(found, **DIFFERENCE, at_most=0.02).verdict == "no information", "20 prompts cannot rule out 2 points"
    assert judge(found, **DIFFERENCE, at_most=0.20).verdict == "supported"


def test_the_json_holds_the_test_the_verdict_and_the_estimate(tmp_path: Path) -> None:
    (entry,) = contrast.claims_json([judge(results(tmp_path), **DIFFERENCE, at_least=0.1)])
    assert entry["test"] == {**DIFFERENCE, "band": "edge", "at_least": 0.1}
    assert entry["verdict"] == "supported"
    assert entry["estimate"]["per_seed"] == [0.4375, 0.5, 0.5625]
    assert entry["estimate"]["digests"] == ["r0", "b", "r1", "r2"]


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ({"value": "strict_pass@1", "within": [80, 100]}, "within = .*fractions, not percent"),
        ({"value": "score", "within": [1.0, 0.8]}, "low <= high"),
        ({"value": "score", "within": [-0.1, 0.8]}, "0 <= low"),
        ({"difference": "strict_pass@1", "against": "base", "at_least": 10}, r"at_least = 10 must lie in \[-1, 1\]: fractions"),
        ({"difference": "strict_pass@1", "against": "base", "at_most": -5}, "at_most = -5 .*not percent"),
        ({"difference": "strict_pass@1", "against": "rl", "at_least": 0.1}, "against = 'rl' is the arm itself"),
    ],
)
def test_a_bound_that_no_metric_can_meet_or_miss_is_refused(bound: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Claim.model_validate({"says": "so", "test": {"band": "edge", "arm": "rl", **bound}})
