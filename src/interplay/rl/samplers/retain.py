"""Retain the hardest: fewer and fewer prompts, those that fail most."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from interplay.rl.samplers.draws import phase
from interplay.rl.samplers.sampler import Deck
from interplay.rl.samplers.tracked import Tracked
from interplay.rl.samplers.tracker import Tracker
from interplay.schema.samplers.adaptive import RetainHardestSampler


class RetainHardest(Tracked):
    """Keeps the hardest of what the phase before kept when a phase begins (DRIVE, arXiv:2511.06307). A prompt that was
    never drawn counts as passing half of the time; which of equals stays is drawn from the seed."""

    name = "retain_hardest"

    def __init__(self, spec: RetainHardestSampler, deck: Deck) -> None:
        super().__init__(deck, Tracker(len(deck), (0.5, 0.5), spec.rho))
        self.spec = spec
        self.tracker.add(deck.offline)
        self.ties = deck.random(self.name, "ties").permutation(len(deck))
        self.phase = -1
        self.kept = self.prior > 0
        self.size = int(self.kept.sum())
        """Prompts that can be drawn at all."""

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m of the prompts that the phase keeps."""
        now = phase(self.progress(step), [part.steps for part in self.spec.schedule])
        if now != self.phase:
            self.phase, self.kept = now, self._hardest(self.spec.schedule[now].keep)
        return self.draw(stream, np.where(self.kept, self.prior, 0.0), m)

    def _hardest(self, keep: float) -> np.ndarray:
        """(P,) bool."""
        count = max(1, round(keep * self.size if keep <= 1 else keep))
        order = np.lexsort((self.ties, self.tracker.value(), ~self.kept))
        stays = np.zeros_like(self.kept)
        stays[order[: min(count, int(self.kept.sum()))]] = True
        return stays

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {**super().state_dict(), "phase": self.phase}

    def tensors(self) -> dict[str, Tensor]:
        """Pass rates, and who is kept."""
        return {**super().tensors(), "kept": torch.from_numpy(self.kept.copy())}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        super().load_state_dict(state, tensors)
        self.phase, self.kept = state["phase"], tensors["kept"].numpy().copy()
