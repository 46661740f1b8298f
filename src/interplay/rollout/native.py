"""The `native` engine: the project's own decoder, its key-value cache, and noise that is keyed by what a token is."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.core.execution import Run
from interplay.model import device, heads, spec
from interplay.model.attention import Attend, rotary, split_heads
from interplay.model.decoder import Decoder, LayerWeights, Weights, forward, linear_of
from interplay.rollout.kernel import complete_in_kernel
from interplay.rollout.request import (
    Request,
    Rollouts,
    Room,
    Sampling,
    assemble,
    draw_tokens,
    join,
    share_prompts,
    split_together,
    uniform_noise,
)

# Keys and values of groups that decode side by side: one prompt per group, shared by its samples, and each sample's own tokens.
#
# The samples of a group query the prompt's keys in one matrix product, so the prompt is neither copied nor read once per
# sample: at small sizes decoding is bound by reading the cache. Rows are grouped as (groups, samples); within a product the
# order is (groups, kv heads, samples), in which the queries of both halves lie together.
#
# Of a stack of decoders the groups are those of one after the other, equally many of each. Attention knows groups only; for
# linear layers, which know weights, the tokens lie as (replicas, N).


BLOCK, GPU_BLOCK = 16, 128
"""Steps after which the cache grows and finished rows leave it. On a GPU that is rarer: each time the step is recorded anew."""


class Cache:
    """Prompt and completion keys and values of `groups` groups with `samples` samples each."""

    def __init__(self, shape: spec.Shape, samples: int, lengths: Tensor, dtype: torch.dtype) -> None:
        self.shape, self.samples, self.lengths, self.dtype = shape, samples, lengths, dtype
        self.steps = 0
        self.place: Tensor | None = None
        """Position of the present tokens among the completions', (1,), when a recorded step has to find out by itself."""
        self.later = torch.zeros(0)
        """Which keys of the completions come behind that position, (capacity,)."""
        self.prompt_keys: list[Tensor] = []
        """Per layer (groups * kv heads, head_dim, prompt length)."""
        self.prompt_values: list[Tensor] = []
        """Per layer (groups * kv heads, prompt length, head_dim)."""
        self.keys: list[Tensor] = []
        """Per layer (groups * kv heads * samples, capacity, head_dim)."""
        self.values: list[Tensor] = []
        self.block = GPU_BLOCK if lengths.is_cuda else BLOCK
        longest = int(lengths.max())
        outside = torch.arange(longest, device=lengths.device) >= lengths[:, None]
        self.mask = torch.zeros(outside.shape, dtype=dtype, device=lengths.device).masked_fill_(outside, float("-inf"))[:, None]
        """(groups, 1, prompt length), added to the scores of the prompt's keys."""

    def prefill(self, weights: Weights, ids: Tensor) -> Tensor:
        """Final hidden state (groups, D) at the end of each prompt of ids (groups, prompt length), padded on the right."""
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        compute = weights.norm.dtype
        attention = weights.attention(ids.shape)

        def attend(layer: int, qk: Tensor, v: Tensor) -> Tensor:
            _, k = split_heads(qk, v)
            self.prompt_keys.append(k.to(self.dtype).permute(0, 2, 3, 1).flatten(0, 1).contiguous())
            self.prompt_values.append(v.to(self.dtype).transpose(1, 2).flatten(0, 1).contiguous())
            rows = len(self.lengths) * k.shape[2] * self.samples
            for own in (self.keys, self.values):
                own.append(torch.zeros(rows, self.block, k.shape[3], dtype=self.dtype, device=k.device))
            return attention(layer, qk, v)

        hidden = _forward(self.shape, weights, ids, rotary(self.shape, positions, compute), attend)
        return hidden[torch.arange(len(ids), device=ids.device), self.lengths - 1]

    def decode(self, weights: Weights, ids: Tensor, rope: tuple[Tensor, Tensor], place: Tensor | None = None) -> Tensor:
        """Final hidden states (groups, samples, D) of the next tokens ids (groups, samples); rope is that of their positions.

        With `place` (1,), their position among the completions' tokens, nothing that changes from step to step is fixed by
        the program: the call can be recorded."""
        self.steps, self.place = self.steps + 1, place
        if place is not None:
            self.later = torch.arange(self.keys[0].shape[1], device=place.device) > place
        return _forward(self.shape, weights, ids, rope, self._attend)

    def _attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        q, k = split_heads(qk, v)
        groups, samples, heads, size = q.shape
        shared, steps = k.shape[2], self.steps
        for own, new in ((self.keys[layer], k), (self.values[layer], v)):
            room, new = own.view(groups, shared, samples, -1, size), new.transpose(1, 2)
            if self.place is None:
                room[:, :, :, steps - 1].copy_(new)
            else:
                room.index_copy_(3, self.place, new[:, :, :, None].to(self.dtype))
        queries = torch.empty(groups, shared, samples, heads // shared, size, dtype=self.dtype, device=q.device)
        torch.mul(q.unflatten(2, (shared, -1)).permute(0, 2, 1, 3, 4), size**-0.5, out=queries)
        before = torch.bmm(queries.view(groups * shared, -1, size), self.prompt_keys[layer])
        before.view(groups, -1, before.shape[-1]).add_(self.mask)
        # The whole capacity, its empty end masked: a contiguous operand is worth more than the few columns saved.
        after = torch.bmm(queries.view(-1, heads // shared, size), self.keys[layer].transpose(1, 2))
        if self.place is None:
            after[..., steps:].fill_(float("-inf"))
        else:
            after.masked_fill_(self.later, float("-inf"))
        weights = torch.cat((before.view(-1, before.shape[-1]), after.view(-1, after.shape[-1])), -1).softmax(-1)
        before, after = weights.split((before.shape[-1], after.shape[-1]), -1)
        mixed = torch.bmm(before.unflatten(0, (groups * shared, -1)), self.prompt_values[layer]).view(-1, heads // shared, size)
        mixed.baddbmm_(after.unflatten(0, (-1, heads // shared)), self.values[layer])
        return mixed.view(groups, shared, samples, -1, size).permute(0, 2, 1, 3, 4).to(k.dtype).reshape(groups, samples, -1)

    def keep(self, groups: Tensor, samples: Tensor) -> None:
        """Keep these groups (G',) and of each these samples (G', S'), and make room for `block` more steps."""
        shared = self.shape.num_key_value_heads
        heads = groups[:, None] * shared + torch.arange(shared, device=groups.device)
        rows = (heads[:, :, None] * self.samples + samples[:, None]).flatten()
        if len(groups) < len(self.lengths):
            self.lengths, self.mask = self.lengths[groups], self.mask[groups]
            self.prompt_keys = [keys[heads.flatten()] for keys in self.prompt_keys]
            self.prompt_values = [values[heads.flatten()] for values in self.prompt_values]
        if len(rows) < len(self.keys[0]):
            self.keys = [keys.index_select(0, rows) for keys in self.keys]
            self.values = [values.index_select(0, rows) for values in self.values]
        self.samples = samples.shape[1]
        self.keys = [F.pad(keys, (0, 0, 0, self.block)) for keys in self.keys]
        self.values = [F.pad(values, (0, 0, 0, self.block)) for values in self.values]


def _forward(shape: spec.Shape, weights: Weights, ids: Tensor, rope: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
    """`forward` of ids (groups, T), of a decoder or of a stack; `attend` sees (groups, T, ...) of either."""
    if weights.head.ndim == 2:
        return forward(shape, weights, ids, rope, attend)
    replicas = len(weights.head)
    cos, sin = (table.expand(*ids.shape, 1, -1).reshape(replicas, -1, 1, shape.head_dim) for table in rope)

    def attend_groups(layer: int, qk: Tensor, v: Tensor) -> Tensor:
        return attend(layer, *(part.view(*ids.shape, *part.shape[2:]) for part in (qk, v))).reshape(*qk.shape[:2], -1)

    return forward(shape, weights, ids.reshape(replicas, -1), (cos, sin), attend_groups).view(*ids.shape, -1)


# Decoding steps as one CUDA graph: between two changes of shape they run the same kernels on the same memory, and at small
# sizes a GPU spends more time on launching each than on computing it.


Step = Callable[[Tensor, int | Tensor], Tensor]
"""Tokens (groups, samples) and their place among the completions', a number or (1,) -> those that follow, (rows,)."""


class Replay:
    """One step that is called again and again with tensors of one shape. The first call records it, unless nothing has run `warm`
    before: the libraries set themselves up in a first run, which no recording may hold."""

    def __init__(self, step: Step, ids: Tensor, warm: bool) -> None:
        self.step, self.ids, self.warm = step, torch.empty_like(ids), warm
        self.place = torch.zeros(1, dtype=torch.int64, device=ids.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.drawn = ids

    def __call__(self, ids: Tensor, place: int | Tensor) -> Tensor:
        """What the step makes of these tokens. It is overwritten by the next call."""
        self.ids.copy_(ids)
        self.place.fill_(place)
        if not self.warm:
            self.warm = True
            return self.step(self.ids, self.place)
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.drawn = self.step(self.ids, self.place)
        self.graph.replay()
        return self.drawn


class Native:
    """Samples from `decoder`, or from each of a stack, in `dtype`. Weights are read anew at every call, so a trained decoder
    needs no synchronising."""

    def __init__(self, decoder: Decoder | heads.Composed | heads.Lagged, how: Run, dtype: torch.dtype) -> None:
        self.decoder, self.rows, self.dtype, self.graphs = decoder, how.engine_batch, dtype, how.cuda_graphs
        self.room = Room(how.engine_cache_mb << 20)

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests. The same requests give the same bits; so do their whole batches, see `request.split`.
        Raises PermanentError where `engine_batch` rows do not fit into memory."""
        return self.generate_each([requests], [sampling])[0]

    @torch.inference_mode()
    def generate_each(self, requests: Sequence[list[Request]], samplings: Sequence[Sampling]) -> list[Rollouts]:
        """The same of each replica of a stack, by its own requests and sampling."""
        decoders, blend = _side_by_side(self.decoder)
        parts = [Part(decoder.shape, decoder.weights(self.dtype)) for decoder in decoders]
        in_kernel = len(parts) == 1 and parts[0].weights.compiled() and samplings[0].heat is None
        asked = [share_prompts(some) for some in requests] if in_kernel else requests

        def complete(rows: int) -> Iterator[list[Rollouts | None]]:
            batches = split_together(asked, rows)
            if in_kernel:
                made = complete_in_kernel(*parts[0], [batch for (batch,) in batches], samplings[0], self.room)
                return ([one] for one in made)
            return (_complete(parts, blend, batch, samplings, self.graphs) for batch in batches)

        with device.report_out_of_memory("engine_batch", self.rows, lambda rows: next(complete(rows))):
            each = zip(zip(*complete(self.rows), strict=True), samplings, strict=True)
            made = [join([one for one in made if one], sampling) for made, sampling in each]
        numbers = [[number for number, one in enumerate(some) for _ in range(one.count)] for some in requests]
        return [one._replace(request=torch.tensor(own)) for one, own in zip(made, numbers, strict=True)]

    def close(self) -> None:
        """Nothing is held."""


class Part(NamedTuple):
    """One of the decoders that decode side by side, each with a cache of its own."""

    shape: spec.Shape
    weights: Weights

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (rows, vocab) float32 of hidden states (groups, samples, D)."""
        head = self.weights.head
        lead = hidden if head.ndim == 2 else hidden.reshape(len(head), -1, hidden.shape[-1])
        return linear_of(head)(lead, head).float().flatten(0, 1)

    def of(self, numbers: list[int]) -> "Part":
        """These replicas of a stack."""

        def some(weights: LayerWeights | Weights) -> dict[str, Tensor]:
            return {name: value[numbers] for name, value in weights._asdict().items() if isinstance(value, Tensor)}

        layers = [layer._replace(**some(layer)) for layer in self.weights.layers]  # type: ignore[arg-type]
        return Part(self.shape, self.weights._replace(layers=layers, **some(self.weights)))  # type: ignore[arg-type]


Blend = Callable[..., Tensor]
"""Logits (..., vocab) of each part -> those that tokens are drawn from."""


def _side_by_side(whole: Decoder | heads.Composed | heads.Lagged) -> tuple[list[Decoder], Blend]:
    """The decoders that decode side by side, and what their logits make together."""
    if isinstance(whole, heads.Composed):
        return [whole.base, whole.assistant], whole.logits
    if isinstance(whole, heads.Lagged):
        return [whole.policy, whole.copy], whole.logits
    return [whole], lambda logits: logits


def _complete(
    parts: list[Part], blend: Blend, batches: Sequence[list[tuple[int, Request]]], samplings: Sequence[Sampling], graphs: bool
) -> list[Rollouts | None]:
    """Decode one batch of each replica: groups of equal size, equally many of each (spare places count as finished), all at the
    same step of their completions. None of an empty batch, whose replica has no place."""
    if not all(batches):
        present = [number for number, batch in enumerate(batches) if batch]
        own, settings = [batches[number] for number in present], [samplings[number] for number in present]
        made = iter(_complete([part.of(present) for part in parts], blend, own, settings, graphs))
        return [next(made) if batch else None for batch in batches]
    device, dtype = parts[0].weights.norm.device, parts[0].weights.norm.dtype
    graphs = graphs and device.type == "cuda"
    groups, spare = max(map(len, batches)), Request([0], 0, 0, 0)
    each = [[request for _, request in batch] + [spare] * (groups - len(batch)) for batch in batches]
    requests = [request for some in each for request in some]
    width, length = max(r.count for r in requests), max(s.max_completion_length for s in samplings)
    lengths = torch.tensor([len(request.prompt) for request in requests], device=device)
    longest = int(lengths.max())
    ids = torch.tensor([r.prompt + [samplings[0].pad] * (longest - len(r.prompt)) for r in requests], device=device)
    noise = torch.cat([_noise(some, width, length, sampling) for some, sampling in zip(each, samplings, strict=True)]).to(device)
    # Attention for one new token is bound by memory, where a CPU's float32 kernels beat its bfloat16 ones.
    stored = torch.float32 if device.type == "cpu" else dtype
    caches = [Cache(part.shape, width, lengths, stored) for part in parts]
    positions = torch.arange(longest + length, device=device)
    tables = [[table[:, 0] for table in rotary(part.shape, positions, dtype)] for part in parts]

    tokens = torch.full((len(requests) * width, length), samplings[0].pad, device=device)
    logprobs = torch.zeros(tokens.shape, device=device)
    places = torch.arange(len(tokens), device=device).view(len(requests), width)
    counts = torch.tensor([request.count for request in requests], device=device)
    finished = torch.arange(width, device=device) >= counts[:, None]
    ends = torch.tensor([[-1 if s.eos is None else s.eos] for s in samplings], device=device)
    ending = any(s.eos is not None for s in samplings)

    def draw(hidden: list[Tensor], place: int | Tensor) -> Tensor:
        logits = blend(*(part.logits(h) for h, part in zip(hidden, parts, strict=True)))
        rows = places.flatten()
        drawn, chances = _drawn(logits, noise[rows, place], samplings)
        tokens[rows, place] = drawn
        logprobs[rows, place] = chances
        if ending:
            finished.logical_or_((drawn.view(len(samplings), -1) == ends).view_as(finished))
        return drawn

    def follow(ids: Tensor, place: int | Tensor) -> Tensor:
        positions, fixed = caches[0].lengths + place, place if isinstance(place, Tensor) else None
        ropes = [(cos[positions][:, None, None], sin[positions][:, None, None]) for cos, sin in tables]
        return draw([c.decode(p.weights, ids, rope, fixed) for c, p, rope in zip(caches, parts, ropes, strict=True)], place + 1)

    drawn = draw([c.prefill(p.weights, ids)[:, None].expand(-1, width, -1) for c, p in zip(caches, parts, strict=True)], 0)
    step_from: Step = Replay(follow, finished.long(), warm=False) if graphs else follow
    for step in range(length - 1):
        renewed = step > 0 and step % caches[0].block == 0
        if over := [number for number, s in enumerate(samplings) if s.max_completion_length == step + 1]:
            finished.view(len(samplings), -1)[over] = True
        # A GPU that is asked at each step waits for the next one.
        if (over or ending) and (renewed or device.type == "cpu") and finished.all():
            break
        if renewed:
            places, finished, drawn = _retire(caches, len(samplings), places, finished, drawn)
            step_from = Replay(follow, finished.long(), warm=True) if graphs else follow
        drawn = step_from(drawn.view_as(finished), step)
    return list(_rollouts_by_replica(batches, samplings, width, tokens, logprobs))


def _rollouts_by_replica(
    batches: Sequence[list[tuple[int, Request]]], samplings: Sequence[Sampling], width: int, tokens: Tensor, logprobs: Tensor
) -> Iterator[Rollouts]:
    """Each replica's part of tokens (rows, T), without spare places and up to its own limit."""
    for number, (batch, sampling) in enumerate(zip(batches, samplings, strict=True)):
        starts = range(number * len(tokens) // len(batches), len(tokens), width)
        real = [start + i for start, (_, request) in zip(starts, batch, strict=False) for i in range(request.count)]
        own, limit = torch.tensor(real, dtype=torch.int64, device=tokens.device), sampling.max_completion_length
        yield assemble(batch, tokens[own, :limit], logprobs[own, :limit], sampling)


def _noise(requests: list[Request], width: int, length: int, sampling: Sampling) -> Tensor:
    """(requests * width, length) float64: the noise of `width` samples of each."""
    rows = [(r.key, r.first + i) for r in requests for i in range(width)]
    return torch.from_numpy(uniform_noise(sampling.seed, [key for key, _ in rows], [sample for _, sample in rows], length))


def _drawn(logits: Tensor, noise: Tensor, samplings: Sequence[Sampling]) -> tuple[Tensor, Tensor]:
    """`draw_tokens`, each replica's rows in its own way."""
    if len({(s.temperature, s.top_p, s.top_k, s.heat) for s in samplings}) == 1:
        return draw_tokens(logits, noise, samplings[0])
    rows = zip(logits.chunk(len(samplings)), noise.chunk(len(samplings)), samplings, strict=True)
    tokens, logprobs = zip(*(draw_tokens(*some) for some in rows), strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _retire(caches: list[Cache], replicas: int, places: Tensor, finished: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Drop as many finished groups as leave all replicas equally many, and from the others as many finished samples as leave all
    groups equally wide."""
    alive = (~finished).sum(1)
    dead = (alive == 0).view(replicas, -1)
    kept = dead.int().argsort(dim=1, stable=True)[:, : int((~dead).sum(1).max())].sort(dim=1).values
    groups = (kept + torch.arange(replicas, device=kept.device)[:, None] * dead.shape[1]).flatten()
    samples = finished[groups].int().argsort(dim=1, stable=True)[:, : int(alive.max())].sort(dim=1).values
    for cache in caches:
        cache.keep(groups, samples)
    places, finished, drawn = (rows.view(finished.shape)[groups].gather(1, samples) for rows in (places, finished, drawn))
    return places, finished, drawn.flatten()
