"""Pictures of docs/reproduction.md: what was published over what was measured here, as small SVG files that are legible one below
the other on a phone and side by side on a desk. Published numbers are open squares, ours are dots with their intervals."""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP = 336, 40, 12, 48
COLORS = ("#5f6b7a", "#2458c5", "#b3541e", "#8a2a6b", "#1b7344", "#6b5b00")
"""Of curves, in their order; darker than 4.5 to 1 on white."""
INK, FAINT = "#1f2933", "#d5dae1"
Scale = Callable[[float], float]


class Point(NamedTuple):
    """A published number (`ours` unset) or one of ours with its interval; NaN ends where it has none."""

    x: float
    value: float
    ours: bool = False
    low: float = math.nan
    high: float = math.nan
    name: str = ""
    """Of a row, or what is written at the point."""


def drawn(title: str, height: float, marks: Sequence[str], note: str = "") -> str:
    """The file, with a legend of the marks below the title."""
    legend = [
        _text(LEFT, 34, "published", "start", 11, x=LEFT + 12),
        _square(LEFT + 4, 30, INK),
        _dot(LEFT + 84, 30, INK),
        f'<line x1="{LEFT + 76}" x2="{LEFT + 92}" y1="30" y2="30" stroke="{INK}" stroke-width="2"/>',
        _text(LEFT, 34, f"here, with 95 % interval{note}", "start", 11, x=LEFT + 98),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    style = ' font-family="system-ui, sans-serif" font-size="12"'
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
    body = "".join([_text(8, 16, title, "start", 13, weight=600), *legend, *marks])
    return f"{head}{style}>{ground}{body}</svg>\n"


def curves(title: str, series: Mapping[str, Sequence[Point]], unit: str, below: str) -> str:
    """Points over k, or any other positive number, on a logarithmic axis; a colour for each series."""
    every = [point for points in series.values() for point in points]
    x = _logarithmic([point.x for point in every])
    low, high = _ends(every)
    least = min(end for one in every for end in (one.value, one.low) if math.isfinite(end))
    low = 10 * math.floor(least / 10) if least > 50 else low
    bottom = 250.0
    y = _linear(low, high, bottom, TOP + 8)
    marks = _grid_of_y(y, low, high, unit)
    for tick in _powers([point.x for point in every]):
        marks.append(_text(x(tick), bottom + 16, _short(tick), "middle", 11))
    marks.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 32, below, "middle", 11))
    for place, (name, points) in enumerate(series.items()):
        color, shift = COLORS[place % len(COLORS)], 3.0 * (place - (len(series) - 1) / 2)
        for ours in (True, False):
            of = sorted(point for point in points if point.ours == ours)
            at = [(x(point.x) + (shift if ours else 0.0), y(point.value), point) for point in of]
            line = " ".join(f"{px:.1f},{py:.1f}" for px, py, _ in at)
            dashed = "" if ours else ' stroke-dasharray="2 4"'
            marks.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.4"{dashed}/>' if line else "")
            for px, _, point in at:
                marks += _upright(px, point, y, color)
        marks += [_dot(LEFT + 4, bottom + 50 + 17 * place, color)]
        marks.append(_text(LEFT + 14, bottom + 54 + 17 * place, name, "start", 12))
    return drawn(title, bottom + 50 + 17 * len(series), marks)


def rows(title: str, points: Mapping[str, Sequence[Point]], unit: str, below: str) -> str:
    """A row for each name: what was published and ours on one axis, with zero where it lies on it."""
    low, high = _ends([point for of in points.values() for point in of])
    x = _linear(low, high, 16.0, WIDTH - 16.0)
    bottom = TOP + 36.0 * len(points)
    marks = []
    for tick in ticks(low, high):
        color, wide = (INK, 1.2) if tick == 0 else (FAINT, 1.0)
        line = (
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{bottom:.0f}" stroke="{color}" stroke-width="{wide}"/>'
        )
        marks += [line, _text(x(tick), bottom + 15, f"{tick:g}", "middle", 11)]
    marks += [_text(WIDTH - 16, bottom + 15 * line, said, "end", 11) for line, said in ((2, unit), (3, below))]
    for place, (name, of) in enumerate(points.items()):
        top = TOP + 36.0 * place
        label = _text(16, top + 13, name, "start", 12)
        marks += [f'<rect x="14" y="{top + 1:.0f}" width="{6.3 * len(name) + 4:.0f}" height="16" fill="#fff"/>', label]
        for point in sorted(of, key=lambda one: not one.ours):
            color = COLORS[1] if point.ours else INK
            if math.isfinite(point.low) and math.isfinite(point.high):
                marks.append(_bar(x(point.low), x(point.high), top + 25, top + 25, color))
            marks.append((_dot if point.ours else _square)(x(point.value), top + 25, color))
    return drawn(title, bottom + 53, marks)


