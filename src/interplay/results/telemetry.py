"""What the telemetry of finished stages shows: how fast they were, the bytes they left, and how much of the threads, memory and
time reserved for them they used. No accounting of a cluster is read, so the numbers are the same on a laptop and under Slurm."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, execution, metrics
from interplay.kinds import formulas, stages as planned, table
from interplay.model.spec import Memory
from interplay.study.plan import Plan, Stage
from interplay.tasks.families import rates_of

PROBLEMS = "problems of "
"""Start of the unit of work of stages whose time depends on their number of problems; followed by the task family."""
MUCH_SMALLER = 10
"""A finished stage with this many times fewer problems gives no pace: most of its time was start-up."""
WEIGHT_BYTES = 4
STATES = 3
"""Weights and two moments of the optimizer: the final state of an RL run, in copies of its weights."""

Stages = Mapping[str, formulas.Json]
"""Stages as JSON by digest."""


# -- pace --------------------------------------------------------------------------------------------------------------
# What a stage timed itself (its steps, its sampling) is its pace. The rest of its wall clock is start-up, which does not grow
# with the work: the interpreter, libraries, reading, and the metrics and saves at the end. In a run of a few steps it is nearly
# all.


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
    """Largest number of tokens of a completion; 0 where none is sampled."""
    bytes_per_item: float
    """On disk, per problem held or completion sampled; 0 where it does neither."""
    peak: float = 0.0
    """Bytes of memory of all its processes; 0: not measured."""
    needed: float | None = None
    """What they were estimated to need."""
    dtype: str | None = None
    """What it computed in; None for kinds that do not state it."""

    def covers(self, amount: float) -> bool:
        """Whether this amount of work can be estimated from it: start-up is separate, or the work is not many times larger."""
        return self.start is not None or self.amount * MUCH_SMALLER >= amount


def pace_of(stage: formulas.Json, cost: formulas.Cost, stages: Stages, folder: Path) -> Pace | None:
    """The pace of a finished stage in a folder; `stages` holds its dependencies. None where its time is not known."""
    telemetry = metrics.read_telemetry(folder)
    wall, own = _wall_clock(telemetry), _own_clock(stage, cost, telemetry, folder)
    taken = own or wall
    if not taken:
        return None
    start = max(0.0, (wall or 0.0) - own) if own else None
    unit, amount = work_of(stage, cost, stages)
    gpus, threads, items = execution.Run(**stage["run"]).gpus, int(telemetry.get("threads", 1)), item_count(unit, amount, cost)
    size = sum(size for size, _ in artifact.record(folder)["files"].values()) / items if items else 0.0
    cap, peak = _completion_cap(cost), float(telemetry.get("peak_memory_mb", 0.0)) * 2**20
    dtype = stage["spec"].get("dtype")
    return Pace(unit, taken / amount, start, cost.parameters or 0, gpus, threads, amount, cap, size, peak, dtype=dtype)


def estimate_seconds(
    paces: Sequence[Pace], stage: formulas.Json, amount: float, left: float, cost: formulas.Cost, assumed: float = 0.0
) -> float:
    """Seconds for the share `left` of this amount of work, start-up included: by the median of the paces that are nearest in
    model size, then in dtype, in threads, in the cap of completions and in the order of magnitude of the work. `assumed`: seconds
    of a FLOP without records; what a model takes beyond them grows with its tokens and not with its size."""
    threads, dtype = execution.Run(**stage["run"]).cores(), stage["spec"].get("dtype")

    def distance(pace: Pace) -> tuple[float, ...]:
        return (
            _log_ratio(pace.parameters, cost.parameters or 0),
            pace.dtype != dtype,
            abs(pace.threads - threads),
            _log_ratio(pace.cap, _completion_cap(cost)),
            round(_log_ratio(pace.amount, amount) / math.log(10)),
        )

    least = min(distance(pace) for pace in paces)
    nearest = [pace for pace in paces if distance(pace) == least]
    start = statistics.median(pace.start or 0.0 for pace in nearest)
    return start + left * amount * statistics.median(_at_size(pace, cost.parameters or 0, assumed) for pace in nearest)


def _at_size(pace: Pace, parameters: int, assumed: float) -> float:
    """Seconds per unit of a model of another size."""
    beyond = pace.seconds_per_unit - assumed
    if beyond <= 0 or not (assumed and pace.parameters and parameters):
        return pace.seconds_per_unit
    return assumed + beyond * pace.parameters / parameters


def work_of(stage: formulas.Json, cost: formulas.Cost, stages: Stages) -> tuple[str, float]:
    """Unit and amount of the work to which a stage's time is proportional: FLOPs (tokens where the model's size is unknown),
    problems of a family in a set or a corpus, else one stage."""
    if cost.flops:
        return "flops", float(cost.flops)
    if cost.tokens or cost.sampled:
        return "tokens", float(cost.tokens + cost.sampled)
    problems = _problem_count(stage, stages) if stage["kind"] in (*table.SETS, "corpus") else 0
    return (f"{PROBLEMS}{task_family(stage, stages)}", float(problems)) if problems else ("stages", 1.0)


def item_count(unit: str, amount: float, cost: formulas.Cost) -> float:
    """What a stage's bytes are proportional to: the problems that it holds or the completions that it samples."""
    return amount if unit.startswith(PROBLEMS) else float(cost.rollouts)


