"""What there is of a stage on disk: its state in MLflow's words, its times, its steps. No mlflow here."""

import calendar
import time
from pathlib import Path
from typing import NamedTuple

from interplay.store import artifact, metrics, state
from snakemake_logger_plugin_mlflow.events import tail

STATUS = {"done": "FINISHED", "running": "RUNNING", "failed": "FAILED", "unfinished": "KILLED"}
"""A stage's state -> the status of its run. What is new or missing has no run."""
STOPPED = "interplay: stopped"
"""How the runner's last line begins when a signal asked it to stop."""


class Found(NamedTuple):
    """One stage as its folder shows it."""

    status: str
    """FINISHED with a record and only then; FAILED, RUNNING, KILLED, or empty where it was never started."""
    message: str = ""
    """Why it failed or how far it came."""


def look(results: Path, kind: str, digest: str) -> Found:
    """The state of a stage. A failure that the runner could not write down is told by its log."""
    name, detail = state.of(artifact.folder(results, kind, digest))
    status = STATUS.get(name, "")
    if status != "KILLED":
        return Found(status, detail if status == "FAILED" else "")
    last = last_words(results.parent / "logs" / kind / f"{digest}.log")
    failed = last and not last.startswith(STOPPED)
    return Found("FAILED", last) if failed else Found("KILLED", last.removeprefix("interplay: ") or detail)


def last_words(log: Path) -> str:
    """The last line of a stage's log if that is a failure or a stop and no progress line; else nothing."""
    lines = tail(log, 20_000)
    latest = [number for number, line in enumerate(lines) if line.endswith("]") and " [" in line] or [0]
    traced = any(line.startswith("Traceback ") for line in lines[latest[-1] :])
    return lines[-1].strip() if lines and (traced or lines[-1].startswith("interplay: ")) else ""


def times(out: Path) -> tuple[int, int]:
    """Start and end of the last attempt, in milliseconds since the epoch. Of an unfinished one both are its last sign of life."""
    told = metrics.read_telemetry(out)
    if "started" in told:
        start = calendar.timegm(time.strptime(told["started"], "%Y-%m-%dT%H:%M:%SZ"))
        return 1000 * start, round(1000 * (start + float(told.get("seconds_wall", 0))))
    path = next((path for path in (out / "telemetry.json", out / "stage.json", out) if path.exists()), None)
    touched = round(1000 * (path.stat().st_mtime if path else time.time()))
    return touched, touched


def steps(out: Path, after: int = 0) -> list[dict[str, float]]:
    """Lines of `metrics.jsonl` past a step."""
    return [line for line in metrics.read(out) if line["step"] > after]
