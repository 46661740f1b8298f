"""Small figures of the site as inline SVG, in the page's own colours: intervals in a row, and panels of them."""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

from tools.reference.overlays import ticks

AXIS = 152
"""Width of a panel's axis: with short labels three panels stand side by side."""
LETTER = 6.2
"""Width of a label's character."""
STEP = 19
"""Height of a row."""
LONGEST = 25
"""Characters of a label."""


class Interval(NamedTuple):
    """A number with its interval, in the unit of the axis."""

    label: str
    value: float
    low: float
    high: float


def axis_range(intervals: Sequence[Interval], least: float = -math.inf, most: float = math.inf) -> tuple[float, float]:
    """A range that holds zero and all intervals, as far as the numbers can go."""
    ends = [0.0, *(end for one in intervals for end in (one.low, one.high, one.value) if math.isfinite(end))]
    low, high = max(min(ends), least), min(max(ends), most)
    room = 0.06 * (high - low or 1.0)
    return (low - room if low < 0 else low), high + room


def panel(title: str, rows: Sequence[Interval], ends: tuple[float, float], unit: str) -> str:
    """A panel: a dot with its interval for each row."""
    low, high = ends
    height = STEP * len(rows) + 52
    left = round(14 + LETTER * min(LONGEST, max(len(row.label) for row in rows)))
    width = left + AXIS + 16

    def x(number: float) -> float:
        return left + AXIS * (min(max(number, low), high) - low) / (high - low)

    marks = [f'<text x="{left}" y="14" class="head">{html.escape(title)}</text>']
    for tick in ticks(low, high):
        marks.append(
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="22" y2="{height - 28}" class="{"zero" if tick == 0 else "grid"}"/>'
        )
        marks.append(f'<text x="{x(tick):.1f}" y="{height - 15}" text-anchor="middle" class="tick">{tick:g}</text>')
    marks.append(f'<text x="{width - 4}" y="{height - 2}" text-anchor="end" class="tick">{html.escape(unit)}</text>')
    for place, row in enumerate(rows):
        y = 32 + STEP * place
        said = f"{row.label}: {row.value:.1f} [{row.low:.1f}, {row.high:.1f}] {unit}"
        label = row.label if len(row.label) <= LONGEST else f"{row.label[: LONGEST - 1]}…"
        marks.append(f"<g><title>{html.escape(said)}</title>")
        marks.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text>')
        if math.isfinite(row.value):
            if math.isfinite(row.low) and math.isfinite(row.high):
                marks.append(f'<line x1="{x(row.low):.1f}" x2="{x(row.high):.1f}" y1="{y}" y2="{y}" class="bar"/>')
            marks.append(f'<circle cx="{x(row.value):.1f}" cy="{y}" r="3.6" class="dot"/>')
        marks.append("</g>")
    return _svg("drawn", title, width, height, marks)


def strip(one: Interval, ends: tuple[float, float], wanted: tuple[float, float] | None) -> str:
    """One interval on an axis with zero, and the range that a claim asks for shaded."""
    low, high = ends

    def x(number: float) -> float:
        return 4 + 172 * (min(max(number, low), high) - low) / (high - low)

    marks = []
    if wanted:
        start, end = (x(min(max(edge, low), high)) for edge in wanted)
        marks.append(f'<rect x="{start:.1f}" y="2" width="{max(end - start, 1):.1f}" height="18" class="wanted"/>')
    marks.append(f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="1" y2="21" class="zero"/>')
    marks.append(f'<line x1="{x(one.low):.1f}" x2="{x(one.high):.1f}" y1="11" y2="11" class="bar"/>')
    marks.append(f'<circle cx="{x(one.value):.1f}" cy="11" r="4" class="dot"/>')
    return _svg("drawn strip", one.label, 180, 22, marks)


def _svg(css: str, title: str, width: int, height: int, marks: Sequence[str]) -> str:
    head = f'<svg class="{css}" role="img" aria-label="{html.escape(title)}" viewBox="0 0 {width} {height}" width="{width}">'
    return f"{head}{''.join(marks)}</svg>"
