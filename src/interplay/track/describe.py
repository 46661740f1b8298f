"""What MLflow is given of a stage: name, parameters, tags, metrics, state and times, datasets and models."""

import calendar
import getpass
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from interplay.core import artifact, metrics as core_metrics
from interplay.core.digest import canonical
from interplay.kinds.table import KINDS, makes
from interplay.report.spec import ReportSpec
from interplay.results import progress
from interplay.study.plan import Plan, Stage

# What there is of a stage on disk: its state in MLflow's words, its times, its steps. No mlflow here.


STATUS = {"done": "FINISHED", "running": "RUNNING", "failed": "FAILED", "unfinished": "KILLED"}
"""A stage's state -> the status of its run. What is new or missing has no run."""


class Found(NamedTuple):
    """One stage as its folder shows it."""

    status: str
    """FINISHED with a record and only then; FAILED, RUNNING, KILLED, or empty where it was never started."""
    message: str = ""
    """Why it failed or how far it came."""


def look_at_stage(results: Path, kind: str, digest: str) -> Found:
    """The state of a stage. A failure that the runner could not record is read from its log."""
    name, detail = artifact.state_of(artifact.folder(results, kind, digest))
    status = STATUS.get(name, "")
    if status != "KILLED":
        return Found(status, detail if status == "FAILED" else "")
    last = progress.last_words(results.parent / "logs" / kind / f"{digest}.log")
    failed = last and not last.startswith(progress.STOPPED)
    return Found("FAILED", last) if failed else Found("KILLED", last.removeprefix("interplay: ") or detail)


def stage_times(out: Path) -> tuple[int, int]:
    """Start and end of the last attempt, in milliseconds since the epoch. Of an unfinished one both are its last change."""
    known = core_metrics.read_telemetry(out)
    if "started" in known:
        start = calendar.timegm(time.strptime(known["started"], "%Y-%m-%dT%H:%M:%SZ"))
        return 1000 * start, round(1000 * (start + float(known.get("seconds_wall", 0))))
    path = next((path for path in (out / "telemetry.json", out / "stage.json", out) if path.exists()), None)
    touched = round(1000 * (path.stat().st_mtime if path else time.time()))
    return touched, touched


# What MLflow holds of a stage: its name, parameters, tags and metrics. Pure functions of plan and record; no mlflow here.


LONGEST = 300
"""Characters of a parameter: a longer text, such as a custom function's source, is no column of a table. The artifact has
it."""
PER_OP = "strict_pass@1"
"""The metric that an evaluation's run has for every op; those of bands are complete."""
OF_ALL = ("n", "length", "truncated", "strict_pass@1", "answer_pass@1")
"""Metrics over all problems together, whose share of each band is the test set's affair: a few."""


class Place(NamedTuple):
    """Place of a stage in its study: the first of the arms that share it."""

    arm: str
    stage: str
    seed: int
    path: str
    """Names of the stages that led to it, itself included: `base > rl`."""
    arms: tuple[str, ...]
    """All arms that it serves."""
    label: str = ""
    """What the first arm is called in tables and figures."""


def stage_places(plan: Plan) -> dict[str, Place]:
    """Digest -> place, for the models and evaluations of all arms. Data, tokenizers and the report are in no arm."""
    found: dict[str, Place] = {}
    spec = plan.report_spec()
    for row in spec.arms:
        names = [step.name for step in row.path]
        steps = [(step.name, step.digest, names[: number + 1]) for number, step in enumerate(row.path)]
        steps += [(name, digest, [*names, name]) for name, digest in row.evaluations.items()]
        for name, digest, path in steps:
            known = found.get(digest)
            arms = tuple(dict.fromkeys([*(known.arms if known else ()), row.arm]))
            first = Place(row.arm, name, row.seed, " > ".join(path), arms, spec.label_of(row.arm))
            found[digest] = known._replace(arms=arms) if known else first
    return found


def run_name(stage: Stage, place: Place | None) -> str:
    """`rl_edge/rl@0`; `problems/edge_test`, `corpus/base`, `tokenizer` and `report` for stages of no arm."""
    if place is not None:
        return f"{place.arm}/{place.stage}@{place.seed}"
    own = stage.label.removeprefix("data.").removeprefix("stages.").removesuffix(f".{stage.kind}")
    return own if own == stage.kind else f"{stage.kind}/{own}"


