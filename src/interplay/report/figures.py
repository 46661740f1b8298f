"""Figures: pass@k curves, scores per op, training curves. PNG and SVG whose bytes depend on the numbers alone."""

import io
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from interplay.report import frame
from interplay.report.estimate import Estimate, uncertain_over, value
from interplay.report.frame import Results
from interplay.schema.report import Figure
from interplay.store import metrics

PALETTE = ["#4d4d4d", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D"]
"""Grey, then Okabe and Ito's colours, which stay apart for colour-blind readers, the hardest to see on white last."""
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "interplay",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
}
WIDTH = 9.0
"""Inches."""


class Drawing(NamedTuple):
    """A finished figure. `png` and `svg` are empty where there was nothing to draw; the caption then says why."""

    png: bytes
    svg: bytes
    caption: str


def draw(results: Results, figure: Figure) -> Drawing:
    """Draw one declared figure."""
    with matplotlib.rc_context(STYLE):
        canvas, caption = {"k": _by_k, "op": _by_op, "step": _by_step}[figure.x](results, figure)
        if canvas is None:
            return Drawing(b"", b"", caption)
        return Drawing(_bytes(canvas, "png", {"Software": None}), _bytes(canvas, "svg", {"Date": None, "Creator": None}), caption)


def _bytes(canvas: Canvas, form: str, metadata: dict[str, None]) -> bytes:
    """Without date and version, so that equal numbers give equal bytes."""
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=form, dpi=150, metadata=metadata)
    return buffer.getvalue()


def look(results: Results, arm: str) -> tuple[str, str]:
    """Colour and marker of an arm: the same in every figure."""
    place = frame.arms(results.spec).index(arm)
    return PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]


