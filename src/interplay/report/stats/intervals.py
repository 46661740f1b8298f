"""Intervals, p-values and power: pure functions of arrays of numbers. Each interval is 95 % and two-sided.

The target of an estimate over replicates is the mean over any replicate of the recipe and any prompt of the distribution: score
of replicate i on prompt j = mean + a_i + b_j + e_ij, all three random (two-way crossed random effects; Cornfield and Tukey,
Annals of Mathematical Statistics 27, 1956).

A fight compares k contenders with one control on the same replicates: score of arm a = mean_a + r_i + p_j + (rp)_ij + (ar)_ai +
(ap)_aj + e_aij, with one variance of (ar), of (ap) and of e for all arms. Differences to the control drop what arms share, have
equal variances, estimated with k (R - 1) and k (P - 1) degrees of freedom, and correlate at 1/2, so that the quantiles are
Dunnett's (Journal of the American Statistical Association 50, 1955; blocks: Hsu, Multiple Comparisons, 1996, chapter 7)."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special, stats

LEVEL = 0.05
POWER = 0.8
FINEST = 1e-6
"""Least level, of one early look of several, that the integral of `largest_exceeds` is exact enough for."""
AGREE = 1e-12
"""Means of replicates that differ by less are equal but for rounding."""
Support = tuple[float, float]
"""What a mean cannot leave."""


class Spread(NamedTuple):
    """A mean over replicates and prompts, and what it is uncertain over."""

    mean: float
    replicates: int
    prompts: int
    """Those that bear on the mean."""
    between: float
    """Variance of the mean that replicates add, estimated with replicates - 1 degrees of freedom; 0 of one replicate."""
    within: float
    """What prompts add to it, with prompts - 1."""
    pooled: int = 1
    """Differences to one control that share both variances, which have as many times the degrees of freedom."""
    family: int = 1
    """Differences whose error rate is held together: the quantiles are those of the largest of so many."""
    level: float = LEVEL
    """Of the intervals, both sides together."""

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(np.sqrt(self.between + self.within))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard error (Satterthwaite, Biometrics Bulletin 2, 1946)."""
        parts = [(self.between, self.pooled * (self.replicates - 1)), (self.within, self.pooled * (self.prompts - 1))]
        weight = sum(part**2 / free for part, free in parts if free > 0 and part > 0)
        return float((self.between + self.within) ** 2 / weight) if weight > 0 else 0.0

    @property
    def half(self) -> float:
        """Half the width of the t interval, which is never narrower than Student's over the replicates alone: with three, their
        spread comes out too small by chance often enough that coverage would be 92 % (bench/coverage.py)."""
        return max(t_quantile(free, self.family, self.level) * error for error, free in self._pairs())

    @property
    def detectable(self) -> float:
        """Minimum detectable effect: the true mean that the test at this level finds with 80 % power. It is shift * standard
        error, where P(T > t_crit) = 0.8 for T noncentral t with noncentrality `shift`. (A rejection on the wrong side then has a
        chance below 1e-6 and is left out.)"""
        return max(_noncentrality(free, self.family, self.level) * error for error, free in self._pairs())

    def power(self, distance: float) -> float:
        """Probability that the t interval leaves out a threshold from which the true mean is `distance` away."""
        shifts = [(t_quantile(free, self.family, self.level), free, abs(distance) / error) for error, free in self._pairs()]
        return float(min(stats.nct.sf(*shift) for shift in shifts))

    def p_value(self) -> float:
        """Two-sided p-value of "the mean is 0", adjusted for the family, below 5 % where the t interval leaves 0 out. Where all
        scores agree, the level at which the bound of `interval` reaches 0: 2 (1 + |v|)^-P times the family, at most 1."""
        if self.error == 0:
            return float(min(1.0, 2 * self.family * (1 + abs(self.mean)) ** -self.prompts))
        return float(max(largest_exceeds(abs(self.mean) / error, free, self.family) for error, free in self._pairs()))

    def _pairs(self) -> list[tuple[float, float]]:
        """(Standard error, degrees of freedom): of all, and of the replicates alone."""
        pairs = [(self.error, self.freedom), (float(np.sqrt(self.between)), self.pooled * (self.replicates - 1.0))]
        digits = 1 if self.family == 1 or self.freedom < 20 else 0
        return [(error, round(free, digits)) for error, free in pairs if free > 0 and error > 0] or [(0.0, 1.0)]

    def of(self, replicates: int) -> "Spread":
        """The same with another number of replicates."""
        return self._replace(replicates=replicates, between=self.between * self.replicates / replicates)

    def interval(self, support: Support) -> tuple[float, float]:
        """The t interval, cut to the support; of a mean in [0, 1] that of Korn and Graubard (Survey Methodology 24, 1998):
        Clopper and Pearson's for the number of independent draws that would have this standard error, less by the ratio of the t
        quantiles. It is as wide in the middle and, near 0 and 1, where scores are skewed, holds 93 % where t holds 84 to 90.

        Where all scores agree there is no spread although a rare prompt may differ: with v the common value and u = 1 -
        0.025^(1/P) the largest share of differing prompts that P prompts do not rule out, the mean lies between (1 - u) v + u
        low and (1 - u) v + u high of the support; for v = 0 Clopper and Pearson's bound (Biometrika 26, 1934). A support without
        an end allows no such bound: NaN."""
        if self.error == 0:
            if not np.isfinite(support).all():
                return np.nan, np.nan
            unseen = 1 - (self.level / 2 / self.family) ** (1 / self.prompts)
            return (1 - unseen) * self.mean + unseen * support[0], (1 - unseen) * self.mean + unseen * support[1]
        if support == (0.0, 1.0) and 0 < self.mean < 1:
            draws = self.mean * (1 - self.mean) * (stats.norm.ppf(1 - self.level / 2) / self.half) ** 2
            right = self.mean * draws
            low = stats.beta.ppf(self.level / 2, right, draws - right + 1)
            return float(low), float(stats.beta.ppf(1 - self.level / 2, right + 1, draws - right))
        return self.t_interval(support)

    def t_interval(self, support: Support) -> tuple[float, float]:
        """The t interval, cut to the support."""
        return max(self.mean - self.half, support[0]), min(self.mean + self.half, support[1])


