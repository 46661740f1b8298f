"""Phases of growing prompt length, with retrospective sampling."""

import numpy as np

from interplay.rl.samplers.draws import phase, whole
from interplay.rl.samplers.prompts import lengths
from interplay.rl.samplers.sampler import Deck
from interplay.rl.samplers.tracked import Tracked
from interplay.rl.samplers.tracker import Tracker
from interplay.schema.base import PermanentError
from interplay.schema.samplers.order import PhasesSampler


class Phases(Tracked):
    """Phase k draws prompts with L_(k-1) < length <= L_k, and a share from earlier phases by 1 / mean reward (QwenLong-L1,
    arXiv:2505.17667). Raises PermanentError when a phase has no prompts."""

    name = "phases"

    def __init__(self, spec: PhasesSampler, deck: Deck) -> None:
        super().__init__(deck, Tracker(len(deck), (0.0, 0.0)))
        self.spec = spec
        self.tracker.add(deck.offline)
        self.lengths = spec.lengths or [1.0] * len(spec.bounds)
        assert deck.encode is not None
        tokens = np.array(lengths(deck.encode, len(deck)))
        usable = np.sort(tokens[self.prior > 0])
        bounds = spec.bounds if spec.unit == "tokens" else [usable[_last(share, len(usable))] for share in spec.bounds]
        self.place = np.where(self.prior > 0, np.searchsorted(bounds, tokens), len(bounds))
        """(P,) phase of each prompt; the number of phases for those that none has."""
        for number in range(len(bounds)):
            if not (self.place == number).any():
                found = f"prompts have {usable[0]} to {usable[-1]} tokens"
                raise PermanentError(f"phases: none in phase {number + 1}, up to {bounds[number]:g} tokens: {found}; mend bounds")

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids: of the phase, and carried ones."""
        now = phase(self.progress(step), self.lengths)
        weights = np.where(self.place < now, self.prior * self._carried(), 0.0)
        count = whole(stream, self.spec.carried * m) if weights.any() else 0
        old = self.draw(stream, weights, count) if count else []
        return [*old, *self.draw(stream, np.where(self.place == now, self.prior, 0.0), m - count)]

    def _carried(self) -> np.ndarray:
        """(P,) weight of each prompt in later phases."""
        mean = self.tracker.value()
        if self.spec.carry == "weighted":
            return 1 / np.maximum(mean, 1 / self.spec.cap)
        return ((self.spec.carry == "unsolved") & self.tracker.seen & (mean == 0)).astype(float)


def _last(share: float, count: int) -> int:
    """Place of the last of the first `share` of `count` things."""
    return max(0, int(np.ceil(share * count - 1e-9)) - 1)
