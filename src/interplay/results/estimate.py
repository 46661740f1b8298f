"""What the stages of a plan will take: from the pace of finished stages of their kind, else from FLOPs or problems at an assumed
rate; and how long the plan takes on a number of GPUs.

Both sides of a pace (results/telemetry.py) are planned: seconds over the cost that the finished stage's own spec predicted. So
completions that end long before their cap are included."""

import graphlib
import heapq
import itertools
import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, execution, metrics, model
from interplay.kinds.formulas import Cost, Json
from interplay.kinds.stages import peak_memories, planned_costs
from interplay.report.spec import ReportSpec
from interplay.results import state, telemetry
from interplay.rl.spec import RLSpec
from interplay.study.plan import Plan, Stage

CPU_FLOPS = 30e9
"""Assumed per CPU thread, where nothing was measured: what one core of a 2-core cloud machine reached in bfloat16 training."""
CPU_OPS = 75e9
"""The same where products are of 8 bits: what it reached in pre-training; RL and evaluation reached several times more."""
GPU_FLOPS = 100e12
"""Assumed per GPU, where nothing was measured: a quarter of what the data sheet of a data-centre GPU states for dense
bfloat16."""
START = 0.7
"""Seconds of a stage that do not grow with its work, where nothing was measured."""
MOST_SHORTER = 500
"""Finished RL runs that a longer one may continue, the newest first."""
MOST_RECORDS = 200
"""Finished stages of a kind whose pace is read, the newest first."""

MEASURED, ASSUMED, RATED, NOTHING, UNKNOWN = "past records", "FLOPs", "stated rates", "no estimate", "unknown"

Found = Mapping[str, state.Found]
"""States of stages by digest."""


class Time(NamedTuple):
    """Estimate for one stage (or what is left of it)."""

    seconds: float
    gpu_seconds: float
    source: str
    """MEASURED, ASSUMED, RATED, NOTHING, or UNKNOWN for a model whose size is not known yet."""

    def known_seconds(self) -> float | None:
        """None where they are unknown."""
        return None if self.source == UNKNOWN else self.seconds


class Estimate(NamedTuple):
    """Costs, times and bytes by digest."""

    costs: dict[str, Cost]
    times: dict[str, Time]
    bytes: dict[str, float | None]
    """What a stage leaves on disk; None where unknown."""
    memory: dict[str, telemetry.Need | None]
    """None where unknown."""

    def hours(self) -> float:
        """Wall-clock hours, one stage after another."""
        return sum(time.seconds for time in self.times.values()) / 3600

    def gpu_hours(self) -> float:
        """Hours times GPUs."""
        return sum(time.gpu_seconds for time in self.times.values()) / 3600

    def sources(self) -> list[str]:
        """Where the times come from."""
        return sorted({time.source for time in self.times.values() if time.seconds or time.source in (NOTHING, UNKNOWN)})

    def unknown(self) -> list[str]:
        """Stages whose time is not known, since the size of their model is not."""
        return [digest for digest, time in self.times.items() if time.source == UNKNOWN]


def estimate_launch(library: state.Library, found: Found) -> Estimate:
    """Costs of the planned stages, and times of what a launch has to make of them."""
    continued = continued_runs(library, found)
    needed = set(state.needed_stages(library.planned, lambda digest: not _is_unfinished(digest, found)))
    left = {}
    for digest, stage in library.planned.items():
        if digest in needed:
            before = continued[digest][1] if digest in continued else 0.0
            left[digest] = 1.0 - max(before, state.share_done(library.results / stage.kind / digest, stage))
    return estimate_stages(left, library, found)


def _is_unfinished(digest: str, found: Found) -> bool:
    return digest not in found or found[digest].state not in state.FINISHED


