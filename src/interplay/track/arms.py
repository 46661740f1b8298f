"""A run per arm, which is what a researcher compares: its configuration, its scores over replicates as far as they are known, and
its cost. Pure functions of plan and records; no mlflow here."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

from interplay.core import artifact, metrics
from interplay.core.digest import canonical
from interplay.kinds.stages import planned_costs, realised_cost
from interplay.kinds.table import KINDS
from interplay.report.spec import ReportArm, ReportSpec
from interplay.study.plan import Plan
from interplay.track import describe

COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0", "#a463f2", "#9c6b4e", "#97bbf5")
"""Of arms in MLflow's charts, in turn: MLflow itself draws colours by chance, two arms in the same."""
MOST_HEADLINES = 15
"""Scores without a prefix: MLflow opens on these."""
AMOUNTS = {"tokens": "tokens", "rollouts": "rollouts", "flops": "FLOPs"}
"""Of a cost -> name after `cost/`."""


class Arm(NamedTuple):
    """One arm with all its replicates."""

    name: str
    identity: str
    """Hash of its name and of the digests of its stages: the arm of a changed plan is another."""
    rows: tuple[ReportArm, ...]
    """One per seed."""
    digests: tuple[str, ...]
    """Stages of its paths and its evaluations, each once."""


class Known:
    """Records of finished stages and the study's report, each read once."""

    def __init__(self, plan: Plan, results: Path) -> None:
        self.plan, self.results = plan, results
        self.records: dict[str, dict[str, Any]] = {}
        self._sizes: dict[str, int | None] = {}

    def record(self, digest: str) -> dict[str, Any] | None:
        """The record of a stage; None where it is not finished."""
        if digest not in self.records:
            out = artifact.folder(self.results, self.plan.stages[digest].kind, digest)
            if not artifact.done(out):
                return None
            self.records[digest] = artifact.record(out)
        return self.records[digest]

    def sizes(self) -> dict[str, int | None]:
        """Digest -> parameters of the model that a stage makes or passes on."""
        if not self._sizes:
            stages = {digest: {**stage.as_json(), **(self.record(digest) or {})} for digest, stage in self.plan.stages.items()}
            known = {digest: stage for digest, stage in stages.items() if KINDS[stage["kind"]].makes != "report"}
            self._sizes = {digest: cost.parameters for digest, cost in planned_costs(known).items()}
        return self._sizes

    def cells(self) -> dict[str, list[float]]:
        """`arm/column/metric` -> value, low, high, of all tables of the report; {} before there is one."""
        report = self.record(self.plan.report)
        tables = report["metrics"].get("tables", {}) if report else {}
        return {key: cell for table in tables.values() for key, cell in table.items() if isinstance(cell, list)}


def study_arms(plan: Plan) -> dict[str, Arm]:
    """Name -> arm, in the study's order."""
    rows: dict[str, list[ReportArm]] = {}
    for row in cast(ReportSpec, plan.stages[plan.report].spec).arms:
        rows.setdefault(row.arm, []).append(row)
    found = {}
    for name, of in rows.items():
        refs = [ref for row in of for ref in [*(step.digest for step in row.path), *row.evaluations.values()]]
        digests = tuple(dict.fromkeys(artifact.split_ref(ref)[0] for ref in refs))
        identity = hashlib.sha256("\n".join([name, *refs]).encode()).hexdigest()[:12]
        found[name] = Arm(name, identity, tuple(of), digests)
    return found


def headlines(plan: Plan) -> list[tuple[str, str]]:
    """(column, metric) of the scores that lead: of the study's tables of values, by metric and then by column."""
    spec = cast(ReportSpec, plan.stages[plan.report].spec)
    tables = [table for table in spec.tables.values() if table.against is None]
    pairs = [(column, cell) for table in tables for cell in table.cells for column in table.columns if column != "op"]
    return list(dict.fromkeys(pairs))[:MOST_HEADLINES]


def headline(column: str, metric: str) -> str:
    """`edge strict_pass@1`: no prefix, so that MLflow shows it first."""
    return f"{column.replace(':', ' ')} {metric.replace(':', ' ')}"


