"""One study in one MLflow store: an experiment of the study's name, a run for its plan, one per arm, and below an arm one per
stage that it is the first to use; stages of no arm are below the plan.

Everything is derived from plan and records, in an order in which a kill at any moment leaves what the next call completes, and
calling again changes nothing: runs are found by the tag `stage.digest`, models by theirs, points by step and time, the times
being those that were written down before the points were (tag STEPS). A run is complete when it has the tag DONE, set last."""

import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from interplay.core import artifact, metrics
from interplay.kinds.table import makes
from interplay.report.spec import ReportSpec
from interplay.results import storage
from interplay.study.plan import Plan, Stage
from interplay.track import arms, describe
from snakemake_logger_plugin_mlflow import events, store

PARENT = "mlflow.parentRunId"
DONE = "mlflow.interplay.done"
"""Tags whose names start with mlflow. are not shown."""
SCORED = "mlflow.interplay.scored"
"""Of an arm: from how many replicates its scores are, whether from the report, whether all is finished."""
STEPS = "mlflow.interplay.steps"
"""`step time step time`: the ends of the last stretch of metrics.jsonl that was mirrored; times in milliseconds."""
TABLES = "mlflow.loggedArtifacts"
"""Of a run: the tables among its files, which the page of runs shows."""
MOST_PARAMS, MOST_ITEMS = 100, 1000
"""Parameters of a batch, and parameters, metrics and tags together."""


