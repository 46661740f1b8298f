"""Colours, markers, legends and names of bands of all figures; arms with equal curves are drawn as one."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from matplotlib import rc_context, rc_params_from_file
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextToPath
from matplotlib.ticker import LogFormatter, MaxNLocator
from matplotlib.transforms import offset_copy

from interplay.report.metric_spec import measure_of
from interplay.report.shown_spec import COLORS, SHARE
from interplay.report.stats import estimate, frame

# Curves of arms that came out the same. One would hide the other, so they are drawn one inside the other, the first the widest,
# and the caption names them.


EDGE, WIDEST = 2.4, 7.0
"""Points by which a curve is wider than the next inside it, and the first at most than the last."""
DIGITS = 9

Groups = list[list[str]]
"""Names of curves that coincide, two at least in each group, in the order in which they are drawn."""
Key = TypeVar("Key", str, int)


def coinciding_curves(curves: Mapping[Key, Iterable[np.ndarray]]) -> list[list[Key]]:
    """`curves` by name or number, each as its x and its y."""
    found: dict[tuple[bytes, ...], list[Key]] = {}
    for name, curve in curves.items():
        found.setdefault(tuple((np.round(part, DIGITS) + 0.0).tobytes() for part in curve), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def extra_width(name: Key, among: Sequence[list[Key]]) -> float:
    """Points that the line and the markers of a curve get beyond those of others."""
    for names in among:
        if name in names:
            inside = len(names) - 1 - names.index(name)
            return inside * min(EDGE, WIDEST / (len(names) - 1))
    return 0.0


def coinciding_note(panels: Mapping[str, Groups]) -> str:
    """For the caption, by the title of the panel; nothing where no curves coincide."""
    panels_of: dict[str, list[str]] = {}
    for panel, found in panels.items():
        for names in found:
            panels_of.setdefault(", ".join(names), []).append(panel)
    several = len(panels) > 1
    parts = [f"{names} (in {', '.join(where)})" if several else names for names, where in panels_of.items()]
    return f" The same curve, drawn one inside the other: {'; '.join(parts)}." if parts else ""


# How every figure looks: colours and markers of the arms, type, legend.


PALETTE = list(COLORS.values())
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
LINES = ["-", "-.", ":"]
HATCHES = ["", "////", "...."]
"""Of the lines and bars of the first arms, as many as the palette has colours, of the next as many, and so on."""
TEMPLATES = Path(__file__).parent.parent / "templates"
STYLE: dict[Any, Any] = dict(rc_params_from_file(TEMPLATES / "figures.mplstyle", use_default_template=False))
FIGURE_WIDTH = 9.0
"""Inches."""
MOST_ACROSS = 4
"""Panels side by side."""
SLACK = 0.98
"""Share of a figure's width that its legend may take, since type is a little wider at other resolutions."""
COLUMN_GAP = 1.4
"""Between the columns of a legend, in font sizes."""
KEY, LEGEND, LINE = 0.9, 0.35, 0.18
"""Inches next to a name in a legend: its line and all gaps; height of a legend of one row; of a line of text."""


class Medium(NamedTuple):
    """What figures are drawn for: the page of a report, or a column of a paper."""

    width: float = FIGURE_WIDTH
    """Inches."""
    across: int = MOST_ACROSS
    """Panels side by side, at most."""
    style: Mapping[Any, Any] = STYLE

    @property
    def type_scale(self) -> float:
        """Size of type and lines next to that of the page."""
        return float(self.style["font.size"]) / float(STYLE["font.size"])


PAGE = Medium()
_MEDIUM: ContextVar[Medium] = ContextVar("medium", default=PAGE)


@contextmanager
def drawn_for(medium: Medium) -> Iterator[None]:
    """Figures made and saved within are drawn for `medium`."""
    token = _MEDIUM.set(medium)
    try:
        with rc_context(dict(medium.style)):
            yield
    finally:
        _MEDIUM.reset(token)


def new_canvas(height: float, head: float = 0.0) -> Canvas:
    """A figure as wide as the medium, `height` inches tall on the page. With `head` what is below it is rows of text, which
    shrink as type does; a plot shrinks less than its width, since a flat one shows little."""
    medium = _MEDIUM.get()
    factor = medium.type_scale if head else (medium.width / FIGURE_WIDTH) ** 0.5
    return Canvas(figsize=(medium.width, factor * (head + height)), layout="constrained")


def fit_lines(canvas: Canvas) -> None:
    """Make lines and markers, which are sized for the page, as much smaller as the type of the medium is."""
    scale = _MEDIUM.get().type_scale
    if scale == 1.0:
        return
    for line in canvas.findobj(Line2D):
        line.set(linewidth=scale * line.get_linewidth(), markersize=scale * line.get_markersize())
    for drawn in canvas.findobj(Collection):
        drawn.set_linewidth([scale * float(width) for width in np.atleast_1d(drawn.get_linewidth())])


