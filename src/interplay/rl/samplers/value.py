"""V(x): what a prompt's mean reward will be, foretold from the prompt alone."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from interplay.model.value_head import ValueHead
from interplay.optim import checkpoint, optimizer
from interplay.rl.samplers.prompts import padded, pieces
from interplay.rl.samplers.sampler import Deck, Outcome
from interplay.rl.samplers.tracker import Tracker
from interplay.schema.model import Optimizer
from interplay.schema.samplers.pcl import BetaValue, ModelValue


class Value(Protocol):
    """What foretells rewards, and learns from those that came."""

    def predict(self, ids: Sequence[int]) -> np.ndarray:
        """(n,) float64."""

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """One step on the groups of a step."""

    def tensors(self) -> dict[str, Tensor]:
        """All that it learnt."""

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on where `tensors` was called."""


class NetworkValue:
    """A network that starts as the policy and makes one step of AdamW on the mean squared error for each step of the run."""

    def __init__(self, spec: ModelValue, deck: Deck, start: float) -> None:
        if deck.policy is None or deck.encode is None:
            raise ValueError("a value model needs the deck's policy and encode")
        self.encode, self.dtype, self.tokens = deck.encode, deck.dtype, deck.micro_batch_tokens
        self.network = ValueHead(deck.policy, start)
        options = Optimizer(name="adamw", learning_rate=spec.learning_rate, weight_decay=0.0)
        self.max_grad_norm = options.max_grad_norm
        self.optimizers = optimizer.build(options, self.network.named_parameters())

    def predict(self, ids: Sequence[int]) -> np.ndarray:
        """(n,) float64."""
        prompts = self.encode(ids)
        values = torch.zeros(len(ids), dtype=torch.float64)
        with torch.no_grad():
            for piece in pieces([len(prompt) for prompt in prompts], self.tokens):
                values[piece] = self._values([prompts[i] for i in piece]).double().cpu()
        return values.numpy()

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """One step on the mean over groups of (V(x) - mean reward)^2. The paper has the sum, which Adam cannot tell from it."""
        prompts = self.encode([outcome.id for outcome in outcomes])
        wanted = torch.tensor([outcome.reward for outcome in outcomes], device=self.network.head.weight.device)
        for piece in pieces([len(prompt) for prompt in prompts], self.tokens):
            values = self._values([prompts[i] for i in piece])
            ((values - wanted[piece]) ** 2).sum().div(len(outcomes)).backward()
        optimizer.step(self.optimizers, list(self.network.parameters()), self.max_grad_norm)

    def _values(self, prompts: Sequence[list[int]]) -> Tensor:
        """V (n,) float32 of n prompts, from the state of the last token."""
        ids, lengths = padded(prompts, self.network.head.weight.device)
        states = self.network.decoder.hidden(ids, torch.arange(ids.shape[1], device=ids.device)[None], dtype=self.dtype)
        return self.network(states[torch.arange(len(ids), device=ids.device), lengths - 1])

    def tensors(self) -> dict[str, Tensor]:
        """Weights and the optimiser's state."""
        return checkpoint.training_tensors(self.network, self.optimizers)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on where `tensors` was called."""
        checkpoint.restore_training(tensors, self.network, self.optimizers)


class TrackedValue:
    """The mean of a Beta distribution per prompt, each group counting as much as its completions."""

    def __init__(self, spec: BetaValue, deck: Deck, start: float) -> None:
        self.tracker = Tracker(len(deck), rho=spec.rho)

    def predict(self, ids: Sequence[int]) -> np.ndarray:
        """(n,) float64; 0.5 for a prompt that was never drawn."""
        return self.tracker.value()[list(ids)]

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Count the step's groups."""
        self.tracker.add(outcomes)

    def tensors(self) -> dict[str, Tensor]:
        """The counts."""
        return self.tracker.tensors()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on where `tensors` was called."""
        self.tracker.load(tensors)


def value(spec: ModelValue | BetaValue, deck: Deck, start: float) -> Value:
    """The member that `spec` names; `start` is V of a prompt about which nothing is known, as far as the member lets it be."""
    return NetworkValue(spec, deck, start) if isinstance(spec, ModelValue) else TrackedValue(spec, deck, start)
