"""AdaRFT (arXiv:2504.05520): draw what is nearest to a difficulty that rises with high rewards and falls with low ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interplay.rl.samplers.draws import Drawing
from interplay.rl.samplers.sampler import Deck, Outcome
from interplay.rl.samplers.tracker import Tracker
from interplay.schema.samplers.ada_rft import AdaRftSampler


class AdaRft(Drawing):
    """Equally near prompts come in random order; sets without a share of the mix do not come, else difficulty alone decides."""

    name = "ada_rft"

    def __init__(self, spec: AdaRftSampler, deck: Deck) -> None:
        super().__init__(deck)
        self.spec, self.target = spec, spec.target
        self.difficulty = _difficulty(spec, deck)
        self.drawn = np.zeros(len(deck), dtype=bool)
        """Of this pass over the prompts."""
        self.rewards: list[float] = []
        """Of this step's groups."""

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids."""
        ids: list[int] = []
        while len(ids) < m:
            left = np.flatnonzero((self.prior > 0) & ~self.drawn)
            if not len(left):
                self.drawn[:] = False
                continue
            near = np.lexsort((stream.permutation(len(left)), np.abs(self.difficulty[left] - self.target)))
            nearest = left[near[: m - len(ids)]]
            self.drawn[nearest] = True
            ids += nearest.tolist()
        return ids

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Keep the groups for the end of the step."""
        self.rewards += [outcome.reward for outcome in outcomes]

    def learn(self, step: int) -> None:
        """Move the target."""
        mean = float(np.mean(self.rewards))
        moved = self.target + self.spec.eta * np.tanh(self.spec.alpha * (mean - self.spec.beta))
        self.target, self.rewards = float(np.clip(moved, 0, 100)), []

    def metrics(self) -> dict[str, float]:
        """`target`: T as the next step will have it."""
        return {"target": self.target}

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return super().state_dict() | {"target": self.target, "rewards": list(self.rewards)}

    def tensors(self) -> dict[str, Tensor]:
        """What was drawn."""
        return {"drawn": torch.from_numpy(self.drawn.copy())}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        super().load_state_dict(state, tensors)
        self.target, self.rewards = state["target"], list(state["rewards"])
        self.drawn = tensors["drawn"].numpy().copy()


def _difficulty(spec: AdaRftSampler, deck: Deck) -> np.ndarray:
    """(P,) in [0, 100]."""
    if spec.by == "op":
        ops = np.array([row.op for row in deck.rows], dtype=np.float64)
        return 100 * (ops - ops.min()) / max(np.ptp(ops), 1)
    tracker = Tracker(len(deck), prior=(0, 0))
    tracker.add(deck.offline)
    return 100 * (1 - tracker.value())