def type_size(share: float) -> float:
    """Points of type smaller than most of a figure's."""
    return share * float(_MEDIUM.get().style["font.size"])


class ArmLook(NamedTuple):
    """How an arm is drawn: two dozen arms all differ."""

    color: str
    marker: str
    line: str
    hatch: str

    @property
    def pen(self) -> dict[str, Any]:
        """Arguments of matplotlib's `plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}


@cache
def palette_color(place: int) -> str:
    """The colour at a place from 0: those of PALETTE, then the same darker, lighter, still darker and so on; all differ."""
    round_of, number = divmod(place, len(PALETTE))
    kept = 0.62 ** -(-round_of // 2)
    ground = 0 if round_of % 2 else 1
    red, green, blue = (ground + kept * (part - ground) for part in to_rgb(PALETTE[number]))
    return to_hex((red, green, blue))


def arm_colors(results: frame.Results) -> dict[str, str]:
    """The colour of each arm: its own, else that of its place; where another has that for its own, the next that none has."""
    arms = results.spec.arm_names()
    own = {arm: to_hex(color) for arm, color in results.colors.items()}
    later = (color for color in map(palette_color, itertools.count(len(arms))) if color not in own.values())
    by_place = {arm: color for place, arm in enumerate(arms) if (color := palette_color(place)) not in own.values()}
    return {arm: own.get(arm) or by_place.get(arm) or next(later) for arm in arms}


def arm_look(results: frame.Results, arm: str) -> ArmLook:
    """The same in every figure."""
    round_of, place = divmod(results.spec.arm_names().index(arm), len(PALETTE))
    marker = MARKERS[(place + round_of) % len(MARKERS)]
    return ArmLook(arm_colors(results)[arm], marker, LINES[round_of % len(LINES)], HATCHES[round_of % len(HATCHES)])


def panel_grid(count: int, row: float, head: float = 0.0, alone: float = FIGURE_WIDTH) -> tuple[Canvas, list[Axes], list[Axes]]:
    """A figure of panels, as many side by side as the medium has room for. Given in inches on the page: a `row` of plots, what is
    above all rows (0: the rows are of text), and the width of a single panel. Returns the canvas, the axes of the panels, and
    those at its left edge."""
    medium = _MEDIUM.get()
    columns = min(count, medium.across)
    rows = -(-count // columns)
    width = medium.width if columns > 1 else min(alone, medium.width)
    of_page = (FIGURE_WIDTH if columns > 1 else alone) / min(count, MOST_ACROSS)
    plot = medium.type_scale if not head else min(1.0, width / columns / of_page)
    canvas = Canvas(figsize=(width, medium.type_scale * head + plot * row * rows), layout="constrained")
    axes = canvas.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_visible(False)
    return canvas, [*axes[:count]], [*axes[::columns]]


def draw_shaded(axis: Axes, name: str, xs: Any, ends: estimate.Ends, look: ArmLook, more: float) -> None:
    """A line of estimates in their shaded intervals, wider by `more` points."""
    middle, low, high = ends
    axis.fill_between(xs, low, high, color=look.color, alpha=0.15, linewidth=0, label=f"_{name}")
    axis.plot(xs, middle, label=name, linewidth=1.8 + more, markersize=4 + more, **look.pen)


def draw_whiskers(axis: Axes, name: str, xs: Any, ends: estimate.Ends, look: ArmLook) -> None:
    """A line of estimates with their intervals as whiskers."""
    middle, low, high = ends
    axis.vlines(xs, low, high, color=look.color, linewidth=1.0, alpha=0.7, label=f"_{name}")
    axis.plot(xs, middle, label=name, linewidth=1.8, markersize=5, **look.pen)


def limit_share(axis: Axes, metric: str) -> None:
    """From 0 to 100 %, with a margin, where the metric is a share."""
    if measure_of(metric) is SHARE:
        axis.set_ylim(-2, 102)


def missing_note(results: frame.Results, shown: Sequence[tuple[str, estimate.Estimate]]) -> str:
    """For the caption: the arms of which nothing could be drawn, given the estimates by arm."""
    there = {name for name, found in shown if found.seeds}
    gone = [arm for arm in frame.drawn(results) if arm not in there]
    return f" Missing: {', '.join(gone)}." if gone else ""


def integer_ticks(axis: Axes) -> None:
    """Ticks at whole steps alone, as many as the panel has room for; one where there is one step."""
    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


UNSCALED = (1e-4, 1e5)
"""Numbers that are written without an exponent."""


class PlainLogFormatter(LogFormatter):
    """Numbers of a logarithmic axis in one form: all plain, or all with exponents where some are too small or large for that."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick, empty where matplotlib finds that there is no room for one."""
        low, high = self.axis.get_view_interval() if self.axis else (x, x)
        plain = low >= UNSCALED[0] and high <= UNSCALED[1]
        return (f"{x:g}" if plain else f"{x:.0e}") if super().__call__(x, pos) else ""


