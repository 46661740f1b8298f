"""How fast finished stages were, rates where nothing was measured, and the bytes that stages leave."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.core.artifact import split_ref
from interplay.core.execution import Run
from interplay.core.metrics import read_telemetry
from interplay.kinds.cost import realised
from interplay.kinds.formulas import Cost
from interplay.kinds.table import KINDS, SETS

# The bytes that a plan's stages will leave on disk: from finished stages of their kind, else models by their parameters and
# problems by stated sizes (results/pace.py).


FLOAT = 4
"""Bytes of a weight."""
STATES = 3
"""Weights and two moments of the optimiser: what an RL run keeps of its state, in weights of its model."""


def stage_bytes(stage: Mapping[str, Any], cost: Cost, items: float, family: str, measured: Sequence[float]) -> float | None:
    """Bytes of a stage as planned; None where nothing tells. `items`: the problems that it holds, or completions that it samples;
    `measured`: bytes per item of finished stages of its kind and family."""
    kind, spec = stage["kind"], stage["spec"]
    if KINDS[kind].makes == "model":
        kept = len(set(spec.get("checkpoints") or ()))
        states = STATES if KINDS[kind].keeps_state and Run(**stage["run"]).keep_state else 0
        return cost.parameters * FLOAT * (1 + kept + states) if cost.parameters else None
    if measured and items:
        return items * statistics.median(measured)
    return generated_bytes(stage, items, family)


def written_bytes(folder: Path) -> int:
    """Bytes that a finished stage left, by its record."""
    return sum(size for size, _ in artifact.record(folder)["files"].values())


# How fast a finished stage was, for estimates of others of its kind: what its start took, once, and seconds for each unit of
# its work.
#
# What a stage timed itself (its steps, its sampling) tells the pace; the rest of its wall clock is the start, which a longer
# stage takes no more often: the interpreter, libraries, reading, and the measures and saves at the end. Of a run of a few steps
# it is nearly all.


PROBLEMS = "problems of "
"""Begins the unit of work of stages whose time goes by problems; their family ends it."""


class Pace(NamedTuple):
    """How fast a finished stage was."""

    unit: str
    seconds_per_unit: float
    start: float | None
    """Seconds that do not grow with the work; None where the stage did not time itself, so that they are in those per unit."""
    parameters: int
    gpus: int
    threads: int
    amount: float
    """Units of the whole stage."""
    cap: float
    """Tokens of a completion at most; 0 where none is sampled."""
    bytes_per_item: float
    """What it left on disk, for each problem that it holds or completion that it sampled; 0 where it does neither."""

    def tells(self, amount: float) -> bool:
        """Whether so much work can be foretold from it: where its start is in its pace, not of many times as much."""
        return self.start is not None or self.amount * FEW >= amount


def of(stage: Mapping[str, Any], cost: Cost, known: Mapping[str, Mapping[str, Any]], folder: Path) -> Pace | None:
    """The pace of a finished stage in a folder, in JSON beside those that it depends on; None where its time is not known."""
    telemetry = read_telemetry(folder)
    wall, own = _wall(telemetry), _own(stage, cost, telemetry, folder)
    taken = own or wall
    if not taken:
        return None
    start = max(0.0, (wall or 0.0) - own) if own else None
    unit, amount = work(stage, cost, known)
    gpus, threads, left = Run(**stage["run"]).gpus, int(telemetry.get("threads", 1)), items(unit, amount, cost)
    size = written_bytes(folder) / left if left else 0.0
    return Pace(unit, taken / amount, start, cost.parameters or 0, gpus, threads, amount, _cap(cost), size)


def seconds(paces: Sequence[Pace], amount: float, left: float, cost: Cost, threads: int) -> float:
    """What the share `left` of so much work takes, start included: by the median of the paces that are nearest in the size of the
    model, and among these in threads, in the cap of completions and in the power of ten of the work."""

    def far(pace: Pace) -> tuple[float, ...]:
        return (
            _times(pace.parameters, cost.parameters or 0),
            abs(pace.threads - threads),
            _times(pace.cap, _cap(cost)),
            round(_times(pace.amount, amount) / math.log(10)),
        )

    least = min(far(pace) for pace in paces)
    nearest = [pace for pace in paces if far(pace) == least]
    start = statistics.median(pace.start or 0.0 for pace in nearest)
    return start + left * amount * statistics.median(pace.seconds_per_unit for pace in nearest)


def work(stage: Mapping[str, Any], cost: Cost, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, float]:
    """What a stage's time is proportional to, and how much of it: FLOPs (tokens where the model's size is unknown), problems of
    a family in a set or a corpus, else one stage."""
    if cost.flops:
        return "flops", float(cost.flops)
    if cost.tokens or cost.sampled:
        return "tokens", float(cost.tokens + cost.sampled)
    problems = _problems(stage, known) if stage["kind"] in (*SETS, "corpus") else 0
    return (f"{PROBLEMS}{family(stage, known)}", float(problems)) if problems else ("stages", 1.0)


def items(unit: str, amount: float, cost: Cost) -> float:
    """What a stage's bytes are proportional to: the problems that it holds or the completions that it samples."""
    return amount if unit.startswith(PROBLEMS) else float(cost.rollouts)


