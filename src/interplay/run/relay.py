"""Signals on their way to a stage. Slurm's warning ahead of a time limit and its SIGTERM at a preemption go to the process that
it started in the job's step, which is a Snakemake of its own: that would die of the one, and of the other only wait for its
stage, which would be killed and lose what was not saved.

The first task of an array hears of nothing: Snakemake's executor gives it no step, and to steps alone go warnings. So it asks."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from interplay.core.model import UserError
from interplay.run import slurm
from interplay.run.spec import Site

if TYPE_CHECKING:
    import psutil


PASSED = (signal.SIGUSR1, signal.SIGTERM)
LOOK = 0.2
"""Seconds between looks for a stage that listens."""
PATIENCE = 120.0
"""Seconds in which a stage is looked for: above a job's step, and where the stage has just ended, there is none to come."""
ASK = 5.0
"""Seconds between questions to Slurm where it says nothing by itself."""


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
    if "SLURM_ARRAY_TASK_ID" in os.environ and "SLURM_STEP_ID" not in os.environ:
        threading.Thread(target=_ask, args=(_warn_seconds(configs),), daemon=True).start()


def _lives_on(number: int, frame: FrameType | None) -> None:
    pass


def _hand_down(heard: int) -> None:
    while number := os.read(heard, 1):
        if number[0] in PASSED:
            _tell_stage(number[0])


def _tell_stage(number: int) -> None:
    """Send the signal to the stage; to one that is about to start, once it listens: before that it would die of it."""
    end = time.monotonic() + PATIENCE
    while not (stages := [one for one in _stages() if _listens(one.pid, number)]) and time.monotonic() < end:
        time.sleep(LOOK)
    for one in stages:
        with contextlib.suppress(OSError):
            os.kill(one.pid, number)


def _stages() -> Iterator["psutil.Process"]:
    """Runners of stages below this process."""
    import psutil  # comes with Snakemake, and not every command waits for it

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "interplay.run.stage" in process.cmdline():
                yield process


def _listens(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line.partition(":")[2] for line in lines if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def _warn_seconds(configs: Path) -> int:
    """Of the site; should its file be edited, and wrong at this moment, then those of the usual one: a job goes on."""
    try:
        return slurm.load_site(configs).warn_seconds
    except UserError:
        return Site().warn_seconds


def _ask(seconds: int) -> None:
    """Tell the stage so many seconds before its job's time is up, or when the job is preempted. Where the stage is not below this
    process, as in tasks that have a step, Slurm is not asked."""
    while True:
        time.sleep(ASK)
        job = slurm.current() if any(_stages()) else None
        if job is not None and (job.preempted or (job.end is not None and job.end - seconds <= time.time())):
            _tell_stage(signal.SIGUSR1)
            return
