"""What the policy says about completions it is given: the forward pass of RL, cut into micro-batches."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from interplay.model.decoder import Decoder
from interplay.rl.batch import Batch


class Scores(NamedTuple):
    """`logp` (n,T) float32 of each token, and the `entropy` (n,T) in nats of the distribution it came from; 0 past a
    completion."""

    logp: Tensor
    entropy: Tensor | None


def micro_batches(batch: Batch, rows: Tensor, tokens: int) -> list[Tensor]:
    """Cut `rows` (M,) int64 into pieces of at most `tokens` tokens, padding counted (a row longer than that stands alone).
    Long rows come first, so that the rows of a piece have about one length and little is padded."""
    length = torch.tensor([len(p) for p in batch.prompts])[rows] + batch.lengths[rows]
    order = torch.argsort(length, descending=True, stable=True)
    pieces, start = [], 0
    while start < len(rows):
        size = max(1, tokens // int(length[order[start]]))
        pieces.append(rows[order[start : start + size]])
        start += size
    return pieces


def scores(
    decoder: Decoder, batch: Batch, rows: Tensor, temperature: float, dtype: torch.dtype, with_entropy: bool = False
) -> Scores:
    """Score the completions of `rows` (n,) int64 at the sampling temperature, on the CPU. T is the batch's.

    Logits are made at the completions' places only: of the rest, prompt and padding, nobody asks for a distribution."""
    ids, positions, source, where = _inputs(batch, rows)
    device = decoder.head().device
    hidden = decoder.hidden(ids.to(device), positions.to(device), None, dtype)
    logits = decoder.logits(hidden.flatten(0, 1)[source.to(device)])
    logs = log_softmax(logits / temperature, dim=-1)
    tokens = batch.tokens[rows]
    chosen = logs.gather(1, tokens[where][:, None].to(device))[:, 0]
    logp = torch.zeros(tokens.shape).masked_scatter(where, chosen.cpu())
    if not with_entropy:
        return Scores(logp, None)
    return Scores(logp, torch.zeros(tokens.shape).masked_scatter(where, -(logs.exp() * logs).sum(1).cpu()))


def _inputs(batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Token ids (n,L) and positions (1,L) of prompt + completion padded on the right (causal attention never looks there); for
    each token of a completion, row by row, the flat place (M,) in (n,L) whose output predicts it; and which of (n,T) hold such
    tokens."""
    prompts = [batch.prompts[i] for i in rows.tolist()]
    starts = torch.tensor([len(p) for p in prompts])
    lengths = batch.lengths[rows]
    width = int((starts + lengths).max())
    where = torch.arange(batch.tokens.shape[1]) < lengths[:, None]
    places = (starts[:, None] + torch.arange(batch.tokens.shape[1]))[where]
    of_row = torch.arange(len(rows)).repeat_interleave(lengths)
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    for i, prompt in enumerate(prompts):
        ids[i, : len(prompt)] = torch.tensor(prompt)
    ids[of_row, places] = batch.tokens[rows][where]
    return ids, torch.arange(width)[None], of_row * width + places - 1, where
