"""The order of rows in training, and sequences as tensors."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from interplay.core.random import generator
from interplay.data.packing import Rows, spans

CHUNK = 1 << 14
"""Rows that are counted at a time."""
MIN_BUCKET = 512
"""Tokens that a bucket holds at least, the last one excepted."""


@lru_cache(maxsize=2)
def epoch_order(rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the rows in one pass over the corpus, (rows,)."""
    return generator("epoch", seed, epoch).permutation(rows)


def rows_between(rows: int, seed: int, start: int, end: int) -> np.ndarray:
    """Places start..end-1 of the endless sequence of epochs, as row numbers (end - start,)."""
    places = np.arange(start, end)
    return np.concatenate(
        [epoch_order(rows, seed, epoch)[places[places // rows == epoch] % rows] for epoch in np.unique(places // rows)]
    )


def tokens_per_row(corpus: Rows) -> np.ndarray:
    """Tokens of each row without padding, (rows,) int64; a few rows at a time, since a corpus may exceed memory."""
    rows = corpus.segments.shape[0]
    chunks = (np.arange(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK))
    return np.concatenate([(corpus.segments[chunk] != 0).sum(1) for chunk in chunks])


def steps_for(tokens: int, per_row: np.ndarray, rows_per_step: int, seed: int) -> int:
    """The least number of steps that see at least `tokens` tokens without padding, given those of each row (rows,)."""
    epochs, rest = divmod(tokens, int(per_row.sum()))
    seen = np.cumsum(per_row[epoch_order(len(per_row), seed, epochs)])
    last = int(np.searchsorted(seen, rest)) + 1 if rest else 0
    return -(-(epochs * len(per_row) + last) // rows_per_step)


class Batch(NamedTuple):
    """Sequences for one pass, laid end to end in buckets of similar length. N tokens, padding included; M of them bear loss."""

    ids: Tensor
    """(N,) int64."""
    positions: Tensor
    """(N,) int64: distance from the start of the sequence."""
    buckets: list[tuple[int, int]]
    """(sequences, length) of each bucket, in order: sequences * length tokens, shorter sequences padded at their end."""
    before: Tensor
    """(M,) int64: places in 0..N-1 whose next token bears loss."""
    targets: Tensor
    """(M,) int64: those next tokens."""
    sequence: np.ndarray
    """(M,) int64: the sequence each target belongs to, numbered as given to `layout`."""


def of_rows(corpus: Rows, rows: np.ndarray, device: torch.device, jumps: np.ndarray | None = None) -> Batch:
    """The given rows, each run of equal segment numbers as a sequence of its own: with isolated packing nothing joins the
    problems of a row, so that attention, whose cost grows with the square of the length, need not span the row. Positions from a
    token on are raised by its entry in jumps (rows, T)."""
    segments = corpus.segments[rows]
    real = segments != 0
    starts = real.copy()
    starts[:, 1:] &= segments[:, 1:] != segments[:, :-1]
    first = np.flatnonzero(starts[real])
    lengths = np.diff(first, append=real.sum())
    return layout(
        corpus.tokens[rows][real], lengths, corpus.loss[rows][real] != 0, device, None if jumps is None else jumps[real]
    )


def layout(
    tokens: np.ndarray, lengths: np.ndarray, bears: np.ndarray, device: torch.device, jumps: np.ndarray | None = None
) -> Batch:
    """Sequences of the given lengths, whose tokens, loss flags and jumps stand end to end (sum of lengths,), as a batch."""
    order = np.argsort(-lengths, kind="stable")
    buckets = bucket(lengths[order].tolist())
    widths = np.repeat([length for _, length in buckets], [count for count, _ in buckets])
    source = spans((np.cumsum(lengths) - lengths)[order], lengths[order])
    place = spans(np.cumsum(widths) - widths, lengths[order])
    ids = np.zeros(int(widths.sum()), np.int64)
    ids[place] = tokens[source]
    targets = place[bears[source]]
    sequence = np.repeat(order, lengths[order])[bears[source]]
    positions = spans(np.zeros_like(widths), widths)
    if jumps is not None:
        positions[place] += _since_start(jumps, lengths)[source]
    before, following = targets - 1, ids[targets]
    flat = [_on(device, torch.from_numpy(array)) for array in (ids, positions, before, following)]
    return Batch(flat[0], flat[1], buckets, flat[2], flat[3], sequence)


def _on(device: torch.device, tensor: Tensor) -> Tensor:
    """To a GPU from pinned memory, so that nobody waits for the copy."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _since_start(jumps: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Running sum of jumps (sum of lengths,) within each sequence."""
    total = np.cumsum(jumps)
    starts = np.cumsum(lengths) - lengths
    return total - np.repeat((total - jumps)[starts], lengths)


def bucket(lengths: list[int]) -> list[tuple[int, int]]:
    """Cut descending lengths into buckets of (sequences, longest length).

    A bucket ends where padding would pass an eighth of a sequence, once it holds MIN_BUCKET tokens: small ones save nothing."""
    buckets, count, longest = [], 0, lengths[0]
    for length in lengths:
        if 8 * length < 7 * longest and count * longest >= MIN_BUCKET:
            buckets.append((count, longest))
            count, longest = 0, length
        count += 1
    return [*buckets, (count, longest)]


# The next step's data are made while this step's are learnt from.


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
