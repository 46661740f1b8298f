"""A layered picture of a graph as SVG, from top to bottom, laid out by grandalf, as DVC's own graphs are.

    nodes = {"a": Node("edge", "problems"), "b": Node("rl_edge/rl", "rl", "failed", times=3, note="1 of 3 done")}
    diagram_svg(nodes, [Edge("a", "b", "data.0")])              # for a desktop: at most 8 boxes in a row
    diagram_svg(nodes, [Edge("a", "b", "data.0")], across=3)    # for a phone: about 450 px wide

Layers are longest paths, of which wide ones are broken into several; order and x are grandalf's (Sugiyama's method with the
coordinates of Brandes and Köpf). An edge passes a layer through a bend; the edges of one source share their bends,
so a problem set that ten stages read is one line that branches. Equal input gives equal bytes. `study_graph` makes a study's
nodes and edges."""

import graphlib
import hashlib
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from grandalf import graphs
from grandalf.layouts import Layer, SugiyamaLayout, VertexViewer

from interplay.core import artifact, model
from interplay.core.digest import CORPUS, is_corpus_role, without_shard
from interplay.kinds.table import KINDS
from interplay.report.stats import provenance

WIDTH, HEIGHT, GAP, BEND, RISE, MARGIN = 116.0, 58.0, 12.0, 8.0, 28.0, 8.0
"""Pixels: a box, the gap between boxes, the width of a bend, the gap between layers, the frame."""
ROUNDS = 6
LETTERS, LINES, PITCH, EM, SMALL_EM = 17, 4, 11, 7.2, 6.3
"""Characters of a line of a label, lines of a label, pixels from line to line, and of a wide
character in a label and beneath it."""
MODEL_ROLES = ("init", "model", "reference")
STYLE = (Path(__file__).parent.parent / "templates" / "diagram.css").read_text(encoding="utf-8").strip()


class Node(NamedTuple):
    """A box: `label` in bold, beneath it kind, count and note."""

    label: str
    kind: str
    state: str = "done"
    """done, running, unfinished, failed, new or missing; only done is drawn with a solid line."""
    digest: str = ""
    href: str = ""
    """Target of a click; empty: none."""
    note: str = ""
    times: int = 1
    """Stages that the box represents."""


class Edge(NamedTuple):
    """`target` depends on `source` in the `role`; the roles of models are drawn bold."""

    source: str
    target: str
    role: str = ""


Point = tuple[str, int]
"""A node at its layer, or the bend of its edges at a layer below its own."""


class _Layered(SugiyamaLayout):
    """Sugiyama's method with the layers of the points themselves."""

    def rank_all(self, roots: Sequence[graphs.Vertex], optimize: bool = False) -> None:
        rows: dict[int, list[graphs.Vertex]] = defaultdict(list)
        for vertex in self.g.sV:
            rows[vertex.data[1]].append(vertex)
        for rank, number in enumerate(sorted(rows)):
            self.layers.append(Layer(rows[number]))
            for vertex in rows[number]:
                self.grx[vertex].rank = rank


def diagram_svg(nodes: Mapping[str, Node], edges: Sequence[Edge], across: int = 8) -> str:
    """The picture. `nodes` by any key; edges name keys and are acyclic; at most `across` boxes in a row. Raises ValueError for a
    cycle."""
    layer = layers(list(nodes), edges, across)
    links = _links(layer, edges)
    xs = _places(layer, links)
    if max(xs.values(), default=0.0) > across * (WIDTH + GAP):
        xs = _packed(xs, layer)
    width = max(xs.values(), default=0.0) + WIDTH / 2 + MARGIN
    height = (1 + max(layer.values(), default=0)) * (HEIGHT + RISE) - RISE + 2 * MARGIN
    body = [_curve(xs[a], xs[b], a, b, layer, bold) for (a, b), bold in links.items()]
    body += [_box(node, xs[key, layer[key]], _top(layer[key])) for key, node in nodes.items()]
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" {size} role="img" aria-label="graph of the stages">'
    return "\n".join([head, STYLE, *body, "</svg>\n"])


