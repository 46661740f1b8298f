"""Figures of every form, drawn by the module of that form. PNG and SVG whose bytes depend on the numbers alone.

A drawn figure is also read off its matplotlib canvas as data, which the page draws again to be hovered over, filtered and saved:
the static picture and the interactive one cannot differ. An artist that belongs to a named one, such as its interval, has the
same label after an underscore, which matplotlib leaves out of legends."""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter

from interplay.core import metrics
from interplay.report.display_spec import SPENT, Figure
from interplay.report.draw import axes, curves, style
from interplay.report.metric_spec import ERROR, measure_of
from interplay.report.shown_spec import SHARE
from interplay.report.stats import estimate, frame
from interplay.report.write import tables

Drawer = Callable[[frame.Results, Figure], tuple[Canvas | None, str]]
"""Draws a figure, or not, and says what is to be seen; further lines are notes."""


class Drawing(NamedTuple):
    """A finished figure. `png` and `svg` are empty where there was nothing to draw, which the caption then says, or where no
    files were asked for."""

    png: bytes
    svg: bytes
    caption: str
    notes: list[str] = []
    """Lines beneath the caption."""
    pdf: bytes = b""
    chart: dict[str, Any] = {}
    """The same as data (`read_chart`)."""


def draw_figure(results: frame.Results, figure: Figure, files: bool = True) -> Drawing:
    """Draw one declared figure. Without `files` it is drawn for its caption and notes alone: to write it in three formats takes
    most of the time."""
    with style.drawn_for(style.PAGE):
        canvas, caption, notes = draw_canvas(results, figure)
        if canvas is None or not files:
            return Drawing(b"", b"", caption, notes)
        png = _bytes(canvas, "png", {"Software": None})
        canvas.set_layout_engine(None)  # laid out once, for all formats: each format would draw it a second time to do so
        svg = _bytes(canvas, "svg", {"Date": None, "Creator": None})
        pdf = _bytes(canvas, "pdf", {"CreationDate": None, "Producer": None, "Creator": None})
        return Drawing(png, svg, caption, notes, pdf, read_chart(canvas))


def draw_canvas(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str, list[str]]:
    """The drawn figure, None where there is nothing to draw, its caption and notes, for the medium of `style.drawn_for`."""
    shown, asked = frame.as_shown(results, figure)
    canvas, said = _drawer(figure)(shown, asked)
    frame.keep_shown(results, shown)
    if canvas is not None:
        style.fit_lines(canvas)
    caption, *notes = said.split("\n")
    return canvas, f"{figure.caption} {caption}".strip(), notes


def _drawer(figure: Figure) -> Drawer:
    """Who draws it."""
    if figure.form == "heat":
        return axes.heat_map
    if figure.is_axis() or figure.x in SPENT:
        return axes.against_axis
    if figure.y == ERROR:
        return error_class_bars
    by_step = curves.ladder_by_step if figure.along() else curves.curves_by_step
    return {"k": _by_k, "op": _by_op, "band": _by_band, "length": axes.by_length, "step": by_step}[figure.x]


