"""What the stages of a plan will take: from the pace of finished stages of their kind, else from FLOPs or problems at an assumed
rate.

Both sides of a pace (results/pace.py) are planned: seconds over the cost that the finished stage's own spec foretold. So
completions that end long before their cap are in it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core.artifact import split_ref
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.kinds.cost import costs
from interplay.kinds.formulas import Cost
from interplay.results import pace
from interplay.results.pace import PROBLEMS, Pace
from interplay.results.state import FINISHED, Found, Library, share_done
from interplay.rl.spec import RLSpec
from interplay.study.plan import Stage

CPU_FLOPS = 30e9
"""Assumed per CPU thread, where nothing was measured: what one core of a 2-core cloud machine reached in bfloat16 training."""
GPU_FLOPS = 100e12
"""Assumed per GPU, where nothing was measured: a quarter of what a data-centre GPU's data sheet promises for dense bfloat16."""
MOST_SHORTER = 500
"""Finished RL runs that a longer one may go on from, the newest first."""
MOST_RECORDS = 200
"""Finished stages of a kind whose pace is read, the newest first."""

MEASURED, ASSUMED, RATED, NOTHING = "past records", "FLOPs", "stated rates", "no estimate"


class Time(NamedTuple):
    """Estimate for one stage (or what is left of it)."""

    seconds: float
    gpu_seconds: float
    source: str
    """MEASURED, ASSUMED, RATED or NOTHING."""


class Estimate(NamedTuple):
    """Costs, times and bytes by digest, of the stages asked for."""

    costs: dict[str, Cost]
    times: dict[str, Time]
    bytes: dict[str, float | None]
    """What a stage leaves on disk; None where nothing tells."""

    def hours(self) -> float:
        """Wall-clock hours, one stage after another."""
        return sum(time.seconds for time in self.times.values()) / 3600

    def gpu_hours(self) -> float:
        """Hours times GPUs."""
        return sum(time.gpu_seconds for time in self.times.values()) / 3600

    def sources(self) -> list[str]:
        """Where the times come from."""
        return sorted({time.source for time in self.times.values() if time.seconds or time.source == NOTHING})


def to_make(library: Library, found: Mapping[str, Found]) -> Estimate:
    """Costs of the planned stages, and times of what is left to make of them."""
    started = goes_on(library, found)
    left = {}
    for digest, stage in library.planned.items():
        one = found.get(digest)
        if one is None or one.state not in FINISHED:
            before = started[digest][1] if digest in started else 0.0
            left[digest] = 1.0 - max(before, share_done(library.results / stage.kind / digest, stage))
    return estimate(left, library, found)


def _brief(stage: Stage) -> dict[str, Any]:
    """What costs and times depend on, as JSON by pydantic's own writer: ten times as fast as the canonical form."""
    spec = stage.spec.model_dump(mode="json") if stage.kind != "report" else {}
    return {"kind": stage.kind, "spec": spec, "deps": stage.deps, "run": stage.run.stated()}


def goes_on(library: Library, found: Mapping[str, Found]) -> dict[str, tuple[str, float]]:
    """RL stages still to be made that start from the end of a finished shorter run (run.stage): its digest and the share of
    the steps that it holds."""
    shorter: dict[str, list[str]] = {}
    for digest in _newest("rl", found, MOST_SHORTER):
        if (library.results / "rl" / digest / "state").exists() and (stage := library.get(digest)) is not None:
            shorter.setdefault(_but_length(stage["spec"], stage["deps"]), []).append(digest)
    began = {}
    for digest, planned in library.planned.items() if shorter else ():
        spec, one = planned.spec, found.get(digest)
        if isinstance(spec, RLSpec) and (one is None or one.state not in FINISHED):
            stage = library.get(digest)
            alike = shorter.get(_but_length(stage["spec"], stage["deps"]), []) if stage else []
            steps = {other: RLSpec.model_validate(known["spec"]) for other in alike if (known := library.get(other))}
            fitting = {other: shorter_spec.steps for other, shorter_spec in steps.items() if spec.continues(shorter_spec)}
            if fitting:
                longest = max(fitting, key=lambda other: fitting[other])
                began[digest] = (longest, fitting[longest] / spec.steps)
    return began


def _but_length(spec: Mapping[str, Any], deps: Mapping[str, str]) -> str:
    """What two runs share of which one goes on from the other."""
    same = {key: value for key, value in spec.items() if key not in ("steps", "checkpoints")}
    return json.dumps([same, dict(deps)], sort_keys=True)


def _newest(kind: str, found: Mapping[str, Found], most: int) -> list[str]:
    done = (digest for digest, one in found.items() if one.kind == kind and one.state == "done")
    return sorted(done, key=lambda digest: -found[digest].when)[:most]