def layers(keys: Sequence[str], edges: Sequence[Edge], across: int) -> dict[str, int]:
    """Layer of each node, 0 on top: below everything it depends on, with at most `across` nodes. A node without dependencies is
    right above the first that reads it."""
    before: dict[str, set[str]] = {key: set() for key in keys}
    after: dict[str, set[str]] = {key: set() for key in keys}
    for edge in edges:
        before[edge.target].add(edge.source)
        after[edge.source].add(edge.target)
    depth: dict[str, int] = {}
    for key in graphlib.TopologicalSorter(before).static_order():  # raises ValueError for a cycle
        depth[key] = 1 + max((depth[other] for other in before[key]), default=-1)
    depth |= {key: min(depth[other] for other in after[key]) - 1 for key in keys if after[key] and not before[key]}
    rows: dict[int, list[str]] = defaultdict(list)
    for key in keys:
        rows[depth[key]].append(key)
    parts: list[list[str]] = []
    for _, row in sorted(rows.items()):
        count = -(-len(row) // across)  # of parts as equal as can be
        parts += [row[len(row) * part // count : len(row) * (part + 1) // count] for part in range(count)]
    return {key: number for number, part in enumerate(parts) for key in part}


def _links(layer: dict[str, int], edges: Iterable[Edge]) -> dict[tuple[Point, Point], bool]:
    """Pairs of points in adjacent layers -> whether an edge between models runs there."""
    links: dict[tuple[Point, Point], bool] = {}
    for edge in edges:
        bends = [(edge.source, number) for number in range(layer[edge.source], layer[edge.target])]
        for pair in itertools.pairwise([*bends, (edge.target, layer[edge.target])]):
            links[pair] = links.get(pair, False) or edge.role.split(".")[0] in MODEL_ROLES
    return links


def _places(layer: dict[str, int], links: Iterable[tuple[Point, Point]]) -> dict[Point, float]:
    """x of each point; the connected parts of the graph from left to right."""
    points = dict.fromkeys([*layer.items(), *itertools.chain.from_iterable(links)])
    vertices = {point: graphs.Vertex(point) for point in points}
    for (key, number), vertex in vertices.items():
        vertex.view = VertexViewer(w=WIDTH if layer[key] == number else BEND, h=HEIGHT)
    graph = graphs.Graph([*vertices.values()], [graphs.Edge(vertices[a], vertices[b]) for a, b in links])
    xs: dict[Point, float] = {}
    start = MARGIN
    for part in graph.C:
        layout = _Layered(part)
        layout.xspace = GAP
        layout.init_all(inverted_edges=[])
        layout.draw(ROUNDS)
        left = min(vertex.view.xy[0] - vertex.view.w / 2 for vertex in part.sV)
        xs |= {vertex.data: start + vertex.view.xy[0] - left for vertex in part.sV}
        start = GAP + max(xs[vertex.data] + vertex.view.w / 2 for vertex in part.sV)
    return xs


def _packed(xs: Mapping[Point, float], layer: Mapping[str, int]) -> dict[Point, float]:
    """The points in the same order, each row as narrow as it can be and in the middle."""
    rows: dict[int, list[Point]] = defaultdict(list)
    for point in sorted(xs, key=lambda point: xs[point]):
        rows[point[1]].append(point)
    rooms = {point: WIDTH + GAP if layer[point[0]] == point[1] else BEND + GAP / 4 for point in xs}
    width = max(sum(rooms[point] for point in row) for row in rows.values())
    found = {}
    for row in rows.values():
        end = MARGIN + (width - sum(rooms[point] for point in row)) / 2
        for point in row:
            found[point] = end + rooms[point] / 2
            end += rooms[point]
    return found


def _top(number: int) -> float:
    return MARGIN + number * (HEIGHT + RISE)


def _curve(x: float, end: float, a: Point, b: Point, layer: dict[str, int], bold: bool) -> str:
    """A link; at a bend it goes straight down through the layer."""
    y, low = _top(a[1]) + HEIGHT, _top(b[1])
    through = "" if layer[b[0]] == b[1] else f"V{low + HEIGHT:.1f}"
    middle = (y + low) / 2
    path = f"M{x:.1f} {y:.1f}C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {low:.1f}{through}"
    return f'<path class="{"model" if bold else "data"}" d="{path}"/>'


def _box(node: Node, x: float, y: float) -> str:
    hue = KINDS[node.kind].hue if node.kind in KINDS else 0
    rest = [node.kind if node.kind != node.label else "", f"×{node.times}" if node.times > 1 else "", node.note]
    lines = [(line, "") for line in label_lines(node.label)]
    lines += [(line, "small") for line in label_lines(" ".join(filter(None, rest)))[:1]]
    drawn = f'<rect x="{x - WIDTH / 2:.1f}" y="{y:.1f}" width="{WIDTH:.0f}" height="{HEIGHT:.0f}" rx="7"'
    drawn += f' fill="hsl({hue} 70% 93%)" stroke="hsl({hue} 45% 55%)"/>'
    first = y + HEIGHT / 2 - PITCH * len(lines) / 2 + 9
    drawn += "".join(_text(line, style, x, first + PITCH * number) for number, (line, style) in enumerate(lines))
    title = " ".join(filter(None, [node.label, node.kind, node.digest, node.state]))
    drawn = f'<g class="{escape(node.state)}"><title>{_escaped(title)}</title>{drawn}</g>'
    return f'<a href="{escape(node.href)}">{drawn}</a>' if node.href else drawn


def label_lines(text: str) -> list[str]:
    """The text on at most four lines, broken after punctuation where there is some. Of a longer one the middle is left out: arms
    of a grid differ at their ends."""
    lines = [""]
    for part in re.findall(rf"[^\s,\[/=]{{1,{LETTERS - 1}}}[\s,\[/=]?|[\s,\[/=]", text):
        if len(lines[-1]) + len(part.rstrip()) > LETTERS:
            lines.append("")
        lines[-1] += part
    if len(lines) > LINES:
        lines = [*lines[: LINES - 2], f"{lines[LINES - 2][: LETTERS - 1]}…", lines[-1]]
    return [line.strip() for line in lines if line.strip()]


def _text(line: str, style: str, x: float, y: float) -> str:
    """A line of text, compressed to the width of the box where some font could be wider."""
    wide = (SMALL_EM if style else EM) * len(line) > WIDTH - 8
    fit = f' textLength="{WIDTH - 8:.0f}" lengthAdjust="spacingAndGlyphs"' if wide else ""
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}"{fit}>{_escaped(line)}</text>'


def _escaped(text: str) -> str:
    """Escaped; XML cannot hold control characters."""
    return escape(model.escape_control(text))


# From stages to the few boxes of a diagram.


MOST = 40
"""Boxes that one screen shows. When more remain, stages of one name and kind with equal inputs are one box, even if their
specs differ."""
STATE_ORDER = ("failed", "unfinished", "running", "missing", "new", "done")
"""A box has the first state that any of its stages has."""
ENTITIES = {'"': "#quot;", "[": "#91;", "]": "#93;", "<": "#lt;", ">": "#gt;", "#": "#35;", "&": "#amp;"}


def study_graph(
    stages: Mapping[str, Mapping[str, Any]], states: Mapping[str, str], hrefs: Mapping[str, str] | None = None, most: int = MOST
) -> tuple[dict[str, Node], list[Edge]]:
    """Nodes and edges for `diagram.svg` and `mermaid`. `stages` by digest; `states` and `hrefs` by digest, as far as known.

    Dependencies that `stages` lacks stand for themselves, named by their role. The report's edges are left out but for those
    to stages that no other reads: it depends on every stage."""
    whole = _with_placeholders(stages)
    groups = _groups(whole, coarse=False)
    if len(set(groups.values())) > most:
        groups = _groups(whole, coarse=True)
    members: dict[str, list[str]] = defaultdict(list)
    for digest, group in groups.items():
        members[group].append(digest)
    nodes = {group: _node(whole, digests, states, hrefs or {}) for group, digests in members.items()}
    edges = {
        (groups[dep.split("@")[0]], groups[digest], CORPUS if is_corpus_role(role) else role): None
        for digest, stage in whole.items()
        for role, dep in stage["deps"].items()
        if stage["kind"] != "report"
    }
    read = {source for source, _, _ in edges}
    for digest, stage in whole.items():
        if stage["kind"] == "report":
            ends = {groups[dep] for dep in stage["deps"].values()} - read
            edges |= {(end, groups[digest], "data"): None for end in sorted(ends, key=list(members).index)}
    return nodes, [Edge(*edge) for edge in edges]


def mermaid(nodes: Mapping[str, Node], edges: list[Edge]) -> str:
    """The same graph as Mermaid text, which GitHub and many editors draw."""
    ids = {key: f"n{number}" for number, key in enumerate(nodes)}
    lines = ["flowchart TD"]
    for key, node in nodes.items():
        below = " ".join(filter(None, [node.kind, f"×{node.times}" if node.times > 1 else node.digest, node.note]))
        lines.append(f'  {ids[key]}["{_quoted(node.label)}<br/>{_quoted(below)}"]:::{node.state}')
    pairs = dict.fromkeys((edge.source, edge.target) for edge in edges)
    lines += [f"  {ids[source]} --> {ids[target]}" for source, target in pairs]
    styles = {"failed": "stroke:#c0262d,stroke-width:3px", "unfinished": "stroke-dasharray:9 3"}
    styles |= dict.fromkeys(("new", "missing"), "stroke-dasharray:4 3")
    used = {node.state for node in nodes.values()}
    return "\n".join([*lines, *(f"  classDef {state} {style}" for state, style in styles.items() if state in used)]) + "\n"


def _quoted(text: str) -> str:
    """With what Mermaid or a page would take for its own written as entities."""
    return "".join(ENTITIES.get(character, character) for character in model.escape_control(" ".join(text.split())))


def _with_placeholders(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The stages, those that they depend on before them, and a bare entry for each dependency that is not among them."""
    named = [(dep.split("@")[0], role) for stage in stages.values() for role, dep in stage["deps"].items()]
    roles = dict(reversed(named))  # by the first that reads it
    whole: dict[str, Mapping[str, Any]] = {}
    for digest in artifact.closure(stages, lambda digest: stages[digest]["deps"].values() if digest in stages else ()):
        role = roles.get(digest, "")
        absent = {"kind": provenance.ROLES.get(role.split(".")[0], role), "spec": {"absent": digest}, "deps": {}}
        whole[digest] = {**stages.get(digest, absent), "digest": digest}
    return whole


def _groups(stages: Mapping[str, Mapping[str, Any]], coarse: bool) -> dict[str, str]:
    """Digest -> key of its box: a hash over kind, spec without seeds, the boxes of its dependencies, and its level, so that
    boxes never form a circle."""
    groups: dict[str, str] = {}
    levels = _levels(stages)
    for digest, stage in stages.items():
        deps = {role: groups[dep.split("@")[0]] + dep.partition("@")[2] for role, dep in stage["deps"].items()}
        if stage["kind"] == "evaluate":
            deps.pop("model", None)
        one_for_each_seed = stage["kind"] == "source" and "@" in str(stage.get("label"))
        spec: Any = stage_name(stage) if one_for_each_seed else _without_seeds(stage["spec"])
        if coarse and "absent" not in spec and stage["kind"] != "report":
            spec, deps = _short(stage), {role: dep for role, dep in deps.items() if not role.startswith("data.")}
        text = json.dumps([stage["kind"], spec, deps, levels[digest]], sort_keys=True)
        groups[digest] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return groups


def _levels(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """How many evaluations in a row decided what a stage is made from: a set that is curated by samples of the base is
    above the base, and what is trained on it above other stages that are otherwise equal."""
    levels: dict[str, int] = {}
    for digest, stage in stages.items():
        below = [dep.split("@")[0] for dep in stage["deps"].values()]
        steps = [levels[dep] + (stages[dep]["kind"] == "evaluate" and stage["kind"] != "report") for dep in below]
        levels[digest] = max(steps, default=0)
    return levels


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seeds(item) for key, item in value.items() if key != "seed"}
    return [_without_seeds(item) for item in value] if isinstance(value, list) else value


def _node(
    stages: Mapping[str, Mapping[str, Any]], digests: list[str], states: Mapping[str, str], hrefs: Mapping[str, str]
) -> Node:
    found = [states.get(digest, "missing") for digest in digests]
    state = next((name for name in STATE_ORDER if name in found), found[0])
    done = found.count("done")
    note = f"{done} of {len(digests)} done" if 0 < done < len(digests) else state if state not in ("done", "new") else ""
    names = list(dict.fromkeys(stage_name(stages[digest]) for digest in digests))
    shorts = list(dict.fromkeys(_short(stages[digest]) for digest in digests))
    label = names[0] if len(names) == 1 else shorts[0] if len(shorts) == 1 else f"{shorts[0]} …"
    href = next((hrefs[digest] for digest in digests if digest in hrefs), "")
    return Node(label, stages[digests[0]]["kind"], state, ", ".join(digests), href, note, len(digests))


def stage_name(stage: Mapping[str, Any]) -> str:
    """`rl_edge/rl@0` -> `rl_edge/rl`, `base/base@0` -> `base`, `data.edge` and its shards -> `edge`,
    `stages.base.corpus` -> `base corpus`; a digest where there is no label."""
    label = re.sub(r"(@\w+)+$", "", without_shard(str(stage.get("label") or stage["digest"])))
    arm, slash, name = label.rpartition("/")
    if slash:
        return name if arm == name else label
    return label.removeprefix("data.").removeprefix("stages.").replace(".", " ")


def _short(stage: Mapping[str, Any]) -> str:
    """The name without the arm."""
    return stage_name(stage).rsplit("/", 1)[-1]
