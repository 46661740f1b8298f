"""One number with its interval, and what that interval is uncertain over."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, stats

from interplay.core.metrics import round_significant
from interplay.report.metric_spec import measure_of, metric_row
from interplay.report.stats.frame import Key, Results, num_relevant, of_column, prompt_scores, seeds, unavailable

AGREE = 1e-12
"""Means of seeds that differ by less are equal but for rounding."""

MOST_NAMES = 4
"""Arms that a caption names one by one."""


class Estimate(NamedTuple):
    """A value or a difference, as fractions (not percent); NaN where there is nothing to estimate it from."""

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    over: str = ""
    """What the interval is uncertain over, such as `3 seeds` or `200 prompts (1 seed)`."""
    n_prompts: int = 0
    n_samples: int = 0
    """Samples per prompt (the least)."""
    seeds: tuple[int, ...] = ()
    per_seed: tuple[float, ...] = ()
    models: int = 0
    """Distinct evaluations (or pairs of them) among the seeds; 1 for a base that all seeds share."""
    digests: tuple[str, ...] = ()
    """Evaluations it was computed from."""
    deviation: float = np.nan
    """Standard deviation over the distinct models, where the interval is over seeds."""
    detectable: float = np.nan
    """Minimum detectable effect of a difference over seeds."""
    missing: tuple[str, ...] = ()
    """Why seeds that the study plans are not in it."""


class _Part(NamedTuple):
    """What one seed contributes: score per prompt, and its evaluations."""

    scores: pd.Series
    digests: tuple[str, ...]
    n_samples: int
    telling: int
    """Prompts that bear on it."""


class _Rows(NamedTuple):
    """The prompts of one arm at one seed on a column."""

    prompts: pd.DataFrame
    digest: str
    n_samples: int
    data: str
    """Digest of the problem set."""


Pairing = Callable[[pd.DataFrame, pd.DataFrame], pd.Series]
"""Prompts of an arm, and the same of what it is compared with -> a number for each."""
Ends = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Values, lower and upper ends of intervals, each (n,)."""


def value(results: Results, arm: str, column: str | None, metric: str) -> Estimate:
    """`metric` of an arm on a column.

    With two or more distinct models: mean over them with Student's interval over seeds (the prompts are held fixed). With one
    model: mean over prompts with the bootstrap interval over prompts."""
    return _kept(results, (arm, "", column or "", metric), lambda: _value(results, arm, column, metric))


def _kept(results: Results, key: Key, estimate: Callable[[], Estimate]) -> Estimate:
    """The estimate that is kept under the key, else a new one, which is kept where the results keep estimates at all."""
    if results.kept is None:
        return estimate()
    if key not in results.kept:
        results.kept[key] = estimate()
    return results.kept[key]


def _value(results: Results, arm: str, column: str | None, metric: str) -> Estimate:
    parts: dict[int, _Part] = {}
    missing = absent_arm(results, arm)
    for seed in seeds(results.spec, arm):
        rows = _rows(results, arm, seed, column, metric)
        if isinstance(rows, str):
            missing.append(rows)
        else:
            bearing = num_relevant(rows.prompts, metric)
            parts[seed] = _Part(prompt_scores(rows.prompts, metric), (rows.digest,), rows.n_samples, bearing)
    return _estimate(parts, missing, measure_of(metric).support)


def difference(results: Results, arm: str, against: str, column: str | None, metric: str) -> Estimate:
    """`metric` of `arm` minus that of `against`, paired by seed: the paired t interval over seeds, or with one distinct pair of
    models the bootstrap over prompts paired by prompt. An `against` that all seeds share is the same model in each pair, so the
    interval is then uncertain over the seeds of `arm` alone."""
    key = (arm, against, column or "", metric)
    return _kept(results, key, lambda: paired_estimate(results, arm, against, column, metric, _change(metric)))


def _change(metric: str) -> Pairing:
    return lambda one, other: prompt_scores(one, metric) - prompt_scores(other, metric)


def paired_estimate(
    results: Results,
    arm: str,
    against: str,
    column: str | None,
    metric: str,
    of: Pairing,
    support: tuple[float, float] | None = None,
) -> Estimate:
    """The mean over prompts of what `of` makes of the two arms' counts, with the intervals of `difference`. `metric`: what both
    evaluations must have; `support`: what the mean cannot leave, null: that of a difference of the metric."""
    parts, missing = _pairs(results, arm, against, column, metric, of)
    found = _estimate(parts, missing, support or measure_of(metric).support_of_differences)
    if np.isnan(found.deviation):
        return found
    shared = len({part.digests[1] for part in parts.values()}) == 1
    over = f"{found.over}, one {against}" if shared else found.over
    return found._replace(over=over, detectable=minimum_detectable(found.deviation, found.models))


