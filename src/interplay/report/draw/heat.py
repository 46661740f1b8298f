"""A heat map: a row per arm, a column per op or band, the number in each cell."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from interplay.report.draw.style import FIGURE_WIDTH, beside
from interplay.report.metric_spec import SHARE, lower_is_better, measure_of
from interplay.report.spec import Figure
from interplay.report.stats import frame
from interplay.report.stats.estimate import Estimate, difference, uncertain_over, value
from interplay.report.stats.frame import Results
from interplay.report.write import tables

BLUE, WHITE, ORANGE = "#1d4f7c", "#ffffff", "#eea022"
DIVERGING = LinearSegmentedColormap.from_list("interplay_diverging", [BLUE, WHITE, ORANGE])
"""White is no difference. The ends differ in lightness too, so that in grey the good side stays the dark one."""
PLAIN = LinearSegmentedColormap.from_list("interplay_plain", [WHITE, BLUE])
DARK = 0.45
"""Luminance below which the number is written in white."""
ROW, HEAD = 0.42, 1.2
"""Inches of a row, and of all that is not rows."""


def heat(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """Values, or differences to an arm with a map that is centred at 0; in bold where the 95 % interval leaves 0 out."""
    arms, columns = _rows(results, figure), _columns(results, figure)
    found = _cells(results, figure)
    if not any(item.seeds for item in found.values()):
        return None, "Not drawn: no evaluation of it is there."
    numbers = _numbers(found, figure).reshape(len(arms), len(columns))
    names, height = beside(arms, ROW)
    canvas = Canvas(figsize=(FIGURE_WIDTH, HEAD + height * len(arms)), layout="constrained")
    axis = canvas.subplots()
    colours = _paint(canvas, axis, numbers, figure, _ends(results, figure, numbers))
    for row, arm in enumerate(arms):
        for place, column in enumerate(columns):
            _write(axis, (place, row), found[arm, column], figure, colours[row, place])
    axis.set_xticks(range(len(columns)), [column.removeprefix("op:") for column in columns])
    axis.set_yticks(range(len(arms)), names)
    axis.set_xlabel("" if figure.bands else "op (operations that the answer needs)")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return canvas, _caption(figure, [(arm, item) for (arm, _), item in found.items()])


def _rows(results: Results, figure: Figure) -> list[str]:
    return [arm for arm in frame.arms(results.spec) if arm != figure.against]


def _columns(results: Results, figure: Figure) -> list[str]:
    return figure.bands or [f"op:{op}" for op in frame.ops(results)]


def _cells(results: Results, figure: Figure) -> dict[tuple[str, str], Estimate]:
    """By arm and column."""
    columns = _columns(results, figure)
    return {(arm, column): _cell(results, figure, arm, column) for arm in _rows(results, figure) for column in columns}


def _numbers(found: dict[tuple[str, str], Estimate], figure: Figure) -> np.ndarray:
    """Of all cells as they are shown, NaN where missing."""
    return np.array([cell.value for cell in found.values()]) * measure_of(figure.y).factor


def _cell(results: Results, figure: Figure, arm: str, column: str) -> Estimate:
    if figure.against is None:
        return value(results, arm, column, figure.y)
    return difference(results, arm, figure.against, column, figure.y)


def _ends(results: Results, figure: Figure, numbers: np.ndarray) -> tuple[float, float]:
    """What the ends of the colours stand for: 0 and 100 % for shares, else the extremes over all maps of the report in that unit,
    so that two of them can be compared."""
    unit, signed = measure_of(figure.y), figure.against is not None
    if unit is SHARE and not signed:
        return 0.0, 100.0
    maps = [other for other in results.spec.figures.values() if other.form == "heat" and measure_of(other.y) is unit]
    maps = [other for other in maps if (other.against is not None) == signed and other != figure]
    every = np.concatenate([numbers.ravel(), *(_numbers(_cells(results, other), other) for other in maps)])
    known = every[~np.isnan(every)]
    if signed:
        reach = max(float(np.abs(known).max()), 10.0**-unit.decimals)
        return -reach, reach
    low, high = float(known.min()), float(known.max())
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def _paint(canvas: Canvas, axis: Axes, numbers: np.ndarray, figure: Figure, ends: tuple[float, float]) -> np.ndarray:
    """Draw the cells and their key; returns their colours (arms, columns, 4). Blue is the better side of a difference."""
    unit, norm = measure_of(figure.y), Normalize(*ends)
    differences = DIVERGING if lower_is_better(figure.y) else DIVERGING.reversed()
    colours = PLAIN if figure.against is None else differences
    image = axis.imshow(np.ma.masked_invalid(numbers), cmap=colours, norm=norm, aspect="auto")
    title = unit.unit_of_differences if figure.against else unit.unit
    canvas.colorbar(image, ax=axis, label=title, fraction=0.04, pad=0.02).outline.set_visible(False)
    return np.asarray(colours(norm(np.nan_to_num(numbers))))


def _write(axis: Axes, at: tuple[int, int], found: Estimate, figure: Figure, colour: np.ndarray) -> None:
    """The number in its cell; hatched where there is none."""
    if np.isnan(found.value):
        axis.add_patch(Rectangle((at[0] - 0.5, at[1] - 0.5), 1, 1, fill=False, hatch="///", edgecolor="#bbbbbb", linewidth=0))
        return
    signed = figure.against is not None
    apart = signed and (found.low > 0 or found.high < 0)
    luminance = float(colour[:3] @ np.array([0.299, 0.587, 0.114]))
    text = measure_of(figure.y).shown(found.value, signed).replace("-", "−")
    ink = "#ffffff" if luminance < DARK else "#1a1a1a"
    axis.text(*at, text, ha="center", va="center", fontsize=9, color=ink, weight="bold" if apart else "normal")


def _name(figure: Figure) -> str:
    name = tables.label("", figure.y)
    return f"{name}, difference to {figure.against}" if figure.against else name


def _caption(figure: Figure, shown: list[tuple[str, Estimate]]) -> str:
    what = f"{_name(figure)}, by arm and {'band' if figure.bands else 'op'}."
    over = uncertain_over(shown)
    if figure.against is None:
        return f"{what} Hatched: missing."
    side = "below" if lower_is_better(figure.y) else "above"
    return f"{what} Blue: better, which is {side} 0; orange: worse. Bold: the 95 % interval, uncertain over {over}, leaves 0 out."
