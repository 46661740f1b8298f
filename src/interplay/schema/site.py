"""`configs/site.yaml`: what a cluster calls things. Never hashed: it says where a stage runs, not what it computes."""

from typing import Annotated

from pydantic import Field, field_validator

from interplay.schema.base import Count, Model

Word = Annotated[str, Field(pattern=r"^[\w.:/@+-]+$")]
"""A name without blanks and quotes: it goes into a command line."""


class Site(Model):
    """Options of Slurm that hang on the site. What a stage needs (threads, memory, minutes, GPUs) stands in its `run` block."""

    account: Word | None = None
    """Account that jobs are charged to (`sbatch --account`); null: the user's own, or none where the cluster keeps none."""
    partition: Word | None = None
    """Partition of stages without GPUs; null: the cluster's own choice."""
    gpu_partition: Word | None = None
    """Partition of stages with GPUs; null: as `partition`."""
    gpu_model: Word | None = None
    """Type of GPU, as the cluster's `gres` names it, such as h100; null: any."""
    qos: Word | None = None
    """Quality of service (`sbatch --qos`)."""
    warn_seconds: Count = 120
    """Seconds before a stage's time limit at which Slurm tells it to save and stop; more than a save and a start take."""
    options: list[str] = []
    """Further options of `sbatch`, such as --exclude=node7, one an entry."""

    @field_validator("options")
    @classmethod
    def _options_only(cls, value: list[str]) -> list[str]:
        for option in value:
            if not option.startswith("--") or any(letter in option for letter in "'\"`$;&|<>\\\n "):
                raise ValueError(f"{option!r} is no option; write --name=value, without blanks and quotes")
        return value
