"""Prompt curriculum learning (PCL, arXiv:2510.01135): draw what V(x) puts nearest to a threshold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interplay.rl.samplers.sampler import Deck, Outcome, Sampler
from interplay.rl.samplers.uniform import Uniform
from interplay.rl.samplers.value import value
from interplay.schema.sampler import PclSampler, UniformSampler


class Pcl(Sampler):
    """Of `candidates` * m prompts, drawn as the uniform sampler draws them, the m with the smallest |V(x) - tau|."""

    def __init__(self, spec: PclSampler, deck: Deck) -> None:
        self.spec = spec
        self.pool = Uniform(UniformSampler(), deck)
        self.value = value(spec.value, deck, spec.tau)
        self.foretold: dict[int, float] = {}
        """V of this step's candidates."""
        self.outcomes: list[Outcome] = []
        """Of this step's groups."""
        self.logged: dict[str, float] = {}

    def select(self, m: int, step: int) -> list[int]:
        """m ids, the nearest to tau first and equal ones in the order drawn. No prompt twice, unless a set that is smaller than
        the candidates leaves fewer than m."""
        candidates = list(dict.fromkeys(self.pool.select(self.spec.candidates * m, step)))
        values = self.value.predict(candidates)
        self.foretold |= dict(zip(candidates, values.tolist(), strict=True))
        order = np.argsort(np.abs(values - self.spec.tau), kind="stable")
        return [candidates[order[place % len(order)]] for place in range(m)]

    def expected(self, ids: Sequence[int]) -> Tensor | None:
        """V."""
        return torch.tensor([self.foretold[i] for i in ids], dtype=torch.float64)

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Keep the groups for the end of the step."""
        self.outcomes += outcomes

    def learn(self, step: int) -> None:
        """Teach V the step's rewards: it foretells the next step's as they were under the policy of this one."""
        self.logged = self._measure()
        self.value.learn(self.outcomes)
        self.foretold, self.outcomes = {}, []

    def _measure(self) -> dict[str, float]:
        rewards = np.array([outcome.reward for outcome in self.outcomes])
        errors = rewards - [self.foretold[outcome.id] for outcome in self.outcomes]
        spread = rewards.var()
        return {
            "value": float(np.mean(list(self.foretold.values()))),
            "error": float(np.sqrt((errors**2).mean())),
            "explained_variance": float(1 - errors.var() / spread) if spread else 0.0,
        }

    def metrics(self) -> dict[str, float]:
        """Of the last step: `value`, mean V of the candidates; of the groups drawn, `error`, root mean square of reward - V, and
        `explained_variance`, 1 - var(reward - V) / var(reward). The groups are those whose V is nearest to tau, among which V
        hardly varies: a V that foretells well shows in a small error there and in explained variance at its start only."""
        return self.logged

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return self.pool.state_dict()

    def tensors(self) -> dict[str, Tensor]:
        """What V learnt."""
        return self.value.tensors()

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        self.pool.load_state_dict(state, {})
        self.value.load(tensors)