class Mirror:
    """Raises OSError when the store cannot be reached, and MLflow's exceptions where it fails later."""

    def __init__(self, plan: Plan, results: Path, uri: str) -> None:
        self.plan, self.results, self.uri = plan, results, uri
        self.places = describe.stage_places(plan)
        self.arms, self.known = arms.study_arms(plan), arms.Known(plan, results)
        self.client = store.connect(uri)
        self.experiment = store.experiment(self.client, uri, plan.study)
        self.runs: dict[str, Any] = {}
        self.parents: dict[str, Any] = {}
        self.arm_runs: dict[str, Any] = {}
        for run in store.search(self.client, self.experiment, f"tags.scale = '{plan.scale}'"):
            tags = run.data.tags
            if "stage.digest" in tags:
                self.runs.setdefault(tags["stage.digest"], run)
            elif "arm.digest" in tags:
                self.arm_runs.setdefault(tags["arm.digest"], run)
            elif "plan" in tags:
                self.parents.setdefault(tags["plan"], run)
        self.lineage = describe.Lineage(plan, results, self.client, self.experiment, self.places, self.look)
        self.tags: dict[str, dict[str, str]] = {run.info.run_id: dict(run.data.tags) for run in self._all()}
        self.params: dict[str, dict[str, str]] = {run.info.run_id: dict(run.data.params) for run in self._all()}
        self.status = {run.info.run_id: run.info.status for run in self._all()}
        self.replayed: set[str] = set()
        self.leaves: dict[str, dict[str, str]] = {}
        self.made_by = describe.source_tags(plan, self._out(plan.stages[plan.report]))
        self.parent = self._parent()

    def _all(self) -> list[Any]:
        return [*self.runs.values(), *self.arm_runs.values(), *self.parents.values()]

    # -- runs --------------------------------------------------------------------------------------------------------

    def _new(self, name: str, start: int, tags: dict[str, str]) -> Any:
        run = self.client.create_run(self.experiment, start, tags, name)
        self.tags[run.info.run_id], self.status[run.info.run_id] = dict(tags), "RUNNING"
        self.params[run.info.run_id] = {}
        return run

    def _write(
        self,
        run: Any,
        metrics: Sequence[Any] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Give the run metrics, the parameters that it has not and the tags that are not so yet: in as few batches as MLflow
        takes, which writes parameters before metrics and tags last."""
        from mlflow.entities import Param, RunTag

        known_params, known_tags = self.params[run.info.run_id], self.tags[run.info.run_id]
        new_params = {name: value for name, value in (params or {}).items() if name not in known_params}
        new_tags = {key: value for key, value in (tags or {}).items() if known_tags.get(key) != value}
        left, points = [Param(name, value) for name, value in new_params.items()], list(metrics)
        while left or points or new_tags:
            params_now = left[:MOST_PARAMS]
            points_now = points[: MOST_ITEMS - len(params_now) - len(new_tags)]
            left, points = left[MOST_PARAMS:], points[len(points_now) :]
            last = not left and not points
            tags_now = [RunTag(key, value) for key, value in new_tags.items()] if last else []
            self.client.log_batch(run.info.run_id, points_now, params_now, tags_now)
            if last:
                break
        known_params |= new_params
        known_tags |= new_tags

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
            tags = {**describe.plan_tags(plan), **self.made_by}
            run = self._new(f"{plan.study} at {plan.scale}", min(starts, default=round(1000 * time.time())), tags)
        # Where the study went back to this plan, it is superseded no more.
        back = {"superseded.by": ""} if self.tags[run.info.run_id].get("superseded.by") else {}
        self._write(run, params={"scale": plan.scale, "stages": str(len(plan.stages)), "arms": str(len(self.arms))}, tags=back)
        for digest, other in self.parents.items():
            if digest != plan.report:
                self._write(other, tags={"superseded.by": plan.report})
        self.parents[plan.report] = run
        kept = {arm.identity for arm in self.arms.values()}
        for identity, other in self.arm_runs.items():
            former = self.parents.get(self.tags[other.info.run_id]["plan"])
            if identity not in kept and former is not None:  # an arm of an earlier plan goes below that
                self._write(other, tags={PARENT: former.info.run_id})
        return run

    def _arm(self, name: str) -> Any:
        """The run of an arm, made when it is not there. Above it there is nothing: MLflow's page of runs opens on the arms."""
        arm, number = self.arms[name], list(self.arms).index(name)
        tags = {**describe.plan_tags(self.plan), "arm.digest": arm.identity}
        if arm.identity not in self.arm_runs:
            start = self.parent.info.start_time + len(self.arms) - number  # MLflow shows the newest first: the study's order
            tags |= {**self.made_by, "mlflow.runColor": arms.COLOURS[number % len(arms.COLOURS)]}
            self.arm_runs[arm.identity] = self._new(name, start, tags)
        run = self.arm_runs[arm.identity]
        if not (self.params[run.info.run_id] or self.leaves):
            self.leaves = {other.name: arms.settings(self.plan, other) for other in self.arms.values()}
        params = {} if self.params[run.info.run_id] else arms.arm_params(self.plan, arm, self.leaves)
        back = {PARENT: ""} if self.tags[run.info.run_id].get(PARENT) else {}  # the study went back to an earlier plan
        self._write(run, params={store.metric_key(key): value for key, value in params.items()}, tags={**tags, **back})
        return run

    def _score_arms(self, names: Iterable[str], statuses: Mapping[str, str]) -> None:
        """Scores of arms as far as they are known, and their states once their stages are looked at."""
        for arm in (self.arms[name] for name in names):
            count, scores = arms.arm_scores(self.plan, arm, self.known)
            status = arms.arm_status(arm, statuses) if statuses else ""
            written = f"{count} {bool(self.known.cells())} {status == 'FINISHED'}"
            if not (count or status) or not any(self._out(self.plan.stages[digest]).exists() for digest in arm.digests):
                continue  # what was removed from disk stays as it was reported
            run = self._arm(arm.name)
            if self.tags[run.info.run_id].get(SCORED) != written:
                scores |= arms.arm_cost(self.plan, arm, self.known) if status == "FINISHED" else {}
                points = [_point(key, value, self._arm_end(arm, bool(self.known.cells()))) for key, value in scores.items()]
                note = arms.arm_description(self.plan, arm, count, scores)
                self._write(run, points, tags={"mlflow.note.content": note, SCORED: written})
            if status:
                self._set(run, status, self._arm_end(arm))

    def _arm_end(self, arm: arms.Arm, reported: bool = False) -> int:
        """When the last stage of the arm ended that is here, or the report, which judges it."""
        of = [self.plan.stages[digest] for digest in (*arm.digests, *([self.plan.report] if reported else ()))]
        return max(describe.stage_times(out)[1] for stage in of if (out := self._out(stage)).exists())

    def _run(self, stage: Stage, start: int) -> tuple[Any, dict[str, str], dict[str, str]]:
        """The stage's run, made when it is not there, with the parameters and the tags that it is to have."""
        place = self.places.get(stage.digest)
        above = self._arm(place.arm) if place else self.parent
        tags = {**describe.run_tags(self.plan, stage, place), PARENT: above.info.run_id}
        if stage.digest not in self.runs:
            made_by = describe.source_tags(self.plan, self._out(stage))
            self.runs[stage.digest] = self._new(describe.run_name(stage, place), start, {**tags, **made_by})
        run = self.runs[stage.digest]
        params = {store.metric_key(key): value for key, value in describe.run_params(stage, place).items()}
        known = self.params[run.info.run_id]
        if known.get("arm", params.get("arm")) != params.get("arm"):  # an earlier plan placed it; axes are those of its arm there
            params = {name: value for name, value in params.items() if name.startswith("spec.")}
        return run, params, tags

    def _out(self, stage: Stage) -> Path:
        return artifact.folder(self.results, stage.kind, stage.digest)

    # -- stages ------------------------------------------------------------------------------------------------------

    def stage(self, digest: str, seen: describe.Found | None = None, start: int | None = None) -> Any:
        """Bring the run of a stage to what is on disk, or to what its job was just seen to do. Returns the run; None for a stage
        that was never started."""
        with store.transaction(self.client):
            run = self.look(digest, seen, start)
            if run is not None and digest in self.places and makes(self.plan.stages[digest].kind) == "samples":
                self._score_arms(self.places[digest].arms, {})
            return run

    def look(self, digest: str, seen: describe.Found | None = None, start: int | None = None) -> Any:
        """As `stage`, within a transaction that has begun."""
        stage = self.plan.stages[digest]
        state = describe.look_at_stage(self.results, stage.kind, digest)
        if state.status != "FINISHED" and seen is not None:
            state = seen
        if not state.status:
            return None
        run, params, tags = self._run(stage, start or describe.stage_times(self._out(stage))[0])
        if DONE in self.tags[run.info.run_id]:
            self._write(run, params=params, tags=tags)
        elif state.status == "FINISHED":
            self._complete(run, stage, params, tags)
        elif (self.status[run.info.run_id], state.status) == ("FAILED", "KILLED"):  # a job's failure says more than its rest
            self._write(run, params=params, tags=tags)
        else:
            why = describe.failure_tags(stage, state)
            self._write(run, params=params, tags={**tags, **why})
            self.steps(digest)
            self._set(run, state.status, round(1000 * time.time()))
            if state.status == "RUNNING" and digest in self.places:  # the end of an earlier launch closed its arms
                for arm in (self.arms[name].identity for name in self.places[digest].arms):
                    if arm in self.arm_runs:
                        self._set(self.arm_runs[arm], "RUNNING", 0)
        return run

    def _complete(self, run: Any, stage: Stage, params: dict[str, str], tags: dict[str, str]) -> None:
        out = self._out(stage)
        record, lines = artifact.record(out), metrics.read(out)
        start, end = describe.stage_times(out)
        given, taken = self.lineage.inputs_of(stage)
        if given or taken:
            self.client.log_inputs(run.info.run_id, given, taken)
        self.lineage.register_models(run, stage, record)
        again, new, stretch = self._points(run, lines, (max(start, run.info.start_time), end))
        values = describe.run_metrics(stage.kind, record["metrics"], bool(lines))
        rows = events.read_benchmark(str(self.results.parent / "benchmarks" / stage.kind / f"{stage.digest}.tsv"))
        measured = describe.system_metrics({**(rows[-1] if rows else {}), **metrics.read_telemetry(out)})
        single = self._values(run, values, end, stage if makes(stage.kind) == "samples" else None)
        single += self._values(run, measured, end)
        tables = storage.rollout_table(self.plan, stage, self.results)
        self._files(run, {"spec.json": record["spec"], "metrics.json": record["metrics"], **tables})
        tags |= {TABLES: json.dumps([{"path": name, "type": "table"} for name in tables])} if tables else {}
        self._set(run, "FINISHED", end)
        ended = {"message": ""} if "message" in self.tags[run.info.run_id] else {}
        # Their times follow from what is on disk, so a batch that a kill cut off is written again as it was.
        self._write(run, [*again, *new, *single], params, {**tags, **stretch, **ended, DONE: "1"})

    def _values(self, run: Any, values: dict[str, float], time_ms: int, evaluation: Stage | None = None) -> list[Any]:
        """Single values; those of an evaluation count for the model and the problem set that it took."""
        of: dict[str, Any] = self.lineage.evaluated_model(evaluation) if evaluation else {}
        if of:
            of["run_id"] = run.info.run_id
        return [_point(key, value, time_ms, **of) for key, value in values.items()]

    def _files(self, run: Any, files: dict[str, Any]) -> None:
        """JSON files among the artifacts of the run. A client's `log_artifacts` would first ask the store for the place."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with tempfile.TemporaryDirectory() as folder:
            for name, value in files.items():
                (Path(folder) / name).write_text(json.dumps(value, indent=None if name in storage.ROLLOUTS else 2))
            get_artifact_repository(run.info.artifact_uri, tracking_uri=self.uri).log_artifacts(folder)

    def job(self, digest: str, values: dict[str, float], time_ms: int) -> None:
        """What the scheduler measured of a stage's job."""
        if run := self.runs.get(digest):
            self._write(run, self._values(run, describe.system_metrics(values), time_ms))

    # -- steps -------------------------------------------------------------------------------------------------------

    def steps(self, digest: str) -> None:
        """Mirror the lines of metrics.jsonl that are not mirrored yet, of a stage that has not finished."""
        run = self.runs[digest]
        again, new, stretch = self._points(run, metrics.read(self._out(self.plan.stages[digest])))
        self._write(run, again)
        self._write(run, tags=stretch)
        self._write(run, new)

    def _points(
        self, run: Any, lines: list[dict[str, float]], span: tuple[int, int] | None = None
    ) -> tuple[list[Any], list[Any], dict[str, str]]:
        """The points of a last stretch that a kill may have cut off, those that are not mirrored yet, and the tag of their
        stretch. `span`: start and end of the stage in ms, once it has ended.

        metrics.jsonl has no times (a record holds only what the digest determines), so points are spread over the time since the
        last look. The stretch is written down first: one that a kill cut off is written again, to the same times."""
        known = self.tags[run.info.run_id].get(STEPS)
        begin = span[0] if span else run.info.start_time
        first, start, last, end = (int(part) for part in known.split()) if known else (0, begin, 0, begin)
        again: list[Any] = []
        if known and run.info.run_id not in self.replayed:
            again = _spread([line for line in lines if first < line["step"] <= last], (first, start, last, end))
        self.replayed.add(run.info.run_id)
        lines = [line for line in lines if line["step"] > last]
        if not lines:
            return again, [], {}
        until = span[1] if span else round(1000 * time.time())
        stretch = (last, end, int(lines[-1]["step"]), max(until, end))
        return again, _spread(lines, stretch), {STEPS: " ".join(str(part) for part in stretch)}

    # -- the study ---------------------------------------------------------------------------------------------------

    def running(self) -> None:
        """The plan is being worked on."""
        self._set(self.parent, "RUNNING", 0)

    def everything(self) -> dict[str, str]:
        """All stages, and the parent. Returns the status of each stage that was ever started; the report's is the study's."""
        states: dict[str, str] = {}
        self.close_orphans()
        self.write_views()
        with store.transaction(self.client):
            for stage in self.plan.stages.values():
                if self.look(stage.digest) is not None:
                    states[stage.digest] = describe.look_at_stage(self.results, stage.kind, stage.digest).status
                store.give_way(self.client)
            shown = {digest: self.status[self.runs[digest].info.run_id] for digest in states}  # FAILED for a killed job
            self._score_arms(self.arms, shown)
        report = self.plan.stages[self.plan.report]
        if states.get(self.plan.report) == "FINISHED":
            self._report(report)
            status = "FINISHED"
        else:
            status = next((word for word in ("RUNNING", "FAILED") if word in shown.values()), "KILLED")
        self._set(self.parent, status, describe.stage_times(self._out(report))[1])
        return states

    def write_views(self) -> None:
        """The study's saved views, as tags of the experiment."""
        with store.transaction(self.client):
            arms.write_views(self.client, self.experiment, arms.study_views(self.plan), self.parent.info.start_time)

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
        tags = {f"claim.{number:02d}": f"{claim['verdict']}: {claim['says']}" for number, claim in enumerate(claims, 1)}
        tags["mlflow.note.content"] = describe.study_description(cast(ReportSpec, stage.spec), claims)
        values = self._values(self.parent, describe.verdicts(claims), describe.stage_times(out)[1])
        self._write(self.parent, values, tags={**tags, DONE: "1"})


def _spread(lines: list[dict[str, float]], stretch: tuple[int, int, int, int]) -> list[Any]:
    """Points of lines of metrics.jsonl, with times between those of the stretch's ends."""
    first, start, last, end = stretch
    points = []
    for line in lines:
        step = int(line["step"])
        moment = start + round((end - start) * (step - first) / max(last - first, 1))
        points += [_point(describe.step_key(key), value, moment, step) for key, value in line.items() if key != "step"]
    return points


def _point(key: str, value: float, time_ms: int, step: int = 0, **of: Any) -> Any:
    """One value of a metric, as the store keeps it."""
    from mlflow.entities import Metric

    return Metric(store.metric_key(key), value, time_ms, step, **of)
