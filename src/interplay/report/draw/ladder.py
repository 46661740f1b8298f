"""Evaluations along a training ladder: a metric against the step of the stage whose checkpoints were evaluated."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from interplay.report.draw import style
from interplay.report.draw.style import FIGURE_WIDTH, legend, look, whole_steps
from interplay.report.metric_spec import SHARE, measure_of
from interplay.report.spec import Figure, ReportArm
from interplay.report.stats import extrapolate, frame
from interplay.report.stats.estimate import Estimate, ends, uncertain_over, value
from interplay.report.stats.frame import Results
from interplay.report.write import tables


class Curve(NamedTuple):
    """One evaluation along one stage; arms that share the stage share the curve."""

    arms: list[str]
    evaluation: str
    stage: str
    points: list[tuple[int, Estimate]]
    """By step; 0 is the model that the stage starts from."""


def by_step(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """The metric at every rung, a panel per band where the figure asks for it."""
    panels: list[str | None] = [*frame.bands(results)] if figure.panel == "band" else [None]
    drawn = {panel: curves(results, figure.y, panel) for panel in panels}
    if not any(drawn.values()):
        return None, "Not drawn: no evaluation along a stage is there; give an evaluate stage `along: STAGE`."
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    canvas = Canvas(figsize=(FIGURE_WIDTH if columns > 1 else 6.0, 0.7 + 3.0 * rows), layout="constrained")
    axes = canvas.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    notes: list[str] = []
    same: dict[str, style.Groups] = {}
    for axis, panel in zip(axes, panels, strict=False):
        title = panel or "all test problems"
        same[title] = _panel(results, axis, drawn[panel], figure.y)
        axis.set_title(title)
        notes += _continue(results, axis, drawn[panel], figure, title)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    name = tables.label("", figure.y)
    for axis in axes[::columns]:
        axis.set_ylabel(f"{name} ({measure_of(figure.y).unit})")
    legend(canvas, *axes[: len(panels)])
    shown = [(_label(curve, drawn[panel]), point) for panel in panels for curve in drawn[panel] for _, point in curve.points]
    stages = ", ".join(dict.fromkeys(curve.stage for panel in panels for curve in drawn[panel]))
    dashed = " Dashed: foretold from the points before." if notes else ""
    caption = f"{name} along {stages}. Shaded: 95 % intervals, uncertain over {uncertain_over(shown)}.{style.said(same)}{dashed}"
    return canvas, "\n".join([caption, *notes])


def curves(results: Results, metric: str, band: str | None) -> list[Curve]:
    """Every ladder with at least one point, arms with the same evaluations taken together."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for arm in frame.arms(results.spec):
        rungs = [rung for row in results.spec.arms if row.arm == arm for rung in row.rungs]
        for name, stage in dict.fromkeys((rung.evaluation, rung.stage) for rung in rungs):
            digests = tuple(rung.digest for rung in rungs if (rung.evaluation, rung.stage) == (name, stage))
            groups.setdefault((name, stage, digests), []).append(arm)
    found = [
        Curve(names, evaluation, stage, _points(results, names[0], evaluation, stage, metric, band))
        for (evaluation, stage, _), names in groups.items()
    ]
    return [curve for curve in found if curve.points]


def _points(results: Results, arm: str, evaluation: str, stage: str, metric: str, band: str | None) -> list[tuple[int, Estimate]]:
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


def _continue(results: Results, axis: Axes, drawn: list[Curve], figure: Figure, panel: str) -> list[str]:
    """Draw what the start of each curve foretells, and say how near it came; curves that are too short say so."""
    asked, told_in, notes = figure.extrapolate, measure_of(figure.y), []
    for curve in drawn if asked is not None else []:
        assert asked is not None
        steps = np.array([step for step, _ in curve.points], dtype=float)
        found = [point for _, point in curve.points]
        values = np.array([point.value for point in found])
        half = (found[-1].high - found[-1].low) / 2
        name = f"{_label(curve, drawn)}, {panel}"
        foretold = extrapolate.foretell(steps, values, asked, told_in.support, half)
        notes.append(extrapolate.line(name, foretold, told_in) if foretold else extrapolate.too_short(name, len(steps)))
        if foretold:
            extrapolate.dash(axis, foretold, told_in, look(results, curve.arms[0]).color)
    return notes


def _panel(results: Results, axis: Axes, drawn: list[Curve], metric: str) -> style.Groups:
    """Draw the curves of a panel; returns which coincide."""
    spots = [_spots(curve, metric) for curve in drawn]
    names = [_label(curve, drawn) for curve in drawn]
    same = style.groups({number: [steps, middle] for number, (steps, middle, _, _) in enumerate(spots)})
    for number, (name, (steps, middle, low, high)) in enumerate(zip(names, spots, strict=True)):
        how, more = look(results, drawn[number].arms[0]), style.wider(number, same)
        axis.fill_between(steps, low, high, color=how.color, alpha=0.15, linewidth=0)
        axis.plot(steps, middle, label=name, linewidth=1.8 + more, markersize=4 + more, **how.pen)
    if measure_of(metric) is SHARE:
        axis.set_ylim(-2, 102)
    whole_steps(axis)
    axis.set_xlabel(" or ".join(f"step of {stage}" for stage in dict.fromkeys(curve.stage for curve in drawn)) or "step")
    axis.grid(axis="y")
    return [[names[number] for number in group] for group in same]


def _spots(curve: Curve, metric: str) -> tuple[np.ndarray, ...]:
    """Steps, and at each the estimate and the ends of its interval as they are drawn; each (points,)."""
    return np.array([step for step, _ in curve.points]), *ends([point for _, point in curve.points], metric)


def _label(curve: Curve, drawn: list[Curve]) -> str:
    """The arms; the stage where many share it; and which evaluation, where an arm has several."""
    name = ", ".join(curve.arms) if len(curve.arms) < 3 else f"{curve.stage} ({len(curve.arms)} arms)"
    several = sum(other.arms == curve.arms for other in drawn) > 1
    return f"{name}: {curve.evaluation}" if several else name
