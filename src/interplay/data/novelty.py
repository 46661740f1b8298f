"""How new the graphs of an evaluation's right solutions are beside a problem set, by band (tasks/op_dag/novelty.py)."""

from collections import Counter
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow.parquet as pq

from interplay.data import sets
from interplay.schema.base import UserError
from interplay.tasks import op_dag
from interplay.tasks.op_dag import novelty
from interplay.tasks.op_dag.graph import Problem


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
    palette: novelty.Palette = {}
    known = _libraries(against, palette)
    problems = _problems(tested)
    found: dict[str, list[tuple[novelty.Features, float]]] = {}
    without: Counter[str] = Counter()
    for sample in pq.read_table(samples / "samples.parquet", columns=["index", "band", "op", "completion", by]).to_pylist():
        problem = problems.get(sample["index"])
        if not sample[by] or problem is None:
            continue
        graphs = found.setdefault(sample["band"], [])
        if sample["op"] not in known:
            without[sample["band"]] += 1
            continue
        graph = novelty.features(novelty.stated(sample["completion"], problem.modulus), palette)
        graphs.append((graph, novelty.nearest(graph, known[sample["op"]])))
    return [_of_band(band, graphs, without[band]) for band, graphs in found.items()]


def _of_band(band: str, graphs: list[tuple[novelty.Features, float]], without: int) -> Novelty:
    near = [similar for _, similar in graphs]
    distinct = {tuple(sorted(graph.items())) for graph, _ in graphs}
    count = max(1, len(near))
    return Novelty(band, len(near), len(distinct), sum(one == 1 for one in near) / count, sum(near) / count, without)


def _libraries(folder: Path, palette: novelty.Palette) -> dict[int, novelty.Library]:
    """The gold graphs of a set by op."""
    graphs: dict[int, list[novelty.Features]] = {}
    for problem in _problems(folder).values():
        graphs.setdefault(problem.op, []).append(novelty.features(novelty.gold(problem), palette))
    return {op: novelty.library(of_op) for op, of_op in graphs.items()}


def _problems(folder: Path) -> dict[int, Problem]:
    """Problems of op_dag by index."""
    table = sets.load(folder, ["index", "family", "graph"])
    rows = zip(*(table[name].to_pylist() for name in ("index", "family", "graph")), strict=True)
    found = {index: op_dag.loads(graph) for index, family, graph in rows if family == "op_dag"}
    if not found:
        raise UserError(f"novelty: {folder.name} holds no problems of op_dag; name a set whose solutions state graphs of it")
    return found
