"""Where jobs are written: one run per execution of the workflow, one child run per job."""

import socket
import time
from pathlib import Path
from typing import Any, Protocol

import psutil

from snakemake_logger_plugin_mlflow import events, store

LOG_BYTES = 1_000_000
"""The end of a job's log that is kept."""


class Sink(Protocol):
    """What an adapter's `sink(settings)` returns; `settings` is a dict of `tracking_uri`, `experiment` and `header`.

    Called in one thread. May raise: the call is repeated minutes later, so every method must bear repetition."""

    def update(self, job: events.Job) -> None:
        """The job started, failed, started again, finished, or is no longer supervised by Snakemake (KILLED)."""

    def tick(self) -> None:
        """Half a minute has passed."""

    def close(self, outcome: str) -> None:
        """Snakemake ends: FINISHED, FAILED or KILLED. The last call."""


def sink(settings: dict[str, Any]) -> "RunSink":
    """The plugin's own sink."""
    return RunSink(settings)


class RunSink:
    """Parent run and child runs. Raises OSError on making when the store cannot be reached."""

    def __init__(self, settings: dict[str, Any]) -> None:
        uri = store.uri_of(settings["tracking_uri"])
        self.client = store.connect(uri)
        self.experiment = store.experiment(self.client, uri, settings["experiment"] or Path.cwd().name or "snakemake")
        close_orphans(self.client, self.experiment)
        header = settings["header"]
        tags = {**process_tags(), **{f"snakemake.{key}": value for key, value in _header(header).items()}}
        started = float(header.get("started", time.time()))
        name = time.strftime("workflow %Y-%m-%d %H:%M:%S", time.localtime(started))
        self.parent = self.client.create_run(self.experiment, round(1000 * started), tags, name).info.run_id
        self.begun: dict[int, str] = {}
        """Jobs whose run was made and has no parameters yet: the store failed in between."""

    def update(self, job: events.Job) -> None:
        """Bring the job's run to the job's state."""
        from mlflow.entities import RunTag

        run = job.run or self._child(job)
        self.client.update_run(run, status="RUNNING")
        tags = {"snakemake.attempt": str(job.attempt)}
        if job.failures:
            tags["snakemake.failure"] = "; ".join(job.failures)
        self.client.log_batch(run, self._metrics(job), tags=[RunTag(key, value) for key, value in tags.items()])
        if job.status != "RUNNING":
            for path in job.logs:
                self._log_file(run, Path(path))
            self.client.set_terminated(run, job.status, end_time=round(1000 * (job.ended or time.time())))

    def tick(self) -> None:
        """Write a heartbeat: the next execution reads from it how long this one lived."""
        self.client.set_tag(self.parent, "snakemake.seen", str(round(1000 * time.time())))

    def close(self, outcome: str) -> None:
        """End the parent."""
        self.client.set_terminated(self.parent, outcome)

    def _child(self, job: events.Job) -> str:
        from mlflow.entities import Param

        tags = {
            "mlflow.parentRunId": self.parent,
            "snakemake.rule": job.rule,
            "snakemake.jobid": str(job.jobid),
            **process_tags(),
        }
        if job.jobid not in self.begun:
            made = self.client.create_run(self.experiment, round(1000 * job.submitted), tags, job.name())
            self.begun[job.jobid] = made.info.run_id
        run = self.begun[job.jobid]
        params = {"rule": job.rule, "threads": job.threads, **{f"wildcards.{key}": value for key, value in job.wildcards.items()}}
        self.client.log_batch(run, params=[Param(store.metric_key(key), str(value)) for key, value in params.items()])
        job.run = self.begun.pop(job.jobid)
        return run

    def _metrics(self, job: events.Job) -> list[Any]:
        from mlflow.entities import Metric

        now = round(1000 * (job.ended or job.submitted))
        found = {f"resources/{key}": value for key, value in job.resources.items() if isinstance(value, (int, float))}
        if job.status != "RUNNING":
            found |= times(job)
        metrics = [Metric(store.metric_key(key), float(value), now, job.attempt) for key, value in found.items()]
        rows = events.read_benchmark(job.benchmark) if job.status == "FINISHED" else []
        return metrics + [
            Metric(store.metric_key(f"benchmark/{key}"), value, now, step)
            for step, row in enumerate(rows)
            for key, value in row.items()
        ]

    def _log_file(self, run: str, path: Path) -> None:
        if path.is_file():
            with open(path, "rb") as handle:
                handle.seek(max(0, path.stat().st_size - LOG_BYTES))
                self.client.log_text(run, handle.read().decode(errors="replace"), f"logs/{path.name}")


def times(job: events.Job) -> dict[str, float]:
    """`run_seconds`: as benchmarked where the job has a benchmark, else from submission to end. `queue_seconds`: what lies
    between submission and end beyond that (waiting on a cluster, start of the job, the executor's polling), where it is known."""
    elapsed = (job.ended or time.time()) - job.submitted
    ran = events.benchmark_seconds(events.read_benchmark(job.benchmark)) if job.status == "FINISHED" else None
    if ran is None:
        return {"run_seconds": round(elapsed, 3)}
    return {"run_seconds": ran, "queue_seconds": round(max(0.0, elapsed - ran), 3)}


def process_tags() -> dict[str, str]:
    """Who keeps a run up to date: the host, the process, and its start, since process ids come again."""
    process = psutil.Process()
    return {
        "snakemake.host": socket.gethostname(),
        "snakemake.pid": str(process.pid),
        "snakemake.started": f"{process.create_time():.0f}",
    }


def alive(tags: dict[str, str]) -> bool:
    """Whether the process that these tags name still runs. One of another host counts as running: it cannot be seen from here."""
    if tags.get("snakemake.host") != socket.gethostname():
        return True
    try:
        return abs(psutil.Process(int(tags["snakemake.pid"])).create_time() - float(tags["snakemake.started"])) < 3
    except (KeyError, ValueError, psutil.Error):
        return False


def close_orphans(client: Any, experiment: str) -> None:
    """Runs that a dead Snakemake of this host left as RUNNING become KILLED, ended when it was last seen."""
    left = store.search(client, experiment, f"attributes.status = 'RUNNING' and tags.`snakemake.host` = '{socket.gethostname()}'")
    dead = [run for run in left if not alive(run.data.tags)]
    seen = {run.info.run_id: int(run.data.tags.get("snakemake.seen", run.info.start_time)) for run in dead}
    for run in dead:
        parent = run.data.tags.get("mlflow.parentRunId", run.info.run_id)
        client.set_tag(run.info.run_id, "snakemake.failure", "Snakemake was killed; closed by the next execution")
        client.set_terminated(run.info.run_id, "KILLED", end_time=max(run.info.start_time, seen.get(parent, run.info.start_time)))


def _header(header: dict[str, Any]) -> dict[str, str]:
    """Version, id and the Snakefile's name; not its folder."""
    shown = {"version": header.get("snakemake_version", ""), "workflow_id": header.get("workflow_id", "")}
    return {**shown, "snakefile": Path(header.get("snakefile_main", "Snakefile")).name}
