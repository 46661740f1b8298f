"""Numbers that runs record of themselves, such as the entropy at the end of RL: one per run, uncertain over seeds alone."""

import numpy as np

from interplay.report import stats
from interplay.report.estimate import AGREE, Estimate
from interplay.report.frame import Results, seeds
from interplay.schema.base import nearest
from interplay.schema.metric import logged_measure
from interplay.store.artifact import split_ref

Found = tuple[float, str]
"""The number, and the digest of its stage."""


def recorded(results: Results, stage: str, key: str, arm: str, against: str | None = None) -> Estimate:
    """Mean over seeds of `key` in the record of the stage `stage` of an arm, or of the differences to `against` paired by seed,
    with Student's interval. An arm whose seeds share one run has no interval."""
    found: dict[int, list[Found]] = {}
    missing = [] if seeds(results.spec, arm) else [f"the study has no arm '{arm}'"]
    for seed in seeds(results.spec, arm):
        of_seed = [_of(results, stage, key, one, seed) for one in (arm, against) if one is not None]
        missing += [one for one in of_seed if isinstance(one, str)]
        if not any(isinstance(one, str) for one in of_seed):
            found[seed] = [one for one in of_seed if not isinstance(one, str)]
    if not found:
        return Estimate(missing=tuple(missing))
    per_seed = {seed: numbers[0][0] - (numbers[1][0] if len(numbers) > 1 else 0.0) for seed, numbers in found.items()}
    runs = {tuple(digest for _, digest in numbers): per_seed[seed] for seed, numbers in found.items()}
    values = np.array(list(runs.values()))
    low, high, deviation = np.nan, np.nan, np.nan
    told_in = logged_measure(key)
    if len(values) > 1:
        low, high = stats.t_interval(values, told_in.support if against is None else told_in.support_of_differences)
        deviation = float(values.std(ddof=1))
    else:
        missing.append("one run for all seeds")
    return Estimate(
        value=float(values.mean()),
        low=low,
        high=high,
        over=f"{len(values)} seeds",
        seeds=tuple(per_seed),
        per_seed=tuple(per_seed.values()),
        models=len(values),
        digests=tuple(dict.fromkeys(digest for run in runs for digest in run)),
        deviation=deviation,
        detectable=stats.detectable(deviation, len(values)) if deviation > AGREE and against is not None else np.nan,
        missing=tuple(missing),
    )


def _of(results: Results, stage: str, key: str, arm: str, seed: int) -> Found | str:
    """The number of one run, or why there is none."""
    planned = next((one for one in results.spec.arms if one.arm == arm and one.seed == seed), None)
    on_path = [one.digest for one in planned.path if one.name == stage] if planned else []
    if not on_path:
        return f"the study plans no {stage} of {arm} at seed {seed}"
    digest = split_ref(on_path[-1])[0]
    if digest not in results.records:
        return f"stage {stage} of {arm} at seed {seed} is not there: {results.why.get(digest, digest)}"
    told = results.records[digest]["metrics"]
    if not isinstance(told.get(key), int | float):
        return f"the record of {stage} {digest} tells no '{key}'{nearest(key, told)}"
    return float(told[key]), digest
