"""A claim as a picture: where its interval lies in the range that it claims."""

import math
from collections.abc import Callable

from interplay.report import diagram
from interplay.report.estimate import Estimate
from interplay.schema.metric import SHARE, Measure

WIDTH, HEIGHT, MIDDLE, DIGIT = 260, 34, 10, 6.5
"""Pixels; the last is what a character of a number takes."""


def svg(found: Estimate, claimed: tuple[float, float], signed: bool, told_in: Measure = SHARE) -> str:
    """The interval over the shaded range that the claim asserts; empty where there is no estimate.

    Values run over 0 to 100 %. Differences run as far to both sides of zero as the interval and the claim need."""
    if not found.seeds:
        return ""
    ends = [abs(number) for number in (found.low, found.high, found.value, *claimed) if math.isfinite(number)]
    reach = min(told_in.support_of_differences[1], 1.15 * max([0.02, *ends]))
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
        *_labels(marks, at, lambda mark: _tick(mark, signed, told_in)),
        "</svg>",
    ]
    return "".join(parts)


def _labels(marks: list[float], at: Callable[[float], float], written: Callable[[float], str]) -> list[str]:
    """The number of every mark, moved aside where it would run into the next."""
    shown = {written(mark): at(mark) for mark in sorted(marks)}
    rooms = [DIGIT * len(text) + 4 for text in shown]
    places = diagram.spread(list(shown.values()), rooms, WIDTH)
    return [f'<text x="{x:.1f}" y="32" text-anchor="middle">{text}</text>' for x, text in zip(places, shown, strict=True)]


def _tick(mark: float, signed: bool, told_in: Measure) -> str:
    shown = round(told_in.factor * mark, told_in.decimals) + 0.0
    return f"+{shown:g}" if signed and shown > 0 else f"{shown:g}".replace("-", "−")