def _problem_count(stage: formulas.Json, stages: Stages) -> int:
    """Problems of a set, or of all that a corpus or a curated set is made of; 0 where the size of a file is unknown."""
    return int(stage["spec"].get("size") or sum(_problem_count(one, stages) for one in _data_inputs(stage, stages)))


def task_family(stage: formulas.Json, stages: Stages) -> str:
    """Task family of a generated set, or of the first one that a set or a corpus is made of; empty for problems from a file."""
    if stage["kind"] == "problems":
        return str(stage["spec"]["task"]["name"])
    return next((family for one in _data_inputs(stage, stages) if (family := task_family(one, stages))), "")


def _data_inputs(stage: formulas.Json, stages: Stages) -> list[formulas.Json]:
    refs = [artifact.ref_digest(ref) for role, ref in sorted(stage["deps"].items()) if role.startswith("data.")]
    return [stages[digest] for digest in refs if digest in stages]


def _wall_clock(telemetry: formulas.Json) -> float | None:
    """Wall-clock seconds of a whole stage; None where only those of the last attempt are known, or it continued another run."""
    if int(telemetry.get("attempts", 1)) == 1 and "continued_from" not in telemetry:
        return telemetry.get("seconds_wall")
    return None


def _own_clock(stage: formulas.Json, cost: formulas.Cost, telemetry: formulas.Json, folder: Path) -> float | None:
    """Seconds of the whole work by the rate that the stage measured, which does not depend on the number of attempts; None where
    it measured none."""
    spec, trained, sampled = stage["spec"], telemetry.get("tokens_per_second"), telemetry.get("completion_tokens_per_second")
    if "seconds_per_step" in telemetry and "steps" in spec:
        return float(telemetry["seconds_per_step"]) * int(spec["steps"])
    if trained and "tokens" in spec:
        return float(spec["tokens"] / trained)
    if sampled and table.KINDS[stage["kind"]].makes == "samples":
        return planned.realised_cost(artifact.record(folder), cost.parameters).sampled / float(sampled)
    return telemetry.get("train_seconds") if _wall_clock(telemetry) else None


def _completion_cap(cost: formulas.Cost) -> float:
    return cost.sampled / cost.rollouts if cost.rollouts else 0.0


def _log_ratio(one: float, other: float) -> float:
    return abs(math.log((one + 1) / (other + 1)))


# -- memory ------------------------------------------------------------------------------------------------------------

EQUAL = 0.01
"""Two stages whose estimates, or whose work, differ by less than this share are taken for replicates."""


class Need(NamedTuple):
    """Memory of one stage, all its processes together."""

    host: float
    """Bytes of its machine."""
    measured: float | None = None
    """Largest peak of finished stages that were estimated to need as much: then `host`; None: `host` is the formula's."""
    of_process: Memory | None = None
    """As estimated; None for kinds without a formula."""

    def device(self) -> float:
        """Bytes of each of its GPUs; 0 without one, or where nothing is known."""
        return self.of_process.device if self.of_process else 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        known, source = self.of_process, "formula" if self.measured is None else "past records"
        held = {"phase": known.phase, "parts": known.parts} if known else {}
        return {"host_bytes": round(self.host), "device_bytes": round(self.device()), "source": source, **held}


def need_of(made: Memory | None, run: execution.Run, unit: str, amount: float, paces: Sequence[Pace]) -> Need | None:
    """The largest peak of finished stages like it; without one, what the formula says; None: neither is known."""
    host = made.host * run.processes if made else None
    if host is None:
        equal = [
            pace for pace in paces if pace.needed is None and pace.unit == unit and abs(pace.amount - amount) <= EQUAL * amount
        ]
    else:
        equal = [pace for pace in paces if pace.needed and pace.gpus == run.gpus and abs(pace.needed - host) <= EQUAL * host]
    peak = max((pace.peak for pace in equal), default=0.0)
    return Need(peak, peak, made) if peak else None if host is None else Need(host, None, made)


