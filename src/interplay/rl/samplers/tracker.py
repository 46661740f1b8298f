"""A running estimate of how often each prompt passes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from interplay.rl.samplers.sampler import Outcome


class Tracker:
    """Per prompt a Beta(a, b) whose mean is the pass rate. Rewards count as shares of a pass, clipped to [0, 1].

    A visit discounts what was known and adds its completions: a <- rho a + sum r, b <- rho b + sum (1 - r), which for one
    completion is SPO's rule (arXiv:2509.13232)."""

    def __init__(self, size: int, prior: tuple[float, float] = (0.5, 0.5), rho: float = 1.0) -> None:
        self.start, self.rho = prior, rho
        self.a, self.b = np.full(size, float(prior[0])), np.full(size, float(prior[1]))
        self.seen = np.zeros(size, dtype=bool)

    def value(self) -> np.ndarray:
        """(P,) estimates; 0.5 where nothing is known, not even a prior."""
        total = self.a + self.b
        return np.divide(self.a, total, out=np.full(len(total), 0.5), where=total > 0)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """One visit for each outcome, in order."""
        for outcome in outcomes:
            passed = sum(min(max(reward, 0.0), 1.0) for reward in outcome.rewards)
            self.a[outcome.id] = self.rho * self.a[outcome.id] + passed
            self.b[outcome.id] = self.rho * self.b[outcome.id] + outcome.n - passed
            self.seen[outcome.id] = True

    def fade(self, factor: float) -> None:
        """Draw all evidence back towards the prior, by a factor: old news count less, visited or not."""
        for values, start in ((self.a, self.start[0]), (self.b, self.start[1])):
            values += (factor - 1) * (values - start)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, as copies."""
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in ("a", "b", "seen")}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on where `tensors` was called."""
        self.a, self.b, self.seen = (tensors[name].numpy().copy() for name in ("a", "b", "seen"))