def interval_of_arms(one: Spread, other: Spread, gap: Spread) -> Support:
    """Of the difference of two shares, from the intervals of both (Zou and Donner, Statistics in Medicine 27, 2008): each end
    lies as far from the difference as the arms' ends from their means, correlated as the three widths say. Near 0, where gains
    are skewed, it reaches further up than t, which misses larger gains in 6 to 10 of 100."""
    one, other = one._replace(level=gap.level), other._replace(level=gap.level)
    (low, high), (least, most) = one.interval((0.0, 1.0)), other.interval((0.0, 1.0))
    product = 2 * one.half * other.half
    shared = float(np.clip((one.half**2 + other.half**2 - gap.half**2) / product, -1, 1)) if product > 0 else 0.0

    def reach(of: float, against: float) -> float:
        return float(np.sqrt(max(0.0, of**2 + against**2 - 2 * shared * of * against)))

    down, up = reach(one.mean - low, most - other.mean), reach(high - one.mean, other.mean - least)
    return max(-1.0, gap.mean - down), min(1.0, gap.mean + up)


class Bound(NamedTuple):
    """Of a group-sequential test at one look, in deviates of its statistic (`sequential.boundaries`)."""

    time: float
    """Share of the replicates of the last look."""
    efficacy: float
    """From here on there is a verdict."""
    futility: float
    """Below it the claim is given up; 0: never."""

    @property
    def level(self) -> float:
        """Nominal level, both sides together, of the repeated confidence interval."""
        return float(2 * stats.norm.sf(self.efficacy))


