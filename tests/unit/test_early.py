"""Early warnings of a run, and curves as text."""

import pytest
from conftest import ROOT

from interplay.results import progress


def lines(**series: list[float]) -> list[dict[str, float]]:
    length = max(map(len, series.values()))
    return [{"step": n + 1, **{key: values[n] for key, values in series.items() if n < len(values)}} for n in range(length)]


def names(run: list[dict[str, float]]) -> list[str]:
    return [one.name for one in progress.warnings_of(run)]


def test_a_run_that_goes_well_has_no_warning() -> None:
    steady = [0.5, 0.4, 0.6, 0.5] * 5
    assert names(lines(reward=steady, effective_ratio=steady, entropy=steady, truncated=[0.1] * 20, kl=[0.01] * 20)) == []
    assert names([]) == []


def test_rewards_that_are_equal_for_five_steps_are_named_with_their_number_and_mean() -> None:
    run = lines(effective_ratio=[0.5] + [0.0] * 7, reward=[0.2] + [0.0] * 7)
    (one,) = progress.warnings_of(run)
    assert one.name == "equal rewards"
    assert one.text.startswith("all rewards of each group equal for 7 steps (mean 0)")
    (other,) = progress.warnings_of([{"step": 0, "loss": 1.0}, *run[1:]])
    assert other.text.startswith("all rewards of each group equal for 7 steps"), "a line without rewards is no such step"
    assert names(run[:5]) == [], "four steps are no warning yet"
    assert names([*run, {"step": 9, "effective_ratio": 0.1}]) == [], "nor is a run that has found a difference again"


@pytest.mark.parametrize(
    ("series", "name"),
    [
        ({"entropy": [1.0] * 5 + [0.09] * 5}, "entropy collapse"),
        ({"truncated": [0.1] * 3 + [0.6] * 5}, "truncation"),
        ({"kl": [0.02] * 10 + [0.9] * 5}, "KL blow-up"),
    ],
)
def test_a_threshold_that_is_passed_is_a_warning_and_one_that_is_not_is_none(series: dict[str, list[float]], name: str) -> None:
    assert names(lines(**series)) == [name]
    assert (
        names(lines(**{key: [values[0] + 0.1 * (value - values[0]) for value in values] for key, values in series.items()})) == []
    )


def test_a_small_kl_may_grow_many_times() -> None:
    assert names(lines(kl=[0.0001] * 10 + [0.01] * 5)) == []


def test_what_is_late_says_how_much() -> None:
    assert progress.over_time(left=600, planned=200)[0].text.startswith("what is left takes 3.0 times as long")
    assert progress.over_time(left=300, planned=200) == []
    assert progress.over_time(left=30, planned=10) == [], "some seconds do not matter"
    assert progress.over_time(left=600, planned=0) == [], "nothing is known"


def test_a_curve_is_drawn_from_its_least_to_its_greatest() -> None:
    assert progress.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == progress.BARS
    assert progress.sparkline(list(range(160)), 8) == progress.BARS
    assert progress.sparkline([]) == ""
    assert progress.sparkline([3.0, 3.0]) == "▅▅"


def test_the_guide_has_every_threshold() -> None:
    guide = (ROOT / "docs/guide/results.md").read_text()
    for check in progress.CHECKS:
        assert f"| {check.name} | {check.threshold} | {check.advice} |" in guide
    assert f"over {progress.OVER_TIME:g} times as long" in guide
