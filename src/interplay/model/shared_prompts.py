"""Forward pass over many completions of few prompts (Prefix Grouper, arXiv:2506.05433): each prompt is encoded once, and its
completions attend to its keys and values.

Up to rounding it equals a pass over every prompt + completion, with G prompts instead of one per completion: with groups of
eight and prompts as long as completions this saves 44 % of the tokens."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from interplay.kernels import exact, library
from interplay.model.attention import Attend, RunsAttend, activations, rotary, split_heads
from interplay.model.decoder import Decoder, Weights, forward


def hidden_states(
    decoder: Decoder, prompts: Tensor, lengths: Tensor, group: Tensor, completions: Tensor, dtype: torch.dtype
) -> Tensor:
    """Final hidden states (R, C, D) in `dtype` from which the tokens of completions (R, C) are predicted.

    prompts (G, P) and completions are padded on the right; lengths (G,) are those of the prompts; completion r follows the prompt
    group[r]. The last token of a completion predicts nothing and is not passed."""
    (count, longest), (rows, width) = prompts.shape, completions.shape
    if decoder.by_rows:
        texts = [prompts[g, : lengths[g]] for g in group.tolist()]
        return torch.stack(_row_states(decoder, texts, completions, [width] * rows, dtype))
    weights = decoder.weights(dtype)
    if weights.over_runs():
        whole = torch.full_like(group, width)
        return _packed_states(decoder, weights, prompts, lengths, group, completions, whole, dtype).unflatten(0, (rows, width))
    later = torch.arange(width - 1, device=prompts.device)
    ids = torch.cat((prompts.flatten(), completions[:, :-1].flatten()))
    in_prompt = torch.arange(longest, device=prompts.device)
    positions = torch.cat((in_prompt.repeat(count), (lengths[group][:, None] + later).flatten()))
    attend = _attend_padded(longest, lengths, group, width - 1, activations(dtype))
    states = forward(decoder.shape, weights, ids, rotary(decoder.shape, positions, dtype), attend)
    of_prompts, of_completions = states.split((count * longest, rows * (width - 1)))
    last = of_prompts[torch.arange(count, device=prompts.device) * longest + lengths - 1]
    return torch.cat((last[group][:, None], of_completions.unflatten(0, (rows, width - 1))), 1)


def _packed_states(
    decoder: Decoder,
    weights: Weights,
    prompts: Tensor,
    lengths: Tensor,
    group: Tensor,
    completions: Tensor,
    counts: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """The states (M, D) from which the first counts (R,) tokens of completions (R, C) are predicted, row by row, by attention
    over runs: prompts and completions lie one after the other without padding, each completion is a run after the prompt of its
    group, which is not copied, and the last layer passes only what predicts something."""
    over_runs, later, device = weights.over_runs(), (counts - 1).clamp(min=0), prompts.device
    assert over_runs is not None
    sizes = torch.cat((lengths, later))
    starts, none = sizes.cumsum(0) - sizes, torch.zeros_like(lengths)
    first, then = starts[: len(lengths)], starts[len(lengths) :]
    runs = torch.cat((torch.stack((first, lengths, none, none), 1), torch.stack((then, later, first[group], lengths[group]), 1)))
    attend = RunsAttend(over_runs, runs[sizes > 0].int().cpu().contiguous())
    of_prompts, ids = int(lengths.sum()), torch.cat((_front(prompts, lengths), _front(completions, later)))
    numbers = torch.arange(len(ids), device=device)
    positions = numbers - starts.repeat_interleave(sizes)
    positions[of_prompts:] += lengths[group].repeat_interleave(later)
    wanted = torch.cat((first + lengths - 1, numbers[of_prompts:]))
    states = forward(decoder.shape, weights, ids, rotary(decoder.shape, positions, dtype), attend, wanted)
    # The first token of a completion comes from the last one of its prompt, the others from the one before them.
    place = torch.arange(int(counts.sum()), device=device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    own = (then - of_prompts + len(lengths) - 1).repeat_interleave(counts) + place
    return states[torch.where(place == 0, group.repeat_interleave(counts), own)]


def _row_states(
    decoder: Decoder, prompts: Sequence[Tensor], completions: Tensor, counts: Sequence[int], dtype: torch.dtype
) -> list[Tensor]:
    """The states (counts[i], D) from which the first tokens of each completion, row i of (n, C), are predicted, in one pass over
    prompts with their completions."""
    each = zip(prompts, completions, counts, strict=True)
    rows = [torch.cat((prompt, completion[: max(count - 1, 0)])) for prompt, completion, count in each]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    states = decoder.hidden(ids, torch.arange(ids.shape[1], device=ids.device)[None], dtype=dtype)
    places = zip(states, prompts, counts, strict=True)
    return [state[len(prompt) - 1 : len(prompt) - 1 + count] for state, prompt, count in places]


def _front(padded: Tensor, lengths: Tensor) -> Tensor:
    """The first lengths (n,) elements of each row (n, T), row after row."""
    return padded[torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]]


def _attend_padded(longest: int, lengths: Tensor, group: Tensor, width: int, dtype: torch.dtype) -> Attend:
    """Two products of padded batches: of the prompts, and of the completions over copies of their prompts' keys and their own."""
    device = lengths.device
    in_prompt, later = torch.arange(longest, device=device), torch.arange(width, device=device)
    causal = _mask((in_prompt <= in_prompt[:, None])[None], dtype)
    of_prompt = (in_prompt < lengths[group][:, None])[:, None].expand(-1, width, -1)
    onward = _mask(torch.cat((of_prompt, (later <= later[:, None]).expand(len(group), -1, -1)), 2), dtype)
    split = len(lengths) * longest

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:split].unflatten(0, (len(lengths), longest)), x[split:].unflatten(0, (len(group), width))

    def attend(_: int, qk: Tensor, v: Tensor) -> Tensor:
        q, k = split_heads(qk, v)
        (q_first, q_then), (k_first, k_then), (v_first, v_then) = parts(q), parts(k), parts(v)
        first = _attention(q_first, k_first, v_first, causal)
        keys, values = torch.cat((k_first[group], k_then), 1), torch.cat((v_first[group], v_then), 1)
        then = _attention(q_then, keys, values, onward)
        return torch.cat((first.flatten(0, 1), then.flatten(0, 1)))

    return attend


