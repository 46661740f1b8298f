"""What training each arm costs: as planned from the specs, and as the records say it was. Evaluations do not count."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from interplay.report.behind import Behind
from interplay.report.units import quantity
from interplay.schema.cost import Cost, costs, paper_tokens, realised
from interplay.schema.report import ReportArm, ReportSpec
from interplay.store.artifact import split_ref


class Spent(NamedTuple):
    """Sums over the stages of one path; None where a stage is not finished or the size of its model unknown."""

    tokens: float | None
    rollouts: float | None
    flops: float | None


class Row(NamedTuple):
    """One arm, means over its seeds, as shown. `paper` are planned training tokens with RL charged as (5/3) N r L."""

    arm: str
    path: str
    paper: str
    planned: list[str]
    """Tokens trained on, rollouts, FLOPs; upper bounds for RL, whose completions may be shorter than planned."""
    realised: list[str]


def rows(spec: ReportSpec, behind: Behind) -> list[Row]:
    """One row per arm, in the study's order."""
    known = {digest: stage for digest, stage in behind.stages.items() if stage["spec"] and stage["kind"] != "evaluate"}
    planned = costs(known)
    found = []
    for name in dict.fromkeys(arm.arm for arm in spec.arms):
        arms = [arm for arm in spec.arms if arm.arm == name]
        sums = [_sums(arm, behind, known, planned) for arm in arms]
        path = " → ".join(stage.name for stage in arms[0].path)
        shown = [[_mean([one[at] for one in column]) for at in range(len(Spent._fields))] for column in _columns(sums)]
        found.append(Row(name, path, _mean([charged for charged, _, _ in sums]), *shown))
    return found


def _columns(sums: list[tuple[float | None, Spent, Spent]]) -> tuple[list[Spent], list[Spent]]:
    return [plan for _, plan, _ in sums], [done for _, _, done in sums]


def _sums(
    arm: ReportArm, behind: Behind, known: Mapping[str, Mapping[str, Any]], planned: Mapping[str, Cost]
) -> tuple[float | None, Spent, Spent]:
    """(paper tokens, planned, realised) of one arm at one seed."""
    path = [split_ref(stage.digest)[0] for stage in arm.path]
    if not set(path) <= planned.keys():
        return None, Spent(None, None, None), Spent(None, None, None)
    charged = sum(paper_tokens(known[digest]["kind"], known[digest]["spec"]) for digest in path)
    plan = [planned[digest] for digest in path]
    done = [realised(known[digest], planned[digest].parameters) if behind.done(digest) else None for digest in path]
    return charged, _sum(plan), _sum(done)


def _sum(parts: Sequence[Cost | None]) -> Spent:
    return Spent(*(_total([getattr(part, key, None) for part in parts]) for key in Spent._fields))


def _total(numbers: list[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _mean(numbers: list[float | None]) -> str:
    """Mean over the seeds of which it is known; a dash where it is known of none."""
    known = [number for number in numbers if number is not None]
    return quantity(round(fmean(known))) if known else "–"
