"""How every figure looks: colours and markers of the arms, type, legend."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from interplay.report import frame
from interplay.report.frame import Results

PALETTE = ["#4d4d4d", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D"]
"""Grey, then Okabe and Ito's colours, which stay apart for colour-blind readers, the hardest to see on white last."""
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
LINES = ["-", "-.", ":"]
HATCHES = ["", "////", "...."]
"""Of the lines and bars of the first arms, as many as the palette has colours, of the next as many, and so on."""
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


class Look(NamedTuple):
    """How an arm is drawn: no two of two dozen alike."""

    color: str
    marker: str
    line: str
    hatch: str

    @property
    def pen(self) -> dict[str, Any]:
        """Arguments of matplotlib's `plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}


def look(results: Results, arm: str) -> Look:
    """The same in every figure."""
    round_of, place = divmod(frame.arms(results.spec).index(arm), len(PALETTE))
    marker = MARKERS[(place + round_of) % len(MARKERS)]
    return Look(PALETTE[place], marker, LINES[round_of % len(LINES)], HATCHES[round_of % len(HATCHES)])


def legend(canvas: Canvas, *axes: Axes, order: Sequence[str] = ()) -> None:
    """One row of names (more when the arms are many) in their colours above the panels; each name once, in the given order."""
    found: dict[str, Artist] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    names = [name for name in order if name in found] or list(found)
    handles = [found[name] for name in names]
    broken = any(isinstance(handle, Line2D) and handle.get_linestyle() != "-" for handle in handles)
    length = 3.0 if broken else 1.4  # as long as the pattern of a line
    canvas.legend(handles, names, loc="outside upper left", ncols=min(len(names), 6), handlelength=length, columnspacing=1.4)