def estimate(wanted: Mapping[str, float], library: Library, found: Mapping[str, Found]) -> Estimate:
    """Costs and times of stages: `wanted` maps each to the share that is still to be done. All of the plan's stages are
    costed."""
    planned = {digest: _brief(stage) for digest, stage in library.planned.items()}
    every = costs(planned)
    paces = {kind: _paces(kind, library, found) for kind in {planned[digest]["kind"] for digest in wanted}}
    times = {digest: _time(planned[digest], every[digest], left, paces, planned) for digest, left in wanted.items()}
    sizes = {digest: _bytes(planned[digest], every[digest], paces, planned) for digest in wanted}
    return Estimate(every, times, sizes)


def refuse(what: str, made: Estimate, max_gpu_hours: float | None = None, max_hours: float | None = None) -> None:
    """Raises UserError when the estimate exceeds a limit."""
    for key, limit, hours, unit in (
        ("max_gpu_hours", max_gpu_hours, made.gpu_hours(), "GPU-hours"),
        ("max_hours", max_hours, made.hours(), "hours"),
    ):
        if limit is not None and hours > limit:
            raise UserError(
                f"{what}: {key} = {limit:g}: its new stages need about {hours:.3g} {unit} ({said(made.sources())}); "
                f"raise {key}, or make the study smaller"
            )


def said(sources: Iterable[str]) -> str:
    """Where times come from, in words."""
    words = {
        MEASURED: "measured on past records",
        ASSUMED: f"from FLOPs at an assumed {CPU_FLOPS / 1e9:g} GFLOP/s per CPU thread or {GPU_FLOPS / 1e12:g} TFLOP/s per GPU, "
        "for want of past records",
        RATED: "problems and corpora at stated rates for their family",
        NOTHING: "kinds without past records and without FLOPs left out",
    }
    return "; ".join(words[source] for source in (MEASURED, ASSUMED, RATED, NOTHING) if source in set(sources)) or "nothing to do"


def _paces(kind: str, library: Library, found: Mapping[str, Found]) -> list[Pace]:
    """The paces of the newest finished stages of a kind."""
    measured = (_pace(digest, library, library.results / kind / digest) for digest in _newest(kind, found, MOST_RECORDS))
    return [one for one in measured if one is not None]


def _pace(digest: str, library: Library, folder: Path) -> Pace | None:
    """None where the time of the whole stage is not known."""
    known = _with_inputs(digest, library)
    if digest not in known:
        return None
    stage, cost = known[digest], costs(known)[digest]
    return pace.of(stage, cost, known, folder)


def _bytes(
    stage: Mapping[str, Any], cost: Cost, paces: Mapping[str, list[Pace]], planned: Mapping[str, Mapping[str, Any]]
) -> float | None:
    unit, amount = pace.work(stage, cost, planned)
    data = unit.startswith(PROBLEMS)
    measured = [one.bytes_per_item for one in paces[stage["kind"]] if one.bytes_per_item and (one.unit == unit or not data)]
    return pace.stage_bytes(stage, cost, pace.items(unit, amount, cost), unit.removeprefix(PROBLEMS) if data else "", measured)


def _with_inputs(digest: str, library: Library) -> dict[str, dict[str, Any]]:
    """A stage and all that it depends on, dependencies first; without those that nothing tells of."""
    ordered: dict[str, dict[str, Any]] = {}

    def visit(ref: str) -> None:
        name = split_ref(ref)[0]
        stage = None if name in ordered else library.get(name)
        if stage is not None:
            for dep in stage["deps"].values() if stage["kind"] != "report" else ():
                visit(dep)
            ordered[name] = stage

    visit(digest)
    return ordered


def _time(
    stage: Mapping[str, Any],
    cost: Cost,
    left: float,
    paces: Mapping[str, list[Pace]],
    planned: Mapping[str, Mapping[str, Any]],
) -> Time:
    run = Run(**stage["run"])
    gpus, threads = run.gpus, run.cores()
    unit, amount = pace.work(stage, cost, planned)
    alike = [one for one in paces[stage["kind"]] if one.unit == unit and one.gpus == gpus and one.tells(amount)]
    if alike:
        seconds = pace.seconds(alike, amount, left, cost, threads)
        return Time(seconds, seconds * gpus, MEASURED)
    if cost.flops:
        seconds = left * cost.flops / (GPU_FLOPS * gpus if gpus else CPU_FLOPS * threads)
        return Time(seconds, seconds * gpus, ASSUMED)
    if unit.startswith(PROBLEMS) and (whole := pace.generation_seconds(stage, amount, unit.removeprefix(PROBLEMS))):
        return Time(left * whole, left * whole * gpus, RATED)
    return Time(0.0, 0.0, NOTHING)
