"""One number with its interval, and what that interval is uncertain over."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from interplay.core import model
from interplay.core.metrics import round_significant
from interplay.report.metric_spec import is_of_run, measure_of
from interplay.report.shown_spec import MINUS, logged_measure
from interplay.report.stats import budget, intervals
from interplay.report.stats.frame import Key, Results, held_rows, is_held, lacked_band, num_relevant, prompt_scores, seeds
from interplay.report.stats.intervals import Spread, Support, crossed_spread, nested_spread

MOST_NAMES = 4
"""Arms that a caption names one by one."""


class Estimate(NamedTuple):
    """A value or a difference, as fractions (not percent); NaN where there is nothing to estimate it from."""

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    over: str = ""
    """What the interval is uncertain over, its target: `any base, any prompt (4 bases, 80 prompts)`, or of one base `this base,
    any prompt (3 runs, 80 prompts)`."""
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
    """Standard deviation over the replicates: bases, or the runs of one base."""
    detectable: float = np.nan
    """Minimum detectable effect of a difference over replicates."""
    missing: tuple[str, ...] = ()
    """Why seeds that the study plans are not in it."""
    bases: int = 0
    """Distinct bases; of a difference those of the arm that has fewer."""
    spread: Spread | None = None


class _Part(NamedTuple):
    """What one seed contributes: score per prompt, and its evaluations."""

    scores: pd.Series
    digests: tuple[str, ...]
    n_samples: int
    telling: int
    """Prompts that bear on it."""
    bases: tuple[str, ...]
    """First stage of the path of the arm, and of that which it is compared with."""
    data: str
    """Digest of the problem set."""


class _Rows(NamedTuple):
    """The prompts of one arm at one seed on a column."""

    prompts: pd.DataFrame
    digest: str
    n_samples: int
    data: str
    """Digest of the problem set."""
    base: str
    """Digest of the first stage of the path."""


Pairing = Callable[[pd.DataFrame, pd.DataFrame], pd.Series]
"""Prompts of an arm, and the same of what it is compared with -> a number for each."""
Ends = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Values, lower and upper ends of intervals, each (n,)."""


def value(results: Results, arm: str, column: str | None, metric: str) -> Estimate:
    """`metric` of an arm on a column: the mean over its bases, for any base of its recipe and any prompt of the column's
    distribution, with the interval of a two-way random-effects model (base by prompt); of several runs on each base their mean
    counts. Where all seeds share one base the mean over its runs, for this base and any prompt."""
    return _kept(results, (arm, "", column or "", metric), lambda: _value(results, arm, column, metric))


def _kept(results: Results, key: Key, estimate: Callable[[], Estimate]) -> Estimate:
    """The estimate that is kept under the key, else a new one, which is kept where the results keep estimates at all."""
    if results.kept is None:
        return estimate()
    if key not in results.kept:
        results.kept[key] = estimate()
    return results.kept[key]


def _value(results: Results, arm: str, column: str | None, metric: str) -> Estimate:
    parts, missing = _together(results, [arm], column, metric, lambda rows: prompt_scores(rows, metric))
    return _of_runs(results, [arm], column, metric, _estimate(parts, missing, measure_of(metric).support))


def difference(results: Results, arm: str, against: str, column: str | None, metric: str) -> Estimate:
    """`metric` of `arm` minus that of `against`, paired by seed and by prompt, with the target and the interval of `value`. Where
    the seeds of either share one base, it is for this base alone."""
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
    parts, missing = _together(results, [arm, against], column, metric, of)
    found = _estimate(parts, missing, support or measure_of(metric).support_of_differences)
    found = _of_runs(results, [arm, against], column, metric, found)
    return found if np.isnan(found.deviation) or found.spread is None else found._replace(detectable=found.spread.detectable)


