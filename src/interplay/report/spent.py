"""What a study's stages took, from their telemetry: hours, processor hours, attempts, memory and rates. For the page alone."""

import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from interplay.report.behind import Behind
from interplay.report.units import clock, quantity
from interplay.schema.run import Run

ABSENT = "not recorded"
RATES = {"completion_tokens_per_second": "sampled", "tokens_per_second": "trained on"}
"""Telemetry key -> what its tokens are."""


class Row(NamedTuple):
    """One kind of stage, or all of them; every figure as it is shown."""

    kind: str
    stages: str
    """`3`, or `2 of 3 done`."""
    wall: str
    cpu: str
    gpu: str
    attempts: str
    memory: str
    rate: str


def rows(behind: Behind) -> list[Row]:
    """One row per kind in the order of the plan, then their sum."""
    kinds = dict.fromkeys(stage["kind"] for stage in behind.stages.values())
    of_kind = {kind: [digest for digest, stage in behind.stages.items() if stage["kind"] == kind] for kind in kinds}
    found = [_row(kind, digests, behind) for kind, digests in of_kind.items()]
    return [*found, _row("all", list(behind.stages), behind)._replace(rate="")]


def where_and_when(behind: Behind) -> str:
    """`on vm; first stage started 2026-11-20 17:57, last 2026-11-20 18:30 UTC`; empty when telemetry says nothing."""
    known = behind.telemetry.values()
    hosts = sorted({str(item["host"]) for item in known if "host" in item})
    starts = sorted(str(item["started"]) for item in known if "started" in item)
    when = [time[:16].replace("T", " ") for time in (starts[:1] + starts[-1:])]
    starts_said = f"first stage started {when[0]}, last {when[1]} UTC" if when else ""
    return "; ".join(filter(None, [f"on {', '.join(hosts)}" if hosts else "", starts_said]))


def total_hours(behind: Behind) -> str:
    """Wall-clock hours of all stages together, as the cost table says them."""
    return rows(behind)[-1].wall


def _row(kind: str, digests: list[str], behind: Behind) -> Row:
    done = [digest for digest in digests if behind.done(digest)]
    known = [behind.telemetry.get(digest, {}) for digest in done]
    gpus = [_gpu_seconds(behind.stages[digest], behind.telemetry.get(digest, {})) for digest in done]
    attempts = [int(item["attempts"]) for item in known if "attempts" in item]
    peaks = [float(item["peak_memory_mb"]) for item in known if "peak_memory_mb" in item]
    return Row(
        kind=kind,
        stages=f"{len(done)}" if len(done) == len(digests) else f"{len(done)} of {len(digests)} done",
        wall=_summed([item.get("seconds_wall") for item in known]),
        cpu=_summed([item.get("seconds_cpu") for item in known]),
        gpu="none" if gpus and not any(item != 0.0 for item in gpus) else _summed(gpus),
        attempts=_partly(str(sum(attempts)), len(attempts), len(done)),
        memory=_partly(f"{max(peaks, default=0) / 1024:.2f} GiB", len(peaks), len(done)),
        rate=_rates(known),
    )


def _gpu_seconds(stage: dict[str, Any], known: dict[str, Any]) -> float | None:
    gpus = Run(**stage["run"]).gpus if "run" in stage else None
    if gpus == 0:
        return 0.0
    return gpus * known["seconds_wall"] if gpus is not None and "seconds_wall" in known else None


def _summed(seconds: Iterable[float | None]) -> str:
    every = list(seconds)
    known = [item for item in every if item is not None]
    return _partly(clock(sum(known)), len(known), len(every))


def _partly(shown: str, known: int, of: int) -> str:
    if not known:
        return ABSENT if of else "–"
    return shown if known == of else f"{shown} ({known} of {of} stages)"


def _rates(known: list[dict[str, Any]]) -> str:
    """The median over the stages, for whatever rates they tell."""
    said = []
    for key, what in RATES.items():
        found = [float(item[key]) for item in known if key in item]
        if found:
            said.append(f"{quantity(round(statistics.median(found)))} tokens/s {what}")
    return ", ".join(said)
