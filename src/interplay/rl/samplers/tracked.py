"""Base of the members that choose by running pass rates."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interplay.rl.samplers.draws import Drawing
from interplay.rl.samplers.sampler import Deck, Outcome
from interplay.rl.samplers.tracker import Tracker


class Tracked(Drawing):
    """Feeds a tracker with what is observed, and saves it."""

    def __init__(self, deck: Deck, tracker: Tracker) -> None:
        super().__init__(deck)
        self.tracker = tracker

    def expected(self, ids: Sequence[int]) -> Tensor | None:
        """The tracker's means."""
        return torch.from_numpy(self.tracker.value()[list(ids)])

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """One visit for each outcome."""
        self.tracker.add(outcomes)

    def tensors(self) -> dict[str, Tensor]:
        """The tracker's."""
        return self.tracker.tensors()

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        super().load_state_dict(state, tensors)
        self.tracker.load(tensors)
