"""What trainers share that take a model through a number of steps on few data: prefer, unlearn and reward_model."""

from typing import Literal

from pydantic import model_validator

from interplay.schema.base import Count, Model, Natural
from interplay.schema.model import TuneOptimizer, TuneSchedule, check_checkpoints


class TuneSpec(Model):
    """Steps, rate and length of a run."""

    steps: Count
    """Optimiser steps. The data are repeated where they are fewer than the steps take, in a new order each time."""
    max_length: Count = 512
    """Most tokens of a prompt with one completion, its end included (TRL's name): a run with a longer one is refused, and the
    plan's cost reckons with all of it."""
    optimizer: TuneOptimizer = TuneOptimizer()
    schedule: TuneSchedule = TuneSchedule()
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the matrix products; weights and optimiser state stay float32."""
    checkpoints: list[Count] = []
    """Steps whose weights are kept in checkpoints/<step>/model/ as part of the artifact."""
    seed: Natural = 0
    """Order of the data."""

    @model_validator(mode="after")
    def _kept(self) -> "TuneSpec":
        check_checkpoints(self.checkpoints, self.steps)
        return self

    @property
    def rows_per_step(self) -> int:
        """Prompts with a completion, at most max_length tokens each, that one step trains on."""
        raise NotImplementedError
