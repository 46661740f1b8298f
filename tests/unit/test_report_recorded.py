"""Claims on what runs record of themselves."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import report_study as study
from pydantic import ValidationError

from interplay.report.claim_spec import Claim, Test as Asserted
from interplay.report.stats import contrast, frame
from interplay.report.stats.frame import Results
from interplay.report.write import answers, headline

PLAIN, BOLD = [0.30, 0.32, 0.34], [0.50, 0.55, 0.54]
"""Entropy at the end of three runs; the differences are .20, .23, .20: .21 [.167, .253]."""


def results(
    root: Path,
    plain: list[float] = PLAIN,
    bold: list[float] = BOLD,
    shared: bool = False,
    key: str = "entropy_last",
    more: Mapping[str, float] = {},
) -> Results:
    inputs: dict[str, Path] = {"e": study.write_evaluation(root, "e", {4: [2] * 20}, n=16)}
    arms = []
    for seed in range(3):
        for name, values in (("plain", plain), ("bold", bold)):
            run = f"{name[0]}{0 if shared else seed}"
            if run not in inputs:
                inputs[run] = study.write_record(root, run, "rl", {}, {key: values[seed], "steps": 4, **more})
            arms.append(study.arm(name, seed, [f"base:pretrain:m{seed}", f"rl:rl:{run}"], "e"))
    return frame.read_results(study.spec(arms), inputs)


def judge(found: Results, **test: Any) -> contrast.JudgedClaim:
    return contrast.judge_claim(found, Claim.model_validate({"says": "so", "test": {"recorded": "rl", **test}}))


DIFFERENCE = {"difference": "entropy_last", "arm": "bold", "against": "plain"}


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [({"at_least": 0.1}, "supported"), ({"at_least": 0.2}, "no information"), ({"at_most": 0.1}, "refuted")],
)
def test_a_difference_is_paired_by_seed(tmp_path: Path, bound: dict[str, float], verdict: str) -> None:
    judged = judge(results(tmp_path), **DIFFERENCE, **bound)
    assert judged.verdict == verdict
    assert judged.estimate.value == pytest.approx(0.21)
    assert (judged.estimate.low, judged.estimate.high) == (pytest.approx(0.16697, abs=1e-5), pytest.approx(0.25303, abs=1e-5))
    assert judged.estimate.digests == ("b0", "p0", "b1", "p1", "b2", "p2")


def test_one_number_of_a_record_less_another_is_how_far_a_run_moved(tmp_path: Path) -> None:
    found = results(tmp_path, more={"entropy_first": 0.2})
    judged = judge(found, value="entropy_last - entropy_first", arm="bold", at_least=0.2)
    assert (judged.verdict, judged.estimate.value) == ("supported", pytest.approx(0.33))  # .30, .35, .34
    assert judged.estimate.high - judged.estimate.low == pytest.approx(2 * 4.3027 * 0.026458 / 3**0.5, abs=1e-4)
    both = judge(found, difference="entropy_last - entropy_first", arm="bold", against="plain", at_least=0.1)
    assert both.estimate.value == pytest.approx(0.21)
    gone = judge(found, value="entropy_last - entropy_frst", arm="bold", at_least=0.2)
    assert "has no 'entropy_frst'; did you mean" in gone.reason


def test_a_share_that_falls_has_an_interval_below_0(tmp_path: Path) -> None:
    found = results(tmp_path, bold=[0.1, 0.3, 0.2], key="reward_last", more={"reward_first": 0.5})
    judged = judge(found, value="reward_last - reward_first", arm="bold", at_most=0.0)
    assert judged.estimate.value == pytest.approx(-0.3)
    assert judged.estimate.low == pytest.approx(-0.3 - 4.3027 * 0.1 / 3**0.5, abs=1e-4)


def test_a_value_may_lie_anywhere_and_is_told_as_it_is(tmp_path: Path) -> None:
    found = results(tmp_path, plain=[30, 32, 34])
    judged = judge(found, value="entropy_last", arm="plain", within=[20, 40])
    assert judged.verdict == "supported"
    (shown,) = headline.forest_rows(answers.Answer(found, [judged], {}, {}, [], {}))
    assert (shown["number"], shown["claimed"], shown["n"]) == ("32.000", "claimed 20 to 40", "3 runs")
    assert shown["place"] == "entropy_last of stage rl, plain"


def test_what_no_record_tells_is_not_judged_and_says_why(tmp_path: Path) -> None:
    judged = judge(results(tmp_path), **{**DIFFERENCE, "difference": "entropy_lst"}, at_least=0.1)
    assert judged.verdict == "not judged"
    assert "the record of rl b0 has no 'entropy_lst'; did you mean" in judged.reason


def test_the_picture_of_what_has_no_bounds_is_marked_where_its_numbers_are(tmp_path: Path) -> None:
    claims = ({"value": "entropy_last", "at_most": 0.6}, {"value": "entropy_last - entropy_first", "at_least": -0.6})
    found = results(tmp_path, more={"entropy_first": 0.7})
    marks = []
    for test in claims:
        judged = judge(found, arm="bold", **test)
        (shown,) = headline.forest_rows(answers.Answer(found, [judged], {}, {}, [], {}))
        labels = re.findall(r'<text x="([0-9.]+)"[^>]*>([^<]+)</text>', shown["picture"])
        marks.append({text.replace("−", "-"): float(x) for x, text in labels})
        dot = float(re.search(r'cx="([0-9.]+)"', shown["picture"])[1])
        (x, low), (y, high) = sorted((x, float(text)) for text, x in marks[-1].items())
        assert dot == pytest.approx(x + (judged.estimate.value - low) / (high - low) * (y - x), abs=0.2)
    assert [sorted(map(float, one)) for one in marks] == [[0.0, 0.6], [-0.6, 0.0]]


def test_one_run_for_all_seeds_has_no_interval(tmp_path: Path) -> None:
    judged = judge(results(tmp_path, shared=True), **DIFFERENCE, at_least=0.1)
    assert (judged.verdict, judged.reason) == ("not judged", "missing: one run for all seeds")


def test_swapped_arms_turn_the_sign(tmp_path: Path) -> None:
    swapped = judge(results(tmp_path), difference="entropy_last", arm="plain", against="bold", at_least=0.1)
    assert swapped.verdict == "refuted"
    assert swapped.estimate.value == pytest.approx(-0.21)


@pytest.mark.parametrize("test", [{"recorded": "rl", "band": "edge"}, {}])
def test_a_claim_is_of_a_band_or_of_a_record(test: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="give either band or recorded"):
        Claim.model_validate({"says": "so", "test": {"value": "strict_pass@1", "arm": "a", "within": [0, 1], **test}})


def test_a_value_may_be_claimed_on_one_side_alone() -> None:
    for bound in ({"at_least": 0.5}, {"at_most": 0.5}, {"within": [0.5, 1.0]}):
        Asserted.model_validate({"value": "strict_pass@1", "arm": "a", "band": "id", **bound})
    given = {"value": "strict_pass@1", "arm": "a", "band": "id"}
    for bound, says in (
        ({}, "value takes one of within"),
        ({"at_least": 0.1, "at_most": 0.5}, "value takes one of within"),
        ({"at_least": 0.5, "against": "b"}, "no against"),
        ({"at_least": -0.5}, r"at_least = -0.5 must lie in \[0, 1\]"),
        ({"at_most": 50}, r"at_most = 50 must lie in \[0, 1\]"),
    ):
        with pytest.raises(ValueError, match=says):
            Asserted.model_validate({**given, **bound})


def test_a_share_of_nearly_all_stands_although_its_interval_reaches_beyond_one(tmp_path: Path) -> None:
    """0.98, 1, 0.94: .973 [.897, 1.049]."""
    found = results(tmp_path, plain=[0.98, 1.0, 0.94])
    assert judge(found, value="entropy_last", arm="plain", at_least=0.5).verdict == "supported"
    judged = judge(found, value="entropy_last", arm="plain", within=[0.5, 1.0])
    assert (judged.verdict, judged.estimate.high) == ("no information", pytest.approx(1.049, abs=1e-3))
    (shown,) = headline.forest_rows(answers.Answer(found, [judged], {}, {}, [], {}))
    assert shown["claimed"] == "claimed 0.5 to 1"


@pytest.mark.parametrize("key", ["truncated_last", "frac_all_fail_first", "eval_accuracy", "drawn/edge"])
def test_the_interval_of_a_recorded_share_ends_at_0_and_1_and_that_of_a_difference_at_minus_1(tmp_path: Path, key: str) -> None:
    """0.98, 1, 0.94: Student's interval is [.897, 1.049]; less 0, 0, 0.9 it is .673 [-.62, 1.97]. Other keys keep theirs."""
    found = results(tmp_path, plain=[0.98, 1.0, 0.94], bold=[0.0, 0.0, 0.9], key=key)
    judged = judge(found, value=key, arm="plain", within=[0.5, 1.0])
    assert (judged.verdict, judged.estimate.high) == ("supported", 1.0)
    assert judged.estimate.low == pytest.approx(0.897, abs=1e-3)
    apart = judge(found, difference=key, arm="plain", against="bold", at_least=-1.0).estimate
    assert (apart.high, apart.low < 0.0) == (1.0, True)
    other = results(tmp_path / "other", plain=[0.98, 1.0, 0.94], key="reward_last")
    assert judge(other, value="reward_last", arm="plain", at_least=0.5).estimate.high == pytest.approx(1.049, abs=1e-3)


