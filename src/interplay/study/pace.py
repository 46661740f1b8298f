"""How fast a finished stage was, for estimates of others of its kind: what its start took, once, and seconds for each unit of its
work.

What a stage timed itself (its steps, its sampling) tells the pace; the rest of its wall clock is the start, which a longer stage
takes no more often: the interpreter, libraries, reading, and the measures and saves at the end. Of a run of a few steps it is
nearly all."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interplay.schema.cost import Cost, realised
from interplay.schema.kinds import SETS
from interplay.schema.run import Run
from interplay.store import artifact
from interplay.store.metrics import read_telemetry
from interplay.study import disk, rates

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
        return self.start is not None or self.amount * rates.FEW >= amount


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
    size = disk.written(folder) / left if left else 0.0
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
    return (f"{PROBLEMS}{rates.family(stage, known)}", float(problems)) if problems else ("stages", 1.0)


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
