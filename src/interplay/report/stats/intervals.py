"""Intervals and power: pure functions of arrays of numbers. Each interval is 95 % and two-sided."""

import functools

import numpy as np
from scipy import optimize, stats

LEVEL = 0.05
POWER = 0.8
DRAWS = 2000
BLOCK = 2_000_000
"""Indices drawn at once: bounds memory at 16 MB."""


def bootstrap(
    values: np.ndarray, support: tuple[float, float], draws: int = DRAWS, telling: int | None = None
) -> tuple[float, float]:
    """Percentile interval of the mean of `values` (P,) when its P prompts are redrawn with replacement, cut to the `support`.

    The random stream is fixed, so equal values give equal bytes. Where all prompts agree, redrawing shows no spread although a
    rare prompt may differ: with v the common value and u = 1 - 0.025^(1/P) the largest share of differing prompts that the
    sample does not rule out, the mean lies between (1 - u) v + u * low and (1 - u) v + u * high of the `support`. For v = 0
    that is Clopper and Pearson's bound (Biometrika 26, 1934). `telling`: how many prompts count as P there, where not all bear on
    the mean. A support without an end allows no such bound: NaN."""
    size = len(values) if telling is None else telling
    if np.ptp(values) == 0:
        if not np.isfinite(support).all():
            return np.nan, np.nan
        unseen = 1 - (LEVEL / 2) ** (1 / size)
        return (1 - unseen) * values[0] + unseen * support[0], (1 - unseen) * values[0] + unseen * support[1]
    low, high = np.quantile(_redrawn(values, draws), [LEVEL / 2, 1 - LEVEL / 2])
    return max(float(low), support[0]), min(float(high), support[1])


def _redrawn(values: np.ndarray, draws: int) -> np.ndarray:
    """Means (draws,) of `values` (P,) redrawn with replacement, by a fixed random stream."""
    random, size = np.random.default_rng(0), len(values)
    rows = max(1, BLOCK // size)
    means = [values[random.integers(size, size=(min(rows, draws - done), size))].mean(1) for done in range(0, draws, rows)]
    return np.concatenate(means)


def bootstrap_p(values: np.ndarray, draws: int = DRAWS) -> float:
    """Two-sided p-value of "the mean of the differences `values` (P,) is 0", by `bootstrap`: the level at which 0 is an end of
    its percentile interval, counting 0 itself as one draw more, so that it is never 0. Where all prompts agree on v, the level
    at which the bound of `bootstrap` over [-1, 1] reaches 0: 2 (1 + |v|)^-P, at most 1."""
    if np.ptp(values) == 0:
        return float(min(1.0, 2 * (1 + abs(values[0])) ** -len(values)))
    means = _redrawn(values, draws)
    least = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return min(1.0, 2 * (1 + least) / (draws + 1))


def t_p(values: np.ndarray) -> float:
    """Two-sided p-value of "the mean of `values` (m,) is 0", m >= 2, by Student's t. Of differences paired by seed this is the
    paired t test."""
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values (m,) adjusted for m tests (Holm, Scandinavian Journal of Statistics 6, 1979): the i-th smallest times m - i + 1,
    no smaller than any before it, at most 1."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    adjusted = np.empty_like(stepped)
    adjusted[order] = stepped
    return adjusted


def t_interval(values: np.ndarray, support: tuple[float, float]) -> tuple[float, float]:
    """Student's interval of the mean of `values` (m,), m >= 2, cut to the `support` that the mean cannot leave.

    Of differences paired by seed this is the paired t interval."""
    half = stats.t.ppf(1 - LEVEL / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return max(float(values.mean() - half), support[0]), min(float(values.mean() + half), support[1])


def detectable(deviation: float, pairs: int) -> float:
    """Minimum detectable effect: the true mean difference that the two-sided paired t test at 5 % finds with 80 % power in
    `pairs` pairs whose differences have standard `deviation`.

    It is shift * deviation / sqrt(pairs), where P(T > t_crit) = 0.8 for T noncentral t with pairs - 1 degrees of freedom and
    noncentrality `shift`. (A rejection on the wrong side then has a chance below 1e-6 and is left out.)"""
    return _shift(pairs) * deviation / float(np.sqrt(pairs))


def detectable_of(half: float, pairs: int) -> float:
    """`detectable` from half the width of the paired t interval."""
    return _shift(pairs) * half / float(stats.t.ppf(1 - LEVEL / 2, pairs - 1))


@functools.cache
def _shift(pairs: int) -> float:
    critical = stats.t.ppf(1 - LEVEL / 2, pairs - 1)
    return float(optimize.brentq(lambda shift: stats.nct.sf(critical, pairs - 1, shift) - POWER, 0.0, 4 * critical))