# -- stated rates and bytes --------------------------------------------------------------------------------------------


def generation_seconds(stage: formulas.Json, problems: float, family: str) -> float | None:
    """Seconds to generate, or to pack, this many problems at the stated rates; None where none are stated."""
    rate = rates_of(family)
    if rate is None or stage["kind"] not in ("problems", "corpus"):
        return None
    return problems / (rate.made * execution.Run(**stage["run"]).threads if stage["kind"] == "problems" else rate.packed)


def stage_bytes(stage: formulas.Json, cost: formulas.Cost, items: float, family: str, measured: Sequence[float]) -> float | None:
    """Bytes of a planned stage: of a model by its parameters, of others by finished stages or stated sizes; None where unknown.
    `items`: the problems that it holds, or completions that it samples; `measured`: bytes per item of finished stages."""
    row, spec, rate = table.KINDS[stage["kind"]], stage["spec"], rates_of(family)
    if row.makes == "model":
        kept = len(set(spec.get("checkpoints") or ()))
        states = STATES if row.keeps_state and execution.Run(**stage["run"]).keep_state else 0
        return cost.parameters * WEIGHT_BYTES * (1 + kept + states) if cost.parameters else None
    if measured and items:
        return items * statistics.median(measured)
    if rate is None or stage["kind"] not in ("problems", "corpus"):
        return None
    return items * (rate.set_bytes if stage["kind"] == "problems" else rate.corpus_bytes)


# -- use of what was reserved ------------------------------------------------------------------------------------------

SPARE_MEMORY, SPARE_TIME = 1.3, 2.0
"""A fitting reservation is this many times what was used: time varies between nodes, memory hardly."""
WASTED, TIGHT = 0.5, 0.9
"""Shares of a reservation below and above which another one is proposed."""


class Usage(NamedTuple):
    """Use of resources by the finished stages of one kind with equal reservations."""

    kind: str
    run: execution.Run
    stages: int
    cpu: float
    """CPU time as a share of what was reserved."""
    memory_mb: float
    """Largest peak of a stage, all its processes together."""
    minutes: float
    """Of the longest stage's last attempt."""
    attempts: int
    """Of all together: more than `stages` where jobs were killed, preempted or ran out of time."""


def usage_by_kind(plan: Plan, results: Path) -> list[Usage]:
    """One entry for each kind and reservation, in the order of the plan; stages without telemetry are left out."""
    groups: dict[tuple[str, execution.Run], list[formulas.Json]] = {}
    for stage in plan.stages.values():
        if telemetry := _complete_telemetry(stage, results):
            reserved = execution.Run(**stage.run.model_dump(include={"threads", "processes", "memory_mb", "runtime", "gpus"}))
            groups.setdefault((stage.kind, reserved), []).append(telemetry)
    return [_usage(kind, run, found) for (kind, run), found in groups.items()]


def proposals(usage: Usage) -> dict[str, int]:
    """Keys of the `run` block whose reservation is far from what was used -> values that fit."""
    each = usage.memory_mb / usage.run.processes
    fits = {
        "memory_mb": (each / usage.run.memory_mb, math.ceil(each * SPARE_MEMORY / 100) * 100),
        "runtime": (usage.minutes / usage.run.runtime, max(10, math.ceil(usage.minutes * SPARE_TIME / 10) * 10)),
    }
    reserved = usage.run.model_dump()
    return {key: value for key, (share, value) in fits.items() if not WASTED <= share <= TIGHT and value != reserved[key]}


def _complete_telemetry(stage: Stage, results: Path) -> dict[str, Any]:
    folder = artifact.folder(results, stage.kind, stage.digest)
    telemetry = metrics.read_telemetry(folder) if artifact.done(folder) else {}
    wanted = {"seconds_wall", "seconds_cpu", "peak_memory_mb"}
    if stage.run.processes > 1:
        wanted.add("peak_processes")  # without it the peak is an older one, of the largest process alone
    return telemetry if wanted <= telemetry.keys() else {}


def _usage(kind: str, run: execution.Run, found: list[formulas.Json]) -> Usage:
    wall = sum(float(telemetry["seconds_wall"]) for telemetry in found)
    return Usage(
        kind=kind,
        run=run,
        stages=len(found),
        cpu=sum(float(telemetry["seconds_cpu"]) for telemetry in found) / max(wall * run.cores(), 1e-9),
        memory_mb=max(float(telemetry["peak_memory_mb"]) for telemetry in found),
        minutes=max(float(telemetry["seconds_wall"]) for telemetry in found) / 60,
        attempts=sum(int(telemetry.get("attempts", 1)) for telemetry in found),
    )
