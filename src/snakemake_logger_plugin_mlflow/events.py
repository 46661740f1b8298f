"""Snakemake's log records as plain data, and the jobs that they add up to. No mlflow here."""

import contextlib
import csv
import json
import re
from collections import deque
from dataclasses import dataclass, field
from logging import LogRecord
from pathlib import Path
from typing import Any, NamedTuple

HIDDEN = ("_cores", "_nodes", "tmpdir")
"""Resources that say nothing of the job: bookkeeping, and a folder of the machine."""
HEADER = ("snakemake_version", "workflow_id", "snakefile_main")
MESSAGE = 300
"""Characters that are kept of each part of a failure's message."""
OF_JOBS = ("RuleException", "MissingOutputException", "CalledProcessError")
"""Exceptions that Snakemake prints when a job fails, also before a retry: they are no failure of the workflow."""
NO_OUTPUT = re.compile(r"Job (\d+)\s+completed successfully, but some output files are missing")


class Event(NamedTuple):
    """`workflow` (facts of the execution), `job` (one is submitted), `error` and `finished` (jobid), `failed` (the workflow)."""

    name: str
    time: float
    """Seconds since the epoch."""
    jobid: int = -1
    facts: dict[str, Any] = {}


@dataclass
class Job:
    """One job over all its attempts. `status` is MLflow's word for it; `changed` says that it is not yet written there."""

    jobid: int
    rule: str
    wildcards: dict[str, str]
    threads: int
    resources: dict[str, Any]
    logs: list[str]
    benchmark: str | None
    submitted: float
    """When the latest attempt was handed to its executor; seconds since the epoch."""
    attempt: int = 1
    status: str = "RUNNING"
    ended: float | None = None
    failures: list[str] = field(default_factory=list)
    """`attempt 1: reason`, for each attempt that failed."""
    changed: bool = True
    run: str = ""
    """For the sink: the run that stands for this job, once there is one."""

    def name(self) -> str:
        """`align sample=A`."""
        return " ".join([self.rule, *(f"{key}={value}" for key, value in self.wildcards.items())])


class Reader:
    """Turns log records into events. It remembers the last exceptions: Snakemake reports the exit of a command and the failure of
    its job in different events."""

    def __init__(self) -> None:
        self.exceptions: deque[str] = deque(maxlen=50)

    def read(self, record: LogRecord) -> Event | None:
        """What a log record says of jobs; None for all others. Values are copied: the record's objects live on in Snakemake."""
        facts = record.__dict__
        name = str(facts.get("event") or "")
        if name == "workflow_started":
            shown: dict[str, Any] = {key: str(facts[key]) for key in HEADER if key in facts}
            return Event("workflow", record.created, facts=shown)
        if name == "job_info" and _does_something(facts):
            return Event("job", record.created, facts["jobid"], _job_facts(facts))
        if name == "job_error":
            return Event("error", record.created, facts["jobid"], {"message": self._reason(facts)})
        if name == "job_finished":
            return Event("finished", record.created, facts["job_id"])
        return self._exception(record) if name == "error" else None

    def _exception(self, record: LogRecord) -> Event | None:
        text = record.getMessage()
        self.exceptions.append(text)
        silent = NO_OUTPUT.search(text)
        if silent:
            return Event("error", record.created, int(silent[1]), {"message": "its output files are missing"})
        return None if record.__dict__.get("exception") in OF_JOBS else Event("failed", record.created)

    def _reason(self, facts: dict[str, Any]) -> str:
        """How the command ended, what the executor says, and the last line of the log as it is now: a retry may overwrite it."""
        parts = [self._exit(facts.get("shellcmd")), facts.get("rule_msg")]
        parts += [f"{key} {value}" for key, value in (facts.get("aux") or {}).items()]
        parts += [lines[-1] for lines in (tail(Path(path)) for path in facts.get("log") or []) if lines]
        return "; ".join(str(part).strip()[:MESSAGE] for part in parts if part) or "no message"

    def _exit(self, command: str | None) -> str:
        """`died with <Signals.SIGKILL: 9>`, of the exception that quotes this job's command."""
        for text in reversed(self.exceptions):
            ended = re.search(r"(died with .*|returned non-zero exit status .*)\s*$", text)
            if command and ended and command.strip() in text:
                return ended[1].strip().rstrip(".")
        return ""