def p_value(results: Results, arm: str, against: str, column: str | None, metric: str) -> float:
    """Two-sided p-value of "`difference` is 0", uncertain over the same as its interval: the paired t test over seeds, or with
    one distinct pair of models (or seeds that agree exactly) the bootstrap over prompts. NaN where there is no difference."""
    parts, _ = _pairs(results, arm, against, column, metric, _change(metric))
    if not parts:
        return float("nan")
    distinct = _distinct(parts)
    means = _means(distinct)
    return t_test_p(means) if np.ptp(means) > AGREE else bootstrap_p(_pooled(distinct))


def _pairs(
    results: Results, arm: str, against: str, column: str | None, metric: str, of: Pairing
) -> tuple[dict[int, _Part], list[str]]:
    """Seed -> differences prompt by prompt; and why some are not there."""
    parts: dict[int, _Part] = {}
    missing = absent_arm(results, arm)
    for seed in seeds(results.spec, arm):
        one, other = _rows(results, arm, seed, column, metric), _rows(results, against, seed, column, metric)
        gaps = [rows for rows in (one, other) if isinstance(rows, str)]
        if isinstance(one, str) or isinstance(other, str):
            missing += gaps
        elif one.data != other.data:
            missing.append(f"{arm} and {against} at seed {seed} were evaluated on different problem sets")
        else:
            least = min(one.n_samples, other.n_samples)
            bearing = min(num_relevant(rows.prompts, metric) for rows in (one, other))
            parts[seed] = _Part(of(one.prompts, other.prompts), (one.digest, other.digest), least, bearing)
    return parts, missing


def absent_arm(results: Results, arm: str) -> list[str]:
    """Why there is no estimate of an arm that the study does not plan."""
    return [] if seeds(results.spec, arm) else [f"the study has no arm '{arm}'"]


def _rows(results: Results, arm: str, seed: int, column: str | None, metric: str) -> _Rows | str:
    """One seed's prompts from the first evaluation (by name) that holds the column and the metric and has enough samples, or
    why there are none."""
    planned = [item for item in results.spec.arms if item.arm == arm and item.seed == seed]
    if not planned:
        return f"the study plans no {arm} at seed {seed}"
    evaluations = [digest for _, digest in sorted(planned[0].evaluations.items())]
    gaps = [digest for digest in evaluations if digest not in results.prompts]
    needed = metric_row(metric).samples
    few = []
    for digest in evaluations:
        if digest in gaps:
            continue
        rows = of_column(results.prompts[digest], column, results.by_ops)
        if len(rows):
            least = int(rows["n"].min())
            lacking = unavailable(rows, metric)
            if not lacking and least < needed:
                lacking = f"has {least} samples per prompt, {metric} needs {needed}"
            if not lacking:
                return _Rows(rows, digest, least, results.records[digest]["deps"]["data"])
            few.append(f"evaluation {digest} of {arm} at seed {seed} {lacking}")
    if few:
        return "; ".join(few)
    if gaps or not evaluations:
        known = dict.fromkeys(results.why[digest] for digest in gaps if digest in results.why)
        because = f": {'; '.join(known)}" if known else ""
        return f"evaluation {', '.join(gaps) or 'at all'} of {arm} at seed {seed} is not there{because}"
    return f"no prompt of {column} in evaluation {', '.join(evaluations)} of {arm} at seed {seed}"


def _estimate(parts: dict[int, _Part], missing: list[str], support: tuple[float, float]) -> Estimate:
    if not parts:
        return Estimate(missing=tuple(missing))
    distinct = _distinct(parts)
    means = _means(distinct)
    deviation = np.nan
    if np.ptp(means) > AGREE:
        deviation = float(means.std(ddof=1))
        low, high = t_interval(means, support)
        over = f"{len(means)} seeds"
    else:
        pooled = _pooled(distinct)
        low, high = bootstrap_interval(pooled, support, telling=min(part.telling for part in parts.values()))
        shared = "one model, shared by" if len(means) == 1 else "all"
        why = "1 seed" if len(parts) == 1 else f"{shared} {len(parts)} seeds{' agree' if len(means) > 1 else ''}"
        over = f"{len(pooled)} prompts ({why})"
    return Estimate(
        value=float(means.mean()),
        low=low,
        high=high,
        over=over,
        n_prompts=min(len(part.scores) for part in parts.values()),
        n_samples=min(part.n_samples for part in parts.values()),
        seeds=tuple(parts),
        per_seed=tuple(float(part.scores.mean()) for part in parts.values()),
        models=len(means),
        digests=tuple(dict.fromkeys(digest for part in parts.values() for digest in part.digests)),
        deviation=deviation,
        missing=tuple(missing),
    )


