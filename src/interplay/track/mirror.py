"""One study in one MLflow store: an experiment of the study's name, a parent run for its plan, a child run per stage.

Everything is derived from plan and records, in an order in which a kill at any moment leaves what the next call completes, and
calling again changes nothing: runs are found by the tag `stage.digest`, models by theirs, points by step and time, the times
being those that were written down before the points were (tag STEPS). A run is complete when it has the tag DONE, set last."""

import json
import time
from pathlib import Path
from typing import Any, Final, cast

from interplay.core import artifact, metrics
from interplay.kinds.table import makes
from interplay.report.spec import ReportSpec
from interplay.study.plan import Plan, Stage
from interplay.track import describe
from snakemake_logger_plugin_mlflow import events, store

DONE = "mlflow.interplay.done"
"""Tags whose names start with mlflow. are not shown."""
STEPS = "mlflow.interplay.steps"
"""`step time step time`: the ends of the last stretch of metrics.jsonl that was mirrored; times in milliseconds."""
MOST = {"params": 100, "metrics": 1000}
"""Items of a batch."""


class Mirror:
    """Raises OSError when the store cannot be reached, and MLflow's exceptions where it fails later."""

    def __init__(self, plan: Plan, results: Path, uri: str) -> None:
        self.plan, self.results = plan, results
        self.places = describe.stage_places(plan)
        self.client = store.connect(uri)
        self.experiment = store.experiment(self.client, uri, plan.study)
        self.runs: dict[str, Any] = {}
        self.parents: dict[str, Any] = {}
        for run in store.search(self.client, self.experiment, f"tags.scale = '{plan.scale}'"):
            tags = run.data.tags
            if "stage.digest" in tags:
                self.runs.setdefault(tags["stage.digest"], run)
            elif "plan" in tags:
                self.parents.setdefault(tags["plan"], run)
        self.models, self.begun = logged_models(self.client, self.experiment)
        self.tags: dict[str, dict[str, str]] = {run.info.run_id: dict(run.data.tags) for run in self._all()}
        self.params: dict[str, dict[str, str]] = {run.info.run_id: dict(run.data.params) for run in self._all()}
        self.status = {run.info.run_id: run.info.status for run in self._all()}
        self.replayed: set[str] = set()
        self.parent = self._parent()

    def _all(self) -> list[Any]:
        return [*self.runs.values(), *self.parents.values()]

    # -- runs --------------------------------------------------------------------------------------------------------

    def _new(self, name: str, start: int, tags: dict[str, str]) -> Any:
        run = self.client.create_run(self.experiment, start, tags, name)
        self.tags[run.info.run_id], self.status[run.info.run_id] = dict(tags), "RUNNING"
        self.params[run.info.run_id] = {}
        return run

    def _log(self, run: Any, what: str, items: list[Any]) -> None:
        """Log `params` or `metrics`, in batches that MLflow takes."""
        for first in range(0, len(items), MOST[what]):
            batch: dict[str, Any] = {what: items[first : first + MOST[what]]}
            self.client.log_batch(run.info.run_id, **batch)

    def _param(self, run: Any, params: dict[str, str]) -> None:
        """Give the run the parameters that it has not: all of them, or what an interrupted call left out. None ever changes."""
        from mlflow.entities import Param

        known = self.params[run.info.run_id]
        new = {name: value for key, value in params.items() if (name := store.metric_key(key)) not in known}
        if known.get("arm", params.get("arm")) != params.get("arm"):  # an earlier plan placed it; axes are those of its arm there
            new = {name: value for name, value in new.items() if name.startswith("spec.")}
        self._log(run, "params", [Param(name, value) for name, value in new.items()])
        known |= new

    def _tag(self, run: Any, tags: dict[str, str]) -> None:
        """Set the tags that are not so yet."""
        from mlflow.entities import RunTag

        known = self.tags[run.info.run_id]
        new = {key: value for key, value in tags.items() if known.get(key) != value}
        if new:
            self.client.log_batch(run.info.run_id, tags=[RunTag(key, value) for key, value in new.items()])
            known |= new

    def _set(self, run: Any, status: str, end: int) -> None:
        """Set the status unless it is so."""
        if self.status[run.info.run_id] == status:
            return
        if status == "RUNNING":
            self.client.update_run(run.info.run_id, status=status)
        else:
            self.client.set_terminated(run.info.run_id, status, end)
        self.status[run.info.run_id] = status

    def _parent(self) -> Any:
        plan = self.plan
        run = self.parents.get(plan.report)
        if run is None:
            starts = [describe.stage_times(self._out(stage))[0] for stage in plan.stages.values() if self._out(stage).exists()]
            tags = {"study": plan.study, "scale": plan.scale, "plan": plan.report}
            run = self._new(f"{plan.study} at {plan.scale}", min(starts, default=round(1000 * time.time())), tags)
        arms = len({place.arm for place in self.places.values()})
        self._param(run, {"scale": plan.scale, "stages": str(len(plan.stages)), "arms": str(arms)})
        for digest, other in self.parents.items():
            if digest != plan.report:
                self._tag(other, {"superseded.by": plan.report})
        if self.tags[run.info.run_id].get("superseded.by"):  # the study went back to this plan
            self._tag(run, {"superseded.by": ""})
        self.parents[plan.report] = run
        return run

    def _run(self, stage: Stage, start: int) -> Any:
        """The stage's run, made when it is not there."""
        place = self.places.get(stage.digest)
        tags = {**describe.run_tags(self.plan, stage, place), "mlflow.parentRunId": self.parent.info.run_id}
        run = self.runs.get(stage.digest)
        if run is None:
            run = self._new(describe.run_name(stage, place), start, tags)
        self._param(run, describe.run_params(stage, place))
        self.runs[stage.digest] = run
        self._tag(run, tags)
        return run

    def _out(self, stage: Stage) -> Path:
        return artifact.folder(self.results, stage.kind, stage.digest)

    # -- stages ------------------------------------------------------------------------------------------------------

    def stage(self, digest: str, seen: describe.Found | None = None, start: int | None = None) -> Any:
        """Bring the run of a stage to what is on disk, or to what its job was just seen to do. Returns the run; None for a stage
        that was never started."""
        stage = self.plan.stages[digest]
        state = describe.look_at_stage(self.results, stage.kind, digest)
        if state.status != "FINISHED" and seen is not None:
            state = seen
        if not state.status:
            return None
        run = self._run(stage, start or describe.stage_times(self._out(stage))[0])
        if DONE in self.tags[run.info.run_id]:
            return run
        if state.status == "FINISHED":
            self._complete(run, stage)
        elif (self.status[run.info.run_id], state.status) != ("FAILED", "KILLED"):  # a job's failure says more than its rest
            self._tag(run, {"message": state.message} if state.message else {})
            self.steps(digest)
            self._set(run, state.status, round(1000 * time.time()))
        return run

    def _complete(self, run: Any, stage: Stage) -> None:
        out = self._out(stage)
        record, known_of = artifact.record(out), metrics.read_telemetry(out)
        start, end = describe.stage_times(out)
        self.steps(stage.digest, (max(start, run.info.start_time), end))
        given, taken = stage_inputs(self, stage)
        if given or taken:
            self.client.log_inputs(run.info.run_id, given, taken)
        register_outputs(self, run, stage, record)
        in_steps = {key for line in describe.metric_lines(out) for key in line}
        values = describe.run_metrics(stage.kind, record["metrics"])
        values = {key if key not in in_steps else f"final/{key}": value for key, value in values.items()}
        self._values(run, values, end, stage if makes(stage.kind) == "samples" else None)
        rows = events.read_benchmark(str(self.results.parent / "benchmarks" / stage.kind / f"{stage.digest}.tsv"))
        self._values(run, describe.numeric_leaves({"telemetry": known_of, "benchmark": rows[-1] if rows else {}}), end)
        self.client.log_dict(run.info.run_id, record["spec"], "spec.json")
        self.client.log_dict(run.info.run_id, record["metrics"], "metrics.json")
        self._set(run, "FINISHED", end)
        self._tag(run, {"message": "", DONE: "1"} if "message" in self.tags[run.info.run_id] else {DONE: "1"})

    def _values(self, run: Any, values: dict[str, float], time_ms: int, evaluation: Stage | None = None) -> None:
        """Single values; those of an evaluation count for the model and the problem set that it took."""
        from mlflow.entities import Metric

        of: dict[str, Any] = evaluated_model(self, evaluation) if evaluation else {}
        if of:
            of["run_id"] = run.info.run_id
        self._log(run, "metrics", [Metric(store.metric_key(key), value, time_ms, 0, **of) for key, value in values.items()])

    def job(self, digest: str, values: dict[str, float], time_ms: int) -> None:
        """What the scheduler measured of a stage's job."""
        if digest in self.runs:
            self._values(self.runs[digest], describe.numeric_leaves({"telemetry": values}), time_ms)

    # -- steps -------------------------------------------------------------------------------------------------------

    def steps(self, digest: str, span: tuple[int, int] | None = None) -> None:
        """Mirror the lines of metrics.jsonl that are not mirrored yet. `span`: start and end of the stage, once it has ended.

        metrics.jsonl has no times (a record holds only what the digest determines), so points are spread over the time since the
        last look. The stretch is written down first: one that a kill cut off is written again, to the same times."""
        run, out = self.runs[digest], self._out(self.plan.stages[digest])
        known = self.tags[run.info.run_id].get(STEPS)
        begin = span[0] if span else run.info.start_time
        first, start, last, end = (int(part) for part in known.split()) if known else (0, begin, 0, begin)
        if known and run.info.run_id not in self.replayed:
            again = [line for line in describe.metric_lines(out, first) if line["step"] <= last]
            self._points(run, again, (first, start, last, end))
        self.replayed.add(run.info.run_id)
        lines = describe.metric_lines(out, last)
        if lines:
            until = span[1] if span else round(1000 * time.time())
            stretch = (last, end, int(lines[-1]["step"]), max(until, end))
            self._tag(run, {STEPS: " ".join(str(part) for part in stretch)})
            self._points(run, lines, stretch)

    def _points(self, run: Any, lines: list[dict[str, float]], stretch: tuple[int, int, int, int]) -> None:
        from mlflow.entities import Metric

        first, start, last, end = stretch
        points = []
        for line in lines:
            step = int(line["step"])
            moment = start + round((end - start) * (step - first) / max(last - first, 1))
            points += [Metric(store.metric_key(key), value, moment, step) for key, value in line.items() if key != "step"]
        self._log(run, "metrics", points)

    # -- the study ---------------------------------------------------------------------------------------------------

    def running(self) -> None:
        """The plan is being worked on."""
        self._set(self.parent, "RUNNING", 0)

    def everything(self) -> dict[str, str]:
        """All stages, and the parent. Returns the status of each stage that was ever started; the report's is the study's."""
        states = {}
        self.close_orphans()
        for digest, stage in self.plan.stages.items():
            if self.stage(digest) is not None:
                states[digest] = describe.look_at_stage(self.results, stage.kind, digest).status
        report = self.plan.stages[self.plan.report]
        if states.get(self.plan.report) == "FINISHED":
            self._report(report)
            status = "FINISHED"
        else:
            status = next((word for word in ("RUNNING", "FAILED") if word in states.values()), "KILLED")
        self._set(self.parent, status, describe.stage_times(self._out(report))[1])
        return states

    def close_orphans(self) -> None:
        """Runs that a process which is gone left as RUNNING: they are what their folders say, or were killed."""
        for digest, run in list(self.runs.items()):  # a stage may mirror those whose models it took
            if self.status[run.info.run_id] == "RUNNING" and (digest not in self.plan.stages or self.stage(digest) is None):
                state = describe.look_at_stage(self.results, self.tags[run.info.run_id]["stage.kind"], digest)
                self._set(run, state.status or "KILLED", round(1000 * time.time()))
        for plan, run in self.parents.items():
            if plan != self.plan.report and self.status[run.info.run_id] == "RUNNING":
                self._set(run, "KILLED", round(1000 * time.time()))

    def _report(self, stage: Stage) -> None:
        """Question, verdicts, tables, figures and page on the parent."""
        if DONE in self.tags[self.parent.info.run_id]:
            return
        out, run = self._out(stage), self.parent.info.run_id
        claims = artifact.record(out)["metrics"].get("claims", [])
        for part in ("tables", "figures"):
            if (out / part).is_dir():
                self.client.log_artifacts(run, str(out / part), part)
        if (out / "report.html").exists():
            self.client.log_artifact(run, str(out / "report.html"))
        self.client.log_text(run, self.plan.full_text(), "plan.json")
        self._values(self.parent, describe.verdicts(claims), describe.stage_times(out)[1])
        known_of = {f"claim.{number:02d}": f"{claim['verdict']}: {claim['says']}" for number, claim in enumerate(claims, 1)}
        note = describe.study_description(cast(ReportSpec, stage.spec), claims)
        self._tag(self.parent, {**known_of, "mlflow.note.content": note})
        self._tag(self.parent, {DONE: "1"})


