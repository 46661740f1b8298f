"""A score against the values of axes, or against what training took: lines with intervals, and heat maps."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from interplay.core import metrics
from interplay.report.display_spec import SPENT, Figure, Placed
from interplay.report.draw import style
from interplay.report.metric_spec import lower_is_better, measure_of
from interplay.report.shown_spec import SHARE
from interplay.report.stats import budget, estimate, frame
from interplay.report.write import tables

# Lines: the arms of the study that differ in the axis alone are connected, and their controls are horizontal.


SPENT_LABELS = {
    "tokens": "tokens trained on, whole path",
    "flops": "FLOPs of training, whole path",
    "seconds": "seconds of training, whole path",
    "kl": "square root of KL from the reference (nats per completion)",
}
MOST_TICKS = 9
"""Values that are written at the axis themselves."""


class Point(NamedTuple):
    """An arm at its place."""

    arm: str
    x: float
    found: estimate.Estimate


class Scale(NamedTuple):
    """Where values are on the axis, and what is written there."""

    places: dict[float | str, float]
    ticks: dict[float, str]
    named: bool
    """Whether values are names, in the order of the arms."""
    log: bool


def against_axis(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A line for each arm of the study, with the value of each of its combinations; a panel per band if `panel: band`."""
    placed = _placed(results, figure)
    if not placed:
        return None, "Not drawn: no arm of it is finished." if figure.x in SPENT else "Not drawn: it has no arms."
    scale = _scale([one.x for one in placed], figure)
    panels: list[str | None] = [*frame.bands(results)] if figure.panel == "band" else [figure.band]
    canvas, axes, left = style.panel_grid(len(panels), 3.4, 0.7, 7.0)
    shown: list[tuple[str, estimate.Estimate]] = []
    controls = _controls(results, placed)
    level = {style.arm_look(results, arm).color for arm in controls}
    enough = range(1, len(placed) + len(level) + 2)  # without grey, which is for what is compared with, too
    free = [color for color in map(style.palette_color, enough) if color not in level]
    for axis, band in zip(axes, panels, strict=True):
        lines = _lines(results, figure, placed, scale, band) | _best_of(results, figure, placed[0].arm, band)
        for number, (name, points) in enumerate(lines.items()):
            look = free[number], style.MARKERS[number % len(style.MARKERS)]
            _draw_line(results, axis, name, points, scale, look, figure.y)
            shown += [(name, point.found) for point in points]
        for arm in controls:
            found = estimate.value(results, arm, band, figure.y)
            _draw_level(results, axis, arm, found, scale, figure.y)
            shown.append((arm, found))
        axis.set_title((tables.column_label(band) if band else "all test problems") if len(panels) > 1 else "")
        _dress(axis, scale, figure)
    if not any(found.seeds for _, found in shown):
        return None, "Not drawn: no evaluation of it is there."
    name = tables.column_label("", figure.y)
    where = "" if len(panels) > 1 else f", {tables.column_label(figure.band)}" if figure.band else ", all test problems"
    for axis in left:
        axis.set_ylabel(f"{name}{where} ({measure_of(figure.y).unit})")
    style.legend(canvas, *axes)
    return canvas, _line_caption(figure, name + where, shown, controls) + style.missing_note(
        _only(results, placed, controls), shown
    )


def _placed(results: frame.Results, figure: Figure) -> list[Placed]:
    """The arms with their values; of what training took, those whose records say it."""
    placed = next((results.spec.placed.get(name, []) for name, one in results.spec.figures.items() if one == figure), [])
    if figure.x not in SPENT:
        return placed
    took = budget.spent(results, figure.x)
    if figure.x == "kl":  # an estimate may lie below 0
        took = {arm: math.sqrt(max(nats, 0.0)) for arm, nats in took.items()}
    return [one.model_copy(update={"x": took[one.arm]}) for one in placed if one.arm in took]