def arm_axes(arm: str) -> dict[str, str]:
    """Values of an expanded arm's axes: `rl[lr=0.1,mix=[1,2]]` -> {lr: 0.1, mix: [1,2]}."""
    inside = re.fullmatch(r"[^\[]*\[(.*)\]", arm)
    pairs = re.split(r",(?=[\w.]+=)", inside[1]) if inside else []
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def run_params(stage: Stage, place: Place | None) -> dict[str, str]:
    """Columns to compare by: kind, arm, group (the arm before its axes), stage, seed, path and axes, and as
    `spec.*` the scalar leaves of the spec."""
    found = {"kind": stage.kind}
    if place is not None:
        found |= {"arm": place.arm, "group": place.arm.partition("[")[0], "stage": place.stage}
        found |= {"seed": str(place.seed), "path": place.path}
        found |= {f"axis.{key}": value for key, value in arm_axes(place.arm).items()}
    leaves = {} if makes(stage.kind) == "report" else scalars(canonical(stage.spec), "spec")
    return {**found, **{key: text for key, text in leaves.items() if len(text) <= LONGEST}}


def scalars(value: Any, name: str) -> dict[str, str]:
    """The leaves of nested mappings by dotted name, as JSON without quotes. Of lists only those of named items are included,
    by these names, such as the steps of a curated set."""
    if isinstance(value, dict):
        return {key: text for part, item in value.items() for key, text in scalars(item, f"{name}.{part}").items()}
    if isinstance(value, list):
        named = [str(item["name"]) for item in value if isinstance(item, dict) and "name" in item]
        return {name: ", ".join(named)} if named else {}
    return {name: value if isinstance(value, str) else json.dumps(value)}


def plan_tags(plan: Plan) -> dict[str, str]:
    """What distinguishes the runs of a plan from others."""
    return {"study": plan.study, "scale": plan.scale, "plan": plan.report}


def source_tags(plan: Plan, out: Path) -> dict[str, str]:
    """Source, version and user, which MLflow shows as columns: the study's file, the commit that a stage was launched from, and
    the owner of its folder."""
    path = out / "stage.json"
    commit = artifact.read_json(path).get("commit", "") if path.exists() else ""
    try:
        user = out.owner()
    except (KeyError, OSError):  # a number without a name, as in a container; or not there yet
        user = getpass.getuser()
    source = {"mlflow.source.name": f"configs/study/{plan.study}.yaml", "mlflow.source.type": "LOCAL", "mlflow.user": user}
    return {**source, "mlflow.source.git.commit": commit} if commit else source


def run_tags(plan: Plan, stage: Stage, place: Place | None) -> dict[str, str]:
    """What finds a run again, and what may change from plan to plan."""
    found = {
        **plan_tags(plan),
        "stage.digest": stage.digest,
        "address": plan.address(stage),
        "stage.kind": stage.kind,
        "mlflow.note.content": _note(stage),
    }
    if place is not None:
        found |= {"arms": ", ".join(place.arms), "label": place.label}
        found |= {"curves": plan.scale} if KINDS[stage.kind].logged else {}
    return found


def _note(stage: Stage) -> str:
    return f"`interplay show {stage.digest}`, results/{stage.kind}/{stage.digest}"


def failure_tags(stage: Stage, state: Found) -> dict[str, str]:
    """Why a stage failed or stopped: as a tag, and first in its description."""
    if not state.message:
        return {}
    word = "Failed" if state.status == "FAILED" else "Stopped"
    return {"message": state.message, "mlflow.note.content": f"**{word}:** {state.message}\n\n{_note(stage)}"}


HEADLINES: tuple[str, ...] = ("reward", "strict", "answer", "loss", "eval_loss", "entropy", "kl", "kl_old", "length", "truncated")
HEADLINES += ("frac_all_pass", "frac_all_fail", "grad_norm", "clip_fraction", "lr")
"""Curves without a prefix, which MLflow shows first; further ones are `detail/...`."""


def step_key(name: str) -> str:
    """The name of a curve: `reward`, `reward/outcome`, `detail/groups`."""
    return name if name in HEADLINES or "/" in name else f"detail/{name}"


