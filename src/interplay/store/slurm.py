"""The job of Slurm that this process belongs to, as Slurm itself tells: the variables of a job say nothing of preemption, and
Snakemake's executor takes most of them away."""

import os
import re
import subprocess
import time
from typing import NamedTuple

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