def _does_something(facts: dict[str, Any]) -> bool:
    """Not so for a target rule, such as `all`, which only names files."""
    return bool(facts.get("output") or facts.get("log") or facts.get("benchmark") or facts.get("shellcmd"))


def _job_facts(facts: dict[str, Any]) -> dict[str, Any]:
    resources = facts.get("resources") or {}
    return {
        "rule": str(facts["rule_name"]),
        "wildcards": {str(key): str(value) for key, value in dict(facts.get("wildcards") or {}).items()},
        "threads": int(facts["threads"]),
        "resources": {str(key): _plain(value) for key, value in resources.items() if key not in HIDDEN},
        "logs": [str(path) for path in facts.get("log") or []],
        "benchmark": str(facts["benchmark"]) if facts.get("benchmark") else None,
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) else str(value)


def tail(path: Path, size: int = 4000) -> list[str]:
    """The last lines of a file that are not empty; [] when it is not there."""
    if not path.is_file():
        return []
    with open(path, "rb") as handle:
        handle.seek(max(0, path.stat().st_size - size))
        return [line for line in handle.read().decode(errors="replace").splitlines() if line.strip()]


class Board:
    """All jobs of the execution by jobid, as the events so far leave them."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.failed = False

    def take(self, event: Event) -> None:
        """Apply an event."""
        if event.name == "job":
            self._submitted(event)
        elif event.name == "failed":
            self.failed = True
        elif event.jobid in self.jobs:
            job = self.jobs[event.jobid]
            job.ended, job.changed = event.time, True
            job.status = "FINISHED" if event.name == "finished" else "FAILED"
            if event.name == "error":
                job.failures.append(f"attempt {job.attempt}: {event.facts['message']}")

    def _submitted(self, event: Event) -> None:
        known = self.jobs.get(event.jobid)
        if known is None:
            self.jobs[event.jobid] = Job(jobid=event.jobid, submitted=event.time, **event.facts)
            return
        known.attempt += 1
        known.resources = event.facts["resources"]
        known.status, known.submitted, known.ended, known.changed = "RUNNING", event.time, None, True

    def changed(self) -> list[Job]:
        """Jobs whose state is not written yet."""
        return [job for job in self.jobs.values() if job.changed]

    def stop(self, now: float) -> None:
        """Snakemake ends: jobs that still run are no longer supervised."""
        for job in self.jobs.values():
            if job.status == "RUNNING":
                job.status, job.ended, job.changed = "KILLED", now, True

    def outcome(self) -> str:
        """State of the whole execution, once it has ended."""
        states = {job.status for job in self.jobs.values()}
        if "FAILED" in states:
            return "FAILED"
        return "KILLED" if "KILLED" in states else "FAILED" if self.failed else "FINISHED"


# Snakemake's benchmark files.


def read_benchmark(path: str | None) -> list[dict[str, float]]:
    """The numbers of each repetition: `s` (seconds), `max_rss` (MB), `cpu_time` (seconds), ...; [] when there is no such file.

    What was not measured (`NA`, `-`) and what is not a number is left out."""
    if path is None or not Path(path).exists():
        return []
    with contextlib.suppress(OSError, ValueError), open(path, newline="") as handle:
        if path.endswith(".jsonl"):
            rows = [json.loads(line) for line in handle if line.strip()]
        else:
            rows = list(csv.DictReader(handle, delimiter="\t"))
        return [_numbers(row) for row in rows]
    return []


def _numbers(row: dict) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in row.items():
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
            if number == number and abs(number) != float("inf"):
                found[str(key)] = number
    return found


def benchmark_seconds(rows: list[dict[str, float]]) -> float | None:
    """Seconds that the job's own command ran; None when that was not measured."""
    return sum(row["s"] for row in rows) if rows and all("s" in row for row in rows) else None
