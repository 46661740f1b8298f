"""`configs/site.yaml`: names and options of a Slurm cluster, and how jobs start on one machine. Never hashed."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from interplay.core.model import Count, Model

Word = Annotated[str, Field(pattern=r"^[\w.:/@+-]+$")]
"""A name without blanks and quotes: it becomes part of a command line."""
OPTION = re.compile(r"--(?P<name>[a-z][a-z-]*)(=[A-Za-z0-9_.,:/@%+=\[\]-]+)?")
"""An option of `sbatch` without characters special to a shell; brackets are for lists of nodes, and are quoted."""
SHORT = re.compile(r"-J|-[oeDApnctCN]$")
"""What Snakemake's executor parses as one of its own short options, at any position."""
STAGE, EXECUTOR = "set it in the run block of the stage", "Snakemake's executor sets it"
TAKEN = {
    **{name: f"write the key {name}" for name in ("account", "qos", "constraint")},
    "partition": "write the key partition or gpu_partition",
    "signal": "write the key warn_seconds",
    **dict.fromkeys(("mem", "mem-per-cpu"), f"{STAGE}: memory_mb"),
    **dict.fromkeys(("cpus-per-task", "cpus-per-gpu"), f"{STAGE}: threads"),
    "time": f"{STAGE}: runtime",
    **dict.fromkeys(("gpus", "gres"), f"{STAGE}: gpus; their type is the key gpu_model"),
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-gpu"), "a stage is one task on one node"),
    **dict.fromkeys(
        ("job-name", "output", "error", "parsable", "export", "comment", "workdir", "chdir", "wrap", "array"), EXECUTOR
    ),
    **dict.fromkeys(("requeue", "no-requeue"), "the profile's slurm-requeue sets it"),
    "clusters": "jobs run on the cluster of the machine that runs Snakemake",
}
"""Options that are set in another place -> the place. Snakemake's executor refuses most of them when a job is submitted."""


class Site(Model):
    """Options that depend on the site. Threads, memory, minutes and GPUs of a stage are in its `run` block."""

    fork_server: bool = True
    """On one machine, stages of one thread without a GPU are forked from a process of the launch that has imported their
    libraries, which saves each of them one to two seconds; false: each imports them. Jobs of Slurm always do."""
    account: Word | None = None
    """Account that jobs are charged to (`sbatch --account`), one of yours in `sacctmgr`; null: the user's default, or none where
    the cluster has no accounts."""
    partition: Word | None = None
    """Partition of stages without GPUs; null: the cluster's default."""
    gpu_partition: Word | None = None
    """Partition of stages with GPUs; null: as `partition`."""
    gpu_model: str | None = None
    """Type of GPU as in the cluster's `gres`, such as h100; null: any. Letters, digits, dots and underscores: Snakemake's
    executor accepts no others."""
    qos: Word | None = None
    """Quality of service (`sbatch --qos`)."""
    constraint: Annotated[str, Field(pattern=r"^[\w.:,&|()\[\]*-]+$")] | None = None
    """Features that a node must have (`sbatch --constraint`), such as a100|h100."""
    warn_seconds: Count = 120
    """Seconds before its time limit at which a stage is signalled to save and stop; more than a save and a start take. Slurm may
    be a minute early, so the `run.runtime` of every stage has to be longer than this and a minute."""
    options: list[str] = []
    """Further options of `sbatch`, such as --exclude=node7, one per entry."""

    @field_validator("gpu_model")
    @classmethod
    def _model_of_letters(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9_.]+", value):
            remedy = "where the cluster's name has others, leave it null and name such nodes by gpu_partition or constraint"
            raise ValueError(f"should be letters, digits, dots and underscores; {remedy}")
        return value

    @field_validator("options")
    @classmethod
    def _options_only(cls, value: list[str]) -> list[str]:
        for option in value:
            found = OPTION.fullmatch(option)
            if not found or SHORT.search(option):
                raise ValueError(f"{option!r} is no option; write --name=value, without blanks, quotes and shell characters")
            if found["name"] in TAKEN:
                raise ValueError(f"{option!r} is not set here: {TAKEN[found['name']]}")
        return value