# Datasets and models of a stage in MLflow's terms.


DATA = ("problems", "corpus")
"""What is shown as a dataset (`Kind.makes`)."""
BARRED = str.maketrans({"/": " ", ".": "·", ":": " ", "%": " ", '"': None, "'": None})
"""What MLflow allows in no model's name, such as the point of an arm `rl[learning_rate=0.1]`, -> its replacement."""
READY: Final = "READY"
"""Status of a model that its run is known to have made."""


def logged_models(client: Any, experiment: str) -> tuple[dict[str, str], dict[str, str]]:
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


def stage_inputs(mirror: Mirror, stage: Stage) -> tuple[list[Any], list[Any]]:
    """Datasets and models among the dependencies of a stage. The problem sets of a corpus count as its trainer's data too,
    and what these were curated from as theirs."""
    from mlflow.entities import DatasetInput, InputTag, LoggedModelInput

    given: dict[str, str] = {}
    taken: list[str] = []
    if makes(stage.kind) == "report":
        return [], []
    for role, ref in stage.deps.items():
        dep = mirror.plan.stages[artifact.split_ref(ref)[0]]
        if makes(dep.kind) in DATA:
            use = _use(stage.kind, role)
            given.setdefault(dep.digest, use)
            for inner, digest in dep.deps.items():
                if inner.startswith("data."):
                    given.setdefault(digest, use if makes(dep.kind) == "corpus" else "source")
        else:
            model = model_of(mirror, ref)
            taken += [model] if model else []
    datasets = [DatasetInput(dataset_of(mirror, digest), [InputTag("mlflow.data.context", use)]) for digest, use in given.items()]
    return datasets, [LoggedModelInput(model) for model in dict.fromkeys(taken)]