UNIT_ROWS = 16
"""Most completions of a prompt that are passed together with numerics: exact."""


def unit_rows(prompts: Sequence[list[int]]) -> list[int]:
    """Completions of each unit of rows with these prompts (n): neighbours after one prompt."""
    sizes = [len(list(same)) for _, same in groupby(prompts)]
    return [min(UNIT_ROWS, size - first) for size in sizes for first in range(0, size, UNIT_ROWS)]


def unit_sums(values: Tensor, units: Sequence[int]) -> list[int]:
    """The sum over the rows of each unit of values (n,)."""
    return [int(part.sum()) for part in values.cpu().split(list(units))]


def rows_of(x: Tensor, places: Tensor) -> Tensor:
    """Rows (N, D) of x (M, D), some more than once: their gradients are added in order."""
    return _Rows.apply(x, places)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.places, ctx.shape = places, x.shape
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows, width = ctx.shape
        dx = gradient.new_empty(rows, width)
        library.call("embedding_backward", gradient.contiguous(), ctx.places, len(ctx.places), width, rows, None, dx)
        return dx, None


def _unit_states(
    decoder: Decoder, weights: Weights, prompts: list[list[int]], units: Sequence[int], tokens: Tensor, lengths: Tensor
) -> Tensor:
    """The states (M, D) of `predicting_states`, unit by unit: a prompt, then its completions without their last tokens. What a
    unit adds to a gradient depends on no other."""
    ids: list[int] = []
    positions: list[int] = []
    runs: list[tuple[int, int, int, int]] = []
    wanted: list[int] = []
    places: list[int] = []  # of each token's state among the wanted ones
    sizes: list[int] = []
    row = 0
    for count in units:
        prompt, start = prompts[row], len(ids)
        ids += prompt
        positions += range(len(prompt))
        runs.append((start, len(prompt), 0, 0))
        last = len(wanted)
        wanted.append(len(ids) - 1)
        for completion, length in zip(tokens[row : row + count].tolist(), lengths[row : row + count].tolist(), strict=True):
            later = max(length - 1, 0)
            if later:
                runs.append((len(ids), later, start, len(prompt)))
            places += [last, *range(len(wanted), len(wanted) + later)][:length]
            wanted += range(len(ids), len(ids) + later)
            ids += completion[:later]
            positions += range(len(prompt), len(prompt) + later)
        sizes.append(len(ids) - start)
        row += count
    over_runs = weights.over_runs()
    assert over_runs is not None
    attend = RunsAttend(over_runs, torch.tensor(runs, dtype=torch.int32), exact.unit_blocks(sizes))
    rope = weights.rotary(decoder.shape, torch.tensor(positions), torch.int8)
    states = forward(decoder.shape, weights, torch.tensor(ids), rope, attend, torch.tensor(wanted))
    return rows_of(states, torch.tensor(places))