def _bytes(canvas: Canvas, form: str, metadata: dict[str, None]) -> bytes:
    """Without date and version, so that equal numbers give equal bytes."""
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=form, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _by_k(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """pass@k against k, a panel per band; ks are the powers of two up to the number of samples."""
    least = min((int(table["n"].min()) for table in results.prompts.values()), default=0)
    if not least:
        return None, "Not drawn: no evaluation is there."
    ks = [2**power for power in range(least.bit_length()) if 2**power <= least]
    panels: list[str | None] = [*frame.bands(results)] if figure.panel == "band" else [None]
    canvas, axes, left = style.panel_grid(len(panels), 3.0, 0.7, 6.0)
    shown: list[tuple[str, estimate.Estimate]] = []
    same: dict[str, style.Groups] = {}
    for axis, band in zip(axes, panels, strict=True):
        drawn = _estimates(results, [(band, f"{figure.y}@{k}") for k in ks])
        same[band or ""] = _curves(results, axis, drawn, ks)
        shown += [(arm, item) for arm, found in drawn.items() for item in found]
        axis.set_title(_band_title(results, band))
        axis.set_xlabel("k (samples per problem)")
    name = f"{figure.y.replace('_', ' ')}@k"
    for axis in left:
        axis.set_ylabel(f"{name} (%)")
    style.legend(canvas, axes[0])
    caption = f"{name} (unbiased) against k. Shaded: 95 % intervals for {estimate.uncertain_over(shown)}."
    return canvas, caption + style.coinciding_note(same) + style.missing_note(results, shown)


def _estimates(results: frame.Results, pairs: Sequence[tuple[str | None, str]]) -> dict[str, list[estimate.Estimate]]:
    """By arm at each column and metric, for the arms of which there is something."""
    found = {arm: [estimate.value(results, arm, *pair) for pair in pairs] for arm in frame.drawn(results)}
    return {arm: items for arm, items in found.items() if any(item.seeds for item in items)}


def _curves(results: frame.Results, axis: Axes, drawn: dict[str, list[estimate.Estimate]], ks: list[int]) -> style.Groups:
    """Draw one panel; returns which arms' curves coincide there."""
    curves = {arm: estimate.interval_ends(items, "strict_pass@1") for arm, items in drawn.items()}
    same = style.coinciding_curves({arm: [middle] for arm, (middle, _, _) in curves.items()})
    for arm, ends in curves.items():
        style.draw_shaded(axis, arm, ks, ends, style.arm_look(results, arm), style.extra_width(arm, same))
    axis.set_xscale("log", base=2)
    axis.set_xticks(ks, [str(k) for k in ks])
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_ylim(-2, 102)
    axis.grid(axis="y")
    return same


def _band_title(results: frame.Results, band: str | None) -> str:
    if band is None:
        return "all test problems"
    numbers = results.spec.bands.get(band, [])
    return f"{band} (op {metrics.number_ranges(numbers)})" if numbers else band


def _by_op(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A bar per arm and op with its interval; the bands are shaded by turns."""
    ops, arms = frame.ops(results), frame.drawn(results)
    if not ops:
        return None, "Not drawn: no evaluation is there."
    canvas = style.new_canvas(3.9)
    axis = canvas.subplots()
    width = 0.84 / len(arms)
    drawn = _estimates(results, [(f"op:{op}", figure.y) for op in ops])
    for arm, found in drawn.items():
        at = np.arange(len(ops)) + (arms.index(arm) - (len(arms) - 1) / 2) * width
        _bars(axis, at, width, estimate.interval_ends(found, figure.y), arm, style.arm_look(results, arm))
    axis.set_xticks(range(len(ops)), [str(op) for op in ops])
    axis.set_xlim(-0.6, len(ops) - 0.4)
    is_share = measure_of(figure.y) is SHARE
    axis.set_ylim(0 if measure_of(figure.y).support[0] >= 0 else None, 104 if is_share else None)
    axis.set_xlabel("op (operations that the answer needs)")
    axis.set_axisbelow(True)
    style.shade_bands(results, axis, ops, 105 if is_share else 1.01 * axis.get_ylim()[1])
    return canvas, _label_axis(results, canvas, axis, figure, drawn, "per op")


def _label_axis(
    results: frame.Results, canvas: Canvas, axis: Axes, figure: Figure, drawn: dict[str, list[estimate.Estimate]], by: str
) -> str:
    """Name the metric and the arms of a figure with whiskers; returns its caption."""
    name = figure.y.replace("_", " ")
    axis.set_ylabel(f"{name} ({measure_of(figure.y).unit})")
    axis.grid(axis="y")
    style.legend(canvas, axis)
    shown = [(arm, item) for arm, found in drawn.items() for item in found]
    over = f"for {estimate.uncertain_over(shown)}"
    return f"{name} {by}. Whiskers: 95 % intervals, {over}.{style.missing_note(results, shown)}"


def _bars(axis: Axes, at: np.ndarray, width: float, drawn: estimate.Ends, arm: str, how: style.ArmLook) -> None:
    middle, low, high = drawn
    hatched: dict[str, Any] = {"hatch": how.hatch, "edgecolor": "#ffffff", "linewidth": 0.0} if how.hatch else {}
    axis.bar(at, middle, width * 0.9, color=how.color, label=arm, **hatched)
    axis.vlines(at, low, high, color="#222222", linewidth=0.8, label=f"_{arm}")


# A metric over bands in an order that the study gives, such as one task at growing lengths.


def _by_band(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A line per arm with its interval at each band."""
    bands = figure.bands or []
    drawn = _estimates(results, [(band, figure.y) for band in bands])
    if not drawn:
        return None, f"Not drawn: no evaluation holds {', '.join(bands)}."
    canvas = style.new_canvas(3.9)
    axis = canvas.subplots()
    arms = frame.drawn(results)
    for arm, found in drawn.items():
        place = arms.index(arm) - (len(arms) - 1) / 2
        at = np.arange(len(bands)) + 0.03 * place  # shifted, so that no whisker hides another
        style.draw_whiskers(axis, arm, at, estimate.interval_ends(found, figure.y), style.arm_look(results, arm))
    axis.set_xticks(range(len(bands)), bands)
    style.limit_share(axis, figure.y)
    return canvas, _label_axis(results, canvas, axis, figure, drawn, "by band")


# Classes of errors as stacked bars: a panel per band, a bar per arm.


RIGHT = "#d9d9d9"
CLASS_COLOURS = ["#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7", "#009E73", "#7F3C8D", "#F0E442", "#4d4d4d"]
CLASS_HATCHES = ["", "//", "", "..", "\\\\", "", "xx", "", "--"]
"""Neighbours in a bar differ in hatching as well, for those who see or print no colours."""
BAR_ROW, BAR_HEAD = 0.34, 1.1
"""Inches of a bar, and of all that is not bars."""
LEAST = 0.08
"""Share from which a part has room for its number."""


def error_class_bars(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """Shares of samples by class: strictly right ones first, then each class in the order of the schema."""
    bands, names = figure.bands or [], frame.error_classes(results)
    arms = frame.drawn(results)
    cells = [(arm, band, name) for arm in arms for band in bands for name in names]
    found = {cell: estimate.value(results, *cell[:2], f"{ERROR}:{cell[2]}") for cell in cells}
    if not any(item.seeds for item in found.values()):
        return None, "Not drawn: no evaluation that counts classes of errors is there."
    shown, height = style.row_labels(arms, BAR_ROW)
    canvas, axes, _ = style.panel_grid(len(bands), BAR_HEAD + height * len(arms))
    for axis, band in zip(axes, bands, strict=True):
        _class_bars(axis, {arm: [found[arm, band, name] for name in names] for arm in arms}, names)
        axis.set_yticks(range(len(arms)), shown)
        axis.set_title(band)
    style.legend(canvas, axes[0], order=[tables.column_label("", f"{ERROR}:{name}") for name in names])
    whole = [(arm, found[arm, band, names[0]]) for arm in arms for band in bands]
    return canvas, (
        "Samples by their first error, in percent; the mean over seeds. A table with the cell error has "
        f"the intervals, for {estimate.uncertain_over(whole)}.{style.missing_note(results, whole)}"
    )


def _class_bars(axis: Axes, shares: dict[str, list[estimate.Estimate]], names: list[str]) -> None:
    """One band: a bar per arm from the top down, its parts from left to right."""
    places = np.arange(len(shares))
    left = np.zeros(len(shares))
    for number, name in enumerate(names):
        width = 100 * np.nan_to_num([of_arm[number].value for of_arm in shares.values()])
        colour, hatch = _class_look(name, names)
        label = tables.column_label("", f"{ERROR}:{name}")
        axis.barh(places, width, 0.74, left=left, color=colour, hatch=hatch, edgecolor="#ffffff", linewidth=0.5, label=label)
        for place, (start, size) in enumerate(zip(left.tolist(), width.tolist(), strict=True)):
            if size >= 100 * LEAST and name == "none":
                small = style.type_size(0.8)
                axis.text(start + size / 2, place, f"{size:.0f}", ha="center", va="center", fontsize=small, color="#1a1a1a")
        left += width
    axis.set_ylim(len(shares) - 0.5, -0.5)
    axis.set_xlim(0, 100)
    axis.set_xticks([0, 50, 100])
    first, _, last = axis.get_xticklabels()
    first.set_horizontalalignment("left")  # else the 100 of a panel runs into the 0 of the next
    last.set_horizontalalignment("right")
    axis.set_xlabel("samples (%)")
    axis.tick_params(axis="y", length=0)


def _class_look(name: str, names: list[str]) -> tuple[str, str]:
    """Colour and hatching of a class."""
    if name == "none":
        return RIGHT, ""
    place = [item for item in names if item != "none"].index(name)
    return CLASS_COLOURS[place % len(CLASS_COLOURS)], CLASS_HATCHES[place % len(CLASS_HATCHES)]


Json = dict[str, Any]
DASHES = {"-": "", "--": "6 3", "-.": "7 3 2 3", ":": "2 3", "None": "0 9999"}
"""Of matplotlib -> of SVG; of points that nothing connects, one whose gap is longer than a line."""


def read_chart(canvas: Canvas) -> Json:
    """`panels`: title, axes `x` and `y`, `lines`, `bars`, `cells`, `marks`. Numbers are in the units of the axes; `points` are
    [x, y, low, high], the interval null where there is none; a `thin` curve is [x, y], or y at the x of the points.

    Axes: label, log, limits, `ticks` as [place, text] where they are fixed, and whether these are names at 0, 1, ... ."""
    bars = {id(axis) for axis in canvas.axes if axis.get_label() == "<colorbar>"}
    return {"panels": [_panel(axis) for axis in canvas.axes if axis.get_visible() and id(axis) not in bars]}


def _panel(axis: Axes) -> Json:
    return {
        "title": axis.get_title() or axis.get_title("left"),
        "x": _axis(axis.xaxis, axis.get_xlabel(), axis.get_xscale(), axis.get_xlim()),
        "y": _axis(axis.yaxis, axis.get_ylabel(), axis.get_yscale(), axis.get_ylim()),
        "lines": list(_lines(axis)),
        "bars": list(_stacked_or_bars(axis)),
        "cells": list(_cells(axis)),
        "marks": [[round(float(x), 4), text.get_text()] for text in axis.texts for x in text.get_position()[:1]]
        if not axis.images and not _is_stacked(axis)
        else [],
    }


def _axis(axis: Any, label: str, scale: str, limits: tuple[float, float]) -> Json:
    ticks = None
    if isinstance(axis.get_major_locator(), FixedLocator):
        places = axis.get_majorticklocs()
        ticks = [[_short(at), text] for at, text in zip(places, axis.get_major_formatter().format_ticks(places), strict=True)]
    names = ticks is not None and scale == "linear" and [at for at, _ in ticks] == [*range(len(ticks))]
    return {"label": label, "log": scale == "log", "limits": [*map(_short, limits)], "ticks": ticks, "names": names}


def _lines(axis: Axes) -> Iterator[Json]:
    """Curves by name, each with its interval and the thin curves of single seeds; those of no name, such as forecasts, last."""
    intervals, labels = _intervals(axis), {line: str(line.get_label()) for line in axis.lines}
    for line, name in labels.items():
        if name.startswith("_child"):
            yield {"name": "", **_pen(line), "points": [[*pair, None, None] for pair in _pairs(line)], "thin": []}
        elif not name.startswith("_"):
            between = intervals.get(name, {})
            points = [[x, y, *between.get(x, (None, None))] for x, y in _pairs(line)]
            thin = [_thin(other, points) for other, label in labels.items() if label == f"_{name}"]
            yield {"name": name, **_pen(line), "points": points, "thin": thin}


def _pen(line: Line2D) -> Json:
    marker = str(line.get_marker())
    dash = DASHES.get(str(line.get_linestyle()), "") if not line.is_dashed() or line.get_linestyle() in DASHES else "5 4"
    return {"color": to_hex(line.get_color()), "dash": dash, "marker": "" if marker == "None" else marker}


def _pairs(line: Line2D) -> list[list[float | None]]:
    data: Any = line.get_data()
    return [[_place(x), _short(y)] for x, y in zip(*data, strict=True)]


def _thin(line: Line2D, points: list[list[Any]]) -> list[Any]:
    """The curve of a seed to four digits: y alone where it has the places of the curve that it belongs to."""
    pairs = [[x, None if y is None else float(f"{y:.4g}")] for x, y in _pairs(line)]
    return [y for _, y in pairs] if [x for x, _ in pairs] == [point[0] for point in points] else pairs


def _intervals(axis: Axes) -> dict[str, dict[float | None, tuple[float | None, float | None]]]:
    """Name -> x -> (low, high), of bands and of whiskers."""
    found: dict[str, dict[float | None, list[float]]] = {}
    for part in axis.collections:
        of = found.setdefault(str(part.get_label()).removeprefix("_"), {})
        if isinstance(part, LineCollection):
            corners: Any = [point for segment in part.get_segments() for point in segment]  # of an arm without records none
        else:
            corners = part.get_paths()[0].vertices if isinstance(part, PolyCollection) and part.get_paths() else []
        for x, y in corners:
            of.setdefault(_place(x), []).append(float(y))
    return {name: {x: (_short(min(ys)), _short(max(ys))) for x, ys in of.items()} for name, of in found.items()}


def _is_stacked(axis: Axes) -> bool:
    return any(isinstance(one, BarContainer) and one.orientation == "horizontal" for one in axis.containers)


def _stacked_or_bars(axis: Axes) -> Iterator[Json]:
    """Bars by name: [left, bottom, width, height], and their whiskers as points."""
    intervals = _intervals(axis)
    for container in axis.containers:
        if isinstance(container, BarContainer) and container.patches:
            first, name = container.patches[0], str(container.get_label())
            boxes = [[_short(n) for n in (p.get_x(), p.get_y(), p.get_width(), p.get_height())] for p in container.patches]
            between = intervals.get(name, {})
            ends = [between.get(_place(p.get_x() + p.get_width() / 2), (None, None)) for p in container.patches]
            look = {"color": to_hex(first.get_facecolor()), "hatch": first.get_hatch() or ""}
            yield {"name": name, **look, "boxes": boxes, "ends": ends, "level": container.orientation == "horizontal"}


def _cells(axis: Axes) -> Iterator[Json]:
    """The cells of a heat map: place, number, whether it is set in bold, colour."""
    for image in axis.images:
        numbers: np.ndarray = np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), np.nan)
        colours: Any = image.to_rgba(numbers)
        bold = {text.get_position() for text in axis.texts if text.get_fontweight() == "bold"}
        for (row, column), number in np.ndenumerate(numbers):
            shown = _short(number)
            yield {
                "at": [column, row],
                "value": shown,
                "bold": (column, row) in bold,
                "color": None if shown is None else to_hex(tuple(colours[row, column])),
            }


def _short(number: float, digits: int = 5) -> float | None:
    """So many significant digits; None for what is no number."""
    return float(f"{float(number):.{digits}g}") if np.isfinite(number) else None


def _place(x: float) -> float | None:
    """To nine digits, so that steps and tokens of a long run stay distinct."""
    return _short(x, 9)
