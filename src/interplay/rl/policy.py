"""Forward passes over a batch: scores of the policy, its entropies and likelihoods, and its divergence from a teacher."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, pad

from interplay.kernels import exact
from interplay.model.decoder import Decoder
from interplay.model.heads import Lagged, nucleus_mask
from interplay.model.shared_prompts import predicting_states, unit_rows, unit_sums
from interplay.optim import distributed
from interplay.rl.batch import Batch, has_teacher


class Scores(NamedTuple):
    """`logp` (n,T) float32 of each token, the `entropy` (n,T) in nats of the distribution it came from, and the `divergence` of
    that from a teacher's (n,T); 0 past a completion."""

    logp: Tensor
    entropy: Tensor | None
    divergence: Tensor | None = None


def micro_batches(decoder: Decoder, batch: Batch, rows: Tensor, tokens: int) -> list[Tensor]:
    """Cut `rows` (M,) int64 into pieces of at most `tokens` tokens, padding counted and prompts once where `decoder` shares them
    (a row that exceeds that by itself is a part of its own). Groups stay together as far as they can and those of about one
    length are together, so that little is padded."""
    lengths, groups = batch.lengths.tolist(), batch.groups.tolist()
    longest: dict[int, int] = {}
    for i in rows.tolist():
        longest[groups[i]] = max(longest.get(groups[i], 0), lengths[i])
    order = sorted(rows.tolist(), key=lambda i: (-longest[groups[i]], groups[i], -lengths[i]))
    if decoder.sums:
        return _whole_units(batch, order, tokens)
    pieces: list[list[int]] = []
    prompts: set[tuple[int, ...]] = set()
    wide = high = 0
    for i in order:
        with_it = prompts | {tuple(batch.prompts[i])}
        passing = len(with_it) if decoder.share_prompts else len(pieces[-1]) + 1 if pieces else 1
        wide, high = max(wide, lengths[i]), max(high, len(batch.prompts[i]))
        if not pieces or (len(pieces[-1]) + 1) * wide + passing * high > tokens:
            pieces.append([])
            with_it, wide, high = {tuple(batch.prompts[i])}, lengths[i], len(batch.prompts[i])
        pieces[-1].append(i)
        prompts = with_it
    return [torch.tensor(piece) for piece in pieces]


def _whole_units(batch: Batch, order: list[int], tokens: int) -> list[Tensor]:
    """The same of rows in this order, with numerics: exact: pieces of whole units, which do not depend on `tokens`."""
    pieces: list[list[int]] = []
    first, used = 0, 0
    for count in unit_rows([batch.prompts[i] for i in order]):
        unit = order[first : first + count]
        size = len(batch.prompts[unit[0]]) + int(batch.lengths[unit].sum())
        if not pieces or used + size > tokens:
            pieces.append([])
            used = 0
        pieces[-1] += unit
        first, used = first + count, used + size
    return [torch.tensor(piece) for piece in pieces]


def shard_rows(decoder: Decoder, batch: Batch, rows: Tensor, tokens: int) -> Sequence[Tensor]:
    """Those of the `micro_batches` that fall to this process; smaller ones where there would not be one for each."""
    return distributed.shard_micro_batches(partial(micro_batches, decoder, batch, rows), tokens, len(rows))


def scores(
    decoder: Decoder,
    batch: Batch,
    rows: Tensor,
    temperature: float,
    dtype: torch.dtype,
    with_entropy: bool = False,
    lagged: Lagged | None = None,
) -> Scores:
    """Score the completions of `rows` (n,) int64 at the sampling temperature, on the CPU, within the nucleus of the `lagged` copy
    where there is one. T is the batch's.

    Logits are made where a token of a completion is predicted only: the others are not needed."""
    found, where = states(decoder, batch, rows, dtype)
    tokens = batch.tokens[rows][where].to(found.device)
    room = torch.zeros(where.shape)
    if dtype == torch.int8 and lagged is None and (decoder.sums or not with_entropy):
        blocks = None
        if decoder.sums:
            blocks = exact.unit_blocks(unit_sums(batch.lengths[rows], unit_rows([batch.prompts[i] for i in rows.tolist()])))
        logp = room.masked_scatter(where, decoder.token_logps(found, tokens, dtype, temperature, blocks).cpu())
        if not with_entropy:
            return Scores(logp, None)
        logs = decoder.exact_logs(found, temperature, blocks)
        return Scores(logp, room.masked_scatter(where, -exact.in_order(exact.exp(logs) * logs, 1)))

    def piece(mine: Tensor, token: Tensor, *copied: Tensor) -> tuple[Tensor, ...]:
        logs = log_softmax(acting_logits(decoder, lagged, mine, token, copied, dtype) / temperature, dim=-1)
        logp = logs.gather(1, token[:, None])[:, 0]
        if not with_entropy:
            return (logp,)
        chances = logs.exp()
        if lagged is not None:  # what has no chance adds nothing, and 0 times minus infinity is no number
            logs = logs.masked_fill(logs == -math.inf, 0.0)
        return logp, -(chances * logs).sum(1)

    made = over_tokens(decoder, piece, found, tokens, *copied_states(lagged, batch, rows, dtype))
    return Scores(*(room.masked_scatter(where, part.cpu()) for part in made), *(() if with_entropy else (None,)))