def continued_runs(library: state.Library, found: Found) -> dict[str, tuple[str, float]]:
    """RL stages still to be made that start from the end of a finished shorter run (run.stage): its digest and the share of
    the steps that it holds."""
    shorter: dict[str, list[str]] = {}
    for digest in _newest("rl", found, MOST_SHORTER):
        if (library.results / "rl" / digest / "state").exists() and (stage := _specified(digest, library)) is not None:
            shorter.setdefault(_without_length(stage), []).append(digest)
    continued = {}
    for digest, planned in library.planned.items() if shorter else ():
        spec = planned.spec
        if isinstance(spec, RLSpec) and _is_unfinished(digest, found) and (stage := _specified(digest, library)):
            candidates = {other: _specified(other, library) for other in shorter.get(_without_length(stage), [])}
            specs = {other: RLSpec.model_validate(known["spec"]) for other, known in candidates.items() if known}
            fitting = {other: one.steps for other, one in specs.items() if spec.continues(one)}
            if fitting:
                longest = max(fitting, key=lambda other: fitting[other])
                continued[digest] = (longest, fitting[longest] / spec.steps)
    return continued


def _specified(digest: str, library: state.Library) -> Json | None:
    """A stage whose spec is known. Of an input that was cleaned away after its consumer ended, a lock has no more than kind and
    dependencies, which say nothing of cost."""
    stage = library.get(digest)
    return stage if stage and "spec" in stage else None


def _without_length(stage: Json) -> str:
    """What an RL run and one that continues it have in common."""
    common = {key: value for key, value in stage["spec"].items() if key not in ("steps", "checkpoints")}
    return json.dumps([common, dict(stage["deps"])], sort_keys=True)


def _newest(kind: str, found: Found, most: int) -> list[str]:
    done = (digest for digest, one in found.items() if one.kind == kind and one.state == "done")
    return sorted(done, key=lambda digest: -found[digest].when)[:most]


def estimate_stages(wanted: Mapping[str, float], library: state.Library, found: Found) -> Estimate:
    """Costs and times of stages: `wanted` maps each to the share that is still to be done. All of the plan's stages are
    costed."""
    planned = {digest: _stage_json(stage, library.results) for digest, stage in library.planned.items()}
    every = planned_costs(planned)
    kinds = {planned[digest]["kind"] for digest in wanted}
    paces = {kind: [pace for one in _newest(kind, found, MOST_RECORDS) if (pace := _pace(one, kind, library))] for kind in kinds}
    times, sizes, memory, formula = {}, {}, {}, peak_memories(planned)
    for digest, left in wanted.items():
        stage, cost = planned[digest], every[digest]
        unit, amount = telemetry.work_of(stage, cost, planned)
        times[digest] = _time(stage, cost, left, unit, amount, paces[stage["kind"]])
        sizes[digest] = _bytes(stage, cost, unit, amount, paces[stage["kind"]])
        memory[digest] = telemetry.need_of(formula[digest], library.planned[digest].run, unit, amount, paces[stage["kind"]])
    return Estimate(every, times, sizes, memory)


def _stage_json(stage: Stage, results: Path) -> dict[str, Any]:
    """What costs and times depend on, as JSON by pydantic's own writer: ten times as fast as the canonical form. A report's spec
    is the largest and costs nothing."""
    spec = {} if isinstance(stage.spec, ReportSpec) else stage.spec.model_dump(mode="json")
    run = stage.run.stated()
    size = state.source_size(results, stage.digest, run) if stage.kind == "source" else {}
    return {"kind": stage.kind, "spec": spec, "deps": stage.deps, "run": run, **size}


def _pace(digest: str, kind: str, library: state.Library) -> telemetry.Pace | None:
    """None where the time of the whole stage is not known."""
    known = _with_inputs(digest, library)
    if digest not in known:
        return None
    made, needed = (
        telemetry.pace_of(known[digest], planned_costs(known)[digest], known, library.results / kind / digest),
        peak_memories(known),
    )
    processes = execution.Run(**known[digest]["run"]).processes
    return made and made._replace(needed=one.host * processes if (one := needed[digest]) else None)


def _with_inputs(digest: str, library: state.Library) -> dict[str, Json]:
    """A stage and all that it depends on, dependencies first, as far as these are known."""
    known: dict[str, Json | None] = {}

    def inputs(one: str) -> Iterable[str]:
        known[one] = stage = _specified(one, library)
        return stage["deps"].values() if stage and stage["kind"] != "report" else ()

    return {one: stage for one in artifact.closure([digest], inputs) if (stage := known[one]) is not None}


