"""Whole completions by one call, sample after sample, where kernels compute the layers (kernels/decode.c); also of episodes that
go on from what was kept of them."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.kernels import library
from interplay.kernels.layers import attention_over
from interplay.model.decoder import Weights, forward
from interplay.model.spec import Shape
from interplay.rollout.request import Request, Rollouts, Room, Sampling, assemble, uniform_noise

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
    shape: Shape, weights: Weights, batches: list[list[tuple[int, Request]]], sampling: Sampling, room: Room
) -> Iterator[Rollouts]:
    """Rollouts of each batch. No token depends on the other rows of its batch, or on what was kept. `sampling` has no heat."""
    head = _panels(weights.head)
    room.count(request for batch in batches for _, request in batch)
    return (_complete(shape, weights, head, batch, sampling, room) for batch in batches)


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


def _complete(
    shape: Shape, weights: Weights, head: Tensor, batch: list[tuple[int, Request]], sampling: Sampling, room: Room
) -> Rollouts:
    requests, length = [request for _, request in batch], sampling.max_completion_length
    places = _places(requests)
    most = max(len(request.prompt) for request in requests) + length
    cos, sin = (table[:, 0].contiguous() for table in weights.rotary(shape, torch.arange(most), torch.int8))
    passed = _prefill(shape, weights, requests, places, (cos, sin))
    vocab = len(weights.head) + -len(weights.head) % library.LANES
    first = passed.hidden.new_empty(len(requests), vocab)
    library.call("head_product", passed.hidden, head, *passed.hidden.shape, vocab, first)

    samples = [r.first + i for r in requests for i in range(r.count)]
    asked = torch.tensor([number for number, r in enumerate(requests) for _ in range(r.count)])
    noise = torch.from_numpy(uniform_noise(sampling.seed, [requests[i].key for i in asked.tolist()], samples, length))
    tokens = torch.full((len(samples), length), sampling.pad)
    logprobs = torch.zeros(len(samples), length)
    blocks = torch.get_num_threads()
    slots = min(_slots(weights), -(-len(samples) // blocks))
    capacity = int(places.history[:, 0].max()) + length + 2 * library.LANES
    capacity -= capacity % library.LANES
    sizes = shape.num_key_value_heads, shape.head_dim
    own = torch.empty(blocks * slots, len(weights.layers), 2, capacity, *sizes)
    keeps = any(request.kept for request in requests)
    made = torch.empty(len(samples), len(weights.layers), 2, length, *sizes) if keeps else None
    state = torch.full((blocks * slots,), -1), torch.zeros(blocks * slots, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)

    layers = (library.DecodeLayer * len(weights.layers))()
    for place, layer, k, v in zip(layers, weights.layers, passed.keys, passed.values, strict=True):
        assert layer.packed is not None
        given = (layer.attention_norm, layer.packed.qkv, layer.qkv_bias, layer.qk_norm, layer.packed.out, layer.mlp_norm)
        for (name, _), tensor in zip(place._fields_, (*given, layer.packed.gate_up, layer.packed.down, k, v), strict=True):
            setattr(place, name, None if tensor is None else tensor.data_ptr())
    prompt = places.prompt[asked]
    inputs = (weights.embedding, weights.norm, head, cos, sin, first, places.lengths, prompt, asked, noise, places.history)
    under_way = library.Completions(
        len(weights.layers),
        shape.hidden_size,
        shape.intermediate_size,
        shape.num_attention_heads,
        shape.num_key_value_heads,
        shape.head_dim,
        len(weights.head),
        passed.keys[0].shape[3],
        length,
        len(samples),
        capacity,
        slots,
        -1 if sampling.eos is None else sampling.eos,
        sampling.top_k,
        passed.past.shape[2],
        shape.rms_norm_eps,
        sampling.temperature,
        sampling.top_p,
        layers,
        *(tensor.data_ptr() for tensor in (*inputs, passed.past, own, tokens, logprobs, *state)),
        None if made is None else made.data_ptr(),
    )
    while int(state[2]) < len(samples) or (state[0] >= 0).any():
        library.call("complete", under_way, blocks, STEPS)
    rollouts = assemble(batch, tokens, logprobs, sampling)
    if made is not None:
        _keep(requests, places.new.tolist(), passed.past, made, rollouts, room)
    return rollouts


class Places(NamedTuple):
    """Where the keys and values of a batch lie: those that are passed now, request after request, then those that were kept. A
    *prompt* is what samples share: that of a request, or what a group of episodes began with. What follows it is history."""

    new: Tensor
    """(requests,) int64: how many tokens of each are passed now."""
    prompt: Tensor
    """(requests,): number of its prompt."""
    lengths: Tensor
    """(prompts,): tokens of each."""
    history: Tensor
    """(requests, 4): how many tokens it is; first place kept; first place passed now; how many are kept, prompt included."""
    example: list[int]
    """Of each prompt a request."""

    def of_prompts(self) -> Tensor:
        """(prompts, length of the longest, rounded up): the place of each token; behind the end any."""
        longest = int(self.lengths.max())
        at = torch.arange(longest + -longest % library.LANES)
        _, kept, first, known = self.history[self.example].T[..., None]
        last = int(self.new.sum() + self.history[:, 3].sum()) - 1
        return torch.where(at < known, kept + at, first + at - known).clamp(max=last)


def _places(requests: list[Request]) -> Places:
    """Those of requests; what was kept of them is cut to what their contexts have in common with it."""
    known, numbers, lengths, example = list[int](), list[int](), list[int](), list[int]()
    prompts = dict[tuple[int, int], int]()
    for place, request in enumerate(requests):
        known.append(request.kept[0].common(request.prompt) if request.kept else 0)
        for one in request.kept:
            one.cut(known[-1])
        shared = request.kept[0].pieces[0] if known[-1] else None
        name = (place, 0) if shared is None else (shared.data_ptr(), shared.shape[2])
        if name not in prompts:
            prompts[name] = len(prompts)
            lengths.append(len(request.prompt) if shared is None else shared.shape[2])
            example.append(place)
        numbers.append(prompts[name])
    whole, kept = torch.tensor([len(request.prompt) for request in requests]), torch.tensor(known)
    new, prompt, length = whole - kept, torch.tensor(numbers), torch.tensor(lengths)
    firsts = int(new.sum()) + kept.cumsum(0) - kept, new.cumsum(0) - new
    return Places(new, prompt, length, torch.stack((whole - length[prompt], *firsts, kept), 1), example)


class Passed(NamedTuple):
    """What a pass over requests leaves."""

    hidden: Tensor
    """(requests, D): final states at their ends."""
    keys: list[Tensor]
    """Of each layer those of prompts, (prompts, kv heads, head_dim, length)."""
    values: list[Tensor]
    """Of each layer (prompts, kv heads, length, head_dim)."""
    past: Tensor
    """(layers, 2, places, kv heads, head_dim): all keys and values."""


def _prefill(shape: Shape, weights: Weights, requests: list[Request], places: Places, rope: tuple[Tensor, Tensor]) -> Passed:
    """Pass what was not kept of each context, behind what was."""
    pieces = [piece for request in requests if request.kept for piece in request.kept[0].pieces]
    rows, heads = int(places.new.sum()), shape.num_attention_heads
    count = rows + sum(piece.shape[2] for piece in pieces)
    past = torch.empty(len(weights.layers), 2, count, shape.num_key_value_heads, shape.head_dim)
    if pieces:
        torch.cat(pieces, 2, out=past[:, :, rows:])
    at, (_, kept, first, known) = places.of_prompts(), places.history.T
    runs = torch.stack((first, places.new, kept, known), 1).int()
    keys, values = list[Tensor](), list[Tensor]()

    def attend(layer: int, qk: Tensor, v: Tensor) -> Tensor:
        k_past, v_past = past[layer]
        k_past[:rows], v_past[:rows] = qk[:, heads:], v
        keys.append(k_past[at].permute(0, 2, 3, 1).contiguous())
        values.append(v_past[at].transpose(1, 2).contiguous())
        return attention_over(qk, k_past, v_past, runs)

    starts = list(zip(requests, known.tolist(), strict=True))
    ids = torch.tensor([token for request, start in starts for token in request.prompt[start:]])
    positions = torch.cat([torch.arange(start, len(request.prompt)) for request, start in starts])
    cos, sin = (table[positions][:, None] for table in rope)
    hidden = forward(shape, weights, ids, (cos, sin), attend, wanted=places.new.cumsum(0) - 1)
    return Passed(hidden, keys, values, past)


def _keep(requests: list[Request], new: list[int], past: Tensor, made: Tensor, rollouts: Rollouts, room: Room) -> None:
    """Keep what a batch passed and wrote, as far as there is room. The token that a sample ends with was not passed."""
    row, first = 0, 0
    for request, count in zip(requests, new, strict=True):
        fits = bool(request.kept) and room.add(request.kept, past[:, :, first : first + count], request.prompt[-count:])
        for sample, one in enumerate(request.kept, row):
            written = int(rollouts.lengths[sample]) - 1
            if fits and written:
                room.add([one], made[sample, :, :, :written], rollouts.tokens[sample, :written].tolist())
        row, first = row + request.count, first + count
