"""How much of what was reserved the finished stages of a study used, from their own telemetry: no accounting of a cluster is
asked, so it tells the same on a laptop and under Slurm."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.metrics import read_telemetry
from interplay.study.plan import Plan, Stage

SPARE_MEMORY, SPARE_TIME = 1.3, 2.0
"""A reservation that fits leaves so many times what was used: time varies from node to node, memory hardly."""
WASTED, TIGHT = 0.5, 0.9
"""Shares of a reservation below and above which another one is proposed."""


class Used(NamedTuple):
    """Of the finished stages of one kind that were given the same."""

    kind: str
    run: Run
    stages: int
    cpu: float
    """Share of the reserved processor seconds that were computed in."""
    memory_mb: float
    """The greatest peak of a stage, all its processes together."""
    minutes: float
    """The longest stage's last attempt."""
    attempts: int
    """Of all of them together: more than `stages` where jobs were killed, preempted or ran out of time."""


def used(plan: Plan, results: Path) -> list[Used]:
    """One entry for each kind and reservation, in the order of the plan; stages that tell nothing are left out."""
    groups: dict[tuple[str, Run], list[Mapping[str, Any]]] = {}
    for stage in plan.stages.values():
        if told := _told(stage, results):
            groups.setdefault((stage.kind, _reserved(stage.run)), []).append(told)
    return [_used(kind, run, told) for (kind, run), told in groups.items()]


def proposals(of: Used) -> dict[str, int]:
    """Keys of the `run` block whose reservation is far from what was used -> values that fit."""
    each = of.memory_mb / of.run.processes
    fits = {
        "memory_mb": (each / of.run.memory_mb, math.ceil(each * SPARE_MEMORY / 100) * 100),
        "runtime": (of.minutes / of.run.runtime, max(10, math.ceil(of.minutes * SPARE_TIME / 10) * 10)),
    }
    asked = of.run.model_dump()
    return {key: value for key, (share, value) in fits.items() if not WASTED <= share <= TIGHT and value != asked[key]}


def _told(stage: Stage, results: Path) -> Mapping[str, Any]:
    folder = artifact.folder(results, stage.kind, stage.digest)
    told = read_telemetry(folder) if artifact.done(folder) else {}
    wanted = {"seconds_wall", "seconds_cpu", "peak_memory_mb"}
    if stage.run.processes > 1:
        wanted.add("peak_processes")  # without it the peak is an older one, of the largest process alone
    return told if wanted <= told.keys() else {}


def _reserved(run: Run) -> Run:
    """What of the block is asked of a cluster."""
    asked = run.model_dump(include={"threads", "processes", "memory_mb", "runtime", "gpus"})
    return Run(**asked)


def _used(kind: str, run: Run, told: list[Mapping[str, Any]]) -> Used:
    wall = sum(float(item["seconds_wall"]) for item in told)
    return Used(
        kind=kind,
        run=run,
        stages=len(told),
        cpu=sum(float(item["seconds_cpu"]) for item in told) / max(wall * run.cores(), 1e-9),
        memory_mb=max(float(item["peak_memory_mb"]) for item in told),
        minutes=max(float(item["seconds_wall"]) for item in told) / 60,
        attempts=sum(int(item.get("attempts", 1)) for item in told),
    )
