"""What a teacher says of completions that the policy wrote: the policy itself, without a gradient, behind another context."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import log_softmax
from torch.utils.checkpoint import checkpoint

from interplay.model.decoder import Decoder
from interplay.rl.batch import Batch, has_teacher
from interplay.rl.policy import Scores, micro_batches, states

MOST = 1 << 24
"""Logits of the policy that are held at a time, and as many of the teacher: of a large vocabulary those of few tokens. More
tokens than that are passed piece by piece, and again on the way back."""


def compared(
    decoder: Decoder,
    batch: Batch,
    rows: Tensor,
    temperature: float,
    dtype: torch.dtype,
    divergence: Callable[[Tensor, Tensor], Tensor],
    micro_batch_tokens: int,
    with_entropy: bool = False,
) -> Scores:
    """The scores of the completions of `rows` (n,) as `policy.scores` gives them, and the divergence of the policy from its
    teacher at each of their tokens, 0 in rows of which it says nothing. `divergence`: (teacher (M,V), policy (M,V)) -> (M,), of
    log-probabilities."""
    found, where = states(decoder, batch, rows, dtype)
    theirs = _of_teacher(decoder, batch, rows, found.detach(), where, dtype, micro_batch_tokens)
    tokens = batch.tokens[rows][where].to(found.device)

    def piece(mine: Tensor, other: Tensor, token: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logs = log_softmax(decoder.logits(mine) / temperature, dim=-1)
        with torch.no_grad():
            said = log_softmax(decoder.logits(other) / temperature, dim=-1)
        entropy = -(logs.exp() * logs).sum(1) if with_entropy else logs.new_zeros(len(logs))
        return logs.gather(1, token[:, None])[:, 0], divergence(said, logs), entropy

    size = max(1, MOST // decoder.vocab_size)
    pieces = list(zip(found.split(size), theirs.split(size), tokens.split(size), strict=True))
    # A single piece is held until the way back; of several all but the hidden states are made anew there.
    made = [piece(*one) if len(pieces) == 1 else checkpoint(piece, *one, use_reentrant=False) for one in pieces]
    room = torch.zeros(where.shape)
    logp, apart, entropy = (room.masked_scatter(where, torch.cat(parts).cpu()) for parts in zip(*made, strict=True))
    return Scores(logp, entropy if with_entropy else None, apart * has_teacher(batch)[rows, None])


def _of_teacher(
    decoder: Decoder, batch: Batch, rows: Tensor, own: Tensor, where: Tensor, dtype: torch.dtype, micro_batch_tokens: int
) -> Tensor:
    """(M,D) the teacher's final hidden states before the tokens at `where` (n,T), row by row; `own` (M,D), the policy's, in rows
    of which it says nothing. Its contexts are longer than the prompts, so that its pass is cut by itself."""
    assert batch.teacher is not None
    behind = replace(batch, prompts=batch.teacher)
    room = own.new_zeros(*where.shape, own.shape[1])
    room[where.to(own.device)] = own
    place = {int(row): number for number, row in enumerate(rows.tolist())}
    with torch.no_grad():
        for some in micro_batches(decoder, behind, rows[has_teacher(batch)[rows]], micro_batch_tokens):
            said, here = states(decoder, behind, some, dtype)
            made = own.new_zeros(*here.shape, own.shape[1])
            made[here.to(own.device)] = said
            room[[place[row] for row in some.tolist()]] = made
    return room[where.to(own.device)]
