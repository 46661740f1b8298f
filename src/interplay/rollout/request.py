"""Sampling requests and rollouts; sampling noise keyed by (seed, prompt, sample, position); drawing tokens from logits; and
whole completions by a kernel."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from interplay.core import random
from interplay.kernels import exact, library
from interplay.model.decoder import Weights, forward
from interplay.model.heads import nucleus_mask
from interplay.model.spec import Shape

# How uncertain a token is relative to others, and a temperature that follows it (HAPO, heterogeneous tokens).


LEAST = 1e-8
"""Entropies below count as this before their logarithm is taken."""


class Scale(NamedTuple):
    """What log entropies are held against. (The release also divides by their deviation, which cancels.)"""

    pivot: float
    """A quantile of them."""
    highest: float
    """The largest one less the pivot."""
    lowest: float
    """The smallest one less the pivot."""


def scale_of(entropy: torch.Tensor, quantile: float, by: exact.Functions = exact.FAST) -> Scale | None:
    """The scale of the entropies (M,) in nats of some tokens; None of none. The quantile is one of them, as in HAPO's release."""
    if not len(entropy):
        return None
    logs = by.log(entropy.clamp(min=LEAST))
    pivot = float(torch.quantile(logs.double(), quantile, interpolation="nearest"))
    return Scale(pivot, float((logs - pivot).max()), float((logs - pivot).min()))


def token_uncertainty(entropy: torch.Tensor, scale: Scale, by: exact.Functions = exact.FAST) -> torch.Tensor:
    """h of entropies of any shape: log entropy less the pivot, over the largest such value on its side of 0, so that it lies in
    [-1, 1] for the tokens that the scale was taken from."""
    z = by.log(entropy.clamp(min=LEAST)) - scale.pivot
    return torch.where(z > 0, z / max(scale.highest, LEAST), z / max(-scale.lowest, LEAST))


class Heat(NamedTuple):
    """A temperature for each token."""

    tau: float
    """Largest change of the temperature, as a share of it."""
    scale: Scale


def heated_logits(logprobs: torch.Tensor, heat: Heat) -> torch.Tensor:
    """Log-probabilities (N, vocab) at 1 + tau h times the temperature that they are at, h held to [-1, 1]."""
    entropy = -(logprobs.exp() * logprobs).sum(-1, keepdim=True)
    factor = 1 + heat.tau * token_uncertainty(entropy, heat.scale).clamp(-1, 1)
    return (logprobs / factor).log_softmax(-1)


# What an engine is asked for and what it gives back.


@dataclass(frozen=True)
class Request:
    """Samples first .. first + count - 1 of one prompt. `key` names the prompt in the noise: equal keys, equal noise."""

    prompt: list[int]
    key: int
    first: int
    count: int


class Sampling(NamedTuple):
    """How tokens are drawn. `eos` ends a completion (None: only the length does); `pad` fills up after it."""

    temperature: float
    """0 takes the likeliest token."""
    top_p: float
    """Only the likeliest tokens whose probabilities sum to this; 1 keeps all."""
    top_k: int
    """Only this many of the likeliest tokens; 0 keeps all."""
    max_completion_length: int
    seed: int
    eos: int | None
    pad: int
    heat: Heat | None = None
    """A temperature for each token; None: one for all."""


class Rollouts(NamedTuple):
    """Completions as CPU tensors, in the order of the requests and of the samples in each."""

    request: torch.Tensor
    """(N,) int64: index of the request."""
    sample: torch.Tensor
    """(N,) int64: number of the sample."""
    tokens: torch.Tensor
    """(N, T) int64: completion with its end token, then pad."""
    lengths: torch.Tensor
    """(N,) int64: tokens of the completion, its end token included."""
    logprobs: torch.Tensor
    """(N, T) float32: log-probabilities at the temperature that the token had, before top-p and top-k; 0 after the end."""
    truncated: torch.Tensor
    """(N,) bool: ended by the length limit."""


def split(requests: list[Request], rows: int) -> list[list[tuple[int, Request]]]:
    """Cut (index, request) pairs into batches of at most `rows` samples; a request larger than that is cut itself.

    A batch is filled in order, counting every request as its largest, so a list of requests of one size that is handed over in
    whole batches gives what it gives at once."""
    return [batch for (batch,) in split_together([requests], rows)]


def split_together(each: Sequence[list[Request]], rows: int) -> list[list[list[tuple[int, Request]]]]:
    """The batches of replicas that decode together: of each batch a part for each replica, which may be empty. All parts of a
    batch have room for as many requests, of at most `rows` samples, as the largest."""
    parts = [
        [
            (index, replace(request, first=request.first + first, count=min(rows, request.count - first)))
            for index, request in enumerate(requests)
            for first in range(0, request.count, rows)
        ]
        for requests in each
    ]
    starts, widest = [0], 0
    for place, here in enumerate(zip_longest(*parts)):
        count = max(part[1].count for part in here if part)
        widest = max(widest, count)
        if (place + 1 - starts[-1]) * widest > rows:
            starts.append(place)
            widest = count
    ends = [*starts[1:], max(map(len, parts))]
    return [[some[start:end] for some in parts] for start, end in zip(starts, ends, strict=True) if end]


