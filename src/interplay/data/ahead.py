"""The next step's data are made while this step's are learnt from."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Ahead(Generic[T]):
    """What `make` gives of each of the numbers up to `last`, asked for in order. Where the steps themselves leave the processor
    free, as on a GPU, a thread makes the next one meanwhile."""

    def __init__(self, make: Callable[[int], T], last: int, device: torch.device) -> None:
        self.make, self.last = make, last
        # Each thread has a current GPU of its own, at first number 0, whichever its process works on.
        here = partial(torch.cuda.set_device, device)
        self.pool = ThreadPoolExecutor(1, "ahead", initializer=here) if device.type == "cuda" else None
        self.waiting: dict[int, Future[T]] = {}

    def __call__(self, number: int) -> T:
        """Of this number."""
        made = self.waiting.pop(number).result() if number in self.waiting else self.make(number)
        if self.pool and number < self.last:
            self.waiting = {number + 1: self.pool.submit(self.make, number + 1)}
        return made
