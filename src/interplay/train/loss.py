"""Cross-entropy of a batch and on held-out problems by band; means over pairs in micro-batches."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from interplay.data import batches, corpus, pairs, sets
from interplay.kernels import exact
from interplay.model import attention, decoder, device as devices
from interplay.optim import distributed


def token_losses(model: decoder.Decoder, batch: batches.Batch, dtype: torch.dtype) -> Tensor:
    """Cross-entropy of each token of a batch that bears loss, (M,) float32, in nats. Of a stack (replicas, M), 0 where the batch
    is padded."""
    hidden = target_states(model, batch, dtype)
    if dtype == torch.int8:
        blocks = _blocks(batch)
        some = None if blocks is None else torch.searchsorted(batch.before, blocks)
        return -model.token_logps(hidden, batch.targets, dtype, blocks=some)
    logits = model.logits(hidden, dtype)
    each = F.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), reduction="none", ignore_index=batches.IGNORED)
    return each.view(batch.targets.shape)


def target_logits(model: decoder.Decoder, batch: batches.Batch, dtype: torch.dtype) -> Tensor:
    """The logits (M, vocab) float32 from which the tokens of a batch that bear loss are predicted; of a stack (replicas, M,
    vocab)."""
    return model.logits(target_states(model, batch, dtype), dtype)


def target_states(model: decoder.Decoder, batch: batches.Batch, dtype: torch.dtype) -> Tensor:
    """The final hidden states (M, D) from which the tokens of a batch that bear loss are predicted; of a stack (replicas, M, D).

    Matrix products run over all tokens at once and attention per bucket; the last MLP and the logits are computed for tokens that
    bear loss only."""
    weights = model.weights(dtype)
    over_runs = weights.over_runs()
    blocks = _blocks(batch)
    attend = attention.attend_buckets(over_runs, batch.buckets, blocks) if over_runs else _attend_each(weights, batch.buckets)
    rope = weights.rotary(model.shape, batch.positions, dtype)
    return decoder.forward(model.shape, weights, batch.ids, rope, attend, batch.before)


def _blocks(batch: batches.Batch) -> Tensor | None:
    return None if batch.units is None else exact.unit_blocks(batch.units)


def _attend_each(weights: decoder.Weights, sizes: list[tuple[int, int]]) -> attention.Attend:
    """Attention bucket by bucket, of all replicas of a stack together."""
    replicas = len(weights.embedding) if weights.embedding.ndim == 3 else 1
    buckets = [weights.attention((replicas * count, length)) for count, length in sizes]
    rows = [count * length for count, length in sizes]

    def attend(layer: int, qk: Tensor, v: Tensor) -> Tensor:
        parts = zip(buckets, qk.split(rows, -3), v.split(rows, -3), strict=True)
        return torch.cat([attend_bucket(layer, *part) for attend_bucket, *part in parts], -2)

    return attend


# Held-out problems.


class Validation(NamedTuple):
    """Held-out problems as tokens, sorted by length."""

    encoded: corpus.Encoded
    bands: list[str]
    band_of: np.ndarray
    """(problems,) int64: index into `bands`."""


def load_validation(data: Path, tokenizer_of: Path) -> Validation:
    """The problems of a set, encoded by the tokenizer of a folder."""
    encoded = corpus.encode_problems(data, tokenizer_of)
    bands, band_of = np.unique(sets.read_table(data, ["band"])["band"].to_pylist(), return_inverse=True)
    by_length = np.argsort(encoded.lengths, kind="stable")
    return Validation(corpus.select_problems(encoded, by_length), bands.tolist(), band_of[by_length])


@torch.no_grad()
def loss_by_band(
    model: decoder.Decoder, held_out: Validation, pass_tokens: int, dtype: torch.dtype, device: torch.device
) -> dict[str, float]:
    """Mean loss per solution token of each band, in nats, in passes of about `pass_tokens` tokens."""
    total, count = np.zeros(len(held_out.bands)), np.zeros(len(held_out.bands))
    pass_of = np.cumsum(held_out.encoded.lengths) // pass_tokens
    for number in distributed.shard_round_robin(np.unique(pass_of).tolist()):
        chosen = np.flatnonzero(pass_of == number)
        part = corpus.select_problems(held_out.encoded, chosen)
        solution = corpus.index_ranges(np.zeros_like(part.lengths), part.lengths) >= np.repeat(part.prompts, part.lengths)
        batch = batches.batch_of_sequences(batches.Sequences(part.tokens, part.lengths, solution), device)
        losses = token_losses(model, batch, dtype).double().cpu().numpy()
        losses = np.rint(losses / exact.STEP) * exact.STEP if model.sums else losses
        bands = held_out.band_of[chosen][batch.sequence]
        total += np.bincount(bands, losses, len(total))
        count += np.bincount(bands, minlength=len(count))
    for sums in (total, count):
        distributed.all_reduce_sum(torch.from_numpy(sums))
    return {band: float(total[i] / count[i]) for i, band in enumerate(held_out.bands)}


# Pairs of completions.


def mean_over_pairs(
    model: nn.Module,
    data: pairs.Pairs,
    places: np.ndarray,
    pass_tokens: int,
    pair_values: Callable[[np.ndarray], dict[str, Tensor]],
    backward: bool,
    before: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Means over the pairs `places` (N,) of the values (n,) that `pair_values` gives of each micro-batch (n,). With `backward`
    the gradient of the mean of `loss` is accumulated on the model. `before` is called ahead of the passes, with gathered
    parameters. Raises PermanentError where a micro-batch does not fit into memory."""
    sums: dict[str, float] = defaultdict(float)
    split, exactly = partial(pairs.micro_batches, data, places), getattr(model, "sums", None) is not None

    def one_pass(piece: np.ndarray) -> dict[str, Tensor]:
        with torch.set_grad_enabled(backward):
            values = pair_values(piece)
        if backward and exactly:
            values["loss"].backward(torch.full_like(values["loss"], 1.0 / len(places)))
        elif backward:
            (values["loss"].sum() / len(places)).backward()
        return values

    def attempt(tokens: int) -> None:
        one_pass(split(tokens)[0])

    with (
        distributed.accumulate_gradient(model) if backward else nullcontext(),
        devices.report_out_of_memory("micro_batch_tokens", pass_tokens, attempt),
    ):
        before()
        for piece in distributed.shard_micro_batches(split, pass_tokens, len(places)):
            for name, value in one_pass(piece).items():
                sums[name] += exact.total(value) if exactly else value.detach().double().sum().item()
    return {name: total / len(places) for name, total in distributed.all_reduce_dict(sums).items()}
