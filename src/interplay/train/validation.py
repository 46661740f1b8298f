"""Loss on held-out problems, by band."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from interplay.data import batches, corpus, packing, problems
from interplay.data.packing import Rows
from interplay.model.decoder import Decoder
from interplay.train.loss import token_losses


class Validation(NamedTuple):
    """Packed held-out problems and the band of each token that bears loss."""

    rows: Rows
    bands: list[str]
    band_of: np.ndarray
    """(rows, T) int64: index into `bands` at each token of a problem."""


def load(data: Path, tokenizer_of: Path, sequence_length: int) -> Validation:
    """The problems of a set, isolated from each other in rows at least `sequence_length` long, loss on the solutions."""
    encoded = corpus.encode(data, tokenizer_of)
    placed = packing.best_fit(encoded.lengths, max(sequence_length, int(encoded.lengths.max())))
    shape = placed.rows, max(sequence_length, int(encoded.lengths.max()))
    rows = Rows(np.zeros(shape, np.uint32), np.zeros(shape, np.uint16), np.zeros(shape, np.uint8))
    packing.fill(encoded, placed, "solution", True, *rows)
    bands, numbers = np.unique(problems.load(data, ["band"])["band"].to_pylist(), return_inverse=True)
    band_of = np.zeros(shape, np.int64)
    band_of.reshape(-1)[packing.spans(placed.row * shape[1] + placed.offset, encoded.lengths)] = np.repeat(numbers, encoded.lengths)
    return Validation(rows, bands.tolist(), band_of)


@torch.no_grad()
def loss_by_band(model: Decoder, held_out: Validation, rows_per_pass: int, dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    """Mean loss per solution token of each band, in nats."""
    total, count = np.zeros(len(held_out.bands)), np.zeros(len(held_out.bands))
    for start in range(0, len(held_out.rows.tokens), rows_per_pass):
        rows = np.arange(start, min(start + rows_per_pass, len(held_out.rows.tokens)))
        one = batches.batch(held_out.rows, rows, device)
        losses = token_losses(model, one, dtype)
        bands = held_out.band_of[rows][held_out.rows.loss[rows] != 0]
        total += np.bincount(bands, losses.double().cpu().numpy(), len(total))
        count += np.bincount(bands, minlength=len(count))
    return {band: float(total[i] / count[i]) for i, band in enumerate(held_out.bands)}