class Look(NamedTuple):
    """Where a claim is that is judged while replicates are added."""

    number: int
    of: int
    replicates: int
    bound: Bound
    stopped: bool
    """Whether it needs no further look."""
    interval: tuple[float, float]
    """The 95 % interval after stopping; NaN before."""

    def as_json(self) -> dict[str, Any]:
        """For claims.json."""
        ends = [None if np.isnan(end) else end for end in self.interval]
        of = {"look": self.number, "of": self.of, "replicates": self.replicates, "stopped": self.stopped, "interval": ends}
        return {**of, "boundary": round(self.bound.efficacy, 4), "futility": round(self.bound.futility, 4)}


class FightLook(NamedTuple):
    """Where a fight is that is judged while replicates are added."""

    number: int
    of: int
    replicates: int
    level: float
    """What is spent of alpha at this look: the level of Dunnett's quantiles."""
    stopped: bool
    """Whether it needs no further look."""


def crossed_spread(scores: np.ndarray, bearing: int | None = None) -> Spread:
    """Of scores (R, P) of R replicates on the same P prompts, by the mean squares of a two-way layout; of one replicate over its
    prompts alone. `bearing`: how many prompts bear on the mean, where not all do."""
    replicates, prompts = scores.shape
    rows, columns = scores.mean(1), scores.mean(0)
    mean = float(rows.mean())
    between = within = 0.0
    if replicates > 1 and np.ptp(rows) > AGREE:
        between = float(rows.var(ddof=1)) / replicates
    if prompts > 1 and np.ptp(columns) > AGREE:
        residual = scores - rows[:, None] - columns + mean
        noise = float((residual**2).sum()) / (max(1, replicates - 1) * (prompts - 1) * replicates * prompts)
        within = max(0.0, float(columns.var(ddof=1)) / prompts - min(noise, between))
    return Spread(mean, replicates, prompts if bearing is None else bearing, between, within)


def nested_spread(scores: Sequence[np.ndarray]) -> Spread:
    """Of replicates that each have prompts of their own: the spread of their means holds that of prompts."""
    if len(scores) == 1:
        return crossed_spread(scores[0][None])
    means = np.array([float(of.mean()) for of in scores])
    between = float(means.var(ddof=1)) / len(means) if np.ptp(means) > AGREE else 0.0
    return Spread(float(means.mean()), len(means), sum(map(len, scores)), between, 0.0)


def pooled_spreads(gaps: np.ndarray, family: int, bearing: int | None = None) -> list[Spread]:
    """Of differences (k, R, P) of k contenders to one control on R replicates and P prompts, with common variances. A contender
    whose replicates vary more than the others' (F test at 5 % / k) keeps its own."""
    wild = _wild(gaps.mean(2))
    rest = iter(_with_one_variance(gaps[~wild], bearing))
    own = [crossed_spread(of, bearing) if alone else next(rest) for of, alone in zip(gaps, wild, strict=True)]
    return [one._replace(family=family) for one in own]


def _with_one_variance(gaps: np.ndarray, bearing: int | None) -> list[Spread]:
    count, replicates, prompts = gaps.shape
    scores = np.concatenate([np.zeros((1, replicates, prompts)), gaps])
    scores = scores - scores.mean(0)  # what the arms share
    rows, columns, mean = scores.mean(2), scores.mean(1), scores.mean((1, 2))
    between = within = 0.0
    if replicates > 1 and np.ptp(rows - mean[:, None]) > AGREE:
        between = 2 * float(((rows - mean[:, None]) ** 2).sum()) / (count * (replicates - 1) * replicates)
    if prompts > 1 and np.ptp(columns - mean[:, None]) > AGREE:
        residual = scores - rows[:, :, None] - columns[:, None] + mean[:, None, None]
        noise = 2 * float((residual**2).sum()) / (count * max(1, replicates - 1) * (prompts - 1) * replicates * prompts)
        within = 2 * float(((columns - mean[:, None]) ** 2).sum()) / (count * (prompts - 1) * prompts)
        within = max(0.0, within - min(noise, between))
    least = prompts if bearing is None else bearing
    return [Spread(float(of.mean()), replicates, least, between, within, count) for of in gaps]


