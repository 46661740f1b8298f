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
from interplay.report.draw.style import FIGURE_WIDTH, legend, look, whole_steps
from interplay.report.metric_spec import RAW, logged_heading, logged_measure
from interplay.report.spec import Figure
from interplay.report.stats import extrapolate, frame
from interplay.report.stats.frame import Results

WIDE_RANGE = 30.0
"""A quantity that is positive and spans more than this ratio is drawn on a logarithmic axis."""
PLAIN = (1e-4, 1e5)
"""Numbers that are written without an exponent."""
TAIL = 10
"""The last of so many parts of a training curve is what an extrapolation is judged by: single steps are noise."""


class Run(NamedTuple):
    """The last stage of an arm at those seeds that share it: value by step."""

    arm: str
    kind: str
    values: dict[int, float]


def by_step(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """The last stage of each arm, thin per seed and thick in the mean over seeds."""
    runs = [run for arm in frame.arms(results.spec) for run in _runs(results, arm, figure.y)]
    kinds = list(dict.fromkeys(run.kind for run in runs))
    if not runs:
        return None, f"Not drawn: no arm's last stage logs {figure.y}."
    canvas = Canvas(figsize=(FIGURE_WIDTH, 3.9 if len(kinds) < 3 else 3.5), layout="constrained")
    axes = canvas.subplots(1, len(kinds), squeeze=False)[0]
    notes: list[str] = []
    same: dict[str, style.Groups] = {}
    for axis, kind in zip(axes, kinds, strict=True):
        of_kind = [run for run in runs if run.kind == kind]
        same[kind] = _panel(results, axis, of_kind, kind, figure.y)
        notes += _continue(results, axis, of_kind, figure)
        if len(kinds) > 1:
            axis.set_title(kind)
    legend(canvas, *axes, order=frame.arms(results.spec))
    without = [arm for arm in frame.arms(results.spec) if arm not in {run.arm for run in runs}]
    gone = [arm for arm in without if not _last(results, arm).keys() & results.folders.keys()]
    without = [arm for arm in without if arm not in gone]
    absent = f" Without it in their last stage: {', '.join(without)}." if without else ""
    absent += f" Missing: {', '.join(gone)}." if gone else ""
    what = logged_heading(figure.y)
    what = what if what.startswith(figure.y) else f"{figure.y}, {what},"
    absent += " Dashed: foretold from the steps before." if notes else ""
    caption = f"{what} in the last stage of each arm: thin for one seed, thick for the mean over seeds.{style.said(same)}{absent}"
    return canvas, "\n".join([caption, *notes])


def _runs(results: Results, arm: str, key: str) -> list[Run]:
    """One per distinct last stage that logs the key."""
    found = []
    for digest, kind in sorted(_last(results, arm).items()):
        lines = metrics.read(results.folders[digest]) if digest in results.folders else []
        found.append(Run(arm, kind, {line["step"]: line[key] for line in lines if key in line}))
    return [run for run in found if run.values]


def _last(results: Results, arm: str) -> dict[str, str]:
    """Digest -> kind of the last stage of an arm at each seed."""
    ends = [item.path[-1] for item in results.spec.arms if item.arm == arm and item.path]
    return {split_ref(stage.digest)[0]: stage.kind for stage in ends}


def _continue(results: Results, axis: Axes, runs: list[Run], figure: Figure) -> list[str]:
    """Draw what the start of each arm's mean curve foretells, and say how near it came to the mean of its last tenth."""
    asked, notes = figure.extrapolate, []
    for arm in dict.fromkeys(run.arm for run in runs) if asked is not None else []:
        assert asked is not None
        series = [run.values for run in runs if run.arm == arm]
        steps, values = _shared(series)
        judged = max(1, len(steps) // TAIL)
        half = extrapolate.half_width(values[:, -judged:].mean(axis=1))
        found = extrapolate.foretell(steps, values.mean(axis=0), asked, logged_measure(figure.y).support, half, judged)
        notes.append(extrapolate.line(arm, found, RAW) if found else extrapolate.too_short(arm, len(steps)))
        if found:
            extrapolate.dash(axis, found, RAW, look(results, arm).color)
    return notes


def _shared(series: list[dict[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (n,) that all seeds log, and their values (seeds, n)."""
    steps = sorted(set.intersection(*(set(values) for values in series)))
    return np.array(steps, dtype=float), np.array([[values[step] for step in steps] for values in series])


def _panel(results: Results, axis: Axes, runs: list[Run], kind: str, key: str) -> style.Groups:
    """Draw the runs of one kind; returns which arms' means coincide."""
    series = {arm: [run.values for run in runs if run.arm == arm] for arm in dict.fromkeys(run.arm for run in runs)}
    means = {arm: _mean(values) for arm, values in series.items()}
    same = style.groups(means)
    for arm, (steps, mean) in means.items():
        drawn, width = look(results, arm), 2.0 + style.wider(arm, same)
        for values in series[arm] if len(series[arm]) > 1 else []:
            axis.plot(list(values), list(values.values()), color=drawn.color, linewidth=0.7, alpha=0.45)
        marker = drawn.marker if len(steps) == 1 else ""  # a line needs two points
        pen = drawn.pen | {"marker": marker, "markersize": 3 + width}
        axis.plot(steps, mean, linewidth=width, label=arm, **pen)
    every = [value for run in runs for value in run.values.values()]
    if min(every) > 0 and max(every) / min(every) > WIDE_RANGE:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(Written())
        axis.yaxis.set_minor_formatter(Written(labelOnlyBase=False))
    axis.set_xlabel(KINDS[kind].step)
    axis.set_ylabel(KINDS[kind].loss if key == "loss" else logged_heading(key))
    whole_steps(axis)
    axis.grid(axis="y")
    axis.margins(x=0.01)
    return same


def _mean(series: list[dict[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (n,) that all seeds log, and the mean over seeds (n,)."""
    steps, values = _shared(series)
    return steps, values.mean(axis=0)


class Written(LogFormatter):
    """Numbers of a logarithmic axis in one form: all plain, or all with exponents where some are too small or large for that."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick, empty where matplotlib finds that there is no room for one."""
        low, high = self.axis.get_view_interval() if self.axis else (x, x)
        plain = low >= PLAIN[0] and high <= PLAIN[1]
        return (f"{x:g}" if plain else f"{x:.0e}") if super().__call__(x, pos) else ""