def assemble(batch: list[tuple[int, Request]], tokens: torch.Tensor, logprobs: torch.Tensor, sampling: Sampling) -> Rollouts:
    """Rollouts of raw rows (N, T), one per sample of the batch: all that follows the end token is blanked."""
    tokens, logprobs = tokens.cpu(), logprobs.cpu().float()
    length = tokens.shape[1]
    ended = torch.zeros_like(tokens, dtype=torch.bool) if sampling.eos is None else tokens == sampling.eos
    found = ended.any(1)
    lengths = torch.where(found, ended.int().argmax(1) + 1, length)
    after = torch.arange(length) >= lengths[:, None]
    return Rollouts(
        request=torch.tensor([index for index, part in batch for _ in range(part.count)]),
        sample=torch.tensor([part.first + i for _, part in batch for i in range(part.count)]),
        tokens=tokens.masked_fill(after, sampling.pad),
        lengths=lengths,
        logprobs=logprobs.masked_fill(after, 0.0),
        truncated=~found,
    )


def join(parts: list[Rollouts], sampling: Sampling) -> Rollouts:
    """One Rollouts of several, padded to the longest completion among them."""
    width = max((int(part.lengths.max()) for part in parts), default=0)
    fill = {"tokens": sampling.pad, "logprobs": 0.0}

    def fit(part: Rollouts, name: str) -> torch.Tensor:
        value = getattr(part, name)
        if value.dim() == 1:
            return value
        return torch.nn.functional.pad(value[:, :width], (0, max(0, width - value.shape[1])), value=fill[name])

    return Rollouts(*(torch.cat([fit(part, name) for part in parts]) for name in Rollouts._fields))


# Sampling noise as a function of (seed, prompt key, sample, position) and of nothing else, so that a token does not depend on
# the order of prompts, on who shares its batch or on where a run was resumed.


WORD = (1 << 64) - 1


def uniform_noise(seed: int, keys: list[int], samples: list[int], positions: int) -> NDArray[np.float64]:
    """Numbers in (0, 1), shape (rows, positions), for row r = sample `samples[r]` of the prompt `keys[r]`.

    Each part is absorbed by a full mixing round, so that swapping the values of two parts gives other numbers. 52 bits, centred
    in their cell, so that neither 0 nor 1 occurs."""
    step = np.uint64(0x9E3779B97F4A7C15)
    word = random.mix_words(np.array([seed & WORD], dtype=np.uint64) + step)
    for part in (keys, samples):
        word = random.mix_words((word ^ np.array([value & WORD for value in part], dtype=np.uint64)) + step)
    words = random.mix_words(word[:, None] ^ random.mix_words((np.arange(1, positions + 1, dtype=np.uint64) * step)[None]))
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


# Drawing tokens from logits with given noise.


def draw_tokens(logits: torch.Tensor, noise: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (N,) int64 and their log-probabilities (N,) float32 from logits (N, vocab) float32 and noise (N,) float64 in (0, 1).

    Inverts the cumulative distribution, summed in float64: the token is the first whose cumulative probability exceeds the noise.
    At temperature 0 the likeliest token is taken and its log-probability is that at temperature 1."""
    logprobs = (logits / sampling.temperature if sampling.temperature not in (0.0, 1.0) else logits).log_softmax(-1)
    if sampling.heat is not None:
        logprobs = heated_logits(logprobs, sampling.heat)
    if sampling.temperature == 0.0:
        tokens = logprobs.argmax(-1)
    else:
        cumulative = keep_mask(logprobs, sampling).exp().cumsum(-1, dtype=torch.float64)
        below = cumulative <= noise[:, None] * cumulative[:, -1:]
        tokens = below.sum(-1).clamp_(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


def keep_mask(logprobs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities (N, vocab) with minus infinity outside top-k and, of what is left, outside top-p, as transformers has it:
    top-p keeps the smallest set of the likeliest tokens whose probabilities sum to at least p."""
    vocab = logprobs.shape[-1]
    if 0 < sampling.top_k < vocab:
        bound = logprobs.topk(sampling.top_k).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < bound, float("-inf"))
    if sampling.top_p < 1.0:
        logprobs = logprobs.masked_fill(~nucleus_mask(logprobs, sampling.top_p), float("-inf"))
    return logprobs


# Whole completions by one call, sample after sample, where kernels compute the layers (kernels/decode.c).


FEWEST, MOST = 12, 96
"""Samples that a thread decodes side by side. Their keys and values are read at every step, so few that stay in the processor's
cache are faster than many (0.9M parameters: 51k tokens a second with 12, 35k with 48, 23k with 256); but all of them share one
reading of the weights."""
BYTES = 2**17
"""Bytes of weights for each further one."""
STEPS = 64
"""Steps of each slot after which a call returns, so that a signal is handled."""
PANEL = 64
"""Columns of a panel of the output matrix."""