def _use(kind: str, role: str) -> str:
    """What a stage takes data for, as MLflow's page says it."""
    if makes(kind) == "samples":
        return "evaluation"
    if makes(kind) == "problems":
        return "comparison" if role.startswith("against") else "source"
    return "validation" if role == "validation" else "training"


def dataset_of(mirror: Mirror, digest: str) -> Any:
    """A problem set or a corpus as MLflow shows it. It stays where it is; the digest is the stage's."""
    from mlflow.entities import Dataset

    stage = mirror.plan.stages[digest]
    out = artifact.folder(mirror.results, stage.kind, digest)
    known_of = artifact.record(out)["metrics"] if artifact.done(out) else {}
    rows = known_of.get("size", known_of.get("rows"))
    profile = {"num_rows": rows} if rows is not None else {}
    return Dataset(
        name=describe.run_name(stage, None),
        digest=digest,
        source_type="local",
        source=json.dumps({"uri": f"results/{stage.kind}/{digest}"}),
        profile=json.dumps(profile),
    )


def model_of(mirror: Mirror, ref: str) -> str | None:
    """Id of the model of a stage or of a checkpoint that it keeps; None where it has none. The stage is mirrored if need be."""
    if ref not in mirror.models:
        mirror.stage(artifact.split_ref(ref)[0])
    return mirror.models.get(ref)


