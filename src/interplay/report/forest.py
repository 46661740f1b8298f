"""A claim as a picture: where its interval lies in the range that it claims."""

import math
from collections.abc import Callable

from interplay.report.estimate import Estimate
from interplay.report.measure import SHARE, Measure

WIDTH, HEIGHT, MIDDLE, ROOM = 260, 34, 10, 20


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
        *(
            f'<text x="{x}" y="32" text-anchor="{_anchor(x)}">{_tick(mark, signed, told_in)}</text>'
            for mark, x in _apart(marks, at)
        ),
        "</svg>",
    ]
    return "".join(parts)


def _apart(marks: list[float], at: Callable[[float], float]) -> list[tuple[float, float]]:
    """The marks, with where they stand, whose numbers do not run into those before them in the list."""
    kept: list[tuple[float, float]] = []
    for mark in marks:
        if all(abs(at(mark) - x) > ROOM for _, x in kept):
            kept.append((mark, at(mark)))
    return kept


def _anchor(x: float) -> str:
    return "start" if x < 16 else "end" if x > WIDTH - 16 else "middle"


def _tick(mark: float, signed: bool, told_in: Measure) -> str:
    shown = f"{round(told_in.factor * mark, told_in.decimals):g}"
    return f"+{shown}" if signed and mark > 0 else shown.replace("-", "−")
