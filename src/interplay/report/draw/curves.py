"""Training curves: a key of metrics.jsonl against the step, a panel for each kind of stage, since their units differ."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from scipy import optimize

from interplay.core import metrics
from interplay.kinds.table import KINDS
from interplay.report.display_spec import Extrapolate, Figure
from interplay.report.draw import style
from interplay.report.metric_spec import measure_of
from interplay.report.shown_spec import RAW, Measure, logged_heading, logged_measure
from interplay.report.spec import ReportArm
from interplay.report.stats import frame
from interplay.report.stats.estimate import Estimate, interval_ends, uncertain_over, value
from interplay.report.stats.intervals import t_interval
from interplay.report.write import tables

MOST_THIN = 12
"""Curves of single seeds of an arm: more hide each other, and make a page heavy."""
WIDE_RANGE = 30.0
"""A quantity that is positive and spans more than this ratio is drawn on a logarithmic axis."""
TAIL = 10
"""The last of so many parts of a training curve is what an extrapolation is judged by: single steps are noise."""


# Forecast of the end of a curve from its start, and the error of the forecast.
#
# The curve is y = c - a (x + 1)^-b: it saturates at c, as learning curves do that follow a power law (Hestness et al.,
# arXiv:1712.00409). It is fitted by least squares with the soft L1 loss, which a few outliers do not move. The end is never
# looked at before it is judged. Nearness says little where the curve had flattened already; so the value that the fitted part
# ended with is judged by the same bound and reported with it.


LEAST = 4
"""Points that a curve of three parameters is fitted to at least."""
RATES = (0.1, 0.3, 1.0, 3.0)
SLOWEST, FASTEST = 0.01, 10.0
"""Where the search for b starts, and where it stays."""
ROOM = 3.0
"""How far beyond the fitted values an asymptote may lie, in ranges of these."""
SMALLEST, EXACT = 1e-9, 1e-12


class Fit(NamedTuple):
    """y = c - a ((x + 1) / start)^-b."""

    c: float
    a: float
    b: float
    start: float

    def at(self, x: np.ndarray) -> np.ndarray:
        """Values (n,) at x (n,)."""
        return self.c - self.a * ((x + 1) / self.start) ** -self.b


class Forecast(NamedTuple):
    """A prediction and the observation. The end is the mean over the last points that are judged together."""

    fit: Fit
    fitted: int
    """Points that it was fitted to."""
    x: np.ndarray
    """Every place of the curve (n,)."""
    predicted: float
    observed: float
    allowed: float
    """Largest error that counts as near: the tolerance, or half of the interval of what was observed if that is wider."""
    stayed: float
    """What the fitted part ended with: the prediction that nothing changes any more."""

    @property
    def near(self) -> bool:
        """Whether the prediction lies near what was observed."""
        return abs(self.predicted - self.observed) <= self.allowed


def forecast(
    x: np.ndarray, y: np.ndarray, asked: Extrapolate, support: tuple[float, float], half: float = np.nan, judged: int = 1
) -> Forecast | None:
    """Fit the first part of y (n,) at x (n,) and judge it by the mean of the last `judged` points, whose interval has the
    half-width `half` (NaN: none is known). `support`: what y cannot leave. None where fewer than four points are fitted, none is
    left, or one is not finite."""
    fitted = int(asked.part * len(x))
    judged = min(judged, len(x) - fitted)
    if fitted < LEAST or judged < 1 or not np.isfinite(y).all():
        return None
    found = fit(x[:fitted], y[:fitted], support)
    return Forecast(
        fit=found,
        fitted=fitted,
        x=x,
        predicted=float(found.at(x[-judged:]).mean()),
        observed=float(y[-judged:].mean()),
        allowed=max(asked.tolerance, 0.0 if np.isnan(half) else half),
        stayed=float(y[max(0, fitted - judged) : fitted].mean()),
    )


def fit(x: np.ndarray, y: np.ndarray, support: tuple[float, float]) -> Fit:
    """The curve through y (n,) at x (n,), n >= 4: the best of several starts, since the loss has more than one valley. The
    asymptote stays within the support and not far from the values, which a straight line would send to infinity."""
    start, spread = float(x[0] + 1), float(np.ptp(y))
    if spread <= SMALLEST:
        return Fit(float(y.mean()), 0.0, 1.0, start)
    low, high = max(support[0], y.min() - ROOM * spread), min(support[1], y.max() + ROOM * spread)
    low, high = min(low, y.min() - SMALLEST), max(high, y.max() + SMALLEST)
    reach = (ROOM + 2) * spread * 10

    def errors(values: np.ndarray) -> np.ndarray:
        c, gap, rate = values.tolist()
        return Fit(c, gap, rate, start).at(x) - y

    bounds = ([low, -reach, SLOWEST], [high, reach, FASTEST])
    scale = max(_noise(y), 1e-3 * spread)
    how: dict[str, Any] = {"loss": "soft_l1", "f_scale": scale, "xtol": EXACT, "ftol": EXACT, "gtol": EXACT, "max_nfev": 2000}
    starts = [[float(y[-1]), float(y[-1] - y[0]), rate] for rate in RATES]
    tries = [optimize.least_squares(errors, first, bounds=bounds, **how) for first in starts]
    c, gap, rate = min(tries, key=lambda one: float(one.cost)).x.tolist()
    return Fit(c, gap, rate, start)


def _noise(y: np.ndarray) -> float:
    """Standard deviation of the noise around a curve that changes little from point to point: from second differences, whose
    median outliers do not move."""
    second = np.abs(y[2:] - 2 * y[1:-1] + y[:-2])
    return float(1.4826 * np.median(second) / np.sqrt(6))


def half_width(ends: np.ndarray) -> float:
    """Half of Student's interval of the mean of `ends` (m,), one per seed; NaN for one seed."""
    if len(ends) < 2:
        return float("nan")
    low, high = t_interval(ends, (-np.inf, np.inf))
    return (high - low) / 2