def _distinct(parts: dict[int, _Part]) -> dict[tuple[str, ...], pd.Series]:
    """Scores by distinct model, or pair of them."""
    return {part.digests: part.scores for part in parts.values()}


def _means(distinct: dict[tuple[str, ...], pd.Series]) -> np.ndarray:
    """(m,), one per distinct model."""
    return np.array([scores.mean() for scores in distinct.values()])


def _pooled(distinct: dict[tuple[str, ...], pd.Series]) -> np.ndarray:
    """Each prompt's mean (P,) over the distinct models."""
    return pd.concat(distinct.values()).groupby(level=0).mean().to_numpy()


def uncertain_over(named: list[tuple[str, Estimate]]) -> str:
    """`3 seeds (rl_edge, rl_hard); prompts (base)`: what the intervals of each name are uncertain over; many are counted."""
    kinds: dict[str, set[str]] = {}
    for name, found in named:
        if found.over:
            kinds.setdefault(name, set()).add("prompts" if "prompts" in found.over else found.over)
    names: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        names.setdefault(" or ".join(sorted(kind)), []).append(name)
    shown = {kind: ", ".join(of) if len(of) <= MOST_NAMES else f"{len(of)} arms" for kind, of in names.items()}
    return "; ".join(f"{kind} ({of})" for kind, of in shown.items()) or "nothing"


def interval_ends(found: Sequence[Estimate], metric: str) -> Ends:
    """Values, lower and upper ends of the intervals (n,) of n estimates, in the unit in which the metric is shown."""
    factor = measure_of(metric).factor
    middle, low, high = (factor * np.array([getattr(item, key) for item in found]) for key in ("value", "low", "high"))
    return middle, low, high


def estimate_json(estimate: Estimate) -> dict:
    """JSON data: fractions to 7 significant digits, null for NaN."""
    return {key: plain_number(item) for key, item in estimate._asdict().items()}


def plain_number(item: object) -> object:
    """As JSON: a number to 7 significant digits, null for NaN; a tuple as a list of such."""
    if isinstance(item, float):
        return None if np.isnan(item) else round_significant(item)
    return [plain_number(part) for part in item] if isinstance(item, tuple) else item


# Intervals, p-values and power: pure functions of arrays of numbers. Each interval is 95 % and two-sided.


LEVEL = 0.05
POWER = 0.8
DRAWS = 2000
BLOCK = 2_000_000
"""Indices drawn at once: bounds memory at 16 MB."""


def bootstrap_interval(
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
        low, high = ((1 - unseen) * values[0] + unseen * end for end in support)
        return low, high
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


def t_test_p(values: np.ndarray) -> float:
    """Two-sided p-value of "the mean of `values` (m,) is 0", m >= 2, by Student's t. Of differences paired by seed this is the
    paired t test."""
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def holm_adjusted(p: np.ndarray) -> np.ndarray:
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


def minimum_detectable(deviation: float, pairs: int) -> float:
    """Minimum detectable effect: the true mean difference that the two-sided paired t test at 5 % finds with 80 % power in
    `pairs` pairs whose differences have standard `deviation`.

    It is shift * deviation / sqrt(pairs), where P(T > t_crit) = 0.8 for T noncentral t with pairs - 1 degrees of freedom and
    noncentrality `shift`. (A rejection on the wrong side then has a chance below 1e-6 and is left out.)"""
    return _noncentrality(pairs) * deviation / float(np.sqrt(pairs))


def minimum_detectable_of(half: float, pairs: int) -> float:
    """`detectable` from half the width of the paired t interval."""
    return _noncentrality(pairs) * half / float(stats.t.ppf(1 - LEVEL / 2, pairs - 1))


@functools.cache
def _noncentrality(pairs: int) -> float:
    critical = stats.t.ppf(1 - LEVEL / 2, pairs - 1)
    return float(optimize.brentq(lambda shift: stats.nct.sf(critical, pairs - 1, shift) - POWER, 0.0, 4 * critical))