def shade_bands(results: frame.Results, axis: Axes, ops: list[int], top: float) -> None:
    """Each band's stretch of ops, named at the height `top`, above the axis; every second one is shaded. A name that would
    overlap another is raised to the next row with room for it."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    places = axis.get_xlim()[1] - axis.get_xlim()[0]
    unit = places / (figure.get_figwidth() - KEY) / figure.dpi  # of a pixel: a panel is as wide as its figure but for labels
    renderer, ends = FigureCanvasAgg(figure).get_renderer(), list[float]()
    for place, band in enumerate(frame.bands(results)):
        inside = [ops.index(op) for op in results.spec.bands.get(band, []) if op in ops]
        if not inside:
            continue
        if place % 2:
            axis.axvspan(min(inside) - 0.5, max(inside) + 0.5, color="#f0f0f0", zorder=0, linewidth=0)
        middle = (min(inside) + max(inside)) / 2
        name = axis.text(middle, top, band, ha="center", va="bottom", color="#555555", weight="bold")
        half = unit * name.get_window_extent(renderer).width / 2
        row = next((row for row, end in enumerate(ends) if end < middle - half), len(ends))
        ends[row : row + 1] = [middle + half]
        if row:
            name.set_transform(offset_copy(axis.transData, figure, y=row * LINE))


def legend(canvas: Canvas, *axes: Axes, order: Sequence[str] = ()) -> None:
    """Names in their colours above the panels; each name once, in the given order, in as few rows as the figure has room for;
    it grows by what further rows need, so that the panels keep their size."""
    found: dict[str, Artist] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    names = [name for name in order if name in found] or list(found)
    if not names:
        return
    handles = [found[name] for name in names]
    broken = any(isinstance(handle, Line2D) and handle.get_linestyle() != "-" for handle in handles)
    length = 3.0 if broken else 1.4  # as long as the pattern of a line
    scale = _MEDIUM.get().type_scale
    shown = [wrap_label(name, canvas.get_figwidth() - scale * KEY) for name in names]
    room = SLACK * canvas.get_figwidth()
    for columns in dict.fromkeys(-(-len(shown) // rows) for rows in range(1, len(shown) + 1)):
        drawn = canvas.legend(
            handles, shown, loc="outside upper left", ncols=columns, handlelength=length, columnspacing=COLUMN_GAP
        )
        box = drawn.get_window_extent(FigureCanvasAgg(canvas).get_renderer())
        if box.width / canvas.dpi <= room or columns == 1:
            break
        drawn.remove()
    for line in drawn.get_lines():  # wider in the panels where others lie inside it
        line.set(linewidth=1.8, markersize=4)
    canvas.set_figheight(canvas.get_figheight() + max(0.0, box.height / canvas.dpi - scale * LEGEND))


def row_labels(arms: Sequence[str], row: float) -> tuple[list[str], float]:
    """The names of rows, in a column of at most a third of a figure, and the height of a row, `row` where no name needs more."""
    medium = _MEDIUM.get()
    names = [wrap_label(arm, medium.width / 3) for arm in arms]
    return names, max(row, LINE * max(name.count("\n") + 1 for name in names))


def wrap_label(name: str, inches: float) -> str:
    """The name wrapped to that width, broken after punctuation where there is some: names of grids can be
    wider than a figure, and a shortened one could be that of another arm."""
    style = _MEDIUM.get().style
    family, size = str(style["font.family"][0]), float(style["font.size"])
    if _wide(name, family, size) <= inches:
        return name
    lines = [""]
    for part in re.findall(r"[^\s,\[/+]*[\s,\[/+]?", name):
        if lines[-1] and _wide(lines[-1] + part, family, size) > inches:
            lines.append("")
        for character in part:
            if _wide(lines[-1] + character, family, size) > inches:
                lines.append("")
            lines[-1] += character
    return "\n".join(lines)


@cache
def _wide(text: str, family: str, size: float) -> float:
    """Inches of a line of text in the type of the figures."""
    written = FontProperties(family=family, size=size)
    return float(TextToPath().get_text_width_height_descent(text, written, ismath=False)[0]) / 72
