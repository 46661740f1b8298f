"""The `native` engine: the project's own decoder, its cache and noise that is keyed by what a token is."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.core.execution import Run
from interplay.model import device
from interplay.model.decoder import Decoder, Weights, rotary
from interplay.model.heads import Composed, Lagged
from interplay.model.spec import Shape
from interplay.rollout.cache import BLOCK, Cache, Replay
from interplay.rollout.request import Request, Rollouts, Sampling, assemble, draw_tokens, join, split, uniform_noise


class Native:
    """Samples from `decoder` in `dtype`. Weights are read anew at every call, so a trained decoder needs no synchronising."""

    def __init__(self, decoder: Decoder | Composed | Lagged, how: Run, dtype: torch.dtype) -> None:
        self.decoder, self.rows, self.dtype, self.graphs = decoder, how.engine_batch, dtype, how.cuda_graphs

    @torch.inference_mode()
    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests. The same requests give the same bits; so do their whole batches, see `request.split`.
        Raises PermanentError where `engine_batch` rows do not fit into memory."""
        decoders, blend = _side_by_side(self.decoder)
        parts = [Part(decoder.shape, decoder.weights(self.dtype)) for decoder in decoders]

        def complete(rows: int) -> Iterator[Rollouts]:
            return (_complete(parts, blend, batch, sampling, self.graphs) for batch in split(requests, rows))

        with device.report_out_of_memory("engine_batch", self.rows, lambda rows: next(complete(rows))):
            return join(list(complete(self.rows)), sampling)

    def close(self) -> None:
        """Nothing is held."""


class Part(NamedTuple):
    """One of the decoders that decode side by side, each with a cache of its own."""

    shape: Shape
    weights: Weights


Blend = Callable[..., Tensor]
"""Logits (..., vocab) of each part -> those that tokens are drawn from."""


def _side_by_side(whole: Decoder | Composed | Lagged) -> tuple[list[Decoder], Blend]:
    """The decoders that decode side by side, and what their logits make together."""
    if isinstance(whole, Composed):
        return [whole.base, whole.assistant], whole.logits
    if isinstance(whole, Lagged):
        return [whole.policy, whole.copy], whole.logits
    return [whole], _alone


def _alone(logits: Tensor) -> Tensor:
    """A single decoder's."""
    return logits


def _complete(parts: list[Part], blend: Blend, batch: list[tuple[int, Request]], sampling: Sampling, graphs: bool) -> Rollouts:
    """Decode one batch: groups of equal size (spare places count as finished), all at the same step of their completions."""
    device, dtype = parts[0].weights.norm.device, parts[0].weights.norm.dtype
    requests = [request for _, request in batch]
    width, length = max(request.count for request in requests), sampling.max_completion_length
    lengths = torch.tensor([len(request.prompt) for request in requests], device=device)
    longest = int(lengths.max())
    ids = torch.tensor([r.prompt + [sampling.pad] * (longest - len(r.prompt)) for r in requests], device=device)
    rows = [(r.key, r.first + i) for r in requests for i in range(width)]
    noise = torch.from_numpy(uniform_noise(sampling.seed, [key for key, _ in rows], [sample for _, sample in rows], length)).to(
        device
    )
    # Attention for one new token is bound by memory, where a CPU's float32 kernels beat its bfloat16 ones.
    caches = [Cache(part.shape, width, lengths, torch.float32 if device.type == "cpu" else dtype) for part in parts]
    positions = torch.arange(longest + length, device=device)
    tables = [[table[:, 0] for table in rotary(part.shape, positions, dtype)] for part in parts]

    tokens = torch.full((len(rows), length), sampling.pad, device=device)
    logprobs = torch.zeros(len(rows), length, device=device)
    places = torch.arange(len(rows), device=device).view(len(requests), width)
    counts = torch.tensor([request.count for request in requests], device=device)
    finished = torch.arange(width, device=device) >= counts[:, None]
    hidden = [c.prefill(part.weights, ids)[:, None].expand(-1, width, -1) for c, part in zip(caches, parts, strict=True)]
    follow = _follow(parts, caches, tables, finished, graphs)
    for step in range(length):
        logits = blend(*(F.linear(h, part.weights.head).float().flatten(0, 1) for h, part in zip(hidden, parts, strict=True)))
        drawn, chances = draw_tokens(logits, noise[places.flatten(), step], sampling)
        tokens[places.flatten(), step] = drawn
        logprobs[places.flatten(), step] = chances
        if sampling.eos is not None:
            finished |= drawn.view_as(finished) == sampling.eos
            if finished.all():
                break
        if step + 1 == length:
            break
        if step and step % BLOCK == 0:
            places, finished, drawn = _retire(caches, places, finished, drawn)
            follow = _follow(parts, caches, tables, finished, graphs)
        hidden = follow(drawn.view_as(finished), step)
    real = [g * width + i for g, request in enumerate(requests) for i in range(request.count)]
    return assemble(batch, tokens[real], logprobs[real], sampling)


def _follow(
    parts: list[Part], caches: list[Cache], tables: list[list[Tensor]], like: Tensor, graphs: bool
) -> Callable[[Tensor, int], list[Tensor]]:
    """Next tokens (groups, samples), of the shape of `like`, and their place among the completions' -> the hidden states that
    follow, of each part; for as long as the caches keep their shapes."""

    def step(ids: Tensor, place: int | Tensor) -> list[Tensor]:
        positions = caches[0].lengths + place
        ropes = [(cos[positions][:, None, None], sin[positions][:, None, None]) for cos, sin in tables]
        fixed = place if isinstance(place, Tensor) else None
        return [c.decode(p.weights, ids, rope, fixed) for c, p, rope in zip(caches, parts, ropes, strict=True)]

    return Replay(step, like.long()) if graphs else step


def _retire(caches: list[Cache], places: Tensor, finished: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Drop finished groups, and from the others as many finished samples as leave all groups equally wide."""
    alive = (~finished).sum(1)
    groups = alive.nonzero()[:, 0]
    samples = finished[groups].int().argsort(dim=1, stable=True)[:, : int(alive.max())].sort(dim=1).values
    for cache in caches:
        cache.keep(groups, samples)
    kept = [rows.view(finished.shape)[groups].gather(1, samples) for rows in (places, finished, drawn)]
    return kept[0], kept[1], kept[2].flatten()