def fight_estimates(
    results: Results, arms: Sequence[str], against: str, column: str, metric: str, family: int, level: float
) -> dict[str, Estimate]:
    """`difference` of each contender to one control, with variances pooled over contenders and intervals that hold together for a
    family of so many at a level (`intervals.pooled_spreads`). What is missing at some seed is not pooled."""
    found = {arm: difference(results, arm, against, column, metric) for arm in arms}
    parts = {
        arm: _together(results, [arm, against], column, metric, _change(metric))[0] for arm in arms if not found[arm].missing
    }
    every = [part for of in parts.values() for part in of.values()]
    crossed = len({(part.data, len(part.scores)) for part in every}) == 1
    scores = {arm: _replicates(of.values(), crossed)[1] for arm, of in parts.items()}
    if len({(len(scores[arm]), *of) for arm, of in parts.items()}) > 1:  # such as one that shares a base: each keeps its own
        spreads = [crossed_spread(np.array(of)) if crossed else nested_spread(of) for of in scores.values()]
    elif crossed:
        least = min(part.telling for part in every)
        spreads = intervals.pooled_spreads(np.array(list(scores.values())), family, least)
    else:
        means = np.array([[[one.mean()] for one in of] for of in scores.values()])
        spreads = intervals.pooled_spreads(means, family) if scores else []
        spreads = [one._replace(prompts=sum(map(len, scores[arm]))) for arm, one in zip(scores, spreads, strict=True)]
    support = measure_of(metric).support_of_differences
    for arm, spread in zip(scores, spreads, strict=True):
        spread = spread._replace(family=family, level=level)
        low, high = spread.interval(support)
        detectable = spread.detectable if spread.replicates > 1 else np.nan
        found[arm] = found[arm]._replace(low=low, high=high, detectable=detectable, spread=spread)
    return found


def at_level(found: Estimate, level: float, metric: str, differs: bool, recorded: str | None) -> Estimate:
    """An estimate with its interval at another level."""
    if found.spread is None or np.isnan(found.low):
        return found
    measure, spread = logged_measure(metric) if recorded else measure_of(metric), found.spread._replace(level=level)
    support = measure.support_of_differences if differs else measure.support
    low, high = spread.t_interval(support) if recorded and spread.error else spread.interval(support)
    return found._replace(low=low, high=high)


def p_value(found: Estimate) -> float:
    """Two-sided p-value of "the difference is 0", with the target of its interval. NaN where there is no difference."""
    return float("nan") if found.spread is None else found.spread.p_value()


def weighted(results: Results, weights: Mapping[str, float], column: str | None, metric: str) -> Estimate:
    """The sum over arms of their weight times `metric`, paired by seed and by prompt, with the target and interval of `value`."""
    support = measure_of(metric).support

    def of(*tables: pd.DataFrame) -> pd.Series:
        parts = [weight * prompt_scores(one, metric) for weight, one in zip(weights.values(), tables, strict=True)]
        return pd.concat(parts, axis=1).sum(axis=1)

    key = ("+".join(f"{weight:g} {arm}" for arm, weight in weights.items()), "", column or "", metric)
    ends = [sorted(weight * end for end in support) for weight in weights.values()]
    bounds = sum(low for low, _ in ends), sum(high for _, high in ends)
    return _kept(results, key, lambda: _estimate(*_together(results, list(weights), column, metric, of), bounds))


def _together(
    results: Results, arms: list[str], column: str | None, metric: str, of: Callable[..., pd.Series]
) -> tuple[dict[int, _Part], list[str]]:
    """Seed -> what `of` makes of the arms' prompts; and why some are not there."""
    parts: dict[int, _Part] = {}
    missing = absent_arm(results, arms[0])
    for seed in _replicated(results, arms, column, missing):
        found = [_rows(results, arm, seed, column, metric) for arm in arms]
        rows = [one for one in found if not isinstance(one, str)]
        if len(rows) < len(found):
            missing += [one for one in found if isinstance(one, str)]
        elif len({one.data for one in rows}) > 1:
            missing.append(f"{' and '.join(arms)} at seed {seed} were evaluated on different problem sets")
        else:
            scores, digests = of(*(one.prompts for one in rows)), tuple(one.digest for one in rows)
            bearing = min(num_relevant(one.prompts, metric) for one in rows)
            least, bases = min(one.n_samples for one in rows), tuple(one.base for one in rows)
            parts[seed] = _Part(scores, digests, least, bearing, bases, rows[0].data)
    return parts, missing


def _replicated(results: Results, arms: list[str], column: str | None, missing: list[str]) -> list[int]:
    """The seeds of the first arm, without those of bases that lack a calibrated band; where all do, that is what is missing."""
    planned = seeds(results.spec, arms[0])
    lacking = {seed: band for seed in planned for arm in arms if (band := lacked_band(results, arm, seed, column))}
    if planned and len(lacking) == len(planned):
        missing.append(f"no base has the band {next(iter(lacking.values()))}")
    return [seed for seed in planned if seed not in lacking]


def absent_arm(results: Results, arm: str) -> list[str]:
    """Why there is no estimate of an arm that the study does not plan."""
    return [] if seeds(results.spec, arm) else [f"the study has no arm '{arm}'"]


