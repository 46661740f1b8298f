"""Classes of errors as stacked bars: a panel per band, a bar per arm."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from interplay.report import frame, tables
from interplay.report.estimate import Estimate, uncertain_over, value
from interplay.report.frame import Results
from interplay.report.style import WIDTH, beside, legend
from interplay.schema.metric import ERROR
from interplay.schema.report import Figure

RIGHT = "#d9d9d9"
COLOURS = ["#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7", "#009E73", "#7F3C8D", "#F0E442", "#4d4d4d"]
HATCHES = ["", "//", "", "..", "\\\\", "", "xx", "", "--"]
"""Neighbours in a bar differ in hatching as well, for those who see or print no colours."""
WIDEST = 4
"""Panels side by side."""
ROW, HEAD = 0.34, 1.1
"""Inches of a bar, and of all that is not bars."""
LEAST = 0.08
"""Share from which a part has room for its number."""


def bars(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """Shares of samples by class: strictly right ones first, then each class in the order of the schema."""
    bands, names = figure.bands or [], frame.classes(results)
    arms = frame.arms(results.spec)
    found = {(arm, band, name): value(results, arm, band, f"{ERROR}:{name}") for arm in arms for band in bands for name in names}
    if not any(item.seeds for item in found.values()):
        return None, "Not drawn: no evaluation that counts classes of errors is there."
    columns = min(len(bands), WIDEST)
    rows = -(-len(bands) // columns)
    shown, height = beside(arms, ROW)
    canvas = Canvas(figsize=(WIDTH, rows * (HEAD + height * len(arms))), layout="constrained")
    axes = canvas.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axis, band in zip(axes, bands, strict=False):
        _panel(axis, {arm: [found[arm, band, name] for name in names] for arm in arms}, names)
        axis.set_yticks(range(len(arms)), shown)
        axis.set_title(band)
    for axis in axes[len(bands) :]:
        axis.set_visible(False)
    legend(canvas, axes[0], order=[tables.label("", f"{ERROR}:{name}") for name in names])
    whole = [(arm, found[arm, band, names[0]]) for arm in arms for band in bands]
    gone = [arm for arm in arms if not any(found[arm, band, names[0]].seeds for band in bands)]
    absent = f" Missing: {', '.join(gone)}." if gone else ""
    return canvas, (
        "Samples by the first thing that is wrong with them, in percent; the mean over seeds. A table with the cell error has "
        f"the intervals, uncertain over {uncertain_over(whole)}.{absent}"
    )


def _panel(axis: Axes, shares: dict[str, list[Estimate]], names: list[str]) -> None:
    """One band: a bar per arm from the top down, its parts from left to right."""
    places = np.arange(len(shares))
    left = np.zeros(len(shares))
    for number, name in enumerate(names):
        width = 100 * np.nan_to_num([of_arm[number].value for of_arm in shares.values()])
        colour, hatch = _look(name, names)
        label = tables.label("", f"{ERROR}:{name}")
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