def _controls(results: frame.Results, placed: Sequence[Placed]) -> list[str]:
    """Arms that those of the lines are compared with and that have no place of their own."""
    arms = {one.arm for one in placed}
    controls = dict.fromkeys(row.control for row in results.spec.rows_of(*arms) if row.control)
    return [arm for arm in controls if arm not in arms]


def _only(results: frame.Results, placed: Sequence[Placed], controls: Sequence[str]) -> frame.Results:
    """Results of which a caption names missing lines and controls alone."""
    return results._replace(drawn=tuple(dict.fromkeys([*(one.line for one in placed), *controls])))


def _scale(values: Sequence[float | str], figure: Figure) -> Scale:
    """Places of the values; on a logarithmic axis 0 is one step to the left of the others."""
    distinct = list(dict.fromkeys(values))
    if not all(isinstance(value, float | int) for value in distinct):
        return Scale({value: float(at) for at, value in enumerate(distinct)}, dict(enumerate(map(str, distinct))), True, False)
    numbers = sorted(float(value) for value in distinct)
    places = {number: number for number in numbers}
    written = [] if figure.x in SPENT or len(numbers) > MOST_TICKS else numbers
    if figure.log and numbers[0] == 0 and len(numbers) > 1:
        step = numbers[2] / numbers[1] if len(numbers) > 2 else 10.0
        places[0.0] = numbers[1] / max(2.0, step)
        written = written or [0.0, numbers[1], numbers[-1]]  # the place of 0 is no number of the axis
    ticks = {places[number]: f"{number:g}" for number in written}
    return Scale(places, ticks, False, figure.log)  # type: ignore[arg-type]


def _lines(
    results: frame.Results, figure: Figure, placed: Sequence[Placed], scale: Scale, band: str | None
) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for one in placed:
        at = scale.places[one.x if scale.named else float(one.x)]
        found.setdefault(one.line, []).append(Point(one.arm, at, estimate.value(results, one.arm, band, figure.y)))
    return {line: sorted(points, key=lambda point: point.x) for line, points in found.items()}


def _best_of(results: frame.Results, figure: Figure, arm: str, band: str | None) -> dict[str, list[Point]]:
    """In a figure over KL the best of n samples of an arm by the learned reward, at log n - (n - 1) / n nats: the divergence of
    best-of-n where no rewards tie, and an upper bound where they do (arXiv:2009.01325, 2401.01879)."""
    stem, _, k = figure.y.partition("_best@")
    if figure.x != "kl" or k != "1":
        return {}
    tried = [(n, estimate.value(results, arm, band, f"{stem}_best@{n}")) for n in (1 << power for power in range(6))]
    points = [Point(arm, math.sqrt(math.log(n) - (n - 1) / n), found) for n, found in tried if found.seeds]
    return {f"best of n, {arm}": points} if points else {}


def _draw_line(
    results: frame.Results, axis: Axes, name: str, points: list[Point], scale: Scale, look: tuple[str, str], metric: str
) -> None:
    """Connected where the values are numbers; whiskers are the intervals. Its colour is that of the arm, or that of its look."""
    own = [results.colors[point.arm] for point in points if point.arm in results.colors]
    color, marker = own[-1] if own else look[0], look[1]
    xs = np.array([point.x for point in points])
    middle, low, high = estimate.interval_ends([point.found for point in points], metric)
    axis.vlines(xs, low, high, color=color, linewidth=1.2, alpha=0.8, label=f"_{name}")
    pen: dict[str, Any] = {"color": color, "linewidth": 1.8, "marker": marker, "markersize": 6}
    if scale.log and len(xs) > 1 and xs[0] == scale.places.get(0.0):  # how far 0 is from the others is no number of the axis
        axis.plot(xs[:2], middle[:2], label=f"_{name}", **{**pen, "linestyle": ":"})
        xs, middle = np.insert(xs, 1, np.nan), np.insert(middle, 1, np.nan)
    axis.plot(xs, middle, label=name, linestyle="none" if scale.named else "-", **pen)


