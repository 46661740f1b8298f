"""The Slurm job of this process: its variables, requeueing after a stop, and resources from `configs/site.yaml`."""

import contextlib
import os
import re
import shlex
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interplay.core import stop
from interplay.core.model import UserError, parse_model
from interplay.run.spec import Site

if TYPE_CHECKING:
    import yaml


# The job of Slurm that this process belongs to, as Slurm itself tells: the variables of a job say nothing of preemption, and
# Snakemake's executor takes most of them away.


NAMED = re.compile(r"interplay_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""`slurm-jobname-prefix` of the profile and what the executor puts behind it: jobs of any other name, such as one in which a user
runs Snakemake with the profile `local`, are not ours to end."""


class Job(NamedTuple):
    """What decides whether a job goes back into the queue."""

    name: str
    """As Slurm names it. Of a task of an array with its index: the number of the last task alone would mean the whole array."""
    preempted: bool
    """Whether it is to make room for another job."""
    restarts: int
    """How often it was put back into the queue."""
    ran: str
    """How long it has been running, as Slurm writes it: 01:58:00."""
    limit: str
    """How long it may run."""
    end: float | None
    """When its time is up, in seconds of Unix; None where Slurm names no end."""


def current() -> Job | None:
    """The job; None outside of one, in one that the profile `slurm` did not submit, and in one that Slurm is ending already."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    name = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")
    told = _scontrol("show", "job", "-o", name) if name else None
    fields = dict(part.split("=", 1) for part in (told or "").split() if "=" in part)
    if fields.get("JobState") != "RUNNING" or not NAMED.fullmatch(fields.get("JobName", "")):
        return None
    started, preempted = _seconds(fields.get("StartTime", "")), _seconds(fields.get("PreemptTime", ""))
    return Job(
        name=name,
        preempted=preempted is not None and preempted >= (started or 0),  # an earlier start's may still be named
        restarts=int(fields.get("Restarts", 0)),
        ran=fields.get("RunTime", "?"),
        limit=fields.get("TimeLimit", "?"),
        end=_seconds(fields.get("EndTime", "")),
    )


def requeue(job: Job) -> bool:
    """Whether Slurm took the job back."""
    return _scontrol("requeue", job.name) is not None


def _seconds(moment: str) -> float | None:
    try:
        return time.mktime(time.strptime(moment, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:  # None, Unknown
        return None


def _scontrol(*words: str) -> str | None:
    """What it said; None where it failed or is not there."""
    try:
        return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None


# A job of Slurm whose stage was told to stop, as ahead of its time limit, puts itself back into the queue.
#
# So a stage that saves may be longer than any time limit, and spends no retry of Snakemake's on that. One that saved nothing
# would begin anew and come to the same end: it is put back only where another job took its place, and not for ever.


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
    job = current()
    if job is None:
        return stop.EXIT, "goes on when started again"
    advanced = before is not None and now != before
    if not advanced and not job.preempted:
        longer = "another job would begin where this one did and end alike; give it a longer run.runtime"
        return 1, f"it saved nothing in {job.ran} of {job.limit}: {longer}"
    if not now and job.restarts >= PATIENCE:
        calmer = "name a partition in configs/site.yaml where no other job comes first, or make the stage shorter"
        return 1, f"it is preempted, was put back {job.restarts} times, and never saved anything: {calmer}"
    return stop.EXIT, "its job waits in the queue again" if requeue(job) else "goes on when started again"


# What Slurm is asked for beyond a stage's `run` block, from `configs/site.yaml`.


def load_site(configs: Path) -> Site:
    """The site, or the usual one where the file is missing or empty. Raises UserError in one line where it is wrong."""
    import yaml

    from interplay.study import files

    path = configs / "site.yaml"
    if not path.exists():
        return Site()
    root, shown = files.read(configs, path), files.name_of(configs, path)
    try:
        tree = yaml.SafeLoader("").construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise files.not_yaml(error, shown) from None
    except ValueError as error:  # such as a date that no calendar has
        raise UserError(f"{shown}: not readable: {error}") from None
    try:
        return parse_model(Site, tree, shown)
    except UserError as error:
        told = str(error).removeprefix(f"{shown}: ")
        named = _named(told, root)
        raise UserError(f"{shown}:{files.line(named)}: {told}" if named else str(error)) from None


def _named(told: str, root: "yaml.MappingNode") -> "yaml.Node | None":
    """The key that a message starts with."""
    named = [key for key, _ in root.value if told.startswith(str(key.value))]
    return max(named, key=lambda key: len(str(key.value)), default=None)


def partition(site: Site, gpus: int) -> str:
    """Partition of a stage; empty: the cluster's own choice."""
    return (site.gpu_partition if gpus and site.gpu_partition else site.partition) or ""


def named(site: Site) -> dict[str, str]:
    """What Snakemake's executor knows by resources of their own -> the site's; what the site leaves open is not among them, since
    an empty name would be handed to `sbatch`."""
    told = {"slurm_account": site.account, "qos": site.qos, "constraint": site.constraint}
    return {name: value for name, value in told.items() if value}


def extra(site: Site) -> str:
    """Options of `sbatch` for every stage, as a shell reads them."""
    return shlex.join([f"--signal=USR1@{site.warn_seconds}", *site.options])
