"""Resources of a stage on one machine: GPUs where no cluster assigns them, cores that no other stage uses, and measurements of
its time and peak memory."""

import contextlib
import fcntl
import logging
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import psutil

from interplay.core import execution, metrics
from interplay.core.model import UserError, plural

LOG = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
TOOL = "nvidia-smi"
POLL_INTERVAL = 0.5
"""Seconds between two attempts to lock GPUs."""
CORES = "INTERPLAY_CORES"
"""Environment variable: how many cores the stages of a launch on this machine share, at most Snakemake's --cores, to which
`launch_cores` sets it; 0 or 1: no stage borrows."""
WANTED = "wanted"
"""File that a stage locks while it lacks one of its own cores."""
CORE_INTERVAL = 0.2
"""Seconds between two looks at the cores."""
MOST_THREADS = 4
"""Threads up to which a stage borrows: a step of 1,024 tokens is cut into 16 pieces, which more threads would share unevenly."""
MEMORY_INTERVALS = (0.1, 2.0)
"""Seconds before the first measurement of memory and, doubled each time, at most between two. The kernel keeps the peak of each
process, so only processes that start and end in between are missed."""
MIB = 2**20


# -- GPUs --------------------------------------------------------------------------------------------------------------
# Several stages on one machine each need GPUs of their own. Each GPU has a lock (flock) in a folder of the user, which the kernel
# releases when its holder dies.


@contextlib.contextmanager
def reserve_gpus(count: int) -> Iterator[None]:
    """Reserve `count` GPUs and set CUDA_VISIBLE_DEVICES to them; waits until that many are free.

    Changes nothing where `count` is 0, where there is no GPU, and in a Slurm job, whose GPUs are its own. Raises UserError where
    there are fewer than `count`."""
    present = {} if "SLURM_JOB_ID" in os.environ or not count else _visible_gpus()
    if not present:
        yield
        return
    if count > len(present):
        raise UserError(f"run.gpus = {count}: {plural(len(present), 'GPU')} visible here; write at most {len(present)}")
    before = os.environ.get(VISIBLE)
    with contextlib.ExitStack() as locks:
        os.environ[VISIBLE] = ",".join(_lock_gpus(locks, present, count))
        try:
            yield
        finally:
            os.environ.pop(VISIBLE)
            if before is not None:
                os.environ[VISIBLE] = before


