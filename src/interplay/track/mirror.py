"""One study in one MLflow store: an experiment of the study's name, a parent run for its plan, a child run per stage.

Everything is told from plan and records, in an order in which a kill at any moment leaves what the next call completes, and
calling again changes nothing: runs are found by the tag `stage.digest`, models by theirs, points by step and time, the times
being those that were written down before the points were (tag STEPS). A run is complete when it has the tag DONE, set last."""

import time
from pathlib import Path
from typing import Any, cast

from interplay.core import artifact
from interplay.core.metrics import read_telemetry
from interplay.report.spec import ReportSpec
from interplay.study.plan import Plan, Stage
from interplay.track import describe, lineage
from interplay.track.describe import Found
from snakemake_logger_plugin_mlflow import benchmark, store

DONE = "mlflow.interplay.done"
"""Tags whose names start with mlflow. are not shown."""
STEPS = "mlflow.interplay.steps"
"""`step time step time`: the ends of the last stretch of metrics.jsonl that was mirrored; times in milliseconds."""
BATCH = 1000


class Mirror:
    """Raises OSError when the store cannot be reached, and MLflow's exceptions where it fails later."""

    def __init__(self, plan: Plan, results: Path, uri: str) -> None:
        self.plan, self.results = plan, results
        self.places = describe.places(plan)
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
        self.models, self.begun = lineage.models(self.client, self.experiment)
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

    def _param(self, run: Any, params: dict[str, str]) -> None:
        """Give the run the parameters that it has not: all of them, or what an interrupted call left out. None ever changes."""
        from mlflow.entities import Param

        known = self.params[run.info.run_id]
        new = {name: value for key, value in params.items() if (name := store.metric_key(key)) not in known}
        if known.get("arm", params.get("arm")) != params.get("arm"):  # an earlier plan placed it; axes are those of its arm there
            new = {name: value for name, value in new.items() if name.startswith("spec.")}
        given = [Param(name, value) for name, value in new.items()]
        for first in range(0, len(given), 100):
            self.client.log_batch(run.info.run_id, params=given[first : first + 100])
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
            starts = [describe.times(self._out(stage))[0] for stage in plan.stages.values() if self._out(stage).exists()]
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
        tags = {**describe.tags(self.plan, stage, place), "mlflow.parentRunId": self.parent.info.run_id}
        run = self.runs.get(stage.digest)
        if run is None:
            run = self._new(describe.run_name(stage, place), start, tags)
        self._param(run, describe.params(stage, place))
        self.runs[stage.digest] = run
        self._tag(run, tags)
        return run

    def _out(self, stage: Stage) -> Path:
        return artifact.folder(self.results, stage.kind, stage.digest)

    # -- stages ------------------------------------------------------------------------------------------------------

    def stage(self, digest: str, seen: Found | None = None, start: int | None = None) -> Any:
        """Bring the run of a stage to what is on disk, or to what its job was just seen to do. Returns the run; None for a stage
        that was never started."""
        stage = self.plan.stages[digest]
        state = describe.look_at_stage(self.results, stage.kind, digest)
        if state.status != "FINISHED" and seen is not None:
            state = seen
        if not state.status:
            return None
        run = self._run(stage, start or describe.times(self._out(stage))[0])
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
        record, told = artifact.record(out), read_telemetry(out)
        start, end = describe.times(out)
        self.steps(stage.digest, (max(start, run.info.start_time), end))
        given, taken = lineage.inputs(self, stage)
        if given or taken:
            self.client.log_inputs(run.info.run_id, given, taken)
        lineage.outputs(self, run, stage, record)
        in_steps = {key for line in describe.steps(out) for key in line}
        values = describe.metrics(stage.kind, record["metrics"])
        values = {key if key not in in_steps else f"final/{key}": value for key, value in values.items()}
        self._values(run, values, end, stage if stage.kind == "evaluate" else None)
        rows = benchmark.read(str(self.results.parent / "benchmarks" / stage.kind / f"{stage.digest}.tsv"))
        self._values(run, describe.numbers({"telemetry": told, "benchmark": rows[-1] if rows else {}}), end)
        self.client.log_dict(run.info.run_id, record["spec"], "spec.json")
        self.client.log_dict(run.info.run_id, record["metrics"], "metrics.json")
        self._set(run, "FINISHED", end)
        self._tag(run, {"message": "", DONE: "1"} if "message" in self.tags[run.info.run_id] else {DONE: "1"})

    def _values(self, run: Any, values: dict[str, float], time_ms: int, evaluation: Stage | None = None) -> None:
        """Single values; those of an evaluation count for the model and the problem set that it took."""
        from mlflow.entities import Metric

        of: dict[str, Any] = lineage.subject(self, evaluation) if evaluation else {}
        if of:
            of["run_id"] = run.info.run_id
        points = [Metric(store.metric_key(key), value, time_ms, 0, **of) for key, value in values.items()]
        for first in range(0, len(points), BATCH):
            self.client.log_batch(run.info.run_id, points[first : first + BATCH])

    def job(self, digest: str, values: dict[str, float], time_ms: int) -> None:
        """What the scheduler measured of a stage's job."""
        if digest in self.runs:
            self._values(self.runs[digest], describe.numbers({"telemetry": values}), time_ms)

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
            self._points(run, [line for line in describe.steps(out, first) if line["step"] <= last], (first, start, last, end))
        self.replayed.add(run.info.run_id)
        lines = describe.steps(out, last)
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
        for begin in range(0, len(points), BATCH):
            self.client.log_batch(run.info.run_id, points[begin : begin + BATCH])

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
        self._set(self.parent, status, describe.times(self._out(report))[1])
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
        self._values(self.parent, describe.verdicts(claims), describe.times(out)[1])
        told = {f"claim.{number:02d}": f"{claim['verdict']}: {claim['says']}" for number, claim in enumerate(claims, 1)}
        note = describe.question(cast(ReportSpec, stage.spec), claims)
        self._tag(self.parent, {**told, "mlflow.note.content": note})
        self._tag(self.parent, {DONE: "1"})
