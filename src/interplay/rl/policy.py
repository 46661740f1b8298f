"""What the policy says about completions it is given: the forward pass of RL, cut into micro-batches."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from interplay.model.decoder import Decoder
from interplay.model.shared import predicting
from interplay.rl.batch import Batch


class Scores(NamedTuple):
    """`logp` (n,T) float32 of each token, and the `entropy` (n,T) in nats of the distribution it came from; 0 past a
    completion."""

    logp: Tensor
    entropy: Tensor | None


def micro_batches(batch: Batch, rows: Tensor, tokens: int) -> list[Tensor]:
    """Cut `rows` (M,) int64 into pieces of at most `tokens` tokens, padding counted and shared prompts once (a row that exceeds
    that by itself stands alone). Groups stay together as far as they can and those of about one length meet, so that little is
    padded."""
    lengths, groups = batch.lengths.tolist(), batch.groups.tolist()
    longest: dict[int, int] = {}
    for i in rows.tolist():
        longest[groups[i]] = max(longest.get(groups[i], 0), lengths[i])
    pieces: list[list[int]] = []
    prompts: set[tuple[int, ...]] = set()
    wide = high = 0
    for i in sorted(rows.tolist(), key=lambda i: (-longest[groups[i]], groups[i], -lengths[i])):
        with_it = prompts | {tuple(batch.prompts[i])}
        wide, high = max(wide, lengths[i]), max(high, len(batch.prompts[i]))
        if not pieces or (len(pieces[-1]) + 1) * wide + len(with_it) * high > tokens:
            pieces.append([])
            with_it, wide, high = {tuple(batch.prompts[i])}, lengths[i], len(batch.prompts[i])
        pieces[-1].append(i)
        prompts = with_it
    return [torch.tensor(piece) for piece in pieces]


def scores(
    decoder: Decoder, batch: Batch, rows: Tensor, temperature: float, dtype: torch.dtype, with_entropy: bool = False
) -> Scores:
    """Score the completions of `rows` (n,) int64 at the sampling temperature, on the CPU. T is the batch's.

    Logits are made where a token of a completion is predicted only: nobody asks about the rest."""
    width = int(batch.lengths[rows].max())
    tokens = batch.tokens[rows, :width].to(decoder.head().device)
    states, where = predicting(decoder, [batch.prompts[i] for i in rows.tolist()], tokens, batch.lengths[rows], dtype)
    logs = log_softmax(decoder.logits(states) / temperature, dim=-1)
    chosen = logs.gather(1, tokens[where][:, None])[:, 0]
    room = torch.zeros(len(rows), batch.tokens.shape[1])
    placed = torch.nn.functional.pad(where.cpu(), (0, room.shape[1] - width))
    logp = room.masked_scatter(placed, chosen.cpu())
    return Scores(logp, room.masked_scatter(placed, -(logs.exp() * logs).sum(1).cpu()) if with_entropy else None)


def entropies(decoder: Decoder, batch: Batch, temperature: float, dtype: torch.dtype, tokens: int) -> Tensor:
    """Entropy (N,T) in nats of the distribution that each token came from, without a gradient; micro-batches of `tokens`."""
    found = torch.zeros(batch.tokens.shape)
    with torch.no_grad():
        for rows in micro_batches(batch, torch.arange(len(batch)), tokens):
            entropy = scores(decoder, batch, rows, temperature, dtype, with_entropy=True).entropy
            if entropy is not None:
                found[rows] = entropy
    return found
