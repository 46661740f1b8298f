"""Loss on held-out problems, by band."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from interplay.data import batches, corpus, packing, sets
from interplay.data.packing import Encoded
from interplay.model.decoder import Decoder
from interplay.optim import ranks
from interplay.train.loss import token_losses


class Validation(NamedTuple):
    """Held-out problems as tokens, sorted by length."""

    encoded: Encoded
    bands: list[str]
    band_of: np.ndarray
    """(problems,) int64: index into `bands`."""


def load(data: Path, tokenizer_of: Path) -> Validation:
    """The problems of a set."""
    encoded = corpus.encode(data, tokenizer_of)
    bands, band_of = np.unique(sets.load(data, ["band"])["band"].to_pylist(), return_inverse=True)
    by_length = np.argsort(encoded.lengths, kind="stable")
    return Validation(packing.select(encoded, by_length), bands.tolist(), band_of[by_length])


@torch.no_grad()
def loss_by_band(
    model: Decoder, held_out: Validation, pass_tokens: int, dtype: torch.dtype, device: torch.device
) -> dict[str, float]:
    """Mean loss per solution token of each band, in nats; about `pass_tokens` tokens go through the model at a time."""
    total, count = np.zeros(len(held_out.bands)), np.zeros(len(held_out.bands))
    pass_of = np.cumsum(held_out.encoded.lengths) // pass_tokens
    for number in ranks.mine(np.unique(pass_of).tolist()):
        chosen = np.flatnonzero(pass_of == number)
        part = packing.select(held_out.encoded, chosen)
        solution = packing.spans(np.zeros_like(part.lengths), part.lengths) >= np.repeat(part.prompts, part.lengths)
        batch = batches.layout(part.tokens, part.lengths, solution, device)
        losses = token_losses(model, batch, dtype).double().cpu().numpy()
        bands = held_out.band_of[chosen][batch.sequence]
        total += np.bincount(bands, losses, len(total))
        count += np.bincount(bands, minlength=len(count))
    for sums in (total, count):
        ranks.add_up(torch.from_numpy(sums))
    return {band: float(total[i] / count[i]) for i, band in enumerate(held_out.bands)}
