"""How much memory a stage takes: its process and all that it starts (workers, a pool, vLLM's server) together, since a cluster's
limit is for all of them."""

import contextlib
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

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
