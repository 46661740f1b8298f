"""A mixture over kinds of prompts that is learned by a bandit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interplay.rl.advantages.group import compared
from interplay.rl.samplers.draws import Drawing
from interplay.rl.samplers.sampler import Deck, Outcome
from interplay.schema.advantage import GroupAdvantage
from interplay.schema.samplers.adaptive import LearnedMixtureSampler


class LearnedMixture(Drawing):
    """Q(c) <- alpha r(c) + (1 - alpha) Q(c), from 0; p(c) is softmax(Q / temperature) (SEC, arXiv:2505.14970, and its
    release). It learns after every call, of which a step with dynamic sampling has several."""

    name = "learned_mixture"

    def __init__(self, spec: LearnedMixtureSampler, deck: Deck) -> None:
        super().__init__(deck)
        self.spec = spec
        labels = [getattr(row, spec.by) for row in deck.rows]
        self.kinds = sorted({label for label, mass in zip(labels, self.prior, strict=True) if mass > 0})
        places = {kind: place for place, kind in enumerate(self.kinds)}
        self.place = np.array([places.get(label, -1) for label in labels])
        """(P,) place of each prompt's kind in `kinds`; -1 where the mix draws none of it."""
        self.value = np.zeros(len(self.kinds))
        self.mean: list[float | None] = [None] * len(self.kinds)
        """Mean reward of each kind when it was last drawn."""

    def chances(self) -> np.ndarray:
        """(K,) of each kind."""
        heat = np.exp((self.value - self.value.max()) / self.spec.temperature)
        return heat / heat.sum()

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids: the kinds are drawn anew for each, the prompts of a kind by the mix and without replacement."""
        counts = stream.multinomial(m, self.chances())
        each = [(np.where(self.place == kind, self.prior, 0.0), int(count)) for kind, count in enumerate(counts) if count]
        return [i for weights, count in each for i in self.draw(stream, weights, count)]

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Move Q towards what the kinds were worth."""
        worth = self._advantage(outcomes) if self.spec.reward == "advantage" else self._progress(outcomes)
        alpha = self.spec.alpha
        if self.spec.undrawn == "decay":
            worth = {kind: worth.get(kind, 0.0) for kind in range(len(self.kinds))}
        for kind, value in worth.items():
            self.value[kind] = alpha * value + (1 - alpha) * self.value[kind]

    def _advantage(self, outcomes: Sequence[Outcome]) -> dict[int, float]:
        """Kind -> mean |advantage| of its completions."""
        rewards = torch.tensor([reward for outcome in outcomes for reward in outcome.rewards], dtype=torch.float64)
        groups = torch.tensor([number for number, outcome in enumerate(outcomes) for _ in outcome.rewards])
        size = compared(GroupAdvantage(scale_rewards=self.spec.scale_rewards), rewards, groups).float().abs()
        kinds = self.place[[outcomes[number].id for number in groups.tolist()]]
        return {int(kind): float(size[torch.from_numpy(kinds == kind)].mean()) for kind in np.unique(kinds)}

    def _progress(self, outcomes: Sequence[Outcome]) -> dict[int, float]:
        """Kind -> |change of its mean reward|, for kinds that were drawn before."""
        rewards: dict[int, list[float]] = {}
        for outcome in outcomes:
            rewards.setdefault(int(self.place[outcome.id]), []).extend(outcome.rewards)
        changes = {}
        for kind, found in rewards.items():
            mean, before = sum(found) / len(found), self.mean[kind]
            self.mean[kind] = mean
            if before is not None:
                changes[kind] = abs(mean - before)
        return changes

    def metrics(self) -> dict[str, float]:
        """Of each kind, Q after the last step and the chance to be drawn next."""
        chances = self.chances()
        found: dict[str, float] = {}
        for place, kind in enumerate(self.kinds):
            found |= {f"value/{kind}": float(self.value[place]), f"chance/{kind}": float(chances[place])}
        return found

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {**super().state_dict(), "value": self.value.tolist(), "mean": list(self.mean)}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        super().load_state_dict(state, tensors)
        self.value, self.mean = np.array(state["value"]), list(state["mean"])