class Series(NamedTuple):
    """A curve to forecast: values (n,) at steps (n,)."""

    name: str
    steps: np.ndarray
    values: np.ndarray
    half: float
    """Half-width of the interval of what the forecast is judged by."""
    judged: int
    color: str


def draw_forecasts(
    axis: Axes, asked: Extrapolate | None, curves: Iterable[Series], support: tuple[float, float], shown: Measure
) -> list[str]:
    """Draw each curve on, dashed, from where the fitted part ends, as numbers are `shown`; returns a note on each: forecast,
    observation and error, or that it is too short."""
    notes: list[str] = []
    if asked is None:
        return notes
    for one in curves:
        found = forecast(one.steps, one.values, asked, support, one.half, one.judged)
        if found is None:
            reason = f"of its {len(one.steps)} points too few are fitted (at least {LEAST}) or none is left for the test."
            reason = reason if np.isfinite(one.values).all() else "one of its values is not finite."
            notes.append(f"{one.name}: no forecast: {reason}")
            continue
        notes.append(describe_forecast(one.name, found, shown))
        places = np.linspace(float(found.x[found.fitted - 1]), float(found.x[-1]), 60)
        axis.plot(places, shown.factor * found.fit.at(places), color=one.color, linewidth=1.3, linestyle=(0, (4, 2)))
    return notes


def describe_forecast(name: str, found: Forecast, measure: Measure) -> str:
    """Forecast, observation and error, in one sentence."""
    numbers = (found.predicted, found.observed, found.allowed, found.fit.c)
    predicted, observed, allowed, limit = map(measure.shown, numbers)
    off = measure.shown(abs(found.predicted - found.observed))
    said = f"{name}: the first {found.fitted} of {len(found.x)} points (to step {found.x[found.fitted - 1]:g}) predict "
    said += f"{predicted} for step {found.x[-1]:g} and {limit} in the limit; observed {observed}: "
    said += f"{'near' if found.near else 'not near'} (off by {off}, allowed {allowed})."
    verdict = "near" if abs(found.stayed - found.observed) <= found.allowed else "not near"
    return f"{said} The prediction of no change, {measure.shown(found.stayed)}, would have been {verdict}."


class StageCurve(NamedTuple):
    """The last stage of an arm at those seeds that share it: value by step."""

    arm: str
    kind: str
    values: dict[int, float]