def _by_k(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """pass@k against k, a panel per band; ks are the powers of two up to the number of samples."""
    least = min((int(table["n"].min()) for table in results.prompts.values()), default=0)
    if not least:
        return None, "Not drawn: no evaluation is there."
    ks = [2**power for power in range(least.bit_length()) if 2**power <= least]
    panels: list[str | None] = [*frame.bands(results)] if figure.panel == "band" else [None]
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    canvas = Canvas(figsize=(WIDTH if columns > 1 else 6.0, 0.7 + 3.0 * rows), layout="constrained")
    axes = canvas.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    shown: list[tuple[str, Estimate]] = []
    for axis, band in zip(axes, panels, strict=False):
        shown += _curves(results, axis, band, ks, figure.y)
        axis.set_title(_band_title(results, band))
        axis.set_xlabel("k (samples per problem)")
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[::columns]:
        axis.set_ylabel(f"{figure.y.replace('_', ' ')}@k (%)")
    _legend(canvas, axes[0])
    return (
        canvas,
        f"{figure.y.replace('_', ' ')}@k (unbiased) against k. Shaded: 95 % intervals, uncertain over {uncertain_over(shown)}.",
    )


def _curves(results: Results, axis: Axes, band: str | None, ks: list[int], y: str) -> list[tuple[str, Estimate]]:
    """Draw one panel; returns what it drew, by arm."""
    shown: list[tuple[str, Estimate]] = []
    for arm in frame.arms(results.spec):
        found = [value(results, arm, band, f"{y}@{k}") for k in ks]
        middle, low, high = (100 * np.array([getattr(item, key) for item in found]) for key in ("value", "low", "high"))
        if np.isnan(middle).all():
            continue
        color, marker = look(results, arm)
        axis.fill_between(ks, low, high, color=color, alpha=0.15, linewidth=0)
        axis.plot(ks, middle, label=arm, linewidth=1.8, markersize=4, color=color, marker=marker)
        shown += [(arm, item) for item in found]
    axis.set_xscale("log", base=2)
    axis.set_xticks(ks, [str(k) for k in ks])
    axis.set_ylim(-2, 102)
    axis.grid(axis="y")
    return shown


def _band_title(results: Results, band: str | None) -> str:
    if band is None:
        return "all test problems"
    numbers = results.spec.bands.get(band, [])
    return f"{band} (op {min(numbers)}–{max(numbers)})" if numbers else band


def _by_op(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A bar per arm and op with its interval; the bands are shaded by turns."""
    ops, arms, name = frame.ops(results), frame.arms(results.spec), figure.y.replace("_", " ")
    if not ops:
        return None, "Not drawn: no evaluation is there."
    canvas = Canvas(figsize=(WIDTH, 3.9), layout="constrained")
    axis = canvas.subplots()
    width = 0.84 / len(arms)
    shown: list[tuple[str, Estimate]] = []
    for place, arm in enumerate(arms):
        found = [value(results, arm, f"op:{op}", figure.y) for op in ops]
        at = np.arange(len(ops)) + (place - (len(arms) - 1) / 2) * width
        _bars(axis, at, width, found, arm, look(results, arm)[0])
        shown += [(arm, item) for item in found]
    axis.set_xticks(range(len(ops)), [str(op) for op in ops])
    axis.set_xlim(-0.6, len(ops) - 0.4)
    axis.set_ylim(0, 104)
    axis.set_xlabel("op (operations that the answer needs)")
    axis.set_ylabel(f"{name} (%)")
    axis.grid(axis="y")
    axis.set_axisbelow(True)
    _shade_bands(results, axis, ops)
    _legend(canvas, axis)
    return canvas, f"{name} per op. Whiskers: 95 % intervals, uncertain over {uncertain_over(shown)}."


def _bars(axis: Axes, at: np.ndarray, width: float, found: list[Estimate], arm: str, color: str) -> None:
    middle, low, high = (100 * np.array([getattr(item, key) for item in found]) for key in ("value", "low", "high"))
    axis.bar(at, middle, width * 0.9, color=color, label=arm)
    axis.vlines(at, low, high, color="#222222", linewidth=0.8)


def _shade_bands(results: Results, axis: Axes, ops: list[int]) -> None:
    """Each band's stretch of ops, named above the axis; every second one is shaded."""
    for place, band in enumerate(frame.bands(results)):
        inside = [ops.index(op) for op in results.spec.bands.get(band, []) if op in ops]
        if not inside:
            continue
        if place % 2:
            axis.axvspan(min(inside) - 0.5, max(inside) + 0.5, color="#f0f0f0", zorder=0, linewidth=0)
        axis.text((min(inside) + max(inside)) / 2, 105, band, ha="center", va="bottom", color="#555555", weight="bold")


def _by_step(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A key of metrics.jsonl against the step: the last stage of each arm, thin per seed and thick in the mean."""
    canvas = Canvas(figsize=(WIDTH, 3.9), layout="constrained")
    axis = canvas.subplots()
    without = [arm for arm in frame.arms(results.spec) if not _run_curves(results, axis, arm, figure.y)]
    if len(without) == len(frame.arms(results.spec)):
        return None, f"Not drawn: no arm's last stage logs {figure.y}."
    axis.set_xlabel("step")
    axis.set_ylabel(figure.y)
    axis.grid(axis="y")
    axis.margins(x=0.01)
    _legend(canvas, axis)
    absent = f" Without it in their last stage: {', '.join(without)}." if without else ""
    return canvas, f"{figure.y} in the last stage of each arm: thin for one seed, thick for the mean over seeds.{absent}"


def _run_curves(results: Results, axis: Axes, arm: str, key: str) -> bool:
    """Draw one arm; False when its last stage has no such key. Seeds that share the stage are one curve."""
    digests = {item.path[-1].digest for item in results.spec.arms if item.arm == arm and item.path}
    lines = [metrics.read(results.folders[digest]) for digest in sorted(digests & results.folders.keys())]
    runs = [{line["step"]: line[key] for line in run if key in line} for run in lines]
    runs = [run for run in runs if run]
    if not runs:
        return False
    color, _ = look(results, arm)
    for run in runs if len(runs) > 1 else []:
        axis.plot(list(run), list(run.values()), color=color, linewidth=0.7, alpha=0.45)
    steps = sorted(set.intersection(*(set(run) for run in runs)))
    axis.plot(steps, [np.mean([run[step] for run in runs]) for step in steps], color=color, linewidth=2.0, label=arm)
    return True


def _legend(canvas: Canvas, axis: Axes) -> None:
    """One row (or more, when the arms are many) of names in their colours above the panels."""
    handles, names = axis.get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside upper left", ncols=min(len(names), 6), handlelength=1.4, columnspacing=1.4)
