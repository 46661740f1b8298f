"""Intervals, p-values and power against hand-worked numbers, scipy, and a likelihood that is maximised here."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import optimize, stats

from interplay.report.stats import intervals
from interplay.report.stats.intervals import Spread, crossed_spread, nested_spread

UNIT, SIGNED = (0.0, 1.0), (-1.0, 1.0)
counts = st.integers(1, 5).flatmap(
    lambda replicates: st.integers(1, 8).flatmap(
        lambda prompts: st.lists(st.integers(0, 8), min_size=replicates * prompts, max_size=replicates * prompts).map(
            lambda found: np.array(found, dtype=float).reshape(replicates, prompts) / 8
        )
    )
)
"""Scores (R, P) of 8 samples."""


def drawn(seed: int, replicates: int, prompts: int, base: float, prompt: float, noise: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (
        random.normal(0, base, (replicates, 1)) + random.normal(0, prompt, (1, prompts)) + random.normal(0, noise, (replicates, prompts))
    )  # fmt: skip


def test_the_parts_of_a_two_way_layout_are_those_worked_by_hand() -> None:
    """Scores 1 3, 3 5, 4 8: rows 2, 4, 6, columns 8/3, 16/3, all 4. Mean squares: rows 2 (4 + 0 + 4) / 2 = 8, columns 3 (16/9 +
    16/9) = 32/3, residuals 1/3, -1/3, 1/3, -1/3, -2/3, 2/3: 4/3 / 2 = 2/3. The mean varies by 8/6 + 32/18 - 2/18 = 3."""
    found = crossed_spread(np.array([[1.0, 3.0], [3.0, 5.0], [4.0, 8.0]]))
    assert (found.mean, found.replicates, found.prompts) == (4.0, 3, 2)
    assert (found.between, found.within) == pytest.approx((8 / 6, 32 / 18 - 2 / 18))
    assert found.error == pytest.approx(np.sqrt(3))
    assert found.freedom == pytest.approx(9 / ((8 / 6) ** 2 / 2 + (30 / 18) ** 2))


def test_the_standard_error_is_that_of_restricted_maximum_likelihood() -> None:
    """In a balanced layout whose components are above 0 the mean squares give the estimates of REML."""
    scores = drawn(1, 5, 12, 0.3, 0.4, 0.2)
    replicates, prompts = scores.shape
    rows = np.kron(np.eye(replicates), np.ones((prompts, 1)))
    columns = np.kron(np.ones((replicates, 1)), np.eye(prompts))
    ones, y = np.ones(scores.size), scores.ravel()

    def covariance(logs: np.ndarray) -> np.ndarray:
        of_row, of_column, noise = np.exp(logs)
        return of_row * rows @ rows.T + of_column * columns @ columns.T + noise * np.eye(scores.size)

    def deviance(logs: np.ndarray) -> float:
        solved = np.linalg.solve(covariance(logs), np.column_stack([ones, y]))
        information = ones @ solved[:, 0]
        mean = ones @ solved[:, 1] / information
        rest = y - mean
        return float(
            np.linalg.slogdet(covariance(logs))[1] + np.log(information) + rest @ np.linalg.solve(covariance(logs), rest)
        )

    best = optimize.minimize(deviance, np.log([0.1, 0.1, 0.1]), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    error = 1 / np.sqrt(ones @ np.linalg.solve(covariance(best.x), ones))
    assert crossed_spread(scores).error == pytest.approx(error, rel=1e-4)


def test_without_prompts_of_their_own_effect_it_is_students_interval_over_replicates() -> None:
    means = np.array([0.31, 0.35, 0.42, 0.28])
    scores = np.repeat(means[:, None], 7, axis=1)
    oracle = stats.ttest_1samp(means, 0.0)
    found = crossed_spread(scores)
    assert found.interval(SIGNED) == pytest.approx(tuple(oracle.confidence_interval(0.95)))
    assert found.p_value() == pytest.approx(oracle.pvalue)


def test_one_replicate_is_students_interval_over_its_prompts() -> None:
    values = np.random.default_rng(2).normal(0.1, 0.3, 40)
    oracle = stats.ttest_1samp(values, 0.0)
    found = crossed_spread(values[None])
    assert found.interval(SIGNED) == pytest.approx(tuple(oracle.confidence_interval(0.95)), rel=1e-6)
    assert found.p_value() == pytest.approx(oracle.pvalue, rel=1e-6)


def test_prompts_of_their_own_are_in_the_spread_of_the_means() -> None:
    groups = [np.array([0.1, 0.4, 0.2]), np.array([0.5, 0.7]), np.array([0.3, 0.9, 0.4, 0.2])]
    oracle = stats.ttest_1samp([of.mean() for of in groups], 0.0).confidence_interval(0.95)
    assert nested_spread(groups).interval(SIGNED) == pytest.approx((oracle.low, oracle.high))


@given(counts)
def test_an_interval_holds_the_mean_stays_in_the_support_and_is_no_narrower_than_students(scores: np.ndarray) -> None:
    found = crossed_spread(scores)
    for support, values in ((UNIT, scores), (SIGNED, scores - 0.5)):
        low, high = crossed_spread(values).interval(support)
        assert support[0] <= low <= values.mean() + 1e-9
        assert values.mean() - 1e-9 <= high <= support[1]
    if len(scores) > 1 and np.ptp(scores.mean(1)) > 0:
        low, high = intervals.t_interval(scores.mean(1), (-np.inf, np.inf))
        assert found.half >= (high - low) / 2 - 1e-12


@given(counts, st.randoms())
def test_the_order_of_replicates_and_prompts_is_of_no_matter(scores: np.ndarray, random) -> None:
    rows, columns = (random.sample(range(size), size) for size in scores.shape)
    assert crossed_spread(scores[rows][:, columns]).interval(UNIT) == pytest.approx(
        crossed_spread(scores).interval(UNIT), abs=1e-9
    )


@given(counts, st.floats(-0.4, 0.4))
def test_p_is_below_5_percent_where_the_interval_leaves_zero_out(scores: np.ndarray, shift: float) -> None:
    found = crossed_spread(scores - 0.5 + shift)
    low, high = found.mean - found.half, found.mean + found.half
    if found.error > 1e-9 and min(abs(low), abs(high)) > 1e-9:
        assert (found.p_value() < 0.05) == (low > 0 or high < 0)


@pytest.mark.parametrize("size", [1, 20, 200])
def test_prompts_that_all_fail_or_all_pass_have_clopper_and_pearsons_bound(size: int) -> None:
    none = stats.binomtest(0, size).proportion_ci(0.95, method="exact")
    every = stats.binomtest(size, size).proportion_ci(0.95, method="exact")
    assert crossed_spread(np.zeros((1, size))).interval(UNIT) == pytest.approx((none.low, none.high))
    assert crossed_spread(np.ones((3, size))).interval(UNIT) == pytest.approx((every.low, every.high))
    assert crossed_spread(np.zeros((3, 200))).interval(SIGNED) == pytest.approx((-0.018275, 0.018275), abs=1e-6)
    assert np.isnan(crossed_spread(np.zeros((3, 5))).interval((-np.inf, np.inf))).all()


def test_independent_draws_have_nearly_clopper_and_pearsons_interval() -> None:
    """One sample of each of many prompts: the effective number of draws is theirs."""
    values = np.random.default_rng(3).binomial(1, 0.03, 2000).astype(float)
    exact = stats.binomtest(int(values.sum()), 2000).proportion_ci(0.95, method="exact")
    assert crossed_spread(values[None]).interval(UNIT) == pytest.approx((exact.low, exact.high), rel=2e-3)


def test_prompts_that_all_agree_have_the_p_at_which_their_bound_reaches_zero() -> None:
    assert crossed_spread(np.zeros((3, 50))).p_value() == 1.0
    p = crossed_spread(np.full((1, 5), 0.5)).p_value()
    unseen = 1 - (p / 2) ** (1 / 5)
    assert (1 - unseen) * 0.5 - unseen == pytest.approx(0), "the lower end at level p"


def test_more_replicates_shrink_their_part_alone() -> None:
    found = Spread(0.1, 4, 50, between=0.04, within=0.01)
    assert found.of(16) == Spread(0.1, 16, 50, between=0.01, within=0.01)
    assert found.of(1000).half > stats.t.ppf(0.975, 49) * 0.1 > found.of(10**6).half * 0.99


def test_the_t_interval_is_scipys_and_is_cut_to_the_support() -> None:
    values = np.array([0.31, 0.35, 0.42])
    oracle = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert intervals.t_interval(values, UNIT) == pytest.approx((oracle.low, oracle.high))
    assert intervals.t_interval(np.array([0.0, 0.1]), UNIT) == pytest.approx((0.0, 0.05 + 12.7062 * 0.05), abs=1e-4)


def paired(deviation: float, pairs: int) -> Spread:
    """Of so many differences with this standard deviation, to which prompts add nothing."""
    return Spread(0.0, pairs, 50, between=deviation**2 / pairs, within=0.0)


def test_the_minimum_detectable_effect_agrees_with_published_sample_sizes() -> None:
    # G*Power 3.1, two-sided paired t test, 5 %, 80 % power: dz = 0.5 needs 34 pairs (power 0.8078), dz = 1 needs 10 (0.8031).
    assert paired(1.0, 34).detectable < 0.5 < paired(1.0, 33).detectable
    assert paired(1.0, 10).detectable < 1.0 < paired(1.0, 9).detectable


def test_power_agrees_with_published_values() -> None:
    # G*Power 3.1, two-sided paired t test at 5 %: dz = 0.5 with 34 pairs has power 0.8078, dz = 1 with 10 has 0.8031.
    assert paired(1.0, 34).power(0.5) == pytest.approx(0.8078, abs=2e-4)
    assert paired(1.0, 10).power(-1.0) == pytest.approx(0.8031, abs=2e-4)


@pytest.mark.parametrize("pairs", [2, 3, 5])
def test_a_paired_t_test_finds_the_minimum_detectable_effect_8_times_in_10(pairs: int) -> None:
    effect = paired(0.05, pairs).detectable
    samples = np.random.default_rng(4).normal(effect, 0.05, (20_000, pairs))
    found = stats.ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("replicates", "base", "prompt"), [(3, 0.1, 0.3), (6, 0.1, 0.1), (6, 0.02, 0.4), (12, 0.1, 0.3)])
def test_the_interval_covers_the_mean_of_any_base_and_any_prompt(replicates: int, base: float, prompt: float) -> None:
    """Where Student's over replicates, with the prompts held fixed, covers it in 60 to 90 of 100."""
    hits = 0
    for seed in range(600):
        low, high = crossed_spread(drawn(seed, replicates, 40, base, prompt, 0.3)).interval(SIGNED)
        hits += low <= 0 <= high
    assert 0.925 <= hits / 600 <= 0.985  # standard error 0.009
