"""Prompts by the angles of their token states, from the most alike on (GAIN-RL, arXiv:2506.02281)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from interplay.rl.samplers.angles import score_all
from interplay.rl.samplers.draws import Drawing
from interplay.rl.samplers.sampler import Deck, Outcome
from interplay.schema.sampler import GainRlSampler

FAINTEST = 1e-200
"""Share of the largest weight that no prompt falls below: however far mu moved on, there are always m prompts to draw."""


class GainRl(Drawing):
    """Draws around rank mu of the scores that the initial policy gives. They are made before the first step and saved: the policy
    that a resumed run finds is no longer the initial one."""

    name = "gain_rl"

    def __init__(self, spec: GainRlSampler, deck: Deck) -> None:
        super().__init__(deck)
        self.spec = spec
        self.scale = len(deck) / spec.reference if spec.reference else 1.0
        self.mu = self.mu_before = spec.mu * self.scale
        self.known: Tensor | None = None
        self.outcomes: list[Outcome] = []
        self.logged: dict[str, float] = {}

    def angles(self) -> Tensor:
        """(P, 2) float64: mean cosines within the question, and between question and prefix."""
        if self.known is None:
            if self.deck.policy is None or self.deck.encode is None:
                raise ValueError("gain_rl needs the deck's policy and encode")
            tokens, dtype = self.deck.micro_batch_tokens, self.deck.dtype
            self.known = score_all(self.deck.policy, self.deck.encode, len(self.deck), tokens, dtype)
        return self.known

    def ranks(self) -> np.ndarray:
        """(P,) place of each prompt by its score, the highest first; equal scores in the order of ids."""
        within, across = self.angles().numpy().T
        ranks = np.empty(len(within))
        ranks[np.argsort(-(within + self.spec.weight * across), kind="stable")] = np.arange(len(within))
        return ranks

    def weights(self) -> np.ndarray:
        """(P,) exp(-((rank - mu) / sigma)^2 / 2) times the prompt's chance by the mix, as shares of the largest."""
        centre = self.mu if self.spec.lag == "new" else self.mu_before
        exponents = -0.5 * ((self.ranks() - centre) / (self.spec.sigma * self.scale)) ** 2
        return np.maximum(np.exp(exponents - exponents.max()), FAINTEST) * self.prior

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids, without replacement."""
        return self.draw(stream, self.weights(), m)

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Keep the groups for the end of the step."""
        self.outcomes += outcomes

    def learn(self, step: int) -> None:
        """Move mu on. The angle of a step is the mean within its questions, as the initial policy saw them."""
        spec = self.spec
        reward = float(np.mean([min(max(outcome.reward, 0.0), 1.0) for outcome in self.outcomes]))
        angle = float(np.mean([float(self.angles()[outcome.id, 0]) for outcome in self.outcomes]))
        rise = spec.step * (math.tanh(spec.alpha * (reward - spec.beta)) + math.tanh(spec.alpha * angle))
        self.logged = {"mu": self.mu, "angle": angle}
        self.mu_before, self.mu = self.mu, self.mu + self.scale * min(max(rise, spec.least), spec.most)
        self.outcomes = []

    def metrics(self) -> dict[str, float]:
        """Of the last step: `mu` before its move, and `angle`, the mean cosine within the questions drawn."""
        return self.logged

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {**super().state_dict(), "mu": self.mu, "mu_before": self.mu_before}

    def tensors(self) -> dict[str, Tensor]:
        """The angles, once they are known."""
        return {} if self.known is None else {"angles": self.known}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        super().load_state_dict(state, tensors)
        self.mu, self.mu_before, self.known = state["mu"], state["mu_before"], tensors.get("angles")
