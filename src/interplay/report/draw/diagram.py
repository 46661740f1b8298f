"""A layered picture of a graph as SVG, from top to bottom, without Graphviz and without a network.

    nodes = {"a": Node("edge", "problems"), "b": Node("rl_edge/rl", "rl", "failed", times=3, note="1 of 3 done")}
    svg(nodes, [Edge("a", "b", "data.0")])              # for a desktop: at most 8 boxes side by side
    svg(nodes, [Edge("a", "b", "data.0")], across=3)    # for a phone: about 400 px wide

Longest-path layers, of which wide ones are broken into several; order within a layer by barycentres (Sugiyama, Tagawa and Toda,
1981), the order with fewest crossings wins; x by least squares to the neighbours, boxes keeping their distance. An edge that
passes a layer goes through a bend there; the edges of one source share their bends, so a problem set that feeds ten stages is one
line that branches. Equal input gives equal bytes. `report.draw.collapse` makes a study's nodes and edges."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from interplay.core.model import escape_control
from interplay.kinds.table import KINDS

# Text cut to the width of a box. There is no font to measure by where a page is written, so widths are those of a wide one, and
# what fits in it fits in others.
#
# label("grpo[learning_rate=0.003]/rl", 10.5) # grpo[l…=0.003]/rl: arms of a grid differ in their values, so these stay


NARROW, LEAN, BROAD, WIDE = "ijlI.,:;|!'()[]/ -", 'ftr_*"`', "ABCDEFGHKLNOPQRSTUVXYZ=+<>#~^?×", "mwMW%@&…"
EMS = {**dict.fromkeys(NARROW, 0.46), **dict.fromkeys(LEAN, 0.53), **dict.fromkeys(BROAD, 0.86), **dict.fromkeys(WIDE, 1.11)}
"""Of DejaVu Sans in bold, rounded up."""
USUAL, FOREIGN = 0.72, 1.11
LEAST = 3
"""Characters that a group keeps as long as its axes have names."""


def ems(text: str) -> float:
    """Width in units of the size of type."""
    return sum(EMS.get(character, USUAL if character.isascii() else FOREIGN) for character in text)


def label(text: str, room: float) -> str:
    """The name of a stage in so many ems. Axes of a grid lose letters of their names first, then the group does, then the axes
    lose their names, and last the stage gives way, which the kind tells; where that does not help, or there are no axes, the
    middle is left out."""
    return next((one for one in [text, *_shorter(text)] if ems(one) <= room), _cut(text, room))


def under(kind: str, rest: str, room: float) -> str:
    """What stands beneath a name: of the kind, which the colour tells as well, as much as fits beside the rest."""
    starts = [kind, *(f"{kind[:letters]}…" for letters in range(len(kind) - 2, 0, -1)), ""] if rest else [kind]
    lines = (f"{start} {rest}".strip() for start in starts)
    return next((line for line in lines if ems(line) <= room), _cut(rest or kind, room))


def _shorter(text: str) -> Iterator[str]:
    found = re.fullmatch(r"([^\[]*)\[(.*)\]([^\]]*)", text, re.DOTALL)
    if not found:
        return
    group, inside, stage = found.groups()
    axes = [axis.rpartition("=")[::2] for axis in inside.split(",")]
    longest = max(len(name) for name, _ in axes)
    groups = [group, *(_middle(group, letters) for letters in range(len(group) - 2, 0, -1))]
    yield from (f"{group}[{_values(axes, letters)}]{stage}" for letters in range(longest - 1, 0, -1))
    yield from (f"{short}[{_values(axes, 1)}]{stage}" for short in groups if len(short) > LEAST)
    yield from (f"{short}[{_values(axes, 0)}]{end}" for end in (stage, "") for short in groups)


def _values(axes: list[tuple[str, str]], letters: int) -> str:
    """The axes with so many letters of their names."""
    return ",".join(f"{_start(name, letters)}={value}" if name and letters else value for name, value in axes)


def _start(name: str, letters: int) -> str:
    return name if len(name) <= letters + 1 else f"{name[:letters]}…"


def _cut(text: str, room: float) -> str:
    """Without as much of the middle as needed."""
    return next((short for letters in range(len(text) - 1, 0, -1) if ems(short := _middle(text, letters)) <= room), "…")


def _middle(text: str, letters: int) -> str:
    """So many of its characters from both ends."""
    last = letters // 2
    return f"{text[: letters - last]}…{text[len(text) - last :]}"


WIDTH, HEIGHT, GAP, BEND, RISE, MARGIN = 118.0, 40.0, 12.0, 16.0, 34.0, 8.0
"""Pixels: a box, the space beside it, the room that a bend takes, the space between layers, the frame."""
SWEEPS = 12
TYPE, TIGHT, SMALL, PLAIN = 12, 10.5, 10.5, 0.88
"""Pixels of type: a label, one that is too long for that, and what stands beneath; width of plain type over that of bold."""
ROOM = WIDTH - 8.0
"""Pixels of text in a box."""
MODEL_ROLES = ("init", "model", "reference")
STYLE = """<style>
.diagram text{font:600 12px system-ui,sans-serif;text-anchor:middle;fill:#1c2430}
.diagram .tight{font-size:10.5px}
.diagram .small{font-weight:400;font-size:10.5px;fill:#566071}
.diagram .new rect,.diagram .missing rect{stroke-dasharray:4 3;fill-opacity:.35}
.diagram .failed rect{stroke:#c0262d;stroke-width:2.5}.diagram .failed .small{fill:#c0262d}
.diagram .unfinished rect,.diagram .running rect{stroke-dasharray:9 3}
.diagram path{fill:none;stroke:#b3bcc9;stroke-width:1.2}.diagram path.model{stroke:#5b6675;stroke-width:2.2}
.diagram a:hover rect{stroke-width:2.5}
</style>"""


class Node(NamedTuple):
    """A box: `label` in bold, beneath it kind, count and note."""

    label: str
    kind: str
    state: str = "done"
    """done, running, unfinished, failed, new or missing; only done is drawn with a whole line."""
    digest: str = ""
    href: str = ""
    """Where a click leads; empty: nowhere."""
    note: str = ""
    times: int = 1
    """Stages that the box stands for."""


class Edge(NamedTuple):
    """`target` depends on `source` in the `role`; the roles of models are drawn bold."""

    source: str
    target: str
    role: str = ""


Point = tuple[str, int]
"""A node at its layer, or the bend of its edges at a layer below its own."""


def diagram_svg(nodes: Mapping[str, Node], edges: Sequence[Edge], across: int = 8) -> str:
    """The picture. `nodes` by any key; edges name keys and form no circle; at most `across` boxes stand side by side."""
    layer = layers(list(nodes), edges, across)
    links = _links(layer, edges)
    rows = _ordered(layer, links)
    rooms = [[WIDTH + GAP if layer[key] == number else BEND for key, number in row] for row in rows]
    width = max(map(sum, rooms), default=WIDTH)
    xs = {point: MARGIN + x for point, x in _places(rows, rooms, links, width).items()}
    body = [_curve(xs[a], xs[b], a, b, layer, bold) for (a, b), bold in links.items()]
    body += [_box(node, xs[key, layer[key]], _top(layer[key])) for key, node in nodes.items()]
    size = (f"{width + 2 * MARGIN:.0f}", f"{len(rows) * (HEIGHT + RISE) - RISE + 2 * MARGIN:.0f}")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {" ".join(size)}"'
    return f'{head} width="{size[0]}" height="{size[1]}" role="img">\n{STYLE}\n' + "\n".join(body) + "\n</svg>\n"


def layers(keys: Sequence[str], edges: Sequence[Edge], across: int) -> dict[str, int]:
    """Layer of each node, 0 on top: below all it depends on, and with at most `across` others. What depends on nothing stands
    right above what first needs it."""
    before: dict[str, set[str]] = {key: set() for key in keys}
    after: dict[str, set[str]] = {key: set() for key in keys}
    for edge in edges:
        before[edge.target].add(edge.source)
        after[edge.source].add(edge.target)
    depth: dict[str, int] = {}
    while len(depth) < len(keys):
        ready = [key for key in keys if key not in depth and before[key] <= depth.keys()]
        if not ready:
            raise ValueError(f"the edges form a circle among {sorted(set(keys) - depth.keys())}")
        depth |= {key: 1 + max((depth[other] for other in before[key]), default=-1) for key in ready}
    depth |= {key: min(depth[other] for other in after[key]) - 1 for key in keys if after[key] and not before[key]}
    rows: dict[int, list[str]] = defaultdict(list)
    for key in keys:
        rows[depth[key]].append(key)
    found: dict[str, int] = {}
    number = 0
    for _, row in sorted(rows.items()):
        parts = -(-len(row) // across)
        for part in range(parts):  # as even as can be
            found |= dict.fromkeys(row[len(row) * part // parts : len(row) * (part + 1) // parts], number)
            number += 1
    return found


def _links(layer: dict[str, int], edges: Iterable[Edge]) -> dict[tuple[Point, Point], bool]:
    """Pairs of points in neighbouring layers -> whether an edge between models runs there."""
    links: dict[tuple[Point, Point], bool] = {}
    for edge in edges:
        bends = [(edge.source, number) for number in range(layer[edge.source], layer[edge.target])]
        for pair in itertools.pairwise([*bends, (edge.target, layer[edge.target])]):
            links[pair] = links.get(pair, False) or edge.role.split(".")[0] in MODEL_ROLES
    return links


def _ordered(layer: dict[str, int], links: Iterable[tuple[Point, Point]]) -> list[list[Point]]:
    """The points of each layer from left to right."""
    pairs = list(links)
    points = dict.fromkeys([*((key, number) for key, number in layer.items()), *itertools.chain.from_iterable(pairs)])
    rows: list[list[Point]] = [[] for _ in range(1 + max(layer.values(), default=0))]
    for point in points:
        rows[point[1]].append(point)
    best, fewest = [list(row) for row in rows], _crossings(rows, pairs)
    for sweep in range(SWEEPS):
        up = sweep % 2
        near = _neighbours(pairs, up)
        for row in reversed(rows) if up else rows:
            place = {point: index for line in rows for index, point in enumerate(line)}
            row.sort(key=lambda p: sum(map(place.__getitem__, near[p])) / len(near[p]) if near[p] else place[p])
        if (crossings := _crossings(rows, pairs)) < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _neighbours(pairs: Iterable[tuple[Point, Point]], up: int) -> dict[Point, list[Point]]:
    """Point -> those linked to it in the layer above it, or `up` from it: in the layer below."""
    near: dict[Point, list[Point]] = defaultdict(list)
    for pair in pairs:
        near[pair[1 - up]].append(pair[up])
    return near


def _crossings(rows: list[list[Point]], pairs: Iterable[tuple[Point, Point]]) -> int:
    place = {point: index for row in rows for index, point in enumerate(row)}
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for a, b in pairs:
        spans[a[1]].append((place[a], place[b]))
    return sum((a - c) * (b - d) < 0 for row in spans.values() for (a, b), (c, d) in itertools.combinations(row, 2))


def _places(
    rows: list[list[Point]], rooms: list[list[float]], links: Iterable[tuple[Point, Point]], width: float
) -> dict[Point, float]:
    """x of each point in 0..width: each row moves as near to its neighbours above (every other time: below) as `rooms` allow."""
    xs = {point: width / 2 for row in rows for point in row}
    for sweep in range(SWEEPS):
        near = _neighbours(links, sweep % 2)
        for row, room in [*zip(rows, rooms, strict=True)][:: -1 if sweep % 2 else 1]:
            wanted = [sum(xs[other] for other in near[point]) / len(near[point]) if near[point] else xs[point] for point in row]
            xs |= dict(zip(row, spread(wanted, room, width), strict=True))
    return xs


def spread(wanted: list[float], rooms: list[float], width: float) -> list[float]:
    """The places in 0..width nearest to `wanted` in least squares that keep order and `rooms` (pool adjacent violators)."""
    offsets = [sum(rooms[:index]) + room / 2 for index, room in enumerate(rooms)]
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, size = want - offset, 1
        while blocks and blocks[-1][0] >= mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    starts = [min(max(mean, 0.0), width - sum(rooms)) for mean, size in blocks for _ in range(size)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _top(number: int) -> float:
    return MARGIN + number * (HEIGHT + RISE)


def _curve(x: float, end: float, a: Point, b: Point, layer: dict[str, int], bold: bool) -> str:
    """A link; at a bend it goes straight down through the layer."""
    y, low = _top(a[1]) + HEIGHT, _top(b[1])
    through = "" if layer[b[0]] == b[1] else f"V{low + HEIGHT:.1f}"
    middle = (y + low) / 2
    path = f"M{x:.1f} {y:.1f}C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {low:.1f}{through}"
    kind = "model" if bold else "data"
    return f'<path class="{kind}" d="{path}"/>'


def _text(text: str) -> str:
    """Escaped; XML has no way at all to hold control characters."""
    return escape(escape_control(text))


def _box(node: Node, x: float, y: float) -> str:
    hue = KINDS[node.kind].hue if node.kind in KINDS else 0
    tight = ems(node.label) * TYPE > ROOM
    shown = label(node.label, ROOM / (TIGHT if tight else TYPE))
    rest = " ".join(filter(None, [f"×{node.times}" if node.times > 1 else "", node.note]))
    below = under(node.kind if node.kind != node.label else "", rest, ROOM / SMALL / PLAIN)
    drawn = f'<rect x="{x - WIDTH / 2:.1f}" y="{y:.1f}" width="{WIDTH:.0f}" height="{HEIGHT:.0f}" rx="7"'
    drawn += f' fill="hsl({hue} 70% 93%)" stroke="hsl({hue} 45% 55%)"/>'
    size = ' class="tight"' if tight else ""
    drawn += f'<text{size} x="{x:.1f}" y="{y + (17 if below else 24):.1f}">{_text(shown)}</text>'
    drawn += f'<text class="small" x="{x:.1f}" y="{y + 32:.1f}">{_text(below)}</text>' if below else ""
    title = " ".join(filter(None, [node.label, node.kind, node.digest, node.state]))
    drawn = f'<g class="{escape(node.state)}"><title>{_text(title)}</title>{drawn}</g>'
    return f'<a href="{escape(node.href)}">{drawn}</a>' if node.href else drawn
