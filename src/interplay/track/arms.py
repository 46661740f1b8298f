"""A run per arm, which is what a researcher compares: its configuration, its scores over replicates as far as they are known, and
its cost; and the saved views of MLflow that show them. No mlflow here."""

import base64
import hashlib
import json
import urllib.parse
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from interplay.core import artifact, metrics
from interplay.core.digest import canonical
from interplay.kinds.stages import planned_costs, realised_cost
from interplay.kinds.table import KINDS
from interplay.report.spec import ReportArm
from interplay.study.plan import Plan
from interplay.track import describe
from snakemake_logger_plugin_mlflow import store

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
    for row in plan.report_spec().arms:
        rows.setdefault(row.arm, []).append(row)
    found = {}
    for name, of in rows.items():
        digests = [digest for row in of for digest in row.digests()]
        identity = hashlib.sha256("\n".join([name, *digests]).encode()).hexdigest()[:12]
        found[name] = Arm(name, identity, tuple(of), tuple(dict.fromkeys(digests)))
    return found


def headlines(plan: Plan) -> list[tuple[str, str]]:
    """(column, metric) of the scores that lead: of the study's tables of values, by metric and then by column."""
    spec = plan.report_spec()
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
    kinds = {step.name: plan.stages[step.digest].kind for step in arm.rows[0].path}
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
        stage = plan.stages[step.digest]
        found |= describe.scalars(canonical(stage.spec), step.name)
        taken = [plan.stages[digest] for digest in stage.inputs() if digest in plan.stages]
        sets = [describe.run_name(one, None) for one in taken if KINDS[one.kind].makes in describe.DATA]
        found |= {f"{step.name}.data": ", ".join(sets)} if sets else {}
    return found


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
    steps = [[step.digest for step in row.path] for row in arm.rows]
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
    spec = plan.report_spec()
    path = " > ".join(step.name for step in arm.rows[0].path)
    lines = [f"Arm **{arm.name}** of {plan.study}: {path}; {count} of {len(arm.rows)} replicates evaluated.", spec.question]
    table = ["| score | value | 95 % interval |", "| --- | --- | --- |"]
    for name in (headline(*pair) for pair in headlines(plan)):
        if name in scores:
            ends = [scores.get(f"interval/{name} {end}") for end in ("low", "high")]
            table.append(f"| {name} | {scores[name]:.3g} | {'' if None in ends else f'{ends[0]:.3g} to {ends[1]:.3g}'} |")
    return "\n\n".join([*lines, "\n".join(table)] if len(table) > 2 else lines)


# Saved views of a study with their addresses: scores by arm, learning curves, cost.
#
# MLflow (3.15 and later) keeps a view as a tag of the experiment, `mlflow.sharedViewState.<key>`: a name, two times, and the
# state of its page of runs, compressed. States hold only what differs from the defaults; earlier versions do not show the tags.


TAG = "mlflow.sharedViewState."
NOTE, VIEW = "mlflow.note.content", "viewStateShareKey"
"""Tag of an experiment's description, in Markdown; part of an address that names the view."""
LINK_SEPARATOR = " · "
LONGEST_TAG = 5000
"""Characters of an experiment's tag."""
CURVES = ("reward", "strict", "loss", "eval_loss", "entropy", "kl", "kl_old", "length", "frac_all_fail", "grad_norm")
"""Curves that are drawn first, where a stage of the study logs them."""
COSTS = ("cost/core hours", "cost/GPU hours", "cost/wall hours", "cost/tokens", "cost/rollouts", "cost/FLOPs")
FOLDED = ("interval", "cost", "claims", "detail", "final", "System metrics")
"""Sections of further charts, which MLflow adds by itself: closed."""


class View(NamedTuple):
    """One saved view."""

    key: str
    name: str
    mode: str
    """TABLE or CHART."""
    state: dict[str, Any]

    def text(self) -> str:
        """The state as MLflow's page reads it; charts are left out from the last one on where it would not fit."""
        state = dict(self.state)
        while True:
            packed = base64.b64encode(zlib.compress(json.dumps(state, sort_keys=True).encode(), 9)).decode()
            if len(packed) < LONGEST_TAG - 300 or not state["compareRunCharts"]:
                return f"deflate;{packed}"
            state["compareRunCharts"] = state["compareRunCharts"][:-1]