def _draw_level(results: frame.Results, axis: Axes, arm: str, found: estimate.Estimate, scale: Scale, metric: str) -> None:
    """A horizontal line with its interval, as wide as the places of the others and a little more."""
    ends = [min(scale.places.values()), max(scale.places.values())]
    ends = (
        [ends[0] / 1.15, ends[1] * 1.15] if scale.log else [ends[0] - (pad := 0.04 * (ends[1] - ends[0]) or 0.5), ends[1] + pad]
    )
    middle, low, high = (np.repeat(part, 2) for part in estimate.interval_ends([found], metric))
    color = style.arm_look(results, arm).color
    axis.set_xlim(*ends)
    axis.fill_between(ends, low, high, color=color, alpha=0.12, linewidth=0, label=f"_{arm}")
    axis.plot(ends, middle, label=arm, color=color, linestyle="--", linewidth=1.4)


def _dress(axis: Axes, scale: Scale, figure: Figure) -> None:
    if scale.log:
        axis.set_xscale("log")
    if scale.ticks:
        axis.set_xticks(list(scale.ticks), list(scale.ticks.values()))
        axis.minorticks_off()
    axis.set_xlabel(SPENT_LABELS.get(figure.x) or _axis_name(figure.x))
    style.limit_share(axis, figure.y)
    axis.grid(axis="y")


def _axis_name(key: str) -> str:
    """`rl.method.loss.beta` -> `beta`; `mid.data.edge` -> `share of edge in mid`."""
    stage, *inner = key.split(".")
    if inner[:1] == ["data"] and len(inner) == 2:
        return f"share of {inner[1]} in {stage}"
    return key.rpartition(".")[2].replace("_", " ")


def _line_caption(figure: Figure, name: str, shown: list[tuple[str, estimate.Estimate]], controls: Sequence[str]) -> str:
    against = SPENT_LABELS.get(figure.x) or figure.x
    said = f"{name} against {against}{' (logarithmic; a 0 is left of all values, dotted)' if figure.log else ''}."
    said += f" Whiskers: 95 % intervals for {estimate.uncertain_over(shown)}."
    return f"{said} Dashed: {', '.join(controls)}, shaded with the interval." if controls else said


