"""A job of Slurm whose stage was told to stop, as ahead of its time limit, puts itself back into the queue.

So a stage that saves may be longer than any time limit, and spends no retry of Snakemake's on that. One that saved nothing would
begin anew and come to the same end: it is put back only where another job took its place, and not for ever."""

import contextlib
import stat
from pathlib import Path

from interplay.store import slurm, stop

PATIENCE = 10
"""Times that a job may have been put back before its stage, having saved nothing, gives up on being preempted once more."""

Marks = frozenset[tuple[str, int, int]]


def marks(results: Path, digest: str) -> Marks:
    """What a stage has saved to go on from: names, times and sizes of the files in its `resume/`."""
    found = set()
    for path in results.glob(f"*/{digest}*/resume/**/*"):
        with contextlib.suppress(FileNotFoundError):  # another process may be at work on the stage
            known = path.stat()
            if stat.S_ISREG(known.st_mode):
                found.add((str(path), known.st_mtime_ns, known.st_size))
    return frozenset(found)


def after_stop(before: Marks | None, now: Marks) -> tuple[int, str]:
    """What becomes of a stage that was told to stop and did: the exit code, and the rest of the line that says so. `before`: its
    marks as it was started; None where it was stopped too early to take them."""
    job = slurm.current()
    if job is None:
        return stop.EXIT, "goes on when started again"
    advanced = before is not None and now != before
    if not advanced and not job.preempted:
        longer = "another job would begin where this one did and end alike; give it a longer run.runtime"
        return 1, f"it saved nothing in {job.ran} of {job.limit}: {longer}"
    if not now and job.restarts >= PATIENCE:
        calmer = "name a partition in configs/site.yaml where no other job comes first, or make the stage shorter"
        return 1, f"it is preempted, was put back {job.restarts} times, and never saved anything: {calmer}"
    return stop.EXIT, "its job waits in the queue again" if slurm.requeue(job) else "goes on when started again"