def test_runs_that_all_record_one_number_bound_a_share_by_their_number_and_nothing_else(tmp_path: Path) -> None:
    """Three equal runs of a share leave up to 1 - 0.025^(1/3) = .708 of others possible; of other numbers the spread is unknown."""
    found = results(tmp_path / "share", plain=[0.0] * 3, bold=[0.0] * 3, key="truncated_last")
    judged = judge(found, value="truncated_last", arm="bold", at_most=0.05)
    assert (judged.verdict, judged.estimate.high) == ("no information", pytest.approx(0.708, abs=1e-3))
    apart = judge(found, difference="truncated_last", arm="bold", against="plain", at_least=0.0)
    assert (apart.verdict, apart.estimate.low) == ("no information", pytest.approx(-0.708, abs=1e-3))
    other = judge(results(tmp_path / "other", plain=[2.0] * 3), value="entropy_last", arm="plain", at_most=3.0)
    assert (other.verdict, other.reason) == ("not judged", "missing: all runs have the same entropy_last: no spread")


def test_a_positive_control_whose_runs_all_record_the_same_as_the_others_fails(tmp_path: Path) -> None:
    """Reward that is 0 at each run of both arms is no improvement of at least 0."""
    premise = {"arm": "bold", "against": "plain", "recorded": "rl", "value": "reward_last"}
    found = results(tmp_path, plain=[0.0] * 3, bold=[0.0] * 3, key="reward_last")
    for seed in range(3):
        found.records[f"b{seed}"]["metrics"]["entropy_last"] = BOLD[seed]
    test = {"value": "entropy_last", "recorded": "rl", "arm": "bold", "at_most": 1.0}
    asked = Claim.model_validate({"says": "so", "test": test, "requires": [{"improves": premise}]})
    judged = contrast.judge_claim(found, asked)
    assert judged.verdict == "not tested"
    assert "reward_last of bold on rl minus plain is missing: all runs have the same reward_last: no spread" in judged.reason
