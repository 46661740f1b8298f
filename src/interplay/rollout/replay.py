"""Decoding steps as one CUDA graph: between two changes of shape they run the same kernels on the same memory, and at small sizes
a GPU spends more time on being told of each than on computing it."""

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], list[Tensor]]
"""Next tokens (groups, samples) and their place (1,) among the completions' -> the hidden states that follow, of each decoder."""


class Replay:
    """One step that is called again and again with tensors of one shape. The first call runs it as it is, the second records it;
    on a CPU all of them run it as it is."""

    def __init__(self, step: Step, ids: Tensor) -> None:
        self.step, self.ids = step, torch.empty_like(ids)
        self.place = torch.zeros(1, dtype=torch.int64, device=ids.device)
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.hidden: list[Tensor] = []

    def __call__(self, ids: Tensor, place: int) -> list[Tensor]:
        """What the step makes of these tokens. The tensors are overwritten by the next call."""
        self.ids.copy_(ids)
        self.place.fill_(place)
        self.calls += 1
        if not ids.is_cuda or self.calls == 1:  # the libraries set themselves up in a first run, which no recording may hold
            return self.step(self.ids, self.place)
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.hidden = self.step(self.ids, self.place)
        self.graph.replay()
        return self.hidden
