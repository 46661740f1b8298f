"""Signals on their way to a stage. Slurm's warning ahead of a time limit and its SIGTERM at a preemption go to the process that
it started in the job's step, which is a Snakemake of its own: that would die of the one, and of the other only wait for its
stage, which would be killed and lose what was not saved.

A task of an array is warned of nothing: it has no step, and Slurm's warning goes to steps. So it warns itself."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

from interplay.schema.base import UserError
from interplay.schema.site import Site
from interplay.store import slurm
from interplay.study import site

PASSED = (signal.SIGUSR1, signal.SIGTERM)
LOOK = 0.2
"""Seconds between looks for a stage that listens."""


def pass_on(configs: Path) -> None:
    """From here on this process, a job's Snakemake, hands what it hears of PASSED to the stage below, which saves and stops."""
    if threading.current_thread() is not threading.main_thread():
        return
    heard, hears = os.pipe()
    os.set_blocking(hears, False)
    # Snakemake sets a handler of its own for SIGTERM later. What is written here comes whoever handles the signal in Python.
    signal.set_wakeup_fd(hears, warn_on_full_buffer=False)
    signal.signal(signal.SIGUSR1, _lives_on)
    threading.Thread(target=_hand_down, args=(heard,), daemon=True).start()
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        threading.Thread(target=_warn, args=(_warn_seconds(configs),), daemon=True).start()


def _lives_on(number: int, frame: FrameType | None) -> None:
    pass


def _hand_down(heard: int) -> None:
    while number := os.read(heard, 1):
        if number[0] in PASSED:
            _tell_stage(number[0])


def _tell_stage(number: int) -> None:
    """Send the signal to the stage; to one that is about to start, once it listens: before that it would die of it."""
    import psutil  # comes with Snakemake

    told = False
    while not told:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                if "interplay.stage" in process.cmdline() and _listens(process.pid, number):
                    process.send_signal(number)
                    told = True
        time.sleep(LOOK)


def _listens(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.partition(":")[2] for line in lines if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def _warn_seconds(configs: Path) -> int:
    """Of the site; should its file be edited, and wrong at this moment, then those of the usual one: a job goes on."""
    try:
        return site.load(configs).warn_seconds
    except UserError:
        return Site().warn_seconds


def _warn(seconds: int) -> None:
    """Tell the stage so many seconds before the job's time is up."""
    job = slurm.current()
    if job is not None and job.end is not None:
        time.sleep(max(job.end - seconds - time.time(), 0))
        _tell_stage(signal.SIGUSR1)