def system_metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """Measurements of the machine: `system/...`, which MLflow keeps on a tab and in a section of their own."""
    return {f"system/{key.replace('/', '_')}": value for key, value in numeric_leaves(dict(values)).items()}


def run_metrics(kind: str, values: dict[str, Any], logged: bool = False) -> dict[str, float]:
    """A record's numbers by `/`-joined name: of an evaluation `edge/strict_pass@1` for a band, `all/...`, and a few per op; of a
    stage that `logged` curves `final/...`."""
    if makes(kind) == "report":
        return verdicts(values.get("claims", []))
    if makes(kind) != "samples":
        return numeric_leaves({"final": values} if logged else values)
    found = numeric_leaves({"all": {key: value for key, value in values.get("all", {}).items() if key in OF_ALL}})
    found |= numeric_leaves(values.get("band", {}))
    for op, scores in values.get("op", {}).items():
        found |= {f"op/{int(op):02d} {PER_OP}": float(scores[PER_OP])} if PER_OP in scores else {}
    return {key: value for key, value in found.items() if not re.search(r"prior_pass@(?!1$)", key)}


def numeric_leaves(value: Any, name: str = "") -> dict[str, float]:
    """The numeric leaves of nested mappings, by `/`-joined name."""
    if isinstance(value, dict):
        return {
            key: number
            for part, item in value.items()
            for key, number in numeric_leaves(item, f"{name}/{part}" if name else part).items()
        }
    return {name: float(value)} if isinstance(value, (int, float)) and not isinstance(value, bool) else {}


def verdicts(claims: list[dict[str, str]]) -> dict[str, float]:
    """How many claims have which verdict."""
    found = [claim["verdict"] for claim in claims]
    return {f"claims/{verdict}": float(found.count(verdict)) for verdict in dict.fromkeys(found)}


def study_description(spec: ReportSpec, claims: list[dict[str, str]]) -> str:
    """The description of a study's parent run, in Markdown."""
    lines = [f"**{spec.question}**", *([f"Source: {spec.source}"] if spec.source else [])]
    judged = [f"- {claim['verdict']}: {claim['says']} ({claim['reason']})" for claim in claims]
    return "\n\n".join([*lines, "\n".join(judged)] if judged else lines)


# Datasets and models of a stage in MLflow's terms: what a run took, the models that it made, and whose numbers are whose.


DATA = ("problems", "corpus")
"""What is shown as a dataset (`Kind.makes`)."""
BARRED = str.maketrans({"/": " ", ".": "·", ":": " ", "%": " ", '"': None, "'": None})
"""What MLflow allows in no model's name, such as the point of an arm `rl[learning_rate=0.1]`, -> its replacement."""
READY: Final = "READY"
"""Status of a model that its run is known to have made."""