def _problems(stage: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> int:
    """Problems of a set, or of all that a corpus or a curated set is made of; 0 where a file's size is not told."""
    inputs = (known.get(artifact.split_ref(ref)[0]) for role, ref in stage["deps"].items() if role.startswith("data."))
    return int(stage["spec"].get("size") or sum(_problems(one, known) for one in inputs if one is not None))


def _wall(telemetry: Mapping[str, Any]) -> float | None:
    """Wall clock of a whole stage; None where it is the last attempt's alone, or a shorter run made the first steps."""
    if int(telemetry.get("attempts", 1)) == 1 and "continued_from" not in telemetry:
        return telemetry.get("seconds_wall")
    return None


def _own(stage: Mapping[str, Any], cost: Cost, telemetry: Mapping[str, Any], folder: Path) -> float | None:
    """Seconds of the whole work by the stage's own clock, which starts when it does: what its rate makes of its length, so that
    several attempts do not matter; None where it has none."""
    spec, trained, sampled = stage["spec"], telemetry.get("tokens_per_second"), telemetry.get("completion_tokens_per_second")
    if "seconds_per_step" in telemetry and "steps" in spec:
        return float(telemetry["seconds_per_step"]) * int(spec["steps"])
    if trained and "tokens" in spec:
        return float(spec["tokens"] / trained)
    if sampled and stage["kind"] == "evaluate":
        return realised(artifact.record(folder), cost.parameters).sampled / float(sampled)
    return telemetry.get("train_seconds") if _wall(telemetry) else None


def _cap(cost: Cost) -> float:
    return cost.sampled / cost.rollouts if cost.rollouts else 0.0


def _times(one: float, other: float) -> float:
    """The size of their ratio, as a logarithm."""
    return abs(math.log((one + 1) / (other + 1)))


# What generating, tokenising and packing problems takes where nothing was measured: rates and sizes by family, as measured with
# bench/corpus_scale.py at small ops (docs/log.md). Harder problems take longer in proportion to their length.


FEW = 10
"""A finished stage with so many times fewer problems tells no pace: most of its time was the start."""


class Rate(NamedTuple):
    """Of one family, per problem."""

    made: float
    """Problems generated, rendered, solved and written a second by one thread."""
    packed: float
    """Problems tokenised and packed a second by one thread."""
    set_bytes: float
    """Bytes of a problem set."""
    corpus_bytes: float
    """Bytes of a corpus: five a token."""


RATES = {
    "op_dag": Rate(2300, 40000, 130, 470),
    "op_dag_prose": Rate(950, 3500, 416, 1470),
    "bios": Rate(2200, 28000, 120, 185),
    "taxonomy": Rate(6300, 35000, 18, 113),
}
"""By the name of the task."""


def family(stage: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> str:
    """The family of the problems of a generated set, or of the first one that a set or a corpus is made of; empty where they come
    from a file."""
    if stage["kind"] == "problems":
        return str(stage["spec"]["task"]["name"])
    inputs = [known.get(split_ref(ref)[0]) for role, ref in sorted(stage["deps"].items()) if role.startswith("data.")]
    return next((found for one in inputs if one is not None and (found := family(one, known))), "")


def generation_seconds(stage: Mapping[str, Any], problems: float, of: str) -> float | None:
    """What so many problems of the family take at the stated rates; None where none are stated."""
    rate = RATES.get(of)
    if rate is None or stage["kind"] not in ("problems", "corpus"):
        return None
    threads = Run(**stage["run"]).threads if stage["kind"] == "problems" else 1  # a corpus is packed by one
    return problems / ((rate.made if stage["kind"] == "problems" else rate.packed) * threads)


def generated_bytes(stage: Mapping[str, Any], problems: float, of: str) -> float | None:
    """The bytes of so many problems of the family; None where none are stated."""
    rate = RATES.get(of)
    if rate is None or stage["kind"] not in ("problems", "corpus"):
        return None
    return problems * (rate.set_bytes if stage["kind"] == "problems" else rate.corpus_bytes)
