"""Every prompt of a set once per epoch."""

from typing import Any

import numpy as np
from torch import Tensor

from interplay.rl.samplers.sampler import Deck, Sampler
from interplay.schema.base import PermanentError
from interplay.schema.sampler import UniformSampler


class Uniform(Sampler):
    """Every prompt of a set once per epoch, in an order drawn from (seed, set, epoch); sets interleave by their shares of the
    mix."""

    def __init__(self, spec: UniformSampler, deck: Deck) -> None:
        """Raises PermanentError when a set that has a share of the mix has no prompt."""
        for number, (share, size) in enumerate(zip(deck.mix, deck.sizes, strict=True)):
            if share > 0 and not size:
                raise PermanentError(f"uniform: data.{number} has share {share:g} of the mix and no prompt; take it out")
        self.deck, self.sizes, self.mix = deck, deck.sizes, deck.mix
        self.starts = np.cumsum([0, *self.sizes[:-1]])
        self.taken = [0] * len(self.sizes)
        self.orders: dict[int, tuple[int, np.ndarray]] = {}

    def select(self, m: int, step: int) -> list[int]:
        """The next m ids."""
        return [self._next(self._owed()) for _ in range(m)]

    def _owed(self) -> int:
        """The set that lags furthest behind its share: any run of draws matches the mix to within one prompt per set."""
        drawn = sum(self.taken) + 1
        return int(np.argmax([share * drawn - taken for share, taken in zip(self.mix, self.taken, strict=True)]))

    def _next(self, which: int) -> int:
        epoch, place = divmod(self.taken[which], self.sizes[which])
        self.taken[which] += 1
        if self.orders.get(which, (-1,))[0] != epoch:
            self.orders[which] = (epoch, self.deck.random(which, epoch).permutation(self.sizes[which]))
        return int(self.starts[which] + self.orders[which][1][place])

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {"taken": list(self.taken)}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        self.taken = list(state["taken"])
