"""How new the graphs of an evaluation's right solutions are beside a problem set, by band (tasks/op_dag/graph_similarity.py)."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow.parquet as pq

from interplay.core.model import UserError
from interplay.data import sets
from interplay.tasks.op_dag import dag, graph_similarity
from interplay.tasks.op_dag.graph_similarity import Graph, Palette
from interplay.tasks.op_dag_prose import prose, prose_reader


class Surface(NamedTuple):
    """How a family's graphs are read."""

    loads: Callable[[str], Any]
    gold: Callable[[Any], Graph]
    stated: Callable[[str, Any], Graph]
    """Of a completion of that problem."""


SURFACES = {
    "op_dag": Surface(
        dag.loads,
        graph_similarity.gold_graph,
        lambda text, problem: graph_similarity.stated_graph(text, problem.modulus),
    ),
    "op_dag_prose": Surface(
        prose.loads,
        prose_reader.gold_graph,
        lambda text, problem: prose_reader.stated_graph(text),
    ),
}


class Known(NamedTuple):
    """A problem of such a family."""

    surface: Surface
    problem: Any


class Novelty(NamedTuple):
    """One band."""

    band: str
    right: int
    """Right samples whose op the set has; the others below count these."""
    graphs: int
    """Distinct graphs among them."""
    copied: float
    """Share of them whose graph equals one of the set."""
    nearest: float
    """Mean similarity to the nearest graph of the set of the same op."""
    without: int
    """Right samples of ops that the set does not have."""


def by_band(samples: Path, tested: Path, against: Path, by: Literal["strict", "answer"] = "strict") -> list[Novelty]:
    """`samples`: folder of an evaluation of the set `tested`; `against`: the set to compare with. Bands without a right sample
    are left out. Raises UserError where a set holds none but other families' problems."""
    palette: Palette = {}
    known = _libraries(against, palette)
    problems = _problems(tested)
    found: dict[str, list[tuple[graph_similarity.Features, float]]] = {}
    without: Counter[str] = Counter()
    for sample in pq.read_table(samples / "samples.parquet", columns=["index", "band", "op", "completion", by]).to_pylist():
        problem = problems.get(sample["index"])
        if not sample[by] or problem is None:
            continue
        graphs = found.setdefault(sample["band"], [])
        if sample["op"] not in known:
            without[sample["band"]] += 1
            continue
        graph = graph_similarity.features(problem.surface.stated(sample["completion"], problem.problem), palette)
        graphs.append((graph, graph_similarity.nearest(graph, known[sample["op"]])))
    return [_of_band(band, graphs, without[band]) for band, graphs in found.items()]


def _of_band(band: str, graphs: list[tuple[graph_similarity.Features, float]], without: int) -> Novelty:
    near = [similar for _, similar in graphs]
    distinct = {tuple(sorted(graph.items())) for graph, _ in graphs}
    count = max(1, len(near))
    return Novelty(band, len(near), len(distinct), sum(one == 1 for one in near) / count, sum(near) / count, without)


def _libraries(folder: Path, palette: Palette) -> dict[int, graph_similarity.Library]:
    """The gold graphs of a set by op."""
    graphs: dict[int, list[graph_similarity.Features]] = {}
    for surface, problem in _problems(folder).values():
        graphs.setdefault(problem.op, []).append(graph_similarity.features(surface.gold(problem), palette))
    return {op: graph_similarity.library(of_op) for op, of_op in graphs.items()}


def _problems(folder: Path) -> dict[int, Known]:
    """Problems of these families by index."""
    table = sets.load(folder, ["index", "family", "graph"])
    rows = zip(*(table[name].to_pylist() for name in ("index", "family", "graph")), strict=True)
    found = {i: Known(SURFACES[name], SURFACES[name].loads(graph)) for i, name, graph in rows if name in SURFACES}
    if not found:
        families = " or ".join(SURFACES)
        raise UserError(f"novelty: {folder.name} holds no problems of {families}; name a set whose solutions state graphs of it")
    return found