def predicting_states(
    decoder: Decoder,
    prompts: list[list[int]],
    tokens: Tensor,
    lengths: Tensor,
    dtype: torch.dtype,
    units: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Final hidden states (M, D) in `dtype` from which the completion tokens are predicted, without padding, and the mask (n, T)
    of these tokens. `tokens` (n, T) int64, padded on the right, are on the decoder's device; `lengths` (n,) are those of the
    completions, which follow the n `prompts`. Equal prompts are passed once where the decoder shares them; with numerics: exact
    those of each of the `units`, so many rows one after the other (None: `unit_rows`)."""
    device = tokens.device
    where = (torch.arange(tokens.shape[1]) < lengths.cpu()[:, None]).to(device)
    if decoder.by_rows:
        texts = [torch.tensor(prompt, device=device) for prompt in prompts]
        return torch.cat(_row_states(decoder, texts, tokens, lengths.tolist(), dtype)), where
    weights = decoder.weights(dtype)
    if weights.sums:
        return _unit_states(decoder, weights, prompts, units or unit_rows(prompts), tokens, lengths), where
    padded, prompt_lengths, group = (part.to(device) for part in distinct_prompts(prompts, decoder.share_prompts))
    if weights.over_runs():
        return _packed_states(decoder, weights, padded, prompt_lengths, group, tokens, lengths.to(device), dtype), where
    return hidden_states(decoder, padded, prompt_lengths, group, tokens, dtype)[where], where


def token_logps(
    decoder: Decoder,
    prompts: list[list[int]],
    tokens: Tensor,
    lengths: Tensor,
    dtype: torch.dtype,
    units: Sequence[int] | None = None,
) -> Tensor:
    """The log-probability (n, T) float32, in nats, of each completion token (arguments: `predicting_states`); 0 for padding."""
    states, where = predicting_states(decoder, prompts, tokens, lengths, dtype, units)
    if decoder.sums:
        blocks = exact.unit_blocks(unit_sums(lengths, units or unit_rows(prompts)))
        logps = decoder.token_logps(states, tokens[where], dtype, blocks=blocks)
        return torch.zeros(tokens.shape).masked_scatter(where, logps)
    if decoder.blockwise:
        logs = decoder.token_logps(states, tokens[where], dtype)
    else:
        logs = log_softmax(decoder.logits(states), dim=-1).gather(1, tokens[where][:, None])[:, 0]
    return torch.zeros(tokens.shape, device=tokens.device).masked_scatter(where, logs)


def distinct_prompts(prompts: list[list[int]], share: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct prompts (G, P) int64 padded with 0, their lengths (G,), and the index (n,) of each of the n prompts among them.
    Without `share` all n prompts count as distinct."""
    number: dict[tuple[int, ...], int] = {}
    group = [number.setdefault(tuple(prompt), len(number)) for prompt in prompts] if share else list(range(len(prompts)))
    few = list(number) if share else [tuple(prompt) for prompt in prompts]
    longest = max(map(len, few))
    padded = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in few])
    return padded, torch.tensor([len(prompt) for prompt in few]), torch.tensor(group)


def _mask(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """The additive attention mask: 0 where `seen`, else minus infinity."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention of q (B, S, heads, size) over k, v (B, T, kv heads, size) with mask (B or 1, S, T): (B, S, heads * size)."""
    (batch, queries, heads, size), (keys, shared) = q.shape, k.shape[1:3]
    # Queries that share a key head are further rows of one product, so keys and values are not repeated.
    q = (q * size**-0.5).unflatten(2, (shared, -1)).permute(0, 2, 3, 1, 4).reshape(batch * shared, -1, size)
    scores = torch.bmm(q, k.permute(0, 2, 3, 1).reshape(batch * shared, size, keys))
    weights = (scores.view(batch, heads, queries, keys) + mask[:, None]).softmax(-1)
    mixed = torch.bmm(weights.view(batch * shared, -1, keys), v.transpose(1, 2).reshape(batch * shared, keys, size))
    return mixed.view(batch, heads, queries, size).transpose(1, 2).flatten(-2)
