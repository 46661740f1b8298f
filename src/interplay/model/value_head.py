"""A decoder that says a number where a language model says a word."""

import copy

import torch
from torch import Tensor, nn

from interplay.model.decoder import Decoder


class ValueHead(nn.Module):
    """A copy of a decoder with a linear head on its states. The head begins at 0 and its bias at `start`, so that before the
    first step all states are alike."""

    def __init__(self, policy: Decoder, start: float = 0.0) -> None:
        super().__init__()
        self.decoder = copy.deepcopy(policy).requires_grad_(True)
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights that are replaced at once
            self.head = nn.Linear(policy.shape.hidden_size, 1).to(policy.head().device)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, start)

    def forward(self, states: Tensor) -> Tensor:
        """Values (...) float32 of states (..., D)."""
        return self.head(states.float())[..., 0]