def _visible_gpus() -> dict[str, str]:
    """The GPUs that this process may use: name, as in CUDA_VISIBLE_DEVICES, -> UUID."""
    if not shutil.which(TOOL):
        return {}
    query = subprocess.run([TOOL, "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    uuids = [line.strip() for line in query.stdout.splitlines() if line.startswith("GPU-")]
    if VISIBLE not in os.environ:
        return {uuid: uuid for uuid in uuids}
    names = [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()] if uuids else []
    return {name: uuids[int(name)] if name.isdecimal() and int(name) < len(uuids) else name for name in names}


def _lock_gpus(locks: contextlib.ExitStack, present: dict[str, str], count: int) -> list[str]:
    """Names of `count` GPUs that `locks` holds from now on. All or none, so that two waiting stages do not block each other."""
    waiting = False
    while True:
        with contextlib.ExitStack() as attempt:
            free: list[str] = []
            for name, uuid in present.items():
                if len(free) < count and (lock := _try_lock(_lock_folder("gpus") / uuid.replace(os.sep, "_"))):
                    attempt.enter_context(lock)
                    free.append(name)
            if len(free) == count:
                locks.enter_context(attempt.pop_all())
                return free
        if not waiting:
            LOG.info("waiting for %s: in use by other stages", plural(count, "GPU"))
            waiting = True
        time.sleep(POLL_INTERVAL)


def _try_lock(path: Path, how: int = fcntl.LOCK_EX) -> IO[bytes] | None:
    """The file, locked until it is closed or the process dies; None where another process holds a lock that excludes it."""
    handle = path.open("wb")
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def _lock_folder(of: str) -> Path:
    """Of this user on this machine. Raises UserError where another user owns it."""
    folder = Path(tempfile.gettempdir()) / f"interplay-{of}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise UserError(f"{folder}: belongs to another user; remove it, or set TMPDIR")
    return folder


# -- cores -------------------------------------------------------------------------------------------------------------
# Each core has a lock in a folder of the user. A stage holds locks for its threads and, where it has a use for more, those of
# idle cores. Snakemake decides when a stage starts, so none waits: one that finds fewer cores than its threads says so by a lock
# of its own, and the others give back half of what they borrowed at each look.


class Cores:
    """The cores of one stage, among `count` that all stages of this user on this machine share."""

    def __init__(self, count: int, threads: int) -> None:
        self.folder, self.count, self.threads = _lock_folder("cores"), count, min(threads, count)
        self.most = max(threads, MOST_THREADS)
        self.held: dict[int, IO[bytes]] = {}
        self.lacking: IO[bytes] | None = None

    def look(self) -> None:
        """Take what the stage was promised; borrow where no stage lacks a core, give back where one does."""
        self._lock_up_to(self.threads)
        if len(self.held) < self.threads:
            self.lacking = self.lacking or _try_lock(self.folder / WANTED)
        elif self.lacking:
            self.lacking.close()
            self.lacking = None
        borrowed = len(self.held) - self.threads
        if self._anyone_lacks():
            self._unlock((borrowed + 1) // 2)
        elif borrowed >= 0 and execution.wants_cores():
            self._lock_up_to(min(len(self.held) + 1, self.most))  # one at a time: others that look now get some, too
        execution.set_borrowed_cores(max(0, len(self.held) - self.threads))

    def close(self) -> None:
        """Give back all of them."""
        execution.set_borrowed_cores(0)
        self._unlock(len(self.held))
        if self.lacking:
            self.lacking.close()

    def _lock_up_to(self, wanted: int) -> None:
        for core in range(self.count):
            if len(self.held) >= wanted:
                return
            if core not in self.held and (lock := _try_lock(self.folder / str(core))):
                self.held[core] = lock

    def _unlock(self, count: int) -> None:
        for _ in range(max(0, count)):
            self.held.popitem()[1].close()

    def _anyone_lacks(self) -> bool:
        if self.lacking:
            return True
        probe = _try_lock(self.folder / WANTED, fcntl.LOCK_SH)
        if probe is None:
            return True
        probe.close()
        return False


def launch_cores(cores: int) -> None:
    """Let the stages that this process starts share `cores`, or fewer where the environment says so. Raises UserError where that
    is no number."""
    given = os.environ.get(CORES, "")
    if given and not given.isdecimal():
        raise UserError(f"{CORES} = {given!r}: must be a number of cores; 0: no stage borrows")
    os.environ[CORES] = str(min(cores, int(given or cores)))


@contextlib.contextmanager
def share_cores(how: execution.Run) -> Iterator[None]:
    """Hold the stage's cores, and borrow idle ones from a thread, while the block runs. Does nothing outside of a launch on one
    machine, and in a Slurm job, which has no other stage to borrow from."""
    count = int(os.environ.get(CORES, "0"))
    if count < 2 or "SLURM_JOB_ID" in os.environ:
        yield
        return
    cores = Cores(count, how.cores())

    def watch(over: threading.Event) -> None:
        with contextlib.suppress(OSError):  # such as a temporary folder that is gone: then it borrows none
            while not over.wait(CORE_INTERVAL):
                cores.look()
        cores.close()

    cores.look()
    with _watching(watch):
        yield


@contextlib.contextmanager
def _watching(watch: Callable[[threading.Event], None]) -> Iterator[None]:
    """Call `watch` in a thread; its event is set, and its end awaited, when the block ends."""
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(over,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


# -- memory ------------------------------------------------------------------------------------------------------------
# Of the stage's process and all processes below it (workers, a pool, a vLLM server): a cluster's limit is for all of them.


class Peak:
    """Peak memory so far, an upper bound: processes peak at different times, and shared pages count for each."""

    def __init__(self) -> None:
        self.together, self.processes = 0.0, 1

    def mib(self) -> float:
        """In MiB."""
        return max(self.together, _own_peak())

    def measure(self) -> None:
        """Include the processes that are running now."""
        with contextlib.suppress(psutil.Error):
            below = psutil.Process().children(recursive=True)
            self.together = max(self.together, _own_peak() + sum(_peak_of(process) for process in below))
            self.processes = max(self.processes, 1 + len(below))


@contextlib.contextmanager
def watch_memory() -> Iterator[Peak]:
    """Measure from a thread while the block runs."""
    peak = Peak()

    def watch(over: threading.Event) -> None:
        wait, longest = MEMORY_INTERVALS
        while not over.wait(wait):
            peak.measure()
            wait = min(2 * wait, longest)

    with _watching(watch):
        yield peak


def _peak_of(process: psutil.Process) -> float:
    """In MiB; 0 for one that has ended. Where the kernel keeps no peak, the current size."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss / MIB
    return 0.0


def _own_peak() -> float:
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (MIB if sys.platform == "darwin" else 1024)  # bytes on macOS, KiB on Linux


# -- time --------------------------------------------------------------------------------------------------------------


def limit_threads(threads: int) -> None:
    """Before torch is imported: two jobs that each use all cores run many times slower than with half of them each. Threads that
    wait for each other sleep, since one that spins takes the core that the other needs where a neighbour runs."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def cpu_seconds() -> float:
    """Of this process and of those that it started and that ended."""
    usage = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def stage_telemetry(started: float, wall: float, cpu: float, how: execution.Run, memory: Peak) -> dict[str, Any]:
    """What is known of a stage's cost once it is made: times in seconds, memory in MiB."""
    # Workers write the environment of their own GPUs.
    more = {"processes": how.processes} if how.processes > 1 else {"environment": metrics.current_environment()}
    return {
        "seconds_wall": round(wall, 3),
        "seconds_cpu": round(cpu, 3),
        "peak_memory_mb": round(memory.mib(), 1),  # of all processes together
        "peak_processes": memory.processes,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "threads": how.cores(),
        **({"borrowed_core_seconds": round(borrowed, 3)} if (borrowed := execution.borrowed_seconds()) else {}),
        "python": platform.python_version(),
        **more,
    }


def write_benchmark(path: Path, telemetry: dict[str, Any]) -> None:
    """Snakemake's columns; NA where not measured. Its own samples, one in half a second, miss most of a short stage."""
    if "seconds_wall" not in telemetry:  # the record came from a store
        return
    wall, cpu = telemetry["seconds_wall"], telemetry["seconds_cpu"]
    values = {
        "s": f"{wall:.4f}",
        "h:m:s": timedelta(seconds=int(wall)),
        "max_rss": telemetry["peak_memory_mb"],
        **dict.fromkeys(("max_vms", "max_uss", "max_pss", "io_in", "io_out"), "NA"),
        "mean_load": round(100 * cpu / wall, 2) if wall else 0.0,
        "cpu_time": cpu,
    }
    with contextlib.suppress(OSError):  # the stage is done, though the disk is full
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\t".join(values) + "\n" + "\t".join(map(str, values.values())) + "\n")
