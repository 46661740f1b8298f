"""What is made for MLflow's pages: saved views of a study with their addresses (scores by arm, learning curves, cost), and tables
of rollouts.

MLflow (3.15 and later) keeps a view as a tag of the experiment, `mlflow.sharedViewState.<key>`: a name, two times, and the state
of its page of runs, compressed. States hold only what differs from the defaults; earlier versions do not show the tags."""

import base64
import json
import urllib.parse
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.kinds.table import KINDS
from interplay.study.plan import Plan, Stage
from interplay.track import arms, describe
from snakemake_logger_plugin_mlflow import store

TAG = "mlflow.sharedViewState."
NOTE, VIEW = "mlflow.note.content", "viewStateShareKey"
"""Tag of an experiment's description, in Markdown; part of an address that names the view."""
LINK_SEPARATOR = " · "
LONGEST_TAG = 5000
"""Characters of an experiment's tag."""
ADDRESS = "http://127.0.0.1:5000"
"""Of `mlflow ui` where nothing else is said."""
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
    pairs = arms.headlines(plan)
    scores = [store.metric_key(arms.headline(*pair)) for pair in pairs]
    leading = [key for key, pair in zip(scores, pairs, strict=True) if pair[1] == pairs[0][1]]  # MLflow cuts names of columns off
    axes = dict.fromkeys(f"axis.{key}" for name in arms.study_arms(plan) for key in describe.arm_axes(name))
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
    links = {view.key: f"[{view.name}]({_path(experiment, view)})" for view in views}
    first, _, more = tags.get(NOTE, "").partition("\n")
    if not first or VIEW in first:  # else it is a user's own note
        others = [link for link in first.split(LINK_SEPARATOR) if link and not any(f"{VIEW}={key}&" in link for key in links)]
        written = "\n".join([LINK_SEPARATOR.join([*links.values(), *others]), *([more] if more else [])])
        if written != tags.get(NOTE):
            client.set_experiment_tag(experiment, NOTE, written)


def _path(experiment: str, view: View) -> str:
    """Where the view opens on any server of MLflow."""
    query = {"workflowType": "machine_learning", VIEW: view.key, "compareRunsMode": view.mode}
    return f"#/experiments/{experiment}/runs?{urllib.parse.urlencode(query)}"


def address(uri: str, experiment: str, view: View) -> str:
    """Where the view opens: on the server that the store is, else where `mlflow ui` shows it."""
    place = store.redacted(uri).rstrip("/") if uri.startswith(("http://", "https://")) else ADDRESS
    return f"{place}/{_path(experiment, view)}"


def address_lines(plan: Plan, uri: str, experiment: str) -> list[str]:
    """What a run of Snakemake says of its studies: where their views open, and how a store that is no server is shown."""
    scores, curves, _ = (address(uri, experiment, view) for view in study_views(plan))
    served = uri.startswith(("http://", "https://"))
    show = [] if served else [f"mlflow: `mlflow ui --backend-store-uri {store.redacted(uri)}` shows"]
    return [*show, f"mlflow: scores by arm of {plan.study}: {scores}", f"mlflow: learning curves: {curves}"]


# Completions of a stage as a table.


ROLLOUTS = ("rollouts.json",)
"""Tables of MLflow: `Artifacts` of a run, and the runs' page for several at once."""
TABLES = "mlflow.loggedArtifacts"
MOST_ROLLOUTS = 100
ROLLOUT_COLUMNS = ("step", "band", "op", "strict", "answer", "score", "reward", "error", "length", "truncated")


def rollout_table(plan: Plan, stage: Stage, results: Path) -> dict[str, Any]:
    """`rollouts.json` of an evaluation or of RL, in the layout of `mlflow.log_table`: completions with their prompts and gold
    answers, spread over the problems of an evaluation and over the end of an RL run. {} where none are here."""
    from interplay.data.sets import open_kept, read_problems, rows_at  # what only a stage with samples needs
    from interplay.data.trajectory import shown_text

    file = open_kept(artifact.folder(results, stage.kind, stage.digest))
    if file is None:
        return {}
    with file:
        names, count = file.schema_arrow.names, file.metadata.num_rows
        spread = max(1, count // MOST_ROLLOUTS)
        last = range(max(0, count - MOST_ROLLOUTS), count)
        rows = rows_at(file, last if "step" in names else range(0, count, spread)[:MOST_ROLLOUTS])
    columns = [name for name in ROLLOUT_COLUMNS if name in names]
    sets = [plan.stages[artifact.split_ref(ref)[0]] for role, ref in stage.deps.items() if role.split(".")[0] == "data"]
    found = []
    for number, one in enumerate(sets):
        here = [row for row in rows if row.get("set", 0) == number]
        folder = artifact.folder(results, one.kind, one.digest)
        known = read_problems(folder, [row["index"] for row in here], ("prompt", "answer"))
        for row in here:
            problem = known.get(row["index"], {"prompt": row.get("prompt", ""), "answer": ""})
            found.append([problem["prompt"], problem["answer"], shown_text(row), *(row[name] for name in columns)])
    return {ROLLOUTS[0]: {"columns": ["prompt", "gold", "completion", *columns], "data": found}}
