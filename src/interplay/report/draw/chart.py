"""A drawn figure as data, read off its matplotlib canvas: what the page draws again to be hovered over, filtered and saved.

The static picture and the interactive one thus cannot differ. An artist that belongs to a named one, such as its interval, has
the same label after an underscore, which matplotlib leaves out of legends."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

Json = dict[str, Any]
DASHES = {"-": "", "--": "6 3", "-.": "7 3 2 3", ":": "2 3", "None": "0 9999"}
"""Of matplotlib -> of SVG; of points that nothing connects, one whose gap is longer than a line."""


def read_chart(canvas: Canvas) -> Json:
    """`panels`: title, axes `x` and `y`, `lines`, `bars`, `cells`, `marks`. Numbers are in the units of the axes; `points` are
    [x, y, low, high], the interval null where there is none.

    Axes: label, log, limits, `ticks` as [place, text] where they are fixed, and whether these are names at 0, 1, ... ."""
    bars = {id(axis) for axis in canvas.axes if axis.get_label() == "<colorbar>"}
    return {"panels": [_panel(axis) for axis in canvas.axes if axis.get_visible() and id(axis) not in bars]}


def _panel(axis: Axes) -> Json:
    return {
        "title": axis.get_title() or axis.get_title("left"),
        "x": _axis(axis.xaxis, axis.get_xlabel(), axis.get_xscale(), axis.get_xlim()),
        "y": _axis(axis.yaxis, axis.get_ylabel(), axis.get_yscale(), axis.get_ylim()),
        "lines": list(_lines(axis)),
        "bars": list(_bars(axis)),
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
            thin = [_pairs(other) for other, label in labels.items() if label == f"_{name}"]
            yield {"name": name, **_pen(line), "points": points, "thin": thin}


def _pen(line: Line2D) -> Json:
    marker = str(line.get_marker())
    dash = DASHES.get(str(line.get_linestyle()), "") if not line.is_dashed() or line.get_linestyle() in DASHES else "5 4"
    return {"color": to_hex(line.get_color()), "dash": dash, "marker": "" if marker == "None" else marker}


def _pairs(line: Line2D) -> list[list[float | None]]:
    data: Any = line.get_data()
    return [[_short(x), _short(y)] for x, y in zip(*data, strict=True)]


def _intervals(axis: Axes) -> dict[str, dict[float | None, tuple[float | None, float | None]]]:
    """Name -> x -> (low, high), of bands and of whiskers."""
    found: dict[str, dict[float | None, list[float]]] = {}
    for part in axis.collections:
        of = found.setdefault(str(part.get_label()).removeprefix("_"), {})
        if isinstance(part, LineCollection):
            corners: Any = np.concatenate(part.get_segments()) if part.get_segments() else []
        else:
            corners = part.get_paths()[0].vertices if isinstance(part, PolyCollection) and part.get_paths() else []
        for x, y in corners:
            of.setdefault(_short(x), []).append(float(y))
    return {name: {x: (_short(min(ys)), _short(max(ys))) for x, ys in of.items()} for name, of in found.items()}


def _is_stacked(axis: Axes) -> bool:
    return any(isinstance(one, BarContainer) and one.orientation == "horizontal" for one in axis.containers)


def _bars(axis: Axes) -> Iterator[Json]:
    """Bars by name: [left, bottom, width, height], and their whiskers as points."""
    intervals = _intervals(axis)
    for container in axis.containers:
        if isinstance(container, BarContainer) and container.patches:
            first, name = container.patches[0], str(container.get_label())
            boxes = [[_short(n) for n in (p.get_x(), p.get_y(), p.get_width(), p.get_height())] for p in container.patches]
            between = intervals.get(name, {})
            ends = [between.get(_short(p.get_x() + p.get_width() / 2), (None, None)) for p in container.patches]
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


def _short(number: float) -> float | None:
    """Five significant digits; None for what is no number."""
    return float(f"{float(number):.5g}") if np.isfinite(number) else None
