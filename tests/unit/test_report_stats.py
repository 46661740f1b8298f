import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from interplay.report.stats import estimate as report

UNIT = (0.0, 1.0)
fractions = st.lists(st.integers(0, 8), min_size=1, max_size=40).map(lambda counts: np.array(counts) / 8)


@given(fractions)
def test_a_bootstrap_interval_holds_the_estimate_and_stays_in_the_support(values: np.ndarray) -> None:
    low, high = report.bootstrap_interval(values, UNIT, draws=400)
    assert 0 <= low <= values.mean() + 1e-12
    assert values.mean() - 1e-12 <= high <= 1


def test_a_bootstrap_interval_equals_that_of_the_normal_limit_for_many_prompts() -> None:
    values = np.random.default_rng(1).binomial(1, 0.3, 4000).astype(float)
    half = 1.96 * values.std() / np.sqrt(4000)
    assert report.bootstrap_interval(values, UNIT) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)


def test_a_bootstrap_is_the_same_each_time_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random(50)
    whole = report.bootstrap_interval(values, UNIT)
    assert report.bootstrap_interval(values, UNIT) == whole
    monkeypatch.setattr(report, "BLOCK", 7 * 50)
    assert report.bootstrap_interval(values, UNIT) == pytest.approx(whole)


@pytest.mark.parametrize("size", [1, 20, 200])
def test_prompts_that_all_fail_or_all_pass_have_clopper_and_pearsons_bound(size: int) -> None:
    none = stats.binomtest(0, size).proportion_ci(0.95, method="exact")
    every = stats.binomtest(size, size).proportion_ci(0.95, method="exact")
    assert report.bootstrap_interval(np.zeros(size), UNIT) == pytest.approx((none.low, none.high))
    assert report.bootstrap_interval(np.ones(size), UNIT) == pytest.approx((every.low, every.high))


def test_prompts_whose_differences_are_all_zero_leave_room_on_both_sides() -> None:
    low, high = report.bootstrap_interval(np.zeros(200), (-1.0, 1.0))
    assert (low, high) == pytest.approx((-0.018275, 0.018275), abs=1e-6)


def test_the_t_interval_is_scipys_and_is_cut_to_the_support() -> None:
    values = np.array([0.31, 0.35, 0.42])
    oracle = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert report.t_interval(values, UNIT) == pytest.approx((oracle.low, oracle.high))
    assert report.t_interval(np.array([0.0, 0.1]), UNIT) == pytest.approx((0.0, 0.05 + 12.7062 * 0.05), abs=1e-4)


def test_the_paired_t_interval_of_three_seeds_covers_the_truth_95_times_in_100() -> None:
    random = np.random.default_rng(3)
    truth, hits, trials = 0.1, 0, 4000
    for _ in range(trials):
        base = random.normal(0.3, 0.1, 3)
        arm = base + random.normal(truth, 0.05, 3)
        low, high = report.t_interval(arm - base, (-1.0, 1.0))
        hits += low <= truth <= high
    # Binomial standard error 0.0034.
    assert hits / trials == pytest.approx(0.95, abs=0.012)


def test_the_minimum_detectable_effect_agrees_with_published_sample_sizes() -> None:
    # G*Power 3.1, two-sided paired t test, 5 %, 80 % power: dz = 0.5 needs 34 pairs (power 0.8078), dz = 1 needs 10 (0.8031).
    assert report.minimum_detectable(1.0, 34) < 0.5 < report.minimum_detectable(1.0, 33)
    assert report.minimum_detectable(1.0, 10) < 1.0 < report.minimum_detectable(1.0, 9)


@pytest.mark.parametrize("pairs", [2, 3, 5])
def test_a_paired_t_test_finds_the_minimum_detectable_effect_8_times_in_10(pairs: int) -> None:
    effect = report.minimum_detectable(0.05, pairs)
    samples = np.random.default_rng(4).normal(effect, 0.05, (20_000, pairs))
    found = stats.ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.01)
