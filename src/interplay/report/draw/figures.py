"""Figures of every form, drawn by the module of that form. PNG and SVG whose bytes depend on the numbers alone."""

import io
from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from interplay.report.draw import bars, curves, ladder, style
from interplay.report.draw.heat import heat
from interplay.report.draw.style import FIGURE_WIDTH, STYLE, Look, legend, look
from interplay.report.inspect import lineage
from interplay.report.metric_spec import ERROR, SHARE, measure_of
from interplay.report.spec import Figure
from interplay.report.stats import frame
from interplay.report.stats.estimate import Ends, Estimate, ends, uncertain_over, value
from interplay.report.stats.frame import Results
from interplay.report.stats.recorded import by_band

Drawer = Callable[[Results, Figure], tuple[Canvas | None, str]]
"""Draws a figure, or not, and says what is to be seen; further lines are notes."""


class Drawing(NamedTuple):
    """A finished figure. `png` and `svg` are empty where there was nothing to draw; the caption then says why."""

    png: bytes
    svg: bytes
    caption: str
    notes: list[str] = []
    """Lines beneath the caption."""


def draw(results: Results, figure: Figure) -> Drawing:
    """Draw one declared figure."""
    with matplotlib.rc_context(STYLE):
        canvas, said = _drawer(figure)(results, figure)
        caption, *notes = said.split("\n")
        if canvas is None:
            return Drawing(b"", b"", caption)
        png, svg = _bytes(canvas, "png", {"Software": None}), _bytes(canvas, "svg", {"Date": None, "Creator": None})
        return Drawing(png, svg, caption, notes)


def _drawer(figure: Figure) -> Drawer:
    """Who draws it."""
    if figure.form == "heat":
        return heat
    if figure.y == ERROR:
        return bars.bars
    by_step = ladder.by_step if figure.along() else curves.by_step
    return {"k": _by_k, "op": _by_op, "band": by_band, "step": by_step}[figure.x]


