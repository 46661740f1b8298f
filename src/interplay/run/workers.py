"""Several processes at work on one stage (`run.processes`): the runner starts them, passes signals on, and tells how it went.

torchrun would do for the start, and its variables are used here; but it prints a page where a stage says one line, knows no exit
codes but its own, and kills 30 s after a signal whoever is still saving."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from interplay.core import artifact, execution, stop
from interplay.core.execution import Run
from interplay.core.model import PermanentError, UserError
from interplay.run.work import JOB

LOOK = 0.02
"""Seconds between looks at the processes."""
GRACE = 5.0
"""Seconds that the others have to end once one has failed or stopped."""


class WorkerError(Exception):
    """A process of the stage ended for a reason that is neither the user's nor permanent. One line."""


def run(stage: dict[str, Any], inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """What the kind's function returns in the first of `how.processes` processes. Raises what the process that failed first
    raised; WorkerError where it was killed or met something unforeseen, StoppedError where a signal asked to stop."""
    with tempfile.TemporaryDirectory(prefix="interplay-") as folder, stop.defer_signals():
        handover = Path(folder)
        job = {"kind": stage["kind"], "spec": stage["spec"], "run": stage["run"], "out": str(out)}
        artifact.write_json(handover / JOB, {**job, "inputs": {role: str(path) for role, path in inputs.items()}})
        with _started(handover, how) as processes:
            late = _wait(processes)
        if any(process.returncode for process in processes):
            raise _reason(handover, processes, late)
        return artifact.read_json(handover / "0.json")["values"]


@contextlib.contextmanager
def _started(handover: Path, how: Run) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes, none of which outlives the block; what they say goes where this one speaks. Should this one be killed, they
    end by the end of their standard input."""
    command = [sys.executable, "-m", "interplay.run.work", str(handover), "--lifeline", "--meet-here"]
    processes: list[subprocess.Popen[bytes]] = []
    listeners: list[threading.Thread] = []
    try:
        for rank in range(how.processes):
            environment = {**os.environ, **_environment(rank, how.processes)}
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
            processes.append(subprocess.Popen(command, env=environment, **pipes))
            listeners.append(threading.Thread(target=_pass_on, args=(processes[-1].stderr,), daemon=True))
            listeners[-1].start()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for listener in listeners:
            listener.join(GRACE)


def _environment(rank: int, count: int) -> dict[str, str]:
    """What torchrun tells a process of one machine, and to meet on loopback."""
    told = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return {**execution.LOOPBACK, **told, "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}


def _pass_on(said: IO[bytes]) -> None:
    for line in said:
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()


def _wait(processes: list[subprocess.Popen[bytes]]) -> set[int]:
    """Until all have ended; a signal that this process hears reaches each of them, and once one has failed the others have GRACE
    left. Returns those that did not end in it."""
    passed_on, last = False, float("inf")
    while any(process.poll() is None for process in processes) and time.monotonic() < last:
        if stop.stop_requested() and not passed_on:
            passed_on = True
            for process in processes:
                process.send_signal(signal.SIGTERM)
        if last == float("inf") and any(process.returncode for process in processes):
            last = time.monotonic() + GRACE
        time.sleep(LOOK)
    late = {rank for rank, process in enumerate(processes) if process.poll() is None}
    for rank in late:
        processes[rank].kill()
        processes[rank].wait()
    return late


def _reason(handover: Path, processes: list[subprocess.Popen[bytes]], late: set[int]) -> BaseException:
    """Why the stage ended: the first reason that is not the end of another process."""
    files = [handover / f"{rank}.json" for rank in range(len(processes))]
    written = {rank: file.stat().st_mtime_ns for rank, file in enumerate(files) if file.exists()}
    told = {rank: artifact.read_json(files[rank]) for rank in sorted(written, key=lambda rank: written[rank])}
    for one in told.values():
        if "user" in one:
            return UserError(one["user"])
        if "permanent" in one:
            return PermanentError(one["permanent"])
        if "os" in one:
            return OSError(*one["os"])
    stopped = [one["stopped"] for one in told.values() if "stopped" in one]
    if stopped or stop.stop_requested():
        return stop.StoppedError(stopped[0] if stopped else "stopped")
    silent = [rank for rank in range(len(processes)) if "error" not in told.get(rank, {}) and rank not in late]
    ended = [rank for rank in silent if processes[rank].returncode]
    if ended:
        code = processes[ended[0]].returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        goes_on = "the stage goes on from its last save when started again"
        return WorkerError(f"worker {ended[0] + 1} of {len(processes)} {how}; {goes_on}")
    rank, failed = next((rank, one) for rank, one in told.items() if "error" in one)
    sys.stderr.write(failed["traceback"])
    return WorkerError(f"worker {rank + 1} of {len(processes)}: {failed['error']}")