def acting_logits(
    decoder: Decoder, lagged: Lagged | None, found: Tensor, tokens: Tensor, copied: Sequence[Tensor], dtype: torch.dtype
) -> Tensor:
    """(M,V) logits at final hidden states (M,D) of `dtype`, before `tokens` (M,); minus infinity outside the nucleus of the
    `lagged` copy, whose states are `copied` (`copied_states`)."""
    logits = decoder.logits(found, dtype)
    return logits if lagged is None else logits.masked_fill(~inside(lagged, copied[0], tokens), -math.inf)


def over_tokens(decoder: Decoder, piece: Callable[..., tuple[Tensor, ...]], *rows: Tensor) -> tuple[Tensor, ...]:
    """`piece` of tensors over tokens (M, ...), at once, or a few tokens at a time for a blockwise decoder."""
    return decoder.in_pieces(piece, *rows) if decoder.blockwise else piece(*rows)


def copied_states(lagged: Lagged | None, batch: Batch, rows: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """The final hidden states (M,D) of the lagged copy, without a gradient; [] where there is no copy."""
    with torch.no_grad():
        return [] if lagged is None else [states(lagged.copy, batch, rows, dtype)[0]]


@torch.no_grad()
def inside(lagged: Lagged, copied: Tensor, tokens: Tensor) -> Tensor:
    """(M,V) bool, without a gradient: the nucleus of the copy, given its states (M,D), before each of the `tokens` (M,). The
    tokens themselves are in it: they were when they were sampled, and the two passes may round its border otherwise."""
    return nucleus_mask(lagged.copy.logits(copied), lagged.top_p).scatter_(1, tokens[:, None], True)


def states(decoder: Decoder, batch: Batch, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of the rows (n,) the final hidden states (M,D) before each token of their completions, row by row, on the decoder's device;
    and which of the n x T places these are, bool, on the CPU."""
    width = int(batch.lengths[rows].max())
    tokens = batch.tokens[rows, :width].to(decoder.head().device)
    found, where = predicting_states(decoder, [batch.prompts[i] for i in rows.tolist()], tokens, batch.lengths[rows], dtype)
    return found, pad(where.cpu(), (0, batch.tokens.shape[1] - width))


def entropies(
    decoder: Decoder, batch: Batch, temperature: float, dtype: torch.dtype, tokens: int, lagged: Lagged | None = None
) -> Tensor:
    """Entropy (N,T) in nats of the distribution that each token came from, without a gradient; micro-batches of `tokens`."""
    found = torch.zeros(batch.tokens.shape)
    with torch.no_grad():
        for rows in shard_rows(decoder, batch, torch.arange(len(batch)), tokens):
            entropy = scores(decoder, batch, rows, temperature, dtype, with_entropy=True, lagged=lagged).entropy
            if entropy is not None:
                found[rows] = entropy
    return distributed.all_reduce_sum(found)


def collisions(
    decoder: Decoder, batch: Batch, temperature: float, dtype: torch.dtype, tokens: int, lagged: Lagged | None = None
) -> Tensor:
    """(N,T), without a gradient: the sum of the squared probabilities of all tokens at each place, which is the probability that
    two draws agree; micro-batches of `tokens`."""
    found = torch.zeros(batch.tokens.shape)

    def piece(mine: Tensor, token: Tensor, *copied: Tensor) -> tuple[Tensor]:
        logits = acting_logits(decoder, lagged, mine, token, copied, dtype)
        return ((logits / temperature).softmax(-1).square().sum(-1),)

    with torch.no_grad():
        for rows in shard_rows(decoder, batch, torch.arange(len(batch)), tokens):
            hidden, where = states(decoder, batch, rows, dtype)
            if decoder.sums:
                squared = exact.in_order(exact.exp(2 * decoder.exact_logs(hidden, temperature, None)), 1)
                found[rows] = torch.zeros(where.shape).masked_scatter(where, squared)
                continue
            tokens_here = batch.tokens[rows][where].to(hidden.device)
            copied = copied_states(lagged, batch, rows, dtype)
            (squared,) = over_tokens(decoder, piece, hidden, tokens_here, *copied)
            found[rows] = torch.zeros(where.shape).masked_scatter(where, squared.cpu())
    return distributed.all_reduce_sum(found)


# Estimates of KL(p || q) at each token from a sample of p, given log(q / p) (Schulman 2020, http://joschu.net/blog/kl-approx.html).


def k3(log_ratio: Tensor, by: exact.Functions = exact.FAST) -> Tensor:
    """Never negative and unbiased."""
    return by.expm1(log_ratio) - log_ratio


ESTIMATES: dict[str, Callable[[Tensor], Tensor]] = {"k1": torch.neg, "abs": torch.abs, "k2": lambda ratio: ratio**2 / 2}


def kl_estimate(name: str, log_ratio: Tensor, by: exact.Functions = exact.FAST) -> Tensor:
    """The estimate of that name; with a + at its end its value, but the gradient of k2, which is that of the divergence where p
    is what sampled: those of k1 and k3 are not."""
    value = k3(log_ratio, by) if name.startswith("k3") else ESTIMATES[name.removesuffix("+")](log_ratio)
    if not name.endswith("+"):
        return value
    slope = ESTIMATES["k2"](log_ratio)
    return slope - slope.detach() + value.detach()


def weighted_sum(parts: Sequence[tuple[float, Tensor]]) -> Tensor:
    """sum_i weight_i * tensor_i, added in order; a single tensor of weight 1 keeps its bits."""
    (weight, total), *others = parts
    total = total if weight == 1.0 else weight * total
    for weight, value in others:
        total = total + weight * value
    return total


def unjudged(prompts: list[list[int]], tokens: Tensor, lengths: Tensor, **more: Any) -> Batch:
    """Rows of which only the texts are known, of one group unless `more` fields say otherwise."""
    n = len(prompts)
    fields: dict[str, Any] = {"row": torch.arange(n), "prompts": prompts, "tokens": tokens, "lengths": lengths}
    fields |= {name: torch.zeros(n, dtype=torch.int64) for name in ("ids", "groups")}
    fields |= {name: torch.zeros(n, dtype=torch.bool) for name in ("truncated", "right")}
    fields |= {"logprobs": torch.zeros(tokens.shape), "rewards": torch.zeros(n, dtype=torch.float64)}
    return Batch(**{**fields, "completions": [""] * n, "verdicts": [], "parts": {}, **more})


def likelihoods(
    decoder: Decoder, contexts: list[list[int]], texts: list[list[int]], dtype: torch.dtype, tokens: int
) -> list[float]:
    """Mean log-probability of the tokens of each text behind its context, at temperature 1 and without a gradient; micro-batches
    of `tokens`. N contexts and N texts, none empty."""
    n, width = len(texts), max(map(len, texts), default=0)
    padded = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], dtype=torch.int64).view(n, width)
    lengths = torch.tensor([len(text) for text in texts], dtype=torch.int64)
    batch = unjudged(contexts, padded, lengths, groups=torch.arange(n))
    found = torch.zeros(n, dtype=torch.float64)
    with torch.no_grad():
        for rows in shard_rows(decoder, batch, torch.arange(n), tokens):
            by = exact.EXACT if decoder.sums else exact.FAST
            found[rows] = by.summed(scores(decoder, batch, rows, 1.0, dtype).logp.double(), 1) / batch.lengths[rows]
    return distributed.all_reduce_sum(found).tolist()


# Distillation: the teacher is the policy itself, after another context (DistIL, arXiv:2606.05152).


def forward_cross_entropy(teacher: Tensor, policy: Tensor) -> Tensor:
    """(M,) H(teacher, policy) of log-probabilities (M,V): KL(teacher || policy) and the teacher's own entropy."""
    return -(teacher.exp() * policy).sum(-1)


def reverse_kl(teacher: Tensor, policy: Tensor) -> Tensor:
    """(M,) KL(policy || teacher)."""
    return (policy.exp() * (policy - teacher)).sum(-1)


def jensen_shannon(teacher: Tensor, policy: Tensor) -> Tensor:
    """(M,) the mean of the KL divergences of both from their mean; at most ln 2."""
    mean = torch.logaddexp(teacher, policy) - math.log(2)
    return 0.5 * (teacher.exp() * (teacher - mean) + policy.exp() * (policy - mean)).sum(-1)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "fwd_ce": forward_cross_entropy,
    "rev_kl": reverse_kl,
    "js": jensen_shannon,
}


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
        logs = log_softmax(decoder.logits(mine, dtype) / temperature, dim=-1)
        with torch.no_grad():
            said = log_softmax(decoder.logits(other, dtype) / temperature, dim=-1)
        entropy = -(logs.exp() * logs).sum(1) if with_entropy else logs.new_zeros(len(logs))
        return logs.gather(1, token[:, None])[:, 0], divergence(said, logs), entropy

    room = torch.zeros(where.shape)
    made = decoder.in_pieces(piece, found, theirs, tokens)
    logp, distances, entropy = (room.masked_scatter(where, part.cpu()) for part in made)
    return Scores(logp, entropy if with_entropy else None, distances * has_teacher(batch)[rows, None])


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
