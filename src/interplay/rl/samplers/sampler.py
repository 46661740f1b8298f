"""What every sampler is: it selects ids, observes what came of them, and its state is saved with the checkpoint.

An id is a row of the problem sets joined in the order of their roles."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from interplay.model.decoder import Decoder
from interplay.rl.samplers.prompts import Encode
from interplay.store.generator import generator
from interplay.tasks.row import Row


@dataclass(frozen=True)
class Deck:
    """What a sampler may know of a run before its first step."""

    sizes: list[int]
    """Rows of each set."""
    mix: list[float]
    """Share of each set."""
    seed: int
    steps: int = 1
    """Steps of the run; schedules are functions of (step - 1) / steps."""
    rows: Sequence[Row] = field(default_factory=list)
    """All prompts, by id."""
    policy: Decoder | None = None
    """The model that is trained, as it stands whenever it is asked."""
    encode: Encode | None = None
    dtype: torch.dtype = torch.float32
    """Arithmetic of whoever passes prompts through a model."""
    micro_batch_tokens: int = 8192
    """Most tokens in one such pass."""
    offline: Sequence["Outcome"] = ()
    """What came of prompts that the model was asked before the first step, where the stage names such samples."""

    def __len__(self) -> int:
        return sum(self.sizes)

    def random(self, *parts: int | str) -> np.random.Generator:
        """The stream for these labels."""
        return generator(self.seed, "sampler", *parts)


class Outcome(NamedTuple):
    """What came of one group."""

    id: int
    rewards: tuple[float, ...]
    strict: int
    """Completions that are strictly right."""
    answer: int
    """Completions with the right answer."""

    @property
    def n(self) -> int:
        """Completions."""
        return len(self.rewards)

    @property
    def reward(self) -> float:
        """Mean reward."""
        return sum(self.rewards) / len(self.rewards)


class Sampler:
    """Base of the members. `select` may be called several times in a step (dynamic sampling draws again), `observe` once after
    each; `learn` once, when the policy has been updated."""

    def select(self, m: int, step: int) -> list[int]:
        """m ids; `step` counts from 1."""
        raise NotImplementedError

    def expected(self, ids: Sequence[int]) -> Tensor | None:
        """(m,) float64: the pass rate that it expects of each of the prompts that it selected last; None: it expects nothing."""
        return None

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Learn from the groups that the last selection became; a prompt that was selected twice has two."""

    def learn(self, step: int) -> None:
        """What is done once at the end of a step."""

    def metrics(self) -> dict[str, float]:
        """What the last step is to be known by, logged as `sampler/<name>`; the same names at every step."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """JSON data, and all that `tensors` does not hold."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """State that is large, by name."""
        return {}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