def _time(stage: Json, cost: Cost, left: float, unit: str, amount: float, paces: list[telemetry.Pace]) -> Time:
    run = execution.Run(**stage["run"])
    gpus, threads = run.gpus, run.cores()
    comparable = [pace for pace in paces if pace.unit == unit and pace.gpus == gpus and pace.covers(amount)]
    if cost.flops is None:  # a pace of models of another size would say nothing
        return Time(0.0, 0.0, UNKNOWN)
    rate = GPU_FLOPS * gpus if gpus else threads * (CPU_OPS if stage["spec"].get("dtype") == "int8" else CPU_FLOPS)
    if comparable:
        seconds = telemetry.estimate_seconds(comparable, stage, amount, left, cost, 1 / rate if cost.flops else 0.0)
        return Time(seconds, seconds * gpus, MEASURED)
    if cost.flops:
        seconds = START + left * cost.flops / rate
        return Time(seconds, seconds * gpus, ASSUMED)
    if unit.startswith(telemetry.PROBLEMS):
        seconds = left * (telemetry.generation_seconds(stage, amount, unit.removeprefix(telemetry.PROBLEMS)) or 0.0)
        return Time(seconds, seconds * gpus, RATED) if seconds else Time(0.0, 0.0, NOTHING)
    return Time(0.0, 0.0, NOTHING)


def _bytes(stage: Json, cost: Cost, unit: str, amount: float, paces: list[telemetry.Pace]) -> float | None:
    of_data = unit.startswith(telemetry.PROBLEMS)
    measured = [pace.bytes_per_item for pace in paces if pace.bytes_per_item and (pace.unit == unit or not of_data)]
    family = unit.removeprefix(telemetry.PROBLEMS) if of_data else ""
    return telemetry.stage_bytes(stage, cost, telemetry.item_count(unit, amount, cost), family, measured)


def refuse_over_limits(what: str, made: Estimate, max_gpu_hours: float | None = None, max_hours: float | None = None) -> None:
    """Raises UserError when the estimate exceeds a limit, or is not known."""
    unknown, asked = made.unknown(), max_gpu_hours if max_hours is None else max_hours
    if unknown and asked is not None:
        key = "max_gpu_hours" if max_hours is None else "max_hours"
        count = f"{len(unknown)} new stages start" if len(unknown) > 1 else "a new stage starts"
        remedy = "give the source its `config`, its config.json, or run it first"
        raise model.UserError(f"{what}: {key} = {asked:g}: unknown time: {count} from a model whose size is not known; {remedy}")
    for key, limit, hours, unit in (
        ("max_gpu_hours", max_gpu_hours, made.gpu_hours(), "GPU-hours"),
        ("max_hours", max_hours, made.hours(), "hours"),
    ):
        if limit is not None and hours > limit:
            need = (
                f"its new stages need about {metrics.quantity(float(f'{hours:.3g}'))} {unit} ({describe_sources(made.sources())})"
            )
            raise model.UserError(f"{what}: {key} = {limit:g}: {need}; raise {key}, or make the study smaller")


SPARE_MEMORY = 1.25
"""What is reserved of a machine is so many times the estimate."""
LIMITS, UNITS = {"device": "gpu_memory_gb", "host": "memory_mb"}, {"device": 1e9, "host": 2**20}
"""Keys of the run block that declare memory, and their units in bytes."""
LESS_KEPT: tuple[tuple[str, ...], ...] = ((), ("blockwise",), ("blockwise", "gradient_checkpointing"))
"""Keys of a spec and of a run block with which a pass keeps less, tried in turn."""
BATCH_KEYS = {"update": "micro_batch_tokens", "rollout": "engine_batch"}
"""Phase of a stage -> the key of its run block on which its memory depends."""


