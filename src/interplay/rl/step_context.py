"""What a seam member may read beside the batch: the step, its progress, and state kept from earlier steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interplay.core.random import generator
from interplay.rl.batch import Batch
from interplay.rl.spec import Method
from interplay.tasks.verdict import Row


class Memory:
    """What members keep from step to step: tensors and JSON data by name, saved with every checkpoint. A name begins with that
    of its member, so that no two share one by chance."""

    def __init__(self, prompts: int) -> None:
        self.prompts = prompts
        """How many rows the problem sets have; an id is less than this."""
        self.tensors: dict[str, Tensor] = {}
        self.notes: dict[str, Any] = {}
        """JSON data; keys of mappings are strings."""

    def per_prompt(self, name: str, start: float) -> Tensor:
        """(P,) float64, one value for each prompt, `start` before anything was written; writing to it is remembered."""
        if name not in self.tensors:
            self.tensors[name] = torch.full((self.prompts,), start, dtype=torch.float64)
        return self.tensors[name]

    def load(self, notes: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        self.notes, self.tensors = notes, {name: tensor.clone() for name, tensor in tensors.items()}


def _not_here(*_: Any) -> Any:
    raise RuntimeError("this seam is asked where there is nothing to draw from or to pass forward")


@dataclass(frozen=True)
class StepContext:
    """A step of the run."""

    method: Method
    memory: Memory
    step: int = 1
    progress: float = 0.0
    """0 at the first step and 1 at the last."""
    max_completion_length: int = 1
    pad: int = 0
    """Token that fills rows up."""
    draw: Callable[[int], Batch] = field(default=_not_here)
    """Samples and scores the groups of so many fresh prompts."""
    gold: Callable[[int], tuple[str, list[int]]] = field(default=_not_here)
    """Text and tokens, end token included, of the gold solution of a prompt."""
    continued: Callable[[Batch, Sequence[tuple[int, int]], int], Tensor] = field(default=_not_here)
    """(M,) float64: the mean reward of so many completions of each place, a row of a batch and how many of its tokens stand."""
    rows: Sequence[Row] = ()
    """All prompts, by id."""
    seed: int = 0
    entropy: Callable[[Batch], Tensor] = field(default=_not_here)
    """The policy's entropy at each token, (N,T), at the price of a forward pass: rollouts know only the log-probabilities of the
    tokens that were drawn."""

    encode: Callable[[str], list[int]] = field(default=_not_here)
    """Tokens of a text."""
    offsets: Callable[[Sequence[int], str], list[int]] = field(default=_not_here)
    """First character of each of the tokens that a text was read from."""
    likelihood: Callable[[list[list[int]], list[list[int]]], list[float]] = field(default=_not_here)
    """Mean log-probability, under the policy, of the tokens of each text behind each context, at the price of a forward pass."""

    def random(self, what: str) -> np.random.Generator:
        """The stream for that purpose at this step."""
        return generator(self.seed, what, self.step)