def arm_params(plan: Plan, arm: Arm, leaves: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Columns to compare by: kind, arm, group, path, replicates, axes, and by `stage.key` the settings that a report lists and
    those in which the arms of the study differ. `leaves`: all of each arm (`settings`)."""
    steps = [step.name for step in arm.rows[0].path]
    found = {"kind": "arm", "arm": arm.name, "group": arm.name.partition("[")[0], "path": " > ".join(steps)}
    found |= {"seeds": ", ".join(str(row.seed) for row in arm.rows), "replicates": str(len(arm.rows))}
    found |= {f"axis.{key}": value for key, value in describe.arm_axes(arm.name).items()}
    kinds = {step.name: plan.stages[_digest(step.digest)].kind for step in arm.rows[0].path}
    listed = {f"{name}.{key}" for name, kind in kinds.items() for key in KINDS[kind].settings}
    for key, value in leaves[arm.name].items():
        differs = any(other.get(key, value) != value for other in leaves.values())
        if (key in listed or differs) and len(value) <= describe.LONGEST:
            found[key] = value
    return found


def settings(plan: Plan, arm: Arm) -> dict[str, str]:
    """Scalar leaves of the specs along the path of the arm's first replicate, and what data each step takes."""
    found: dict[str, str] = {}
    for step in arm.rows[0].path:
        stage = plan.stages[_digest(step.digest)]
        found |= describe.scalars(canonical(stage.spec), step.name)
        taken = [plan.stages[digest] for digest in map(_digest, stage.deps.values()) if digest in plan.stages]
        sets = [describe.run_name(one, None) for one in taken if KINDS[one.kind].makes in describe.DATA]
        found |= {f"{step.name}.data": ", ".join(sets)} if sets else {}
    return found


def _digest(ref: str) -> str:
    return artifact.split_ref(ref)[0]


def arm_scores(plan: Plan, arm: Arm, known: Known) -> tuple[int, dict[str, float]]:
    """Number of replicates that are evaluated, and the scores: those of the report with their intervals once it is there, until
    then means over these replicates."""
    bands = [band for row in arm.rows if (band := _bands(row, known))]
    cells = known.cells()
    found: dict[str, float] = {}
    for column, metric in headlines(plan):
        name, cell = headline(column, metric), cells.get(f"{arm.name}/{column}/{metric}")
        values = [band[column][metric] for band in bands if metric in band.get(column, {})]
        if cell is not None:
            found |= {name: cell[0], f"interval/{name} low": cell[1], f"interval/{name} high": cell[2]}
        elif values:
            found[name] = fmean(values)
    return len(bands), {name: value for name, value in found.items() if isinstance(value, (int, float))}


def _bands(row: ReportArm, known: Known) -> dict[str, Any]:
    """Band -> metric -> value, of all evaluations of one replicate; {} while one is missing."""
    records = [known.record(digest) for digest in row.evaluations.values() if digest in known.plan.stages]
    if not all(records):
        return {}
    return {band: values for record in records if record for band, values in record["metrics"].get("band", {}).items()}


def arm_cost(plan: Plan, arm: Arm, known: Known) -> dict[str, float]:
    """Mean over replicates of what the path trained on, and of the hours of its stages and evaluations, as far as they are known.
    Stages that arms share count for each of them."""
    steps = [[_digest(step.digest) for step in row.path] for row in arm.rows]
    records = [[record for digest in of if (record := known.record(digest))] for of in steps]
    spent = [[realised_cost(record, known.sizes().get(record["digest"])) for record in of] for of in records]
    found: dict[str, float] = {}
    for key, name in AMOUNTS.items():
        amounts = [[getattr(cost, key) for cost in of] for of in spent]
        if [len(of) for of in amounts] == [len(of) for of in steps] and not any(None in of for of in amounts):
            found[f"cost/{name}"] = fmean(map(sum, amounts))
    hours = dict.fromkeys(("wall hours", "core hours", "GPU hours"), 0.0)
    for stage in (plan.stages[digest] for digest in arm.digests):
        took = metrics.read_telemetry(artifact.folder(known.results, stage.kind, stage.digest))
        wall = float(took.get("seconds_wall", 0)) / 3600
        for name, spent_here in zip(hours, (wall, float(took.get("seconds_cpu", 0)) / 3600, wall * stage.run.gpus), strict=True):
            hours[name] += spent_here / len(arm.rows)
    return found | {f"cost/{name}": value for name, value in hours.items() if value}


def arm_status(arm: Arm, statuses: Mapping[str, str]) -> str:
    """The state of an arm by those of its stages: FINISHED when all are, else the worst that is being worked on."""
    of = [statuses.get(digest, "") for digest in arm.digests]
    if all(status == "FINISHED" for status in of):
        return "FINISHED"
    return next((word for word in ("RUNNING", "FAILED") if word in of), "KILLED")


def arm_description(plan: Plan, arm: Arm, count: int, scores: Mapping[str, float]) -> str:
    """The description of an arm's run, in Markdown."""
    spec = cast(ReportSpec, plan.stages[plan.report].spec)
    path = " > ".join(step.name for step in arm.rows[0].path)
    lines = [f"Arm **{arm.name}** of {plan.study}: {path}; {count} of {len(arm.rows)} replicates evaluated.", spec.question]
    table = ["| score | value | 95 % interval |", "| --- | --- | --- |"]
    for name in (headline(*pair) for pair in headlines(plan)):
        if name in scores:
            ends = [scores.get(f"interval/{name} {end}") for end in ("low", "high")]
            table.append(f"| {name} | {scores[name]:.3g} | {'' if None in ends else f'{ends[0]:.3g} to {ends[1]:.3g}'} |")
    return "\n\n".join([*lines, "\n".join(table)] if len(table) > 2 else lines)
