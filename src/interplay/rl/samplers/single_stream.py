"""The prioritised sampler of single-stream policy optimisation."""

import numpy as np

from interplay.rl.samplers.sampler import Deck
from interplay.rl.samplers.tracked import Tracked
from interplay.rl.samplers.tracker import Tracker
from interplay.schema.samplers.adaptive import SingleStreamSampler


class SingleStream(Tracked):
    """Weight sqrt(v (1 - v)) + floor over all prompts (SPO, arXiv:2509.13232; its release, which unlike the paper does not
    divide by a power of the effective count)."""

    name = "single_stream"

    def __init__(self, spec: SingleStreamSampler, deck: Deck) -> None:
        super().__init__(deck, Tracker(len(deck), (0.5, 0.5), spec.rho))
        self.spec = spec
        # a + b begins at 1 / (1 - rho), which is where a prompt that is visited again and again settles.
        total = 1 / (1 - spec.rho)
        for outcome in deck.offline:
            passed = sum(min(max(reward, 0.0), 1.0) for reward in outcome.rewards)
            self.tracker.a[outcome.id] = total * (passed + 0.5) / (outcome.n + 1)
            self.tracker.b[outcome.id] = total * (outcome.n - passed + 0.5) / (outcome.n + 1)

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids by weight, without replacement."""
        rate = self.tracker.value()
        return self.draw(stream, self.prior * (np.sqrt(rate * (1 - rate)) + self.spec.floor), m)
