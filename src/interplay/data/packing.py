"""Whole problems packed into rows of equal length."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from interplay.core.model import UserError


class Encoded(NamedTuple):
    """Problems as tokens: prompt, solution, end of sequence, end to end."""

    tokens: np.ndarray
    """(total,) uint32."""
    lengths: np.ndarray
    """(problems,) int64, end of sequence included."""
    prompts: np.ndarray
    """(problems,) int64: tokens of the prompt."""


class Placement(NamedTuple):
    """Where each problem goes."""

    row: np.ndarray
    """(problems,) int64."""
    offset: np.ndarray
    """(problems,) int64: first column."""
    segment: np.ndarray
    """(problems,) int64: 1-based number within the row."""
    rows: int


def select(encoded: Encoded, chosen: np.ndarray) -> Encoded:
    """The problems `chosen` (N,), in that order."""
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    lengths = encoded.lengths[chosen]
    return Encoded(encoded.tokens[spans(starts[chosen], lengths)], lengths, encoded.prompts[chosen])


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The indices starts[0], ..., starts[0] + lengths[0] - 1, starts[1], ... as one array (lengths.sum(),)."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + within


def best_fit(lengths: np.ndarray, sequence_length: int) -> Placement:
    """Each problem, in order, into the open row with the least room that still suffices, or else into a new row.

    A bit mask over rooms finds that row in constant time. Raises UserError when a problem is longer than a row."""
    if len(lengths) and lengths.max() > sequence_length:
        raise UserError(
            f"corpus: sequence_length = {sequence_length}: the longest problem needs {lengths.max()} tokens; raise it"
        )
    row, offset, segment = (np.zeros(len(lengths), np.int64) for _ in range(3))
    open_rows: list[list[int]] = [[] for _ in range(sequence_length + 1)]
    """Rows by room left."""
    rooms, rows = 0, 0
    problems_in: list[int] = []
    for i, length in enumerate(lengths.tolist()):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            place = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            room, place = sequence_length, rows
            rows += 1
            problems_in.append(0)
        problems_in[place] += 1
        row[i], offset[i], segment[i] = place, sequence_length - room, problems_in[place]
        left = room - length
        if left:
            open_rows[left].append(place)
            rooms |= 1 << left
    return Placement(row, offset, segment, rows)


def fill(
    encoded: Encoded, placed: Placement, loss_on: str, isolated: bool, tokens: np.ndarray, segments: np.ndarray, loss: np.ndarray
) -> None:
    """Write the problems into `tokens`, `segments` and `loss`, each (rows, sequence_length) and zero before.

    A token bears loss when something before it predicts it: solution and end of sequence; with `all`, every token but the first
    that its attention reaches (of the problem when isolated, of the row when causal)."""
    width = tokens.shape[1]
    place = spans(placed.row * width + placed.offset, encoded.lengths)
    within = spans(np.zeros_like(encoded.lengths), encoded.lengths)
    if loss_on == "solution":
        bears = within >= np.repeat(np.maximum(encoded.prompts, 1), encoded.lengths)
    else:
        bears = (within if isolated else place % width) > 0
    tokens.reshape(-1)[place] = encoded.tokens
    segments.reshape(-1)[place] = np.repeat(placed.segment, encoded.lengths) if isolated else 1
    loss.reshape(-1)[place] = bears


class Joined:
    """Arrays of equal width, one after another, as one array (rows, width) of which rows are taken by number. Nothing is copied
    but the rows that are taken."""

    def __init__(self, parts: list[np.ndarray]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.shape = (int(self.ends[-1]), parts[0].shape[1])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """The rows of these numbers (N,), in that order: (N, width)."""
        found = np.empty((len(rows), self.shape[1]), self.parts[0].dtype)
        holders = np.searchsorted(self.ends, rows, side="right")
        for holder in np.unique(holders):
            asked, part = holders == holder, self.parts[holder]
            found[asked] = part[rows[asked] - (self.ends[holder] - len(part))]
        return found


class Rows(NamedTuple):
    """Packed rows, each array (rows, sequence_length); memory-mapped when read from a corpus, joined when read from several."""

    tokens: np.ndarray | Joined
    """Ids, uint16 or uint32, 0 where there is padding."""
    segments: np.ndarray | Joined
    """uint16: 1-based number of the problem within the row, 0 for padding."""
    loss: np.ndarray | Joined
    """uint8: 1 where the token is a target that bears loss."""


def load(paths: Sequence[Path]) -> Rows:
    """The rows of corpus artifacts, one after another. Raises UserError when a file is absent or damaged."""
    corpora = [_load(path) for path in paths]
    return corpora[0] if len(corpora) == 1 else Rows(*(Joined(list(parts)) for parts in zip(*corpora, strict=True)))


def _load(path: Path) -> Rows:
    try:
        return Rows(*(np.load(path / f"{name}.npy", mmap_mode="r") for name in Rows._fields))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as a corpus ({error}); make the stage again") from None