class Lineage:
    """The models of a study's experiment, by stage. `bring` mirrors the stage of a digest."""

    def __init__(
        self, plan: Plan, results: Path, client: Any, experiment: str, places: Mapping[str, Place], bring: Callable[[str], Any]
    ) -> None:
        self.plan, self.results, self.client, self.experiment = plan, results, client, experiment
        self.places, self.bring = places, bring
        self.models, self.begun = _logged_models(client, experiment)

    def inputs_of(self, stage: Stage) -> tuple[list[Any], list[Any]]:
        """Datasets and models among the dependencies of a stage. The problem sets of a corpus count as its trainer's data too,
        and what these were curated from as theirs."""
        from mlflow.entities import DatasetInput, InputTag, LoggedModelInput

        given: dict[str, str] = {}
        taken: list[str] = []
        if makes(stage.kind) == "report":
            return [], []
        for role, ref in stage.deps.items():
            dep = self.plan.stages[artifact.ref_digest(ref)]
            if makes(dep.kind) in DATA:
                use = _use(stage.kind, role)
                given.setdefault(dep.digest, use)
                for inner, digest in dep.deps.items():
                    if inner.startswith("data."):
                        given.setdefault(digest, use if makes(dep.kind) == "corpus" else "source")
            else:
                model = self._model_of(ref)
                taken += [model] if model else []
        datasets = [
            DatasetInput(self._dataset_of(digest), [InputTag("mlflow.data.context", use)]) for digest, use in given.items()
        ]
        return datasets, [LoggedModelInput(model) for model in dict.fromkeys(taken)]

    def _dataset_of(self, digest: str) -> Any:
        """A problem set or a corpus as MLflow shows it. It stays where it is; the digest is the stage's."""
        from mlflow.entities import Dataset

        stage = self.plan.stages[digest]
        out = artifact.folder(self.results, stage.kind, digest)
        known_of = artifact.record(out)["metrics"] if artifact.done(out) else {}
        rows = known_of.get("size", known_of.get("rows"))
        profile = {"num_rows": rows} if rows is not None else {}
        return Dataset(
            name=run_name(stage, None),
            digest=digest,
            source_type="local",
            source=json.dumps({"uri": f"results/{stage.kind}/{digest}"}),
            profile=json.dumps(profile),
        )

    def _model_of(self, ref: str) -> str | None:
        """Id of the model of a stage or of a checkpoint that it keeps; None where it has none. The stage is mirrored first."""
        if ref not in self.models:
            self.bring(artifact.ref_digest(ref))
        return self.models.get(ref)

    def register_models(self, run: Any, stage: Stage, record: dict[str, Any]) -> None:
        """Register the models that a stage made: its last one, and each checkpoint that it keeps. Files stay in results/."""
        from mlflow.entities import LoggedModelOutput

        made = {0: stage.digest} if any(name.startswith("model/") for name in record["files"]) else {}
        kept = {name.split("/")[1] for name in record["files"] if name.startswith("checkpoints/")}
        made |= {int(step): artifact.make_ref(stage.digest, int(step)) for step in sorted(kept, key=int)}
        place = self.places.get(stage.digest)
        name = run_name(stage, place)
        where = {"arm": place.arm, "stage": place.stage, "seed": str(place.seed)} if place else {}
        for step, ref in made.items():
            if ref in self.models:
                continue
            known = ref in self.begun
            if not known:
                model = self.client.create_logged_model(
                    self.experiment,
                    name=f"{name.translate(BARRED)}{f' step {step}' if step else ''}",
                    source_run_id=run.info.run_id,
                    tags={"stage.digest": ref, "path": f"results/{stage.kind}/{ref.replace('@', '/checkpoints/')}/model"},
                    params={**where, "kind": stage.kind},
                    model_type="checkpoint",
                )
                self.begun[ref] = model.model_id
            if not (known and self._is_made_by(run, self.begun[ref])):  # MLflow would count it again
                output = LoggedModelOutput(self.begun[ref], step or int(record["metrics"].get("steps", 0)))
                self.client.log_outputs(run.info.run_id, [output])
            self.client.finalize_logged_model(self.begun[ref], READY)
            self.models[ref] = self.begun.pop(ref)

    def _is_made_by(self, run: Any, model: str) -> bool:
        """Whether the run says already that it made the model."""
        known_of = self.client.get_run(run.info.run_id).outputs
        return model in [output.model_id for output in (known_of.model_outputs if known_of else [])]

    def evaluated_model(self, stage: Stage) -> dict[str, Any]:
        """Whose numbers an evaluation's are: the model's, on the problem set. {} where its model is not known."""
        model = self._model_of(stage.deps["model"])
        if model is None:
            return {}
        data = self.plan.stages[stage.deps["data"]]
        return {"model_id": model, "dataset_name": run_name(data, None), "dataset_digest": data.digest}


def _logged_models(client: Any, experiment: str) -> tuple[dict[str, str], dict[str, str]]:
    """`digest` or `digest@step` -> id, for the models of the experiment: those that are ready, and those whose making was
    interrupted."""
    known: dict[str, str] = {}
    begun: dict[str, str] = {}
    token = None
    while True:
        page = client.search_logged_models([experiment], max_results=500, page_token=token)
        for model in page:
            if "stage.digest" in model.tags:
                (known if str(model.status) == READY else begun).setdefault(model.tags["stage.digest"], model.model_id)
        token = page.token
        if not token:
            return known, begun


def _use(kind: str, role: str) -> str:
    """What a stage takes data for, as MLflow's page says it."""
    if makes(kind) == "samples":
        return "evaluation"
    if makes(kind) == "problems":
        return "comparison" if role.startswith("against") else "source"
    return "validation" if role == "validation" else "training"