def _rows(results: Results, arm: str, seed: int, column: str | None, metric: str) -> _Rows | str:
    """One seed's prompts from the first evaluation (by name) that holds the column and the metric and has enough samples, or
    why there are none."""
    planned = [row for row in results.spec.rows_of(arm) if row.seed == seed]
    if not planned:
        return f"the study plans no {arm} at seed {seed}"
    if is_of_run(metric):
        found = budget.target_rows(results, arm, seed, str(column), metric)
        return found if isinstance(found, str) else _Rows(*found, 1, "", planned[0].path[0].digest)
    few, gaps, evaluations = list[str](), list[str](), sorted(planned[0].evaluations.items())
    for name, digest in evaluations:
        if digest in results.prompts:
            rows, lacking = held_rows(results, digest, column, metric)
            if not lacking:
                base = planned[0].path[0].digest if planned[0].path else ""
                return _Rows(rows, digest, int(rows["n"].min()), results.records[digest]["deps"]["data"], base)
            few += [f"evaluation {digest} of {arm} at seed {seed} {lacking}"] if len(rows) else []
        else:
            gaps.append(digest)
            if is_held(results, name, column, metric):  # the one that counts, which no other replaces
                few = []
                break
    if few:
        return "; ".join(few)
    if gaps or not evaluations:
        known = dict.fromkeys(results.why[digest] for digest in gaps if digest in results.why)
        because = f": {'; '.join(known)}" if known else ""
        return f"evaluation {', '.join(gaps) or 'at all'} of {arm} at seed {seed} is not there{because}"
    return f"no prompt of {column} in evaluation {', '.join(dict(evaluations).values())} of {arm} at seed {seed}"


def _estimate(parts: dict[int, _Part], missing: list[str], support: Support) -> Estimate:
    if not parts:
        return Estimate(missing=tuple(missing))
    crossed = len({(part.data, len(part.scores)) for part in parts.values()}) == 1
    bases, replicates = _replicates(parts.values(), crossed)
    means = np.array([scores.mean() for scores in replicates])
    least, models = min(part.telling for part in parts.values()), len({part.digests for part in parts.values()})
    spread = crossed_spread(np.array(replicates), least) if crossed else nested_spread(replicates)
    low, high = spread.interval(support)
    prompts = min(map(len, replicates))
    return Estimate(
        value=spread.mean,
        low=low,
        high=high,
        over=target(bases, models, f"{prompts} prompts{'' if crossed else ' each'}"),
        n_prompts=prompts,
        n_samples=min(part.n_samples for part in parts.values()),
        seeds=tuple(parts),
        per_seed=tuple(float(part.scores.mean()) for part in parts.values()),
        models=models,
        digests=tuple(dict.fromkeys(digest for part in parts.values() for digest in part.digests)),
        deviation=float(means.std(ddof=1)) if len(means) > 1 else np.nan,
        missing=tuple(missing),
        bases=bases,
        spread=spread,
    )


def _of_runs(results: Results, arms: list[str], column: str | None, metric: str, found: Estimate) -> Estimate:
    """An estimate on a target, of one number per run and no prompts: one run alone has no interval, and none has where all agree,
    but for shares, where that many equal runs bound it."""
    if not is_of_run(metric) or found.spread is None:
        return found
    measure, differs = measure_of(metric), len(arms) > 1
    support = measure.support_of_differences if differs else measure.support
    spread = found.spread._replace(prompts=found.spread.replicates if measure.bounded else 0)
    low, high = spread.interval(support) if spread.replicates > 1 else (np.nan, np.nan)
    over = f"{target(found.bases, found.models)[:-1]}; {budget.reach_text(results, arms, str(column), metric)})"
    return found._replace(low=low, high=high, over=over, n_prompts=0, n_samples=0, spread=spread)


def _replicates(parts: Iterable[_Part], crossed: bool) -> tuple[int, list[np.ndarray]]:
    """The number of bases, and the scores per prompt (P,) of each replicate: the mean over the runs on a base, or with one base
    each run. Of a difference the arm with fewer bases counts."""
    distinct = {part.digests: part for part in parts}
    sides = [list(side) for side in zip(*(part.bases for part in distinct.values()), strict=True)]
    side = min(sides, key=lambda of: len(set(of)))
    scores = [part.scores.sort_index().to_numpy() for part in distinct.values()]
    bases = list(dict.fromkeys(side))
    if len(bases) == 1:
        return 1, scores
    of_base = [[one for one, base in zip(scores, side, strict=True) if base == name] for name in bases]
    return len(bases), [np.mean(of, axis=0) if crossed else np.concatenate(of) for of in of_base]


