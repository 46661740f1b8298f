"""Signals on their way to a stage. Slurm's warning ahead of a time limit goes to the process that it started in the job's step,
which is a Snakemake of its own: that would die of it, and its stage, killed with it, would lose what was not saved."""

import contextlib
import signal
import threading
from types import FrameType


def pass_on() -> None:
    """From here on this process, a job's Snakemake, hands SIGUSR1 to the stage below it, which saves and stops."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, _hand_down)


def _hand_down(number: int, frame: FrameType | None) -> None:
    import psutil  # comes with Snakemake

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "interplay.stage" in process.cmdline():
                process.send_signal(number)