def sizes(title: str, points: Sequence[Point], unit: str, below: str) -> str:
    """Points over the number of parameters; those of one size lie side by side, each with a number that a list below names."""
    groups: dict[float, list[Point]] = {}
    for point in points:
        groups.setdefault(point.x, []).append(point)
    x = _logarithmic(list(groups), room=0.2)
    low, high = _ends(points)
    bottom = 250.0
    y = _linear(low, high, bottom, TOP + 8)
    marks = _grid_of_y(y, low, high, unit)
    named = []
    for size, of in groups.items():
        marks.append(_text(x(size), bottom + 16, _short(size), "middle", 11))
        for place, point in enumerate(of):
            px, color = x(size) + 13.0 * (place - (len(of) - 1) / 2), COLORS[1] if point.ours else INK
            marks += _upright(px, point, y, color)
            if point.ours:
                named.append(point.name)
                marks.append(_text(px + 6, y(point.value) - 5, str(len(named)), "start", 11))
    marks.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 32, below, "middle", 11))
    for place, name in enumerate(named):
        marks.append(_text(LEFT, bottom + 52 + 16 * place, f"{place + 1}  {name}", "start", 12))
    return drawn(title, bottom + 52 + 16 * len(named), marks)


def _upright(px: float, point: Point, y: Callable[[float], float], color: str) -> list[str]:
    """A point at a place of the horizontal axis, with its interval where it has one."""
    interval = (
        [_bar(px, px, y(point.low), y(point.high), color)] if math.isfinite(point.low) and math.isfinite(point.high) else []
    )
    return [*interval, (_dot if point.ours else _square)(px, y(point.value), color)]


def ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [round(step * at, 10) + 0.0 for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _ends(points: Sequence[Point]) -> tuple[float, float]:
    """A range that holds zero, all points and their intervals."""
    ends = [0.0, *(end for one in points for end in (one.value, one.low, one.high) if math.isfinite(end))]
    room = 0.05 * (max(ends) - min(ends) or 1.0)
    return (min(ends) - room if min(ends) < 0 else 0.0), max(ends) + room


def _linear(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _logarithmic(values: Sequence[float], room: float = 0.03) -> Scale:
    low, high = math.log(min(values)), math.log(max(values))
    wide = (high - low) or 1.0
    inner = _linear(low - room * wide, high + room * wide, LEFT, WIDTH - RIGHT)
    return lambda value: inner(math.log(value))


def _powers(values: Sequence[float]) -> list[float]:
    return [2.0**at for at in range(round(math.log2(min(values))), round(math.log2(max(values))) + 1)]


def _short(number: float) -> str:
    """`128`, `0.86M`."""
    return f"{number / 1e6:.3g}M" if number >= 1e5 else f"{number:g}"


def _grid_of_y(y: Scale, low: float, high: float, unit: str) -> list[str]:
    marks = [_text(LEFT - 6, TOP + 2, unit, "end", 11)]
    for tick in ticks(low, high):
        color = INK if tick == 0 else FAINT
        marks.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{color}"/>')
        marks.append(_text(LEFT - 6, y(tick) + 4, f"{tick:g}", "end", 11) if y(tick) > TOP + 14 else "")
    return marks


def _text(at: float, y: float, said: str, anchor: str, size: int, x: float | None = None, weight: int = 400) -> str:
    place = at if x is None else x
    looks = f'text-anchor="{anchor}" font-size="{size}" fill="{INK}"' + (f' font-weight="{weight}"' if weight != 400 else "")
    return f'<text x="{place:.1f}" y="{y:.1f}" {looks}>{html.escape(said)}</text>'


def _dot(x: float, y: float, color: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>'


def _square(x: float, y: float, color: str) -> str:
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="none" stroke="{color}" stroke-width="1.8"/>'


def _bar(x1: float, x2: float, y1: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="2"/>'
