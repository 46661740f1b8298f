"""Sampler seam: which prompts a step draws. `select(m, step) -> ids`, `observe(ids, tries, passes)`, `state_dict`,
`load_state_dict`.

An id is a row of the problem sets joined in the order of their roles."""

from collections.abc import Callable, Sequence

import numpy as np

from interplay.rl import custom
from interplay.schema.rl import Sampler, UniformSampler
from interplay.store.random import key


class Uniform:
    """Every prompt of a set once per epoch, in an order drawn from (seed, set, epoch); sets interleave by their shares of the
    mix."""

    def __init__(self, spec: UniformSampler, sizes: list[int], mix: list[float], seed: int) -> None:
        self.sizes, self.mix, self.seed = sizes, mix, seed
        self.starts = np.cumsum([0, *sizes[:-1]])
        self.taken = [0] * len(sizes)
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
            generator = np.random.Generator(np.random.PCG64(key(self.seed, "sampler", which, epoch)))
            self.orders[which] = (epoch, generator.permutation(self.sizes[which]))
        return int(self.starts[which] + self.orders[which][1][place])

    def observe(self, ids: Sequence[int], tries: Sequence[int], passes: Sequence[int]) -> None:
        """Results do not matter to a uniform sampler."""

    def state_dict(self) -> dict:
        """JSON data."""
        return {"taken": list(self.taken)}

    def load_state_dict(self, state: dict) -> None:
        """Go on where `state_dict` was taken."""
        self.taken = list(state["taken"])


MEMBERS: dict[str, Callable[..., Uniform | custom.Sampler]] = {"uniform": Uniform, "custom": custom.Sampler}


def sampler(spec: Sampler, sizes: list[int], mix: list[float], seed: int) -> Uniform | custom.Sampler:
    """The member that `spec` names, over sets of these sizes, drawn in the shares `mix`."""
    return MEMBERS[spec.name](spec, sizes, mix, seed)
