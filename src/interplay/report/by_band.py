"""A metric over bands in an order that the study gives, such as one task at growing lengths."""

import numpy as np
from matplotlib.figure import Figure as Canvas

from interplay.report import frame
from interplay.report.estimate import Estimate, ends, uncertain_over, value
from interplay.report.frame import Results
from interplay.report.style import WIDTH, legend, look
from interplay.schema.metric import SHARE, measure_of
from interplay.schema.report import Figure


def by_band(results: Results, figure: Figure) -> tuple[Canvas | None, str]:
    """A line per arm with its interval at each band."""
    bands, name = figure.bands or [], figure.y.replace("_", " ")
    shown: list[tuple[str, Estimate]] = []
    canvas = Canvas(figsize=(WIDTH, 3.9), layout="constrained")
    axis = canvas.subplots()
    arms, told_in = frame.arms(results.spec), measure_of(figure.y)
    for place, arm in enumerate(arms):
        found = [value(results, arm, band, figure.y) for band in bands]
        if not any(item.seeds for item in found):
            continue
        middle, low, high = ends(found, figure.y)
        drawn = look(results, arm)
        at = np.arange(len(bands)) + 0.03 * (place - (len(arms) - 1) / 2)  # beside each other, so that no whisker hides one
        axis.vlines(at, low, high, color=drawn.color, linewidth=1.0, alpha=0.7)
        axis.plot(at, middle, label=arm, linewidth=1.8, markersize=5, **drawn.pen)
        shown += [(arm, item) for item in found]
    if not shown:
        return None, f"Not drawn: no evaluation holds {', '.join(bands)}."
    axis.set_xticks(range(len(bands)), bands)
    if told_in is SHARE:
        axis.set_ylim(-2, 102)
    axis.set_ylabel(f"{name} ({told_in.unit})")
    axis.grid(axis="y")
    legend(canvas, axis)
    gone = [arm for arm in arms if not any(arm == other and item.seeds for other, item in shown)]
    absent = f" Missing: {', '.join(gone)}." if gone else ""
    return canvas, f"{name} by band. Whiskers: 95 % intervals, uncertain over {uncertain_over(shown)}.{absent}"
