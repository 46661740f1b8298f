"""The `native` engine where kernels compute the layers: whole completions by one call, sample after sample (kernels/decode.c)."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.kernels import library
from interplay.model.decoder import Weights, forward
from interplay.model.spec import Shape
from interplay.rollout.request import Request, Rollouts, Sampling, assemble, uniform_noise

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