def with_memory(run: execution.Run, need: telemetry.Need | None) -> execution.Run:
    """The run block with the memory to reserve for each process: its own, or where that is the default, and less than what the
    stage is estimated to need, that."""
    usual = execution.Run().memory_mb
    if need is None or run.memory_mb != usual:
        return run
    wanted = math.ceil(need.host * SPARE_MEMORY / run.processes / 2**20 / 500) * 500
    return run.model_copy(update={"memory_mb": wanted}) if wanted > usual else run


def refuse_unfit(what: str, plan: Plan, made: Estimate, results: Path) -> None:
    """Raises UserError where stages to make need more memory than their run blocks declare, with the setting that fits."""
    needs = ((digest, need) for digest, need in made.memory.items() if need and digest in plan.stages)
    unfit = [(digest, *over) for digest, need in needs if (over := _exceeded(plan.stages[digest].run, need))]
    if not unfit:
        return
    (digest, held, limit, size), stage = unfit[0], plan.stages[unfit[0][0]]
    has = f"a GPU's {limit / 1e9:g} GB" if held == "device" else f"{limit / 1e9:.3g} GB"
    remedy = _remedy(plan, digest, results, limit, held)
    said = f"needs about {size / 1e9:.3g} GB of {has} (run.{LIMITS[held]}); {remedy}"
    more = f"; and {model.plural(len(unfit) - 1, 'more stage')}" if len(unfit) > 1 else ""
    raise model.UserError(f"{what}: {plan.address(stage)} ({stage.kind}): {said}{more}")


def _exceeded(run: execution.Run, need: telemetry.Need) -> tuple[str, float, float] | None:
    """The memory of which a stage needs more than its run block declares (a key of LIMITS), and in bytes the limit and the need
    of a process; None: it fits, or nothing is declared or known."""
    known, stated = need.of_process, run.memory_mb != execution.Run().memory_mb
    if known is None:
        return None
    if run.gpus and 0 < run.gpu_memory_gb * 1e9 < known.device:
        return "device", run.gpu_memory_gb * 1e9, known.device
    if stated and need.measured is None and run.memory() * 2**20 < need.host:
        return "host", run.memory_mb * 2**20, known.host
    return None


def _remedy(plan: Plan, digest: str, results: Path, limit: float, held: str) -> str:
    """What fits into so many bytes: of the run block, else with less that is kept."""
    needed = artifact.closure([digest], lambda one: plan.stages[one].inputs())
    known = {one: _stage_json(plan.stages[one], results) for one in needed}
    stage, least, largest = known[digest], math.inf, ""
    for more in LESS_KEPT:
        spec, run = ({key: True for key in more if key in of} for of in (stage["spec"], execution.Run.model_fields))
        changed = dict[str, int](run)
        while True:
            known[digest] = {**stage, "spec": {**stage["spec"], **spec}, "run": {**stage["run"], **changed}}
            found = peak_memories(known)[digest]
            if found is None or getattr(found, held) <= limit:
                said = [f"{key}: true" for key in spec] + [f"run.{key}: {json.dumps(value)}" for key, value in changed.items()]
                return f"write {' and '.join(said)}, which needs {getattr(found, held, 0.0) / 1e9:.3g} GB"
            key = BATCH_KEYS.get(found.phase, "") if held == "device" or not stage["run"].get("gpus") else ""
            value = changed.get(key, getattr(plan.stages[digest].run, key)) // 2 if key else 0
            if not value:
                break
            changed[key] = value
        least = min(least, getattr(found, held))
        largest = max(found.parts, key=lambda part: found.parts[part])
    remedy = f"run.{LIMITS[held]}: {math.ceil(least / UNITS[held])}"
    return f"{least / 1e9:.3g} GB are the least, most of it {largest}; write {remedy}, or a smaller model or shorter texts"


