"""The order of rows in training, and rows as tensors."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from interplay.data.packing import Rows
from interplay.store.random import key


@lru_cache(maxsize=2)
def epoch_order(rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the rows in one pass over the corpus, (rows,)."""
    return np.random.default_rng(key("epoch", seed, epoch)).permutation(rows)


def rows_between(rows: int, seed: int, start: int, end: int) -> np.ndarray:
    """Places start..end-1 of the endless sequence of epochs, as row numbers (end - start,)."""
    places = np.arange(start, end)
    return np.concatenate([epoch_order(rows, seed, epoch)[places[places // rows == epoch] % rows] for epoch in np.unique(places // rows)])


def tokens_per_row(corpus: Rows) -> np.ndarray:
    """Tokens of each row without padding, (rows,) int64."""
    return (corpus.segments != 0).sum(1)


def steps_for(tokens: int, per_row: np.ndarray, rows_per_step: int, seed: int) -> int:
    """The least number of steps that see at least `tokens` tokens without padding, given those of each row (rows,)."""
    epochs, rest = divmod(tokens, int(per_row.sum()))
    seen = np.cumsum(per_row[epoch_order(len(per_row), seed, epochs)])
    last = int(np.searchsorted(seen, rest)) + 1 if rest else 0
    return -(-(epochs * len(per_row) + last) // rows_per_step)


class Batch(NamedTuple):
    """Rows for one forward-backward pass. B rows, T columns, M tokens that bear loss."""

    ids: Tensor
    """(B, T) int64."""
    positions: Tensor
    """(B, T) int64: distance from the start of the segment."""
    segments: Tensor | None
    """(B, T) int64; None where no row holds more than one segment: causal attention then suffices, as padding comes last."""
    before: Tensor
    """(M,) int64: flat places (b * T + t) whose next token bears loss."""
    targets: Tensor
    """(M,) int64: those next tokens."""


def batch(corpus: Rows, rows: np.ndarray, device: torch.device) -> Batch:
    """The given rows, without the columns that are padding in all of them."""
    segments = corpus.segments[rows].astype(np.int64)
    width = int((segments != 0).sum(1).max())
    segments, ids, loss = segments[:, :width], corpus.tokens[rows, :width].astype(np.int64), corpus.loss[rows, :width]
    column = np.arange(width)
    starts = np.zeros_like(segments)
    starts[:, 1:] = np.where(segments[:, 1:] != segments[:, :-1], column[1:], 0)
    positions = column - np.maximum.accumulate(starts, axis=1)
    targets = np.flatnonzero(loss)
    several = segments.max() > 1
    arrays = (ids, positions, segments if several else None, targets - 1, ids.reshape(-1)[targets])
    return Batch(*(None if array is None else torch.from_numpy(array).to(device) for array in arrays))  # type: ignore[arg-type]