def register_outputs(mirror: Mirror, run: Any, stage: Stage, record: dict[str, Any]) -> None:
    """Register the models that a stage made: its last one, and each checkpoint that it keeps. Their files stay in results/."""
    made = {0: stage.digest} if any(name.startswith("model/") for name in record["files"]) else {}
    kept = {name.split("/")[1] for name in record["files"] if name.startswith("checkpoints/")}
    made |= {int(step): f"{stage.digest}@{step}" for step in sorted(kept, key=int)}
    place = mirror.places.get(stage.digest)
    name = describe.run_name(stage, place)
    where = {"arm": place.arm, "stage": place.stage, "seed": str(place.seed)} if place else {}
    for step, ref in made.items():
        if ref in mirror.models:
            continue
        if ref not in mirror.begun:
            model = mirror.client.create_logged_model(
                mirror.experiment,
                name=f"{name.translate(BARRED)}{f' step {step}' if step else ''}",
                source_run_id=run.info.run_id,
                tags={"stage.digest": ref, "path": f"results/{stage.kind}/{ref.replace('@', '/checkpoints/')}/model"},
                params={**where, "kind": stage.kind},
                model_type="checkpoint",
            )
            mirror.begun[ref] = model.model_id
        _made_by(mirror, run, mirror.begun[ref], step or int(record["metrics"].get("steps", 0)))
        mirror.client.finalize_logged_model(mirror.begun[ref], READY)
        mirror.models[ref] = mirror.begun.pop(ref)


def _made_by(mirror: Mirror, run: Any, model: str, step: int) -> None:
    """Say of a run that it made a model, once: MLflow would count it again."""
    from mlflow.entities import LoggedModelOutput

    known_of = mirror.client.get_run(run.info.run_id).outputs
    if model not in [output.model_id for output in (known_of.model_outputs if known_of else [])]:
        mirror.client.log_outputs(run.info.run_id, [LoggedModelOutput(model, step)])


def evaluated_model(mirror: Mirror, stage: Stage) -> dict[str, Any]:
    """Whose numbers an evaluation's are: the model's, on the problem set. {} where its model is not known."""
    model = model_of(mirror, stage.deps["model"])
    if model is None:
        return {}
    data = mirror.plan.stages[stage.deps["data"]]
    return {"model_id": model, "dataset_name": describe.run_name(data, None), "dataset_digest": data.digest}