def study_views(plan: Plan) -> list[View]:
    """The views of a study at a scale, the scores first."""
    of_arms = f'params.kind = "arm" and tags.plan = "{plan.report}"'
    pairs = headlines(plan)
    scores = [store.metric_key(headline(*pair)) for pair in pairs]
    leading = [key for key, pair in zip(scores, pairs, strict=True) if pair[1] == pairs[0][1]]  # MLflow cuts names of columns off
    axes = dict.fromkeys(f"axis.{key}" for name in study_arms(plan) for key in describe.arm_axes(name))
    params = [f"params.`{key}`" for key in (*axes, "replicates")]
    hours = [store.metric_key(key) for key in COSTS]
    curves = [store.metric_key(name) for name in CURVES if name in _logged(plan)]
    return [
        View(
            f"{plan.scale}-scores",
            f"Scores by arm ({plan.scale})",
            "TABLE",
            _state(of_arms, [*params, *(f"metrics.`{key}`" for key in leading)], "Scores", [_bar(key) for key in scores]),
        ),
        View(
            f"{plan.scale}-curves",
            f"Learning curves ({plan.scale})",
            "CHART",
            _state(
                f'tags.curves = "{plan.scale}" and tags.plan = "{plan.report}"',
                [f"metrics.`{key}`" for key in curves[:4]],
                "Learning curves, means over replicates",
                [_line(key) for key in curves],
                ["arm", "stage"] if _logs_twice(plan) else ["arm"],
            ),
        ),
        View(
            f"{plan.scale}-cost",
            f"Cost by arm ({plan.scale})",
            "TABLE",
            _state(
                of_arms, [*params, *(f"metrics.`{key}`" for key in [*hours, *scores[:1]])], "Cost", [_bar(key) for key in hours]
            ),
        ),
    ]


def _logs_twice(plan: Plan) -> bool:
    """Whether an arm has several stages that log curves."""
    stages: dict[str, set[str]] = {}
    for digest, place in describe.stage_places(plan).items():
        if KINDS[plan.stages[digest].kind].logged:
            stages.setdefault(place.arm, set()).add(place.stage)
    return any(len(names) > 1 for names in stages.values())


def _logged(plan: Plan) -> set[str]:
    kinds = {stage.kind for stage in plan.stages.values()}
    return {name for kind in kinds for name in (*KINDS[kind].logged, "kl", "eval_loss")}


def _state(
    search: str, columns: Sequence[str], section: str, charts: list[dict[str, Any]], group: Iterable[str] = ()
) -> dict[str, Any]:
    """The state of a page of runs: its filter, columns, a section of charts above those of MLflow, and how runs are grouped."""
    keys = [{"mode": "param", "groupByData": key} for key in group]
    sections = [_section("first", section, True), *(_section(f"s{n}", name, False) for n, name in enumerate(FOLDED))]
    return {
        "searchFilter": search,
        "selectedColumns": list(columns),
        "runsHiddenMode": "FIRST_20_RUNS",
        "runListHidden": bool(keys),
        "isAccordionReordered": True,
        "compareRunSections": sections,
        "compareRunCharts": [{"uuid": f"c{number}", **chart} for number, chart in enumerate(charts)],
        "groupBy": {"aggregateFunction": "average", "groupByKeys": keys} if keys else None,
    }


def _section(uuid: str, name: str, shown: bool) -> dict[str, Any]:
    return {"uuid": uuid, "name": name, "display": shown, "isReordered": True, "deleted": False, "isGenerated": False}


def _bar(metric: str) -> dict[str, Any]:
    return {
        "type": "BAR",
        "metricKey": metric,
        "metricSectionId": "first",
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": 20,
    }


def _line(metric: str) -> dict[str, Any]:
    line: dict[str, Any] = {
        "type": "LINE",
        "selectedMetricKeys": [metric],
        "selectedYAxisMetricKey": "metric",
        "yAxisKey": "metric",
    }
    line |= {"yAxisExpressions": [], "scaleType": "linear", "xAxisKey": "step", "xAxisScaleType": "linear", "lineSmoothness": 0}
    line |= {
        "useGlobalLineSmoothing": True,
        "useGlobalXaxisKey": True,
        "selectedXAxisMetricKey": "",
        "ignoreOutliers": False,
        "range": {},
    }
    return {**_bar(metric), **line}


def write_views(client: Any, experiment: str, views: Sequence[View], now_ms: int) -> None:
    """Set the tags of the views that the experiment does not hold as they are, and links to them as the first line of its
    description, which MLflow shows above its runs."""
    tags = client.get_experiment(experiment).tags
    for view in views:
        text = view.text()
        known = json.loads(tags.get(TAG + view.key, "{}"))
        if known.get("state") != text:
            value = {"name": view.name, "createdAt": known.get("createdAt", now_ms), "updatedAt": now_ms, "state": text}
            client.set_experiment_tag(experiment, TAG + view.key, json.dumps(value))
    links = {view.key: f"[{view.name}]({view_path(experiment, view)})" for view in views}
    first, _, more = tags.get(NOTE, "").partition("\n")
    if not first or VIEW in first:  # else it is a user's own note
        others = [link for link in first.split(LINK_SEPARATOR) if link and not any(f"{VIEW}={key}&" in link for key in links)]
        written = "\n".join([LINK_SEPARATOR.join([*links.values(), *others]), *([more] if more else [])])
        if written != tags.get(NOTE):
            client.set_experiment_tag(experiment, NOTE, written)


def view_path(experiment: str, view: View) -> str:
    """Where the view opens on any server of MLflow."""
    query = {"workflowType": "machine_learning", VIEW: view.key, "compareRunsMode": view.mode}
    return f"#/experiments/{experiment}/runs?{urllib.parse.urlencode(query)}"
