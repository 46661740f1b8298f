"""Easy to hard, and hard first: prompts in order of difficulty, more of them open as the run goes on."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from interplay.rl.samplers.draws import Drawing
from interplay.rl.samplers.prompts import lengths
from interplay.rl.samplers.sampler import Deck, Outcome
from interplay.rl.samplers.tracker import Tracker
from interplay.schema.base import PermanentError
from interplay.schema.samplers.order import EasyToHardSampler, HardFirstSampler, Paced


def opened(spec: Paced, progress: float) -> float:
    """Share of the prompts that is open at `progress` of the run."""
    done = min(progress / spec.until, 1.0)
    if spec.pacing == "linear":
        return spec.start + (1 - spec.start) * done
    if spec.pacing == "root":
        return float(np.sqrt(spec.start**2 + (1 - spec.start**2) * done))
    level = min(int(done * (spec.stages - 1) + 1e-9), spec.stages - 1)
    return spec.start + (1 - spec.start) * level / (spec.stages - 1)


class PacedSampler(Drawing):
    """Draws by the mix among the prompts that are open; which of equally hard prompts is opened first is drawn from the seed."""

    def __init__(self, spec: EasyToHardSampler | HardFirstSampler, deck: Deck) -> None:
        super().__init__(deck)
        self.spec, self.name = spec, spec.name
        self.ties = deck.random(self.name, "ties").permutation(len(deck))
        self.tracker = Tracker(len(deck)) if spec.by == "pass_rate" else None
        if self.tracker:
            self.tracker.add(deck.offline)

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m of the open prompts: the first in order, up to the share of the mix that is open."""
        order = self._order() if self.tracker else self._fixed_order
        mass = self.prior[order].cumsum()
        count = int(np.searchsorted(mass, opened(self.spec, self.progress(step)) - 1e-9)) + 1
        weights = np.zeros(len(self.prior))
        weights[order[:count]] = self.prior[order[:count]]
        return self.draw(stream, weights, m)

    @cached_property
    def _fixed_order(self) -> np.ndarray:
        return self._order()

    def _order(self) -> np.ndarray:
        """Ids by difficulty, in the direction of the member."""
        hardness = self._hardness()
        return np.lexsort((self.ties, hardness if self.spec.name == "easy_to_hard" else -hardness))

    def _hardness(self) -> np.ndarray:
        if self.tracker:
            return 1 - self.tracker.value()
        if self.spec.by == "length":
            assert self.deck.encode is not None
            return np.array(lengths(self.deck.encode, len(self.deck)))
        if self.spec.bands is None:
            return np.array([row.op for row in self.deck.rows])
        places = {band: place for place, band in enumerate(self.spec.bands)}
        if unknown := sorted({row.band for row in self.deck.rows} - set(places)):
            raise PermanentError(f"{self.name}: bands {self.spec.bands} lack '{unknown[0]}', which some prompts have")
        return np.array([places[row.band] for row in self.deck.rows])

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Only an order by pass rate learns."""
        if self.tracker:
            self.tracker.add(outcomes)

    def tensors(self) -> dict[str, Tensor]:
        """The pass rates, where they count."""
        return self.tracker.tensors() if self.tracker else {}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        super().load_state_dict(state, tensors)
        if self.tracker:
            self.tracker.load(tensors)
