"""What samplers share that draw by weight: a random stream for each call, and draws without replacement.

The mix is a prior: a prompt weighs the share of its set over the set's size, and a member multiplies that by what it knows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from interplay.rl.samplers.sampler import Deck, Sampler
from interplay.schema.base import PermanentError


def prior(deck: Deck) -> np.ndarray:
    """(P,) float64, sums to 1: chance of each prompt when the sets are drawn by the mix and prompts uniformly within a set."""
    each = [share / size if size else 0.0 for share, size in zip(deck.mix, deck.sizes, strict=True)]
    return np.repeat(each, deck.sizes)


def weighted(stream: np.random.Generator, weights: np.ndarray, m: int) -> list[int]:
    """m places (fewer where fewer weigh anything), drawn one after another without replacement, each in proportion to `weights`
    (P,). The m smallest of E / weight with E exponential are just that (Efraimidis and Spirakis, 2006)."""
    waits = np.full(len(weights), np.inf)
    some = weights > 0
    waits[some] = stream.standard_exponential(len(weights))[some] / weights[some]
    count = min(m, int(some.sum()))
    first = np.argpartition(waits, count - 1)[:count] if count else np.empty(0, dtype=np.int64)
    return [int(i) for i in first[np.argsort(waits[first], kind="stable")]]


def phase(progress: float, lengths: Sequence[float]) -> int:
    """Which of the phases, whose lengths are in proportion to the run, holds `progress` in [0, 1)."""
    ends = np.cumsum(lengths) / sum(lengths)
    return min(int(np.searchsorted(ends, progress + 1e-9, side="right")), len(lengths) - 1)


def whole(stream: np.random.Generator, count: float) -> int:
    """A whole number whose mean is `count`: shares also hold where a call asks for one prompt."""
    return int(count + stream.random())


class Drawing(Sampler):
    """Base of the members that draw by weight. What a step has taken it takes again only when nothing else is left."""

    name: str

    def __init__(self, deck: Deck) -> None:
        self.deck, self.prior = deck, prior(deck)
        self.step, self.calls = 0, 0
        self.taken: list[int] = []

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids, by a stream that no other call sees."""
        raise NotImplementedError

    def select(self, m: int, step: int) -> list[int]:
        """m ids in an order that says nothing. The stream is keyed by (seed, name, step, number of the call in the step)."""
        if step != self.step:
            self.step, self.calls, self.taken = step, 0, []
        self.calls += 1
        stream = self.deck.random(self.name, step, self.calls)
        ids = [int(i) for i in stream.permutation(self.choose(m, step, stream))]
        self.taken += ids
        return ids

    def draw(self, stream: np.random.Generator, weights: np.ndarray, m: int) -> list[int]:
        """m ids in proportion to `weights` (P,), without replacement within the step as long as there are any; then round
        again. Raises PermanentError when nothing weighs anything."""
        if not weights.any():
            raise PermanentError(f"{self.name}: no prompt can be drawn at step {self.step}; look at the sampler's options")
        left = weights.copy()
        left[self.taken] = 0
        ids: list[int] = []
        while len(ids) < m:
            ids += weighted(stream, left, m - len(ids))
            left = weights
        return ids

    def progress(self, step: int) -> float:
        """Share of the run that lies behind: 0 at the first step."""
        return (step - 1) / self.deck.steps

    def state_dict(self) -> dict[str, Any]:
        """JSON data: where in its step the run is."""
        return {"step": self.step, "calls": self.calls, "taken": list(self.taken)}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        self.step, self.calls, self.taken = state["step"], state["calls"], list(state["taken"])