def by_length(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A panel for bands of equal ops, in which each arm has a line over the mean lengths of its own completions there: what
    differs in length alone is connected."""
    grouped: dict[tuple[int, ...], list[str]] = {}
    for band in figure.bands or []:
        grouped.setdefault(frame.ops_of(results, band), []).append(band)
    canvas, axes, left = style.panel_grid(len(grouped), 3.4, 0.7, 7.0)
    shown: list[tuple[str, estimate.Estimate]] = []
    for axis, (ops, bands) in zip(axes, grouped.items(), strict=True):
        for arm in frame.drawn(results):
            found = [estimate.value(results, arm, band, figure.y) for band in bands]
            lengths = [frame.recorded_mean(results, arm, band, "length") for band in bands]
            ends = estimate.interval_ends(found, figure.y)
            style.draw_whiskers(axis, arm, lengths, ends, style.arm_look(results, arm))
            shown += [(arm, item) for item in found]
        axis.set_title(f"{', '.join(bands)} (op {metrics.number_ranges(list(ops))})")
        axis.set_xlabel("completion (mean tokens)")
        axis.grid(axis="y")
        style.limit_share(axis, figure.y)
    if not any(found.seeds for _, found in shown):
        return None, f"Not drawn: no evaluation holds {', '.join(figure.bands or [])}."
    name = tables.column_label("", figure.y)
    for axis in left:
        axis.set_ylabel(f"{name} ({measure_of(figure.y).unit})")
    style.legend(canvas, axes[0])
    said = f"{name} by the length of completions, a panel for bands of equal ops; lines connect what is asked at other lengths."
    said += f" Whiskers: 95 % intervals for {estimate.uncertain_over(shown)}."
    return canvas, said + style.missing_note(results, shown)


# A heat map: a row per arm and a column per op or band, or the values of two axes; the number in each cell.


BLUE, WHITE, ORANGE = "#1d4f7c", "#ffffff", "#eea022"
DIVERGING = LinearSegmentedColormap.from_list("interplay_diverging", [BLUE, WHITE, ORANGE])
"""White is no difference. The ends differ in lightness too, so that in grey the good side stays the dark one."""
SEQUENTIAL = LinearSegmentedColormap.from_list("interplay_plain", [WHITE, BLUE])
DARK = 0.45
"""Luminance below which the number is written in white."""
COUNTED = {"op": "op (operations that the answer needs)", "depth": "depth of the needle (% of the context)"}
CELL_ROW, CELL_HEAD = 0.42, 1.2
"""Inches of a row, and of all that is not rows."""


def heat_map(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """Values, or differences to an arm with a map that is centred at 0; in bold where the 95 % interval leaves 0 out."""
    found = _two_axes(results, figure) if figure.is_axis() else _cells(results, figure)
    arms, columns = (list(dict.fromkeys(key[at] for key in found)) for at in range(2))
    if not any(item.seeds for item in found.values()):
        return None, "Not drawn: no evaluation of it is there."
    numbers = _numbers(found, figure).reshape(len(arms), len(columns))
    names, height = style.row_labels(arms, CELL_ROW)
    canvas = style.new_canvas(height * len(arms), CELL_HEAD)
    axis = canvas.subplots()
    colours = _paint(canvas, axis, numbers, figure, _ends(results, figure, numbers))
    for row, arm in enumerate(arms):
        for place, column in enumerate(columns):
            _write(axis, (place, row), found[arm, column], figure, colours[row, place])
    axis.set_xticks(range(len(columns)), [column.removeprefix("op:") for column in columns])
    axis.set_yticks(range(len(arms)), names)
    axis.set_xlabel(COUNTED.get(figure.x, "") if not figure.is_axis() else _axis_name(figure.x))
    axis.set_ylabel(_axis_name(figure.by) if figure.is_axis() else "")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return canvas, _caption(figure, [(arm, item) for (arm, _), item in found.items()])


def _cells(results: frame.Results, figure: Figure) -> dict[tuple[str, str], estimate.Estimate]:
    """By arm, or by band of the only arm, and column."""
    if figure.by == "band":
        (arm,) = frame.drawn(results)
        ops = [f"op:{op}" for op in sorted({op for band in figure.bands or () for op in frame.ops_of(results, band)})]
        places = [(band, op) for band in figure.bands or () for op in ops]
        if figure.against is None:
            return {(band, op): estimate.value(results, arm, f"{band}/{op}", figure.y) for band, op in places}
        return {(band, op): estimate.difference(results, arm, figure.against, f"{band}/{op}", figure.y) for band, op in places}
    arms = [arm for arm in frame.drawn(results) if arm != figure.against]
    keys = itertools.product(arms, figure.bands or [f"op:{op}" for op in frame.ops(results)])
    if figure.against is None:
        return {(arm, column): estimate.value(results, arm, column, figure.y) for arm, column in keys}
    return {(arm, column): estimate.difference(results, arm, figure.against, column, figure.y) for arm, column in keys}


def _two_axes(results: frame.Results, figure: Figure) -> dict[tuple[str, str], estimate.Estimate]:
    """By the values of both axes; missing where no arm has them."""
    placed = _placed(results, figure)
    arm_at = {(one.row, one.x): one.arm for one in placed}
    rows, columns = (_in_order(list(dict.fromkeys(values))) for values in zip(*((one.row, one.x) for one in placed), strict=True))
    found = {}
    for row, column in itertools.product(rows, columns):
        key = (_written(row), _written(column))
        arm = arm_at.get((row, column))
        if arm is None or arm == figure.against:
            found[key] = estimate.Estimate()
        elif figure.against is None:
            found[key] = estimate.value(results, arm, figure.band, figure.y)
        else:
            found[key] = estimate.difference(results, arm, figure.against, figure.band, figure.y)
    return found


def _in_order(values: list) -> list:
    """Numbers by size, names as they are."""
    return sorted(values) if all(isinstance(value, float | int) for value in values) else values


def _written(value: float | str | None) -> str:
    return f"{value:g}" if isinstance(value, float | int) else str(value)


def _numbers(found: dict[tuple[str, str], estimate.Estimate], figure: Figure) -> np.ndarray:
    """Of all cells as they are shown, NaN where missing."""
    return np.array([cell.value for cell in found.values()]) * measure_of(figure.y).factor


def _ends(results: frame.Results, figure: Figure, numbers: np.ndarray) -> tuple[float, float]:
    """What the ends of the colours stand for: 0 and 100 % for shares, else the extremes over all maps of the report in that unit,
    so that two of them can be compared."""
    unit, signed = measure_of(figure.y), figure.against is not None
    if unit is SHARE and not signed:
        return 0.0, 100.0
    maps = [other for other in results.spec.figures.values() if other.form == "heat" and measure_of(other.y) is unit]
    maps = [other for other in maps if (other.against is not None) == signed and other != figure]
    of = [results._replace(drawn=tuple(map(results.spec.label_of, other.arms or ()))) for other in maps]
    cells = [(_two_axes if other.is_axis() else _cells)(one, other) for one, other in zip(of, maps, strict=True)]
    every = np.concatenate([numbers.ravel(), *(_numbers(found, other) for found, other in zip(cells, maps, strict=True))])
    known = every[~np.isnan(every)]
    if signed:
        reach = max(float(np.abs(known).max()), 10.0**-unit.decimals)
        return -reach, reach
    low, high = float(known.min()), float(known.max())
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def _paint(canvas: Canvas, axis: Axes, numbers: np.ndarray, figure: Figure, ends: tuple[float, float]) -> np.ndarray:
    """Draw the cells and their key; returns their colours (arms, columns, 4). Blue is the better side of a difference."""
    norm = Normalize(*ends)
    differences = DIVERGING if lower_is_better(figure.y) else DIVERGING.reversed()
    colours = SEQUENTIAL if figure.against is None else differences
    image = axis.imshow(np.ma.masked_invalid(numbers), cmap=colours, norm=norm, aspect="auto")
    title = measure_of(figure.y).unit_of(figure.against is not None)
    canvas.colorbar(image, ax=axis, label=title, fraction=0.04, pad=0.02).outline.set_visible(False)
    return np.asarray(colours(norm(np.nan_to_num(numbers))))


def _write(axis: Axes, at: tuple[int, int], found: estimate.Estimate, figure: Figure, colour: np.ndarray) -> None:
    """The number in its cell; hatched where there is none."""
    if np.isnan(found.value):
        axis.add_patch(Rectangle((at[0] - 0.5, at[1] - 0.5), 1, 1, fill=False, hatch="///", edgecolor="#bbbbbb", linewidth=0))
        return
    signed = figure.against is not None
    significant = signed and (found.low > 0 or found.high < 0)
    luminance = float(colour[:3] @ np.array([0.299, 0.587, 0.114]))
    text = measure_of(figure.y).shown(found.value, signed).replace("-", "−")
    ink, weight = "#ffffff" if luminance < DARK else "#1a1a1a", "bold" if significant else "normal"
    axis.text(*at, text, ha="center", va="center", fontsize=style.type_size(0.9), color=ink, weight=weight)


def _caption(figure: Figure, shown: list[tuple[str, estimate.Estimate]]) -> str:
    columns = "depth" if figure.x == "depth" else "band" if figure.x == "band" else "op"
    name, by = tables.column_label("", figure.y), f"by {figure.by} and {columns}."
    if figure.is_axis():
        where = tables.column_label(figure.band) if figure.band else "all test problems"
        name, by = f"{name}, {where}", f"by {figure.by} and {figure.x}."
    if figure.against is None:
        return f"{name}, {by} Hatched: missing."
    side = "below" if lower_is_better(figure.y) else "above"
    colours = f"Blue: better, which is {side} 0; orange: worse."
    bold = f"Bold: the 95 % interval, for {estimate.uncertain_over(shown)}, leaves 0 out."
    return f"{name}, difference to {figure.against}, {by} {colours} {bold}"
