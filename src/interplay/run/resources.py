"""Which GPUs a stage gets where no cluster assigns them, and how much memory it takes."""

import contextlib
import fcntl
import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from interplay.core.model import UserError, plural

if TYPE_CHECKING:
    import psutil


# Which GPUs a stage has where no cluster deals them out: on one machine several stages run side by side, each on its own.
#
# There is a lock (flock) for each GPU in a folder of this user. Who holds it has the GPU, and a killed process holds none.


LOG = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
TOOL = "nvidia-smi"
LOOK = 0.5
"""Seconds between looks at what is free."""


@contextlib.contextmanager
def dealt(count: int) -> Iterator[None]:
    """Within it `count` GPUs are this process's, as CUDA_VISIBLE_DEVICES says; waits until so many are free.

    Leaves all as it is where none is asked for or none is there, and in a job of Slurm, whose GPUs are its own. Raises UserError
    where there are some, and fewer than asked for."""
    there = {} if "SLURM_JOB_ID" in os.environ or not count else _visible()
    if not there:
        yield
        return
    if count > len(there):
        raise UserError(f"run.gpus = {count}: {plural(len(there), 'GPU')} can be seen here; write at most {len(there)}")
    before = os.environ.get(VISIBLE)
    with contextlib.ExitStack() as held:
        os.environ[VISIBLE] = ",".join(_taken(held, there, count))
        try:
            yield
        finally:
            os.environ.pop(VISIBLE)
            if before is not None:
                os.environ[VISIBLE] = before


def _visible() -> dict[str, str]:
    """The GPUs that this process may use: name, as CUDA_VISIBLE_DEVICES takes it, -> UUID."""
    if not shutil.which(TOOL):
        return {}
    asked = subprocess.run([TOOL, "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    every = [line.strip() for line in asked.stdout.splitlines() if line.startswith("GPU-")]
    if VISIBLE not in os.environ:
        return {uuid: uuid for uuid in every}
    names = [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()] if every else []
    return {name: every[int(name)] if name.isdecimal() and int(name) < len(every) else name for name in names}


def _taken(held: contextlib.ExitStack, there: dict[str, str], count: int) -> list[str]:
    """The names of `count` GPUs whose locks `held` lets go of in the end. All or none: who waits holds nothing."""
    told = False
    while True:
        with contextlib.ExitStack() as trying:
            free: list[str] = []
            for name, uuid in there.items():
                if len(free) < count and _locked(trying, uuid):
                    free.append(name)
            if len(free) == count:
                held.enter_context(trying.pop_all())
                return free
        if not told:
            LOG.info("waits for %s: other stages have them", plural(count, "GPU"))
            told = True
        time.sleep(LOOK)


def _locked(trying: contextlib.ExitStack, uuid: str) -> bool:
    handle = trying.enter_context((_folder() / uuid.replace(os.sep, "_")).open("w"))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder() -> Path:
    """Of this user's locks on this machine. Raises UserError where another user has made it."""
    folder = Path(tempfile.gettempdir()) / f"interplay-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise UserError(f"{folder}: belongs to another user; remove it, or set TMPDIR")
    return folder


# How much memory a stage takes: its process and all that it starts (workers, a pool, vLLM's server) together, since a cluster's
# limit is for all of them.


LOOKS = (0.1, 2.0)
"""Seconds before the first look at what runs and, doubled each time, most seconds between two. Each process tells its own peak,
so that nothing in between is missed but a process that came and went there."""
MIB = 2**20


class Peak:
    """The most so far, an upper bound: processes reach their peaks at different times, and what they share counts for each."""

    def __init__(self) -> None:
        self.together, self.processes = 0.0, 1

    def mb(self) -> float:
        """In MiB."""
        return max(self.together, _own())

    def look(self) -> None:
        """Take in what runs now."""
        import psutil

        with contextlib.suppress(psutil.Error):
            below = psutil.Process().children(recursive=True)
            self.together = max(self.together, _own() + sum(_peak(process) for process in below))
            self.processes = max(self.processes, 1 + len(below))


@contextlib.contextmanager
def watching() -> Iterator[Peak]:
    """Looks on from a thread while the block runs."""
    seen, over = Peak(), threading.Event()

    def watch() -> None:
        wait, longest = LOOKS
        while not over.wait(wait):
            seen.look()
            wait = min(2 * wait, longest)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _peak(process: "psutil.Process") -> float:
    """In MiB; 0 for one that has ended. Where the system keeps no peak it is what the process holds now."""
    import psutil

    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss / MIB
    return 0.0


def _own() -> float:
    told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return told / (MIB if sys.platform == "darwin" else 1024)  # macOS tells bytes, Linux KiB