def _bytes(canvas: Canvas, form: str, metadata: dict[str, None]) -> bytes:
    """Without date and version, so that equal numbers give equal bytes."""
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=form, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _by_k(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """pass@k against k, a panel per band; ks are the powers of two up to the number of samples."""
    least = min((int(table["n"].min()) for table in results.prompts.values()), default=0)
    if not least:
        return None, "Not drawn: no evaluation is there."
    ks = [2**power for power in range(least.bit_length()) if 2**power <= least]
    panels: list[str | None] = [*frame.bands(results)] if figure.panel == "band" else [None]
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    canvas = Canvas(figsize=(FIGURE_WIDTH if columns > 1 else 6.0, 0.7 + 3.0 * rows), layout="constrained")
    axes = canvas.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    shown: list[tuple[str, Estimate]] = []
    same: dict[str, style.Groups] = {}
    for axis, band in zip(axes, panels, strict=False):
        drawn = _estimates(results, band, ks, figure.y)
        same[band or ""] = _curves(results, axis, drawn, ks)
        shown += [(arm, item) for arm, found in drawn.items() for item in found]
        axis.set_title(_band_title(results, band))
        axis.set_xlabel("k (samples per problem)")
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[::columns]:
        axis.set_ylabel(f"{figure.y.replace('_', ' ')}@k (%)")
    legend(canvas, axes[0])
    return (
        canvas,
        f"{figure.y.replace('_', ' ')}@k (unbiased) against k. Shaded: 95 % intervals, uncertain over {uncertain_over(shown)}."
        + style.said(same)
        + _absent(results, shown),
    )


def _estimates(results: Results, band: str | None, ks: list[int], y: str) -> dict[str, list[Estimate]]:
    """By arm, those of which there is something."""
    found = {arm: [value(results, arm, band, f"{y}@{k}") for k in ks] for arm in frame.arms(results.spec)}
    return {arm: items for arm, items in found.items() if not all(np.isnan(item.value) for item in items)}


def _curves(results: Results, axis: Axes, drawn: dict[str, list[Estimate]], ks: list[int]) -> style.Groups:
    """Draw one panel; returns which arms' curves coincide there."""
    curves = {arm: 100 * np.array([(item.value, item.low, item.high) for item in items]).T for arm, items in drawn.items()}
    same = style.groups({arm: [middle] for arm, (middle, _, _) in curves.items()})
    for arm, (middle, low, high) in curves.items():
        how, more = look(results, arm), style.wider(arm, same)
        axis.fill_between(ks, low, high, color=how.color, alpha=0.15, linewidth=0)
        axis.plot(ks, middle, label=arm, linewidth=1.8 + more, markersize=4 + more, **how.pen)
    axis.set_xscale("log", base=2)
    axis.set_xticks(ks, [str(k) for k in ks])
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_ylim(-2, 102)
    axis.grid(axis="y")
    return same


def _absent(results: Results, shown: list[tuple[str, Estimate]]) -> str:
    """Names the arms of which nothing could be drawn."""
    gone = [arm for arm in frame.arms(results.spec) if not any(arm == name and item.seeds for name, item in shown)]
    return f" Missing: {', '.join(gone)}." if gone else ""


def _band_title(results: Results, band: str | None) -> str:
    if band is None:
        return "all test problems"
    numbers = results.spec.bands.get(band, [])
    return f"{band} (op {lineage.ranges(numbers)})" if numbers else band


def _by_op(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A bar per arm and op with its interval; the bands are shaded by turns."""
    ops, arms, name = frame.ops(results), frame.arms(results.spec), figure.y.replace("_", " ")
    if not ops:
        return None, "Not drawn: no evaluation is there."
    canvas = Canvas(figsize=(FIGURE_WIDTH, 3.9), layout="constrained")
    axis = canvas.subplots()
    width = 0.84 / len(arms)
    shown: list[tuple[str, Estimate]] = []
    for place, arm in enumerate(arms):
        found = [value(results, arm, f"op:{op}", figure.y) for op in ops]
        if not any(item.seeds for item in found):
            continue
        at = np.arange(len(ops)) + (place - (len(arms) - 1) / 2) * width
        _bars(axis, at, width, ends(found, figure.y), arm, look(results, arm))
        shown += [(arm, item) for item in found]
    axis.set_xticks(range(len(ops)), [str(op) for op in ops])
    axis.set_xlim(-0.6, len(ops) - 0.4)
    told_in = measure_of(figure.y)
    axis.set_ylim(0, 104 if told_in is SHARE else None)
    axis.set_xlabel("op (operations that the answer needs)")
    axis.set_ylabel(f"{name} ({told_in.unit})")
    axis.grid(axis="y")
    axis.set_axisbelow(True)
    _shade_bands(results, axis, ops, 105 if told_in is SHARE else 1.01 * axis.get_ylim()[1])
    legend(canvas, axis)
    return canvas, f"{name} per op. Whiskers: 95 % intervals, uncertain over {uncertain_over(shown)}.{_absent(results, shown)}"


def _bars(axis: Axes, at: np.ndarray, width: float, drawn: Ends, arm: str, how: Look) -> None:
    middle, low, high = drawn
    hatched: dict[str, Any] = {"hatch": how.hatch, "edgecolor": "#ffffff", "linewidth": 0.0} if how.hatch else {}
    axis.bar(at, middle, width * 0.9, color=how.color, label=arm, **hatched)
    axis.vlines(at, low, high, color="#222222", linewidth=0.8)


def _shade_bands(results: Results, axis: Axes, ops: list[int], top: float) -> None:
    """Each band's stretch of ops, named at the height `top`, above the axis; every second one is shaded."""
    for place, band in enumerate(frame.bands(results)):
        inside = [ops.index(op) for op in results.spec.bands.get(band, []) if op in ops]
        if not inside:
            continue
        if place % 2:
            axis.axvspan(min(inside) - 0.5, max(inside) + 0.5, color="#f0f0f0", zorder=0, linewidth=0)
        axis.text((min(inside) + max(inside)) / 2, top, band, ha="center", va="bottom", color="#555555", weight="bold")