def target(bases: int, runs: int, prompts: str = "") -> str:
    """What an interval is uncertain over, in words; without prompts where there are none."""
    counts = [model.plural(bases, "base")] if bases > 1 else []
    counts += [model.plural(runs, "run")] if runs > bases or bases == 1 else []
    every = "any base" if bases > 1 else "this base"
    return f"{every}{', any prompt' if prompts else ''} ({', '.join([*counts, *([prompts] if prompts else [])])})"


def uncertain_over(named: list[tuple[str, Estimate]]) -> str:
    """`any base, any prompt (rl_edge, rl_hard); this base, any prompt (base)`: the targets of intervals and whose they are; many
    are counted."""
    kinds: dict[str, set[str]] = {}
    for name, found in named:
        if found.over:
            kinds.setdefault(name, set()).add(found.over.partition(" (")[0])
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
    return {key: plain_number(item) for key, item in estimate._asdict().items() if key != "spread"}


def plain_number(item: object) -> object:
    """As JSON: a number to 7 significant digits, null for NaN; a tuple as a list of such."""
    if isinstance(item, float):
        return None if np.isnan(item) else round_significant(item)
    return [plain_number(part) for part in item] if isinstance(item, tuple) else item


# Numbers that runs record of themselves, such as the entropy at the end of RL: one per run, of no prompts.


Found = tuple[float, str, str]
"""The number, the digest of its stage, and that of its base."""


def recorded_estimate(results: Results, stage: str, key: str, arm: str, against: str | None = None) -> Estimate:
    """Mean over the bases of `key`, a number or `A - B`, in the record of the stage `stage` of an arm, or of the differences to
    `against` paired by seed, with Student's interval; where all seeds share one base over its runs. One run for all seeds has no
    interval, nor have several that all record one number, but for shares, which that many equal runs bound."""
    parts: dict[int, _Part] = {}
    missing = absent_arm(results, arm)
    for seed in _replicated(results, [arm] if against is None else [arm, against], None, missing):
        of_seed = [_recorded_number(results, stage, key, one, seed) for one in (arm, against) if one is not None]
        there = [one for one in of_seed if not isinstance(one, str)]
        missing += [one for one in of_seed if isinstance(one, str)]
        if len(there) == len(of_seed):
            (number, *other), digests, bases = zip(*there, strict=True)
            parts[seed] = _Part(pd.Series([number - sum(other)]), digests, 1, 1, bases, "")
    measure = logged_measure(key)
    support = measure.support if against is None else measure.support_of_differences
    found = _estimate(parts, missing, support)._replace(n_prompts=0, n_samples=0)
    spread = found.spread and found.spread._replace(prompts=found.spread.replicates)
    equal = spread is not None and spread.error == 0
    if spread is None or found.models < 2 or (equal and not measure.bounded):
        alone = ["one run for all seeds" if found.models < 2 else f"all runs have the same {key}: no spread"] if parts else []
        return found._replace(low=np.nan, high=np.nan, missing=(*found.missing, *alone))
    low, high = spread.interval(support) if equal else spread.t_interval(support)
    effect = spread.detectable or np.nan if against is not None else np.nan
    return found._replace(low=low, high=high, over=target(found.bases, found.models), detectable=effect, spread=spread)


def _recorded_number(results: Results, stage: str, key: str, arm: str, seed: int) -> Found | str:
    """The number of one run, or why there is none."""
    planned = next((row for row in results.spec.rows_of(arm) if row.seed == seed), None)
    on_path = [one.digest for one in planned.path if one.name == stage] if planned else []
    if not on_path:
        return f"the study plans no {stage} of {arm} at seed {seed}"
    digest = on_path[-1]
    if digest not in results.records:
        return f"stage {stage} of {arm} at seed {seed} is not there: {results.why.get(digest, digest)}"
    values_of = results.records[digest]["metrics"]
    numbers = {one: values_of.get(one) for one in key.split(MINUS)}
    for one, number in numbers.items():
        if not isinstance(number, int | float):
            return f"the record of {stage} {digest} has no '{one}'{model.nearest_name(one, values_of)}"
    first, *others = map(float, numbers.values())
    return first - sum(others), digest, planned.path[0].digest if planned else ""