def describe_sources(sources: Iterable[str]) -> str:
    """Where times come from, in words."""
    words = {
        MEASURED: "measured on past records",
        ASSUMED: f"from FLOPs, completions counted to their cap, at an assumed {CPU_FLOPS / 1e9:g} GFLOP/s per CPU thread "
        f"({CPU_OPS / 1e9:g} in int8) or {GPU_FLOPS / 1e12:g} TFLOP/s per GPU, without past records",
        RATED: "problems and corpora at stated rates for their family",
        NOTHING: "kinds without past records and without FLOPs left out",
        UNKNOWN: "unknown where the size of the model is not known: give its source a `config`, its config.json, or run it first",
    }
    return (
        "; ".join(words[source] for source in (MEASURED, ASSUMED, RATED, NOTHING, UNKNOWN) if source in set(sources))
        or "nothing to do"
    )


def describe_memory(plan: Plan, made: Estimate) -> str:
    """What the largest of the stages to make needs, by kind, and the kinds of which that is unknown."""
    known: dict[tuple[str, str], float] = {}
    unknown: dict[str, None] = {}
    for digest, need in made.memory.items():
        kind = plan.stages[digest].kind
        if need is None:
            unknown |= {} if isinstance(plan.stages[digest].spec, ReportSpec) else {kind: None}
            continue
        where = (kind, " of a GPU" if need.device() else "")
        known[where] = max(known.get(where, 0.0), need.device() or need.host)
    parts = ", ".join(f"{kind} {metrics.size(round(found))}{where}" for (kind, where), found in known.items())
    left_out = f"unknown for {', '.join(unknown)}" if unknown else ""
    return f"memory of the largest stage: {'; '.join(part for part in (parts, left_out) if part)}"


# -- on a number of GPUs -----------------------------------------------------------------------------------------------


class Schedule(NamedTuple):
    """The unfinished stages on a number of GPUs."""

    gpus: int
    hours: float
    """From the first stage's start to the last one's end."""
    busy: float
    """Share of the GPU-hours in between in which a stage held a GPU."""


def schedule_stages(plan: Plan, made: Estimate, gpus: int, wait: float = 0.0) -> Schedule:
    """List scheduling: a stage starts as soon as its inputs are made and its GPUs are free, in the order in which stages became
    ready; those without GPUs start at once. Each stage takes `wait` seconds more, for queues and polls, while its GPUs are idle.

    Raises UserError where a stage needs more GPUs than there are."""
    needed = {digest: plan.stages[digest].run.gpus for digest in made.times}
    if too_wide := next((digest for digest, count in needed.items() if count > gpus), None):
        stage = plan.stages[too_wide]
        raise model.UserError(f"--gpus {gpus}: {stage.label} ({stage.kind}) needs {needed[too_wide]}; name at least that many")
    waiting = graphlib.TopologicalSorter({digest: made.times.keys() & plan.stages[digest].inputs() for digest in made.times})
    waiting.prepare()
    # By the GPUs that they need, so that no stage that waits is examined again; each with its place in the order.
    ready: dict[int, deque[tuple[int, str]]] = {count: deque() for count in sorted(set(needed.values()))}
    places = itertools.count()
    running: list[tuple[float, str]] = []
    now, free = 0.0, gpus
    while waiting.is_active():
        for digest in waiting.get_ready():
            ready[needed[digest]].append((next(places), digest))
        while fitting := [queue for count, queue in ready.items() if queue and count <= free]:
            _, digest = min(fitting, key=itemgetter(0)).popleft()
            free -= needed[digest]
            heapq.heappush(running, (now + wait + made.times[digest].seconds, digest))
        now, done = heapq.heappop(running)
        free += needed[done]
        waiting.done(done)
    held = sum(needed[digest] * time.seconds for digest, time in made.times.items())
    return Schedule(gpus, now / 3600, held / (gpus * now) if now else 0.0)


def longest_chain(plan: Plan, seconds: Mapping[str, float]) -> float:
    """Seconds of the longest chain of stages, the critical path; a stage without seconds takes none."""
    ends: dict[str, float] = {}
    for digest, stage in plan.stages.items():  # dependencies first
        before = max((ends[dep] for dep in stage.inputs()), default=0.0)
        ends[digest] = before + seconds.get(digest, 0.0)
    return max(ends.values(), default=0.0)
