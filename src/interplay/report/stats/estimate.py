"""One number with its interval, and what that interval is uncertain over."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from interplay.core.metrics import round_significant
from interplay.report.metric_spec import measure_of, metric_row
from interplay.report.stats import intervals
from interplay.report.stats.frame import Key, Results, of_column, scores, seeds, telling, untold

AGREE = 1e-12
"""Means of seeds that differ by less are equal but for rounding."""


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
    """What one seed contributes: score per prompt, and the evaluations behind it."""

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
    missing = _absent(results, arm)
    for seed in seeds(results.spec, arm):
        rows = _rows(results, arm, seed, column, metric)
        if isinstance(rows, str):
            missing.append(rows)
        else:
            bearing = telling(rows.prompts, metric)
            parts[seed] = _Part(scores(rows.prompts, metric), (rows.digest,), rows.n_samples, bearing)
    return _estimate(parts, missing, measure_of(metric).support)


def difference(results: Results, arm: str, against: str, column: str | None, metric: str) -> Estimate:
    """`metric` of `arm` minus that of `against`, paired by seed: the paired t interval over seeds, or with one distinct pair of
    models the bootstrap over prompts paired by prompt. An `against` that all seeds share is the same model in each pair, so the
    interval is then uncertain over the seeds of `arm` alone."""
    key = (arm, against, column or "", metric)
    return _kept(results, key, lambda: paired(results, arm, against, column, metric, _change(metric)))


def _change(metric: str) -> Pairing:
    return lambda one, other: scores(one, metric) - scores(other, metric)


def paired(
    results: Results,
    arm: str,
    against: str,
    column: str | None,
    metric: str,
    of: Pairing,
    support: tuple[float, float] | None = None,
) -> Estimate:
    """The mean over prompts of what `of` makes of the two arms' counts, with the intervals of `difference`. `metric`: what both
    evaluations have to tell; `support`: what the mean cannot leave, null: that of a difference of the metric."""
    parts, missing = _pairs(results, arm, against, column, metric, of)
    found = _estimate(parts, missing, support or measure_of(metric).support_of_differences)
    if np.isnan(found.deviation):
        return found
    shared = len({part.digests[1] for part in parts.values()}) == 1
    over = f"{found.over}, one {against}" if shared else found.over
    return found._replace(over=over, detectable=intervals.detectable(found.deviation, found.models))


def p_value(results: Results, arm: str, against: str, column: str | None, metric: str) -> float:
    """Two-sided p-value of "`difference` is 0", uncertain over the same as its interval: the paired t test over seeds, or with
    one distinct pair of models (or seeds that agree exactly) the bootstrap over prompts. NaN where there is no difference."""
    parts, _ = _pairs(results, arm, against, column, metric, _change(metric))
    if not parts:
        return float("nan")
    distinct = _distinct(parts)
    means = _means(distinct)
    return intervals.t_p(means) if np.ptp(means) > AGREE else intervals.bootstrap_p(_pooled(distinct))


def _pairs(
    results: Results, arm: str, against: str, column: str | None, metric: str, of: Pairing
) -> tuple[dict[int, _Part], list[str]]:
    """Seed -> differences prompt by prompt; and why some are not there."""
    parts: dict[int, _Part] = {}
    missing = _absent(results, arm)
    for seed in seeds(results.spec, arm):
        one, other = _rows(results, arm, seed, column, metric), _rows(results, against, seed, column, metric)
        gaps = [rows for rows in (one, other) if isinstance(rows, str)]
        if isinstance(one, str) or isinstance(other, str):
            missing += gaps
        elif one.data != other.data:
            missing.append(f"{arm} and {against} at seed {seed} were evaluated on different problem sets")
        else:
            least = min(one.n_samples, other.n_samples)
            bearing = min(telling(rows.prompts, metric) for rows in (one, other))
            parts[seed] = _Part(of(one.prompts, other.prompts), (one.digest, other.digest), least, bearing)
    return parts, missing


def _absent(results: Results, arm: str) -> list[str]:
    return [] if seeds(results.spec, arm) else [f"the study has no arm '{arm}'"]


def _rows(results: Results, arm: str, seed: int, column: str | None, metric: str) -> _Rows | str:
    """One seed's prompts from the first evaluation (by name) that holds the column, tells the metric and has enough samples, or
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
            why = untold(rows, metric)
            if needed <= least and not why:
                return _Rows(rows, digest, least, results.records[digest]["deps"]["data"])
            few.append(
                f"evaluation {digest} of {arm} at seed {seed} {why}"
                if why
                else f"evaluation {digest} of {arm} at seed {seed} has {least} samples per prompt, {metric} needs {needed}"
            )
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
        low, high = intervals.t_interval(means, support)
        over = f"{len(means)} seeds"
    else:
        pooled = _pooled(distinct)
        low, high = intervals.bootstrap(pooled, support, telling=min(part.telling for part in parts.values()))
        over = f"{len(pooled)} prompts ({_why_prompts(len(means), len(parts))})"
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


def _why_prompts(models: int, seeds_present: int) -> str:
    if seeds_present == 1:
        return "1 seed"
    return f"one model, shared by {seeds_present} seeds" if models == 1 else f"all {seeds_present} seeds agree"


def uncertain_over(named: list[tuple[str, Estimate]]) -> str:
    """`3 seeds (rl_edge, rl_hard); prompts (base)`: what the intervals of each name are uncertain over."""
    kinds: dict[str, set[str]] = {}
    for name, found in named:
        if found.over:
            kinds.setdefault(name, set()).add("prompts" if "prompts" in found.over else found.over)
    names: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        names.setdefault(" or ".join(sorted(kind)), []).append(name)
    return "; ".join(f"{kind} ({', '.join(of)})" for kind, of in names.items()) or "nothing"


def ends(found: Sequence[Estimate], metric: str) -> Ends:
    """Values, lower and upper ends of the intervals (n,) of n estimates, in the unit in which the metric is shown."""
    factor = measure_of(metric).factor
    middle, low, high = (factor * np.array([getattr(item, key) for item in found]) for key in ("value", "low", "high"))
    return middle, low, high


def plain(estimate: Estimate) -> dict:
    """JSON data: fractions to 7 significant digits, null for NaN."""
    return {key: _plain(item) for key, item in estimate._asdict().items()}


def _plain(item: object) -> object:
    if isinstance(item, float):
        return None if np.isnan(item) else round_significant(item)
    return [_plain(part) for part in item] if isinstance(item, tuple) else item