def curves_by_step(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """The last stage of each arm, thin per seed and thick in the mean over seeds."""
    runs = [run for arm in frame.drawn(results) for run in _runs(results, arm, figure.y)]
    by_kind: dict[str, list[StageCurve]] = {}
    for run in runs:
        by_kind.setdefault(run.kind, []).append(run)
    if not runs:
        return None, f"Not drawn: no arm's last stage logs {figure.y}."
    canvas = style.new_canvas(3.9 if len(by_kind) < 3 else 3.5)
    axes = canvas.subplots(1, len(by_kind), squeeze=False)[0]
    notes: list[str] = []
    same: dict[str, style.Groups] = {}
    for axis, (kind, of_kind) in zip(axes, by_kind.items(), strict=True):
        same[kind] = _panel(results, axis, of_kind, kind, figure.y)
        notes += draw_forecasts(axis, figure.extrapolate, _series(results, of_kind), logged_measure(figure.y).support, RAW)
        if len(by_kind) > 1:
            axis.set_title(kind)
    style.legend(canvas, *axes, order=frame.drawn(results))
    without = [arm for arm in frame.drawn(results) if arm not in {run.arm for run in runs}]
    gone = [arm for arm in without if not _last(results, arm).keys() & results.folders.keys()]
    without = [arm for arm in without if arm not in gone]
    absent = f" Without it in their last stage: {', '.join(without)}." if without else ""
    absent += f" Missing: {', '.join(gone)}." if gone else ""
    what = logged_heading(figure.y)
    what = what if what.startswith(figure.y) else f"{figure.y}, {what},"
    absent += " Dashed: forecast from the earlier steps." if notes else ""
    absent = style.coinciding_note(same) + absent
    many = max(sum(other.arm == run.arm for other in runs) for run in runs)
    shown = f"one seed ({MOST_THIN} of {many})" if many > MOST_THIN else "one seed"
    caption = f"{what} in the last stage of each arm: thin for {shown}, thick for the mean over seeds.{absent}"
    return canvas, "\n".join([caption, *notes])


def _runs(results: frame.Results, arm: str, key: str) -> list[StageCurve]:
    """One per distinct last stage that logs the key."""
    found = []
    for digest, kind in sorted(_last(results, arm).items()):
        lines = metrics.read(results.folders[digest]) if digest in results.folders else []
        found.append(StageCurve(arm, kind, {line["step"]: line[key] for line in lines if key in line}))
    return [run for run in found if run.values]


def _last(results: frame.Results, arm: str) -> dict[str, str]:
    """Digest -> kind of the last stage of an arm at each seed."""
    ends = [row.path[-1] for row in results.spec.rows_of(arm) if row.path]
    return {stage.digest: stage.kind for stage in ends}


def _series(results: frame.Results, runs: list[StageCurve]) -> Iterator[Series]:
    """Each arm's mean curve, judged by the mean of the last tenth."""
    for arm in dict.fromkeys(run.arm for run in runs):
        steps, values = _shared([run.values for run in runs if run.arm == arm])
        judged = max(1, len(steps) // TAIL)
        half = half_width(values[:, -judged:].mean(axis=1))
        yield Series(arm, steps, values.mean(axis=0), half, judged, style.arm_look(results, arm).color)


def _shared(series: list[dict[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (n,) that all seeds log, and their values (seeds, n)."""
    steps = sorted(set.intersection(*(set(values) for values in series)))
    return np.array(steps, dtype=float), np.array([[values[step] for step in steps] for values in series])


def _panel(results: frame.Results, axis: Axes, runs: list[StageCurve], kind: str, key: str) -> style.Groups:
    """Draw the runs of one kind; returns which arms' means coincide."""
    series = {arm: [run.values for run in runs if run.arm == arm] for arm in dict.fromkeys(run.arm for run in runs)}
    shared = {arm: _shared(values) for arm, values in series.items()}
    means = {arm: (steps, values.mean(axis=0)) for arm, (steps, values) in shared.items()}
    same = style.coinciding_curves(means)
    for arm, (steps, mean) in means.items():
        drawn, width = style.arm_look(results, arm), 2.0 + style.extra_width(arm, same)
        for values in series[arm][:MOST_THIN] if len(series[arm]) > 1 else []:
            axis.plot(list(values), list(values.values()), color=drawn.color, linewidth=0.7, alpha=0.45, label=f"_{arm}")
        marker = drawn.marker if len(steps) == 1 else ""  # a line needs two points
        pen = drawn.pen | {"marker": marker, "markersize": 3 + width}
        axis.plot(steps, mean, linewidth=width, label=arm, **pen)
    every = [value for run in runs for value in run.values.values()]
    if min(every) > 0 and max(every) / min(every) > WIDE_RANGE:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(style.PlainLogFormatter())
        axis.yaxis.set_minor_formatter(style.PlainLogFormatter(labelOnlyBase=False))
    axis.set_xlabel(KINDS[kind].step)
    axis.set_ylabel(KINDS[kind].loss if key == "loss" else logged_heading(key))
    style.integer_ticks(axis)
    axis.grid(axis="y")
    axis.margins(x=0.01)
    return same


# Evaluations along a training ladder: a metric against the step of the stage whose checkpoints were evaluated.


class Ladder(NamedTuple):
    """One evaluation along one stage; arms that share the stage share the curve."""

    arms: list[str]
    evaluation: str
    stage: str
    points: list[tuple[int, Estimate]]
    """By step; 0 is the model that the stage starts from."""


def ladder_by_step(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """The metric at every rung, a panel per band if `panel: band`."""
    panels: list[str | None] = [*frame.bands(results)] if figure.panel == "band" else [None]
    drawn = {panel: ladders(results, figure.y, panel) for panel in panels}
    if not any(drawn.values()):
        return None, "Not drawn: no evaluation along a stage is there; give an evaluate stage `along: STAGE`."
    canvas, axes, left = style.panel_grid(len(panels), 3.0, 0.7, 6.0)
    notes: list[str] = []
    same: dict[str, style.Groups] = {}
    for axis, panel in zip(axes, panels, strict=True):
        title = panel or "all test problems"
        same[title] = _ladder_panel(results, axis, drawn[panel], figure.y)
        axis.set_title(title)
        curves = _ladder_series(results, drawn[panel], title)
        notes += draw_forecasts(axis, figure.extrapolate, curves, measure_of(figure.y).support, measure_of(figure.y))
    name = tables.column_label("", figure.y)
    for axis in left:
        axis.set_ylabel(f"{name} ({measure_of(figure.y).unit})")
    style.legend(canvas, *axes)
    shown = [(_label(curve, drawn[panel]), point) for panel in panels for curve in drawn[panel] for _, point in curve.points]
    stages = ", ".join(dict.fromkeys(curve.stage for panel in panels for curve in drawn[panel]))
    dashed = " Dashed: forecast from the earlier points." if notes else ""
    dashed = style.coinciding_note(same) + dashed
    caption = f"{name} along {stages}. Shaded: 95 % intervals for {uncertain_over(shown)}.{dashed}"
    return canvas, "\n".join([caption, *notes])


def ladders(results: frame.Results, metric: str, band: str | None) -> list[Ladder]:
    """Every ladder with at least one point, arms with the same evaluations taken together."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for arm in frame.drawn(results):
        rungs = [rung for row in results.spec.rows_of(arm) for rung in row.rungs]
        for name, stage in dict.fromkeys((rung.evaluation, rung.stage) for rung in rungs):
            digests = tuple(rung.digest for rung in rungs if (rung.evaluation, rung.stage) == (name, stage))
            groups.setdefault((name, stage, digests), []).append(arm)
    found = [
        Ladder(names, evaluation, stage, _points(results, names[0], evaluation, stage, metric, band))
        for (evaluation, stage, _), names in groups.items()
    ]
    return [curve for curve in found if curve.points]


def _points(
    results: frame.Results, arm: str, evaluation: str, stage: str, metric: str, band: str | None
) -> list[tuple[int, Estimate]]:
    """The estimate at every step at which some seed has one. Of seeds that end at different steps each has an end of its own."""
    at: dict[int, list[ReportArm]] = {}
    for row in results.spec.rows_of(arm):
        for rung in row.rungs:
            if (rung.evaluation, rung.stage) == (evaluation, stage) and (step := frame.step_of(results, row, rung)) is not None:
                name = f"{arm}@{evaluation}/{stage}/{step}"  # estimates are kept by the name of the arm
                at.setdefault(step, []).append(row.model_copy(update={"arm": name, "evaluations": {evaluation: rung.digest}}))
    found = []
    for step, chosen in sorted(at.items()):
        only = results._replace(spec=results.spec.model_copy(update={"arms": chosen}))
        estimate = value(only, chosen[0].arm, band, metric)
        if not np.isnan(estimate.value):
            found.append((step, estimate))
    return found


def _ladder_series(results: frame.Results, drawn: list[Ladder], panel: str) -> Iterator[Series]:
    for curve in drawn:
        steps, found = zip(*curve.points, strict=True)
        values = np.array([point.value for point in found])
        color = style.arm_look(results, curve.arms[0]).color
        half = (found[-1].high - found[-1].low) / 2
        yield Series(f"{_label(curve, drawn)}, {panel}", np.array(steps, dtype=float), values, half, 1, color)


def _ladder_panel(results: frame.Results, axis: Axes, drawn: list[Ladder], metric: str) -> style.Groups:
    """Draw the curves of a panel; returns which coincide."""
    ends = [interval_ends([point for _, point in curve.points], metric) for curve in drawn]
    steps_of = [np.array([step for step, _ in curve.points]) for curve in drawn]
    names = [_label(curve, drawn) for curve in drawn]
    same = style.coinciding_curves(dict(enumerate([steps, middle] for steps, (middle, *_) in zip(steps_of, ends, strict=True))))
    for number, (name, steps, found) in enumerate(zip(names, steps_of, ends, strict=True)):
        look = style.arm_look(results, drawn[number].arms[0])
        style.draw_shaded(axis, name, steps, found, look, style.extra_width(number, same))
    style.limit_share(axis, metric)
    style.integer_ticks(axis)
    axis.set_xlabel(" or ".join(f"step of {stage}" for stage in dict.fromkeys(curve.stage for curve in drawn)) or "step")
    axis.grid(axis="y")
    return [[names[number] for number in group] for group in same]


def _label(curve: Ladder, drawn: list[Ladder]) -> str:
    """The arms; the stage where many share it; and which evaluation, where an arm has several."""
    name = ", ".join(curve.arms) if len(curve.arms) < 3 else f"{curve.stage} ({len(curve.arms)} arms)"
    several = sum(other.arms == curve.arms for other in drawn) > 1
    return f"{name}: {curve.evaluation}" if several else name