def complete_in_kernel(
    shape: Shape, weights: Weights, batches: list[list[tuple[int, Request]]], sampling: Sampling
) -> Iterator[Rollouts]:
    """Rollouts of each batch. No token depends on the other rows of its batch. `sampling` has no heat."""
    head = _panels(weights.head)
    return (_complete(shape, weights, head, batch, sampling) for batch in batches)


def _slots(weights: Weights) -> int:
    """Samples of a thread."""
    size = sum(sum(matrix.nelement() for matrix in layer.packed) for layer in weights.layers if layer.packed)
    return min(max(size // BYTES, FEWEST), MOST)


def _panels(head: Tensor) -> Tensor:
    """The output matrix (vocab, D) as panels (D, 64) of columns, flat; the vocabulary is filled up to a multiple of 16."""
    padded = F.pad(head, (0, 0, 0, -len(head) % library.LANES))
    whole = len(padded) // PANEL * PANEL
    parts = (padded[:whole].unflatten(0, (-1, PANEL)).transpose(1, 2), padded[whole:].T)
    return torch.cat([part.flatten() for part in parts])


def _complete(shape: Shape, weights: Weights, head: Tensor, batch: list[tuple[int, Request]], sampling: Sampling) -> Rollouts:
    requests, length = [request for _, request in batch], sampling.max_completion_length
    lengths = torch.tensor([len(request.prompt) for request in requests])
    longest = int(lengths.max())
    longest += -longest % library.LANES
    ids = torch.tensor([r.prompt + [sampling.pad] * (longest - len(r.prompt)) for r in requests])
    cos, sin = (table[:, 0].contiguous() for table in weights.rotary(shape, torch.arange(longest + length), torch.int8))
    hidden, keys, values = _prefill(shape, weights, ids, lengths, (cos, sin))
    vocab = len(weights.head) + -len(weights.head) % library.LANES
    first = hidden.new_empty(len(ids), vocab)
    library.call("head_product", hidden, head, len(ids), hidden.shape[1], vocab, first)

    samples = [r.first + i for r in requests for i in range(r.count)]
    prompts = torch.tensor([index for index, r in enumerate(requests) for _ in range(r.count)])
    noise = torch.from_numpy(uniform_noise(sampling.seed, [requests[i].key for i in prompts.tolist()], samples, length))
    tokens = torch.full((len(samples), length), sampling.pad)
    logprobs = torch.zeros(len(samples), length)
    blocks = torch.get_num_threads()
    slots = min(_slots(weights), -(-len(samples) // blocks))
    capacity = length + 2 * library.LANES
    capacity -= capacity % library.LANES
    own = torch.empty(blocks * slots, len(weights.layers), 2, capacity, shape.num_key_value_heads, shape.head_dim)
    state = torch.full((blocks * slots,), -1), torch.zeros(blocks * slots, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)

    layers = (library.DecodeLayer * len(weights.layers))()
    for place, layer, k, v in zip(layers, weights.layers, keys, values, strict=True):
        assert layer.packed is not None
        given = (layer.attention_norm, layer.packed.qkv, layer.qkv_bias, layer.qk_norm, layer.packed.out, layer.mlp_norm)
        for (name, _), tensor in zip(place._fields_, (*given, layer.packed.gate_up, layer.packed.down, k, v), strict=True):
            setattr(place, name, None if tensor is None else tensor.data_ptr())
    tensors = (weights.embedding, weights.norm, head, cos, sin, first, lengths, prompts, noise, own, tokens, logprobs, *state)
    under_way = library.Completions(
        len(weights.layers),
        shape.hidden_size,
        shape.intermediate_size,
        shape.num_attention_heads,
        shape.num_key_value_heads,
        shape.head_dim,
        len(weights.head),
        longest,
        length,
        len(samples),
        capacity,
        slots,
        -1 if sampling.eos is None else sampling.eos,
        sampling.top_k,
        shape.rms_norm_eps,
        sampling.temperature,
        sampling.top_p,
        layers,
        *(tensor.data_ptr() for tensor in tensors),
    )
    while int(state[2]) < len(samples) or (state[0] >= 0).any():
        library.call("complete", under_way, blocks, STEPS)
    return assemble(batch, tokens, logprobs, sampling)


def _prefill(
    shape: Shape, weights: Weights, ids: Tensor, lengths: Tensor, rope: tuple[Tensor, Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Final hidden states (prompts, D) at the end of each prompt of ids (prompts, length), and of each layer the keys
    (prompts, kv heads, head_dim, length) and values (prompts, kv heads, length, head_dim)."""
    count, length = ids.shape
    attention, heads = weights.attention(ids.shape), shape.num_attention_heads
    keys: list[Tensor] = []
    values: list[Tensor] = []

    def attend(layer: int, qk: Tensor, v: Tensor) -> Tensor:
        keys.append(qk[:, heads:].unflatten(0, ids.shape).permute(0, 2, 3, 1).contiguous())
        values.append(v.unflatten(0, ids.shape).transpose(1, 2).contiguous())
        return attention(layer, qk, v)

    cos, sin = (table[:length].repeat(count, 1)[:, None] for table in rope)
    ends = torch.arange(count) * length + lengths - 1
    return forward(shape, weights, ids.flatten(), (cos, sin), attend, wanted=ends), keys, values
