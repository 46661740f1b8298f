"""Training curves: a key of metrics.jsonl against the step, a panel for each kind of stage, since their units differ."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogFormatter

from interplay.core import metrics
from interplay.core.artifact import split_ref
from interplay.kinds.table import KINDS
from interplay.report.draw import style
from interplay.report.metric_spec import RAW, SHARE, logged_heading, logged_measure, measure_of
from interplay.report.spec import Figure, ReportArm
from interplay.report.stats import extrapolate, frame
from interplay.report.stats.estimate import Estimate, interval_ends, uncertain_over, value
from interplay.report.write import tables

WIDE_RANGE = 30.0
"""A quantity that is positive and spans more than this ratio is drawn on a logarithmic axis."""
PLAIN = (1e-4, 1e5)
"""Numbers that are written without an exponent."""
TAIL = 10
"""The last of so many parts of a training curve is what an extrapolation is judged by: single steps are noise."""


class StageCurve(NamedTuple):
    """The last stage of an arm at those seeds that share it: value by step."""

    arm: str
    kind: str
    values: dict[int, float]


def curves_by_step(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """The last stage of each arm, thin per seed and thick in the mean over seeds."""
    runs = [run for arm in frame.arms(results.spec) for run in _runs(results, arm, figure.y)]
    by_kind: dict[str, list[StageCurve]] = {}
    for run in runs:
        by_kind.setdefault(run.kind, []).append(run)
    if not runs:
        return None, f"Not drawn: no arm's last stage logs {figure.y}."
    canvas = Canvas(figsize=(style.FIGURE_WIDTH, 3.9 if len(by_kind) < 3 else 3.5), layout="constrained")
    axes = canvas.subplots(1, len(by_kind), squeeze=False)[0]
    notes: list[str] = []
    same: dict[str, style.Groups] = {}
    for axis, (kind, of_kind) in zip(axes, by_kind.items(), strict=True):
        same[kind] = _panel(results, axis, of_kind, kind, figure.y)
        notes += _continue(results, axis, of_kind, figure)
        if len(by_kind) > 1:
            axis.set_title(kind)
    style.legend(canvas, *axes, order=frame.arms(results.spec))
    without = [arm for arm in frame.arms(results.spec) if arm not in {run.arm for run in runs}]
    gone = [arm for arm in without if not _last(results, arm).keys() & results.folders.keys()]
    without = [arm for arm in without if arm not in gone]
    absent = f" Without it in their last stage: {', '.join(without)}." if without else ""
    absent += f" Missing: {', '.join(gone)}." if gone else ""
    what = logged_heading(figure.y)
    what = what if what.startswith(figure.y) else f"{figure.y}, {what},"
    absent += " Dashed: forecast from the earlier steps." if notes else ""
    absent = style.coinciding_note(same) + absent
    caption = f"{what} in the last stage of each arm: thin for one seed, thick for the mean over seeds.{absent}"
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
    ends = [item.path[-1] for item in results.spec.arms if item.arm == arm and item.path]
    return {split_ref(stage.digest)[0]: stage.kind for stage in ends}


def _continue(results: frame.Results, axis: Axes, runs: list[StageCurve], figure: Figure) -> list[str]:
    """Draw the forecast from the start of each arm's mean curve, and report its error against the mean of the last tenth."""
    asked, notes = figure.extrapolate, []
    for arm in dict.fromkeys(run.arm for run in runs) if asked is not None else []:
        assert asked is not None
        series = [run.values for run in runs if run.arm == arm]
        steps, values = _shared(series)
        judged = max(1, len(steps) // TAIL)
        half = extrapolate.half_width(values[:, -judged:].mean(axis=1))
        found = extrapolate.forecast(steps, values.mean(axis=0), asked, logged_measure(figure.y).support, half, judged)
        notes.append(extrapolate.line(arm, found, RAW) if found else extrapolate.too_short(arm, len(steps)))
        if found:
            extrapolate.dash(axis, found, RAW, style.arm_look(results, arm).color)
    return notes


def _shared(series: list[dict[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (n,) that all seeds log, and their values (seeds, n)."""
    steps = sorted(set.intersection(*(set(values) for values in series)))
    return np.array(steps, dtype=float), np.array([[values[step] for step in steps] for values in series])


def _panel(results: frame.Results, axis: Axes, runs: list[StageCurve], kind: str, key: str) -> style.Groups:
    """Draw the runs of one kind; returns which arms' means coincide."""
    series = {arm: [run.values for run in runs if run.arm == arm] for arm in dict.fromkeys(run.arm for run in runs)}
    means = {arm: _mean(values) for arm, values in series.items()}
    same = style.coinciding_curves(means)
    for arm, (steps, mean) in means.items():
        drawn, width = style.arm_look(results, arm), 2.0 + style.extra_width(arm, same)
        for values in series[arm] if len(series[arm]) > 1 else []:
            axis.plot(list(values), list(values.values()), color=drawn.color, linewidth=0.7, alpha=0.45)
        marker = drawn.marker if len(steps) == 1 else ""  # a line needs two points
        pen = drawn.pen | {"marker": marker, "markersize": 3 + width}
        axis.plot(steps, mean, linewidth=width, label=arm, **pen)
    every = [value for run in runs for value in run.values.values()]
    if min(every) > 0 and max(every) / min(every) > WIDE_RANGE:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(PlainLogFormatter())
        axis.yaxis.set_minor_formatter(PlainLogFormatter(labelOnlyBase=False))
    axis.set_xlabel(KINDS[kind].step)
    axis.set_ylabel(KINDS[kind].loss if key == "loss" else logged_heading(key))
    style.integer_ticks(axis)
    axis.grid(axis="y")
    axis.margins(x=0.01)
    return same


def _mean(series: list[dict[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (n,) that all seeds log, and the mean over seeds (n,)."""
    steps, values = _shared(series)
    return steps, values.mean(axis=0)


class PlainLogFormatter(LogFormatter):
    """Numbers of a logarithmic axis in one form: all plain, or all with exponents where some are too small or large for that."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick, empty where matplotlib finds that there is no room for one."""
        low, high = self.axis.get_view_interval() if self.axis else (x, x)
        plain = low >= PLAIN[0] and high <= PLAIN[1]
        return (f"{x:g}" if plain else f"{x:.0e}") if super().__call__(x, pos) else ""


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
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    canvas = Canvas(figsize=(style.FIGURE_WIDTH if columns > 1 else 6.0, 0.7 + 3.0 * rows), layout="constrained")
    axes = canvas.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    notes: list[str] = []
    same: dict[str, style.Groups] = {}
    for axis, panel in zip(axes, panels, strict=False):
        title = panel or "all test problems"
        same[title] = _ladder_panel(results, axis, drawn[panel], figure.y)
        axis.set_title(title)
        notes += _ladder_continue(results, axis, drawn[panel], figure, title)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    name = tables.column_label("", figure.y)
    for axis in axes[::columns]:
        axis.set_ylabel(f"{name} ({measure_of(figure.y).unit})")
    style.legend(canvas, *axes[: len(panels)])
    shown = [(_label(curve, drawn[panel]), point) for panel in panels for curve in drawn[panel] for _, point in curve.points]
    stages = ", ".join(dict.fromkeys(curve.stage for panel in panels for curve in drawn[panel]))
    dashed = " Dashed: forecast from the earlier points." if notes else ""
    dashed = style.coinciding_note(same) + dashed
    caption = f"{name} along {stages}. Shaded: 95 % intervals, uncertain over {uncertain_over(shown)}.{dashed}"
    return canvas, "\n".join([caption, *notes])


def ladders(results: frame.Results, metric: str, band: str | None) -> list[Ladder]:
    """Every ladder with at least one point, arms with the same evaluations taken together."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for arm in frame.arms(results.spec):
        rungs = [rung for row in results.spec.arms if row.arm == arm for rung in row.rungs]
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
    rows = [row for row in results.spec.arms if row.arm == arm]
    at: dict[int, list[ReportArm]] = {}
    for row in rows:
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


def _ladder_continue(results: frame.Results, axis: Axes, drawn: list[Ladder], figure: Figure, panel: str) -> list[str]:
    """Draw the forecast from the start of each curve, and report its error; a note names curves that are too short."""
    asked, measure, notes = figure.extrapolate, measure_of(figure.y), []
    for curve in drawn if asked is not None else []:
        assert asked is not None
        steps = np.array([step for step, _ in curve.points], dtype=float)
        found = [point for _, point in curve.points]
        values = np.array([point.value for point in found])
        half = (found[-1].high - found[-1].low) / 2
        name = f"{_label(curve, drawn)}, {panel}"
        made = extrapolate.forecast(steps, values, asked, measure.support, half)
        notes.append(extrapolate.line(name, made, measure) if made else extrapolate.too_short(name, len(steps)))
        if made:
            extrapolate.dash(axis, made, measure, style.arm_look(results, curve.arms[0]).color)
    return notes


def _ladder_panel(results: frame.Results, axis: Axes, drawn: list[Ladder], metric: str) -> style.Groups:
    """Draw the curves of a panel; returns which coincide."""
    spots = [_spots(curve, metric) for curve in drawn]
    names = [_label(curve, drawn) for curve in drawn]
    same = style.coinciding_curves({number: [steps, middle] for number, (steps, middle, _, _) in enumerate(spots)})
    for number, (name, (steps, middle, low, high)) in enumerate(zip(names, spots, strict=True)):
        how, more = style.arm_look(results, drawn[number].arms[0]), style.extra_width(number, same)
        axis.fill_between(steps, low, high, color=how.color, alpha=0.15, linewidth=0)
        axis.plot(steps, middle, label=name, linewidth=1.8 + more, markersize=4 + more, **how.pen)
    if measure_of(metric) is SHARE:
        axis.set_ylim(-2, 102)
    style.integer_ticks(axis)
    axis.set_xlabel(" or ".join(f"step of {stage}" for stage in dict.fromkeys(curve.stage for curve in drawn)) or "step")
    axis.grid(axis="y")
    return [[names[number] for number in group] for group in same]


def _spots(curve: Ladder, metric: str) -> tuple[np.ndarray, ...]:
    """Steps, and at each the estimate and the ends of its interval as they are drawn; each (points,)."""
    return np.array([step for step, _ in curve.points]), *interval_ends([point for _, point in curve.points], metric)


def _label(curve: Ladder, drawn: list[Ladder]) -> str:
    """The arms; the stage where many share it; and which evaluation, where an arm has several."""
    name = ", ".join(curve.arms) if len(curve.arms) < 3 else f"{curve.stage} ({len(curve.arms)} arms)"
    several = sum(other.arms == curve.arms for other in drawn) > 1
    return f"{name}: {curve.evaluation}" if several else name
