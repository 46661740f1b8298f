"""How every figure looks: colours and markers of the arms, type, legend."""

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from interplay.report import frame
from interplay.report.frame import Results

PALETTE = ["#4d4d4d", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D"]
"""Grey, then Okabe and Ito's colours, which stay apart for colour-blind readers, the hardest to see on white last."""
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "interplay",
    "text.parse_math": False,  # a name with $ in it is a name
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


def look(results: Results, arm: str) -> tuple[str, str]:
    """Colour and marker of an arm: the same in every figure."""
    place = frame.arms(results.spec).index(arm)
    return PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]


def legend(canvas: Canvas, *axes: Axes, order: Sequence[str] = ()) -> None:
    """One row of names (more when the arms are many) in their colours above the panels; each name once, in the given order."""
    found: dict[str, Artist] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    names = [name for name in order if name in found] or list(found)
    handles = [found[name] for name in names]
    canvas.legend(handles, names, loc="outside upper left", ncols=min(len(names), 6), handlelength=1.4, columnspacing=1.4)
