"""A job of Slurm whose stage was told to stop, as ahead of its time limit, puts itself back into the queue.

So a stage may be longer than any time limit, and spends no retry of Snakemake's on that."""

import os
import subprocess

NAMED = "interplay"
"""`slurm-jobname-prefix` of the profile: only jobs of that name are ours to end."""


def requeue() -> bool:
    """Whether Slurm took back the job that this process belongs to. A job that was cancelled stays so."""
    job = _job()
    try:
        if not job or not _ours(job):
            return False
        _scontrol("requeue", job)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _job() -> str:
    """As Slurm names it; empty outside. The number of an array's last task alone would mean the whole array."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def _ours(job: str) -> bool:
    fields = dict(part.split("=", 1) for part in _scontrol("show", "job", "-o", job).split() if "=" in part)
    return fields.get("JobState") == "RUNNING" and fields.get("JobName", "").startswith(NAMED)


def _scontrol(*words: str) -> str:
    return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True, timeout=30).stdout
