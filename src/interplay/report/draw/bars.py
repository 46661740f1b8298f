"""Error classes as stacked bars, and claims as forest plots."""

import math
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from interplay.report.draw.style import legend, missing_note, panel_grid, row_labels
from interplay.report.metric_spec import ERROR, SHARE, Measure
from interplay.report.spec import Figure
from interplay.report.stats import estimate, frame
from interplay.report.write import tables

# Classes of errors as stacked bars: a panel per band, a bar per arm.


RIGHT = "#d9d9d9"
COLOURS = ["#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7", "#009E73", "#7F3C8D", "#F0E442", "#4d4d4d"]
HATCHES = ["", "//", "", "..", "\\\\", "", "xx", "", "--"]
"""Neighbours in a bar differ in hatching as well, for those who see or print no colours."""
ROW, HEAD = 0.34, 1.1
"""Inches of a bar, and of all that is not bars."""
LEAST = 0.08
"""Share from which a part has room for its number."""


def error_class_bars(results: frame.Results, figure: Figure) -> tuple[Canvas | None, str]:
    """Shares of samples by class: strictly right ones first, then each class in the order of the schema."""
    bands, names = figure.bands or [], frame.error_classes(results)
    arms = frame.arms(results.spec)
    cells = [(arm, band, name) for arm in arms for band in bands for name in names]
    found = {cell: estimate.value(results, *cell[:2], f"{ERROR}:{cell[2]}") for cell in cells}
    if not any(item.seeds for item in found.values()):
        return None, "Not drawn: no evaluation that counts classes of errors is there."
    shown, height = row_labels(arms, ROW)
    canvas, axes, _ = panel_grid(len(bands), HEAD + height * len(arms))
    for axis, band in zip(axes, bands, strict=True):
        _panel(axis, {arm: [found[arm, band, name] for name in names] for arm in arms}, names)
        axis.set_yticks(range(len(arms)), shown)
        axis.set_title(band)
    legend(canvas, axes[0], order=[tables.column_label("", f"{ERROR}:{name}") for name in names])
    whole = [(arm, found[arm, band, names[0]]) for arm in arms for band in bands]
    return canvas, (
        "Samples by their first error, in percent; the mean over seeds. A table with the cell error has "
        f"the intervals, uncertain over {estimate.uncertain_over(whole)}.{missing_note(results, whole)}"
    )


def _panel(axis: Axes, shares: dict[str, list[estimate.Estimate]], names: list[str]) -> None:
    """One band: a bar per arm from the top down, its parts from left to right."""
    places = np.arange(len(shares))
    left = np.zeros(len(shares))
    for number, name in enumerate(names):
        width = 100 * np.nan_to_num([of_arm[number].value for of_arm in shares.values()])
        colour, hatch = _look(name, names)
        label = tables.column_label("", f"{ERROR}:{name}")
        axis.barh(places, width, 0.74, left=left, color=colour, hatch=hatch, edgecolor="#ffffff", linewidth=0.5, label=label)
        for place, (start, size) in enumerate(zip(left.tolist(), width.tolist(), strict=True)):
            if size >= 100 * LEAST and name == "none":
                axis.text(start + size / 2, place, f"{size:.0f}", ha="center", va="center", fontsize=8, color="#1a1a1a")
        left += width
    axis.set_ylim(len(shares) - 0.5, -0.5)
    axis.set_xlim(0, 100)
    axis.set_xticks([0, 50, 100])
    first, _, last = axis.get_xticklabels()
    first.set_horizontalalignment("left")  # else the 100 of a panel runs into the 0 of the next
    last.set_horizontalalignment("right")
    axis.set_xlabel("samples (%)")
    axis.tick_params(axis="y", length=0)


def _look(name: str, names: list[str]) -> tuple[str, str]:
    """Colour and hatching of a class."""
    if name == "none":
        return RIGHT, ""
    place = [item for item in names if item != "none"].index(name)
    return COLOURS[place % len(COLOURS)], HATCHES[place % len(HATCHES)]


# A claim as a picture: where its interval lies in the range that it claims.


WIDTH, HEIGHT, MIDDLE, DIGIT = 260, 34, 10, 6.5
"""Pixels; the last is what a character of a number takes."""


def forest_svg(found: estimate.Estimate, claimed: tuple[float, float], signed: bool, measure: Measure = SHARE) -> str:
    """The interval over the shaded range that the claim asserts; empty where there is no estimate.

    Values run over 0 to 100 %. Differences run as far to both sides of zero as the interval and the claim need."""
    if not found.seeds:
        return ""
    ends = [abs(number) for number in (found.low, found.high, found.value, *claimed) if math.isfinite(number)]
    reach = min(measure.support_of_differences[1], 1.15 * max([0.02, *ends]))
    low, high = (-reach, reach) if signed else (0.0, 1.0)

    def at(number: float) -> float:
        return round(4 + (WIDTH - 8) * (min(max(number, low), high) - low) / (high - low), 1)

    left, right = at(claimed[0]), at(claimed[1])
    marks = list(dict.fromkeys([*(number for number in claimed if math.isfinite(number)), *([0.0] if signed else [0.0, 1.0])]))
    parts = [
        f'<svg class="forest" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="interval">',
        f'<rect class="claimed" x="{left}" y="1" width="{max(right - left, 1.0):.1f}" height="18" rx="2"/>',
        f'<line class="axis" x1="4" x2="{WIDTH - 4}" y1="{MIDDLE + 9}" y2="{MIDDLE + 9}"/>',
        *(f'<line class="mark" x1="{at(mark)}" x2="{at(mark)}" y1="1" y2="22"/>' for mark in marks),
        f'<line class="interval" x1="{at(found.low)}" x2="{at(found.high)}" y1="{MIDDLE}" y2="{MIDDLE}"/>',
        f'<circle class="estimate" cx="{at(found.value)}" cy="{MIDDLE}" r="4"/>',
        *_labels(marks, at, lambda mark: _tick(mark, signed, measure)),
        "</svg>",
    ]
    return "".join(parts)


def _labels(marks: list[float], at: Callable[[float], float], written: Callable[[float], str]) -> list[str]:
    """The number of every mark, shifted where it would overlap the next."""
    shown = {written(mark): at(mark) for mark in sorted(marks)}
    halves = [(DIGIT * len(text) + 4) / 2 for text in shown]
    places, end = [], 0.0
    for x, half in zip(shown.values(), halves, strict=True):
        places.append(max(x, end + half))
        end = places[-1] + half
    end = float(WIDTH)
    for number in reversed(range(len(places))):
        places[number] = min(places[number], end - halves[number])
        end = places[number] - halves[number]
    return [f'<text x="{x:.1f}" y="32" text-anchor="middle">{text}</text>' for x, text in zip(places, shown, strict=True)]


def _tick(mark: float, signed: bool, measure: Measure) -> str:
    shown = round(measure.factor * mark, measure.decimals) + 0.0
    return f"+{shown:g}" if signed and shown > 0 else f"{shown:g}".replace("-", "−")