def _wild(means: np.ndarray) -> np.ndarray:
    """Which of k contenders, by their differences (k, R) to the control, vary more over replicates than the rest do."""
    count, replicates = means.shape
    if min(replicates, count) < 3:
        return np.zeros(count, bool)
    own = means.var(1, ddof=1)
    limit = float(stats.f.ppf(1 - LEVEL / count, replicates - 1, (count - 1) * (replicates - 1)))
    return np.asarray(own > limit * (own.sum() - own) / (count - 1))


@functools.cache
def t_quantile(freedom: float, family: int = 1, level: float = LEVEL) -> float:
    """Of the two-sided interval; of a family that which all of its t hold together (Dunnett's), at a level below `FINEST`
    Bonferroni's, which is no narrower."""
    single, widest = (float(stats.t.isf(level / 2 / count, freedom)) for count in (1, family))
    if family == 1 or level < FINEST:
        return widest
    above = max(widest, 2 * single + family)
    return float(optimize.brentq(lambda at: largest_exceeds(at, freedom, family) - level, single, above))


def largest_exceeds(at: float, freedom: float, family: int) -> float:
    """P(max |T_a| > at) of `family` t that correlate at 1/2, as differences of equally many to one control do: the integral over
    the control's normal z and the scale s of [Phi(z + sqrt(2) at s) - Phi(z - sqrt(2) at s)]^family."""
    if family == 1:
        return float(2 * stats.t.sf(at, freedom))
    low, high = np.sqrt(stats.chi2.ppf([1e-13, 1 - 1e-13], freedom) / freedom)
    (nodes, weights), (z, of) = _nodes()
    scale = (high - low) / 2 * nodes + (high + low) / 2
    density = weights * (high - low) / 2 * 2 * freedom * scale * stats.chi2.pdf(freedom * scale**2, freedom)
    reach = np.sqrt(2) * at * scale[:, None]
    inside = (special.ndtr(z + reach) - special.ndtr(z - reach)) ** family @ of / of.sum()
    return float(min(1.0, max(0.0, 1 - density @ inside)))


@functools.cache
def _nodes() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Of both integrals, which are exact to 1e-7 with them from 3 degrees of freedom on, with 2 to 1e-5."""
    return np.polynomial.legendre.leggauss(64), np.polynomial.hermite_e.hermegauss(48)


def t_interval(values: np.ndarray, support: Support) -> tuple[float, float]:
    """Student's interval of the mean of `values` (m,), m >= 2, cut to the support."""
    half = t_quantile(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return max(float(values.mean() - half), support[0]), min(float(values.mean() + half), support[1])


def share_interval(count: int, of: int, level: float = LEVEL) -> Support:
    """Clopper and Pearson's interval of the share that `count` among `of` independent replicates stand for (Biometrika 26, 1934):
    at least nominal coverage at every share."""
    low = 0.0 if count == 0 else float(stats.beta.ppf(level / 2, count, of - count + 1))
    return low, 1.0 if count == of else float(stats.beta.ppf(1 - level / 2, count + 1, of - count))


def holm_adjusted(p: np.ndarray) -> np.ndarray:
    """p-values (m,) adjusted for m tests (Holm, Scandinavian Journal of Statistics 6, 1979): the i-th smallest times m - i + 1,
    no smaller than any before it, at most 1."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    adjusted = np.empty_like(stepped)
    adjusted[order] = stepped
    return adjusted


@functools.cache
def _noncentrality(freedom: float, family: int, level: float) -> float:
    critical = t_quantile(freedom, family, max(level, FINEST))
    return float(optimize.brentq(lambda shift: stats.nct.sf(critical, freedom, shift) - POWER, 0.0, 4 * critical))
