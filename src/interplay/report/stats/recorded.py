"""Metrics that runs record themselves, per arm and over bands in a given order."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from interplay.core.artifact import split_ref
from interplay.core.model import nearest_name
from interplay.report.draw.style import FIGURE_WIDTH, legend, look
from interplay.report.metric_spec import SHARE, logged_measure, measure_of
from interplay.report.spec import Figure
from interplay.report.stats import frame, intervals
from interplay.report.stats.estimate import AGREE, Estimate, ends, uncertain_over, value
from interplay.report.stats.frame import Results, seeds

# What the specs of problem sets tell of their rows before these are there: bands, and ops where the set is generated.


Stages = Mapping[str, Mapping[str, Any]]


def bands(digest: str, stages: Stages) -> dict[str, list[int]]:
    """Band -> its ops, easiest first; a band whose ops no spec tells has none. Of a curated set: the bands of what it is made
    of, and those that its steps name. Its rows may have lost bands and changed ops, so both are what it may hold."""
    found = _bands(digest, stages)
    return dict(sorted(found.items(), key=lambda item: item[1] or [0]))


def all_ops(known: Mapping[str, list[int]]) -> list[int] | None:
    """Every op of such bands; None where some band's are not told."""
    return sorted({op for ops in known.values() for op in ops}) if all(known.values()) else None


def _bands(digest: str, stages: Stages) -> dict[str, list[int]]:
    stage = stages.get(digest, {"kind": "", "spec": {}, "deps": {}})
    spec = stage["spec"]
    if stage["kind"] == "curate":
        sources = [dep for role, dep in sorted(stage["deps"].items()) if role.startswith("data.")]
        named = [band for step in spec.get("steps", []) for band in _named(step)]
        return {band: [] for band in [*(band for source in sources for band in _bands(source, stages)), *named]}
    if stage["kind"] == "dataset":
        return {spec["band"]: []} if "band" in spec else {}
    return {band: sorted(int(op) for op in ops) for band, ops in spec.get("bands", {}).items()}


def _named(step: Mapping[str, Any]) -> list[str]:
    """Bands that a step puts rows into."""
    given = step.get("bands")
    return [str(band) for band in given] if isinstance(given, (dict, list)) else []


# Numbers that runs record of themselves, such as the entropy at the end of RL: one per run, uncertain over seeds alone.


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
        low, high = intervals.t_interval(values, told_in.support if against is None else told_in.support_of_differences)
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
        detectable=intervals.detectable(deviation, len(values)) if deviation > AGREE and against is not None else np.nan,
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
        return f"the record of {stage} {digest} tells no '{key}'{nearest_name(key, told)}"
    return float(told[key]), digest


# A metric over bands in an order that the study gives, such as one task at growing lengths.


def by_band(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A line per arm with its interval at each band."""
    bands, name = figure.bands or [], figure.y.replace("_", " ")
    shown: list[tuple[str, Estimate]] = []
    canvas = Canvas(figsize=(FIGURE_WIDTH, 3.9), layout="constrained")
    axis = canvas.subplots()
    arms, told_in = frame.arms(results.spec), measure_of(figure.y)
    for place, arm in enumerate(arms):
        found = [value(results, arm, band, figure.y) for band in bands]
        if not any(item.seeds for item in found):
            continue
        middle, low, high = ends(found, figure.y)
        drawn = look(results, arm)
        at = np.arange(len(bands)) + 0.03 * (place - (len(arms) - 1) / 2)  # beside each other, so that no whisker hides one
        axis.vlines(at, low, high, color=drawn.color, linewidth=1.0, alpha=0.7)
        axis.plot(at, middle, label=arm, linewidth=1.8, markersize=5, **drawn.pen)
        shown += [(arm, item) for item in found]
    if not shown:
        return None, f"Not drawn: no evaluation holds {', '.join(bands)}."
    axis.set_xticks(range(len(bands)), bands)
    if told_in is SHARE:
        axis.set_ylim(-2, 102)
    axis.set_ylabel(f"{name} ({told_in.unit})")
    axis.grid(axis="y")
    legend(canvas, axis)
    gone = [arm for arm in arms if not any(arm == other and item.seeds for other, item in shown)]
    absent = f" Missing: {', '.join(gone)}." if gone else ""
    return canvas, f"{name} by band. Whiskers: 95 % intervals, uncertain over {uncertain_over(shown)}.{absent}"
