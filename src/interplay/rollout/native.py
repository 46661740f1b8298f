"""The `native` engine: the project's own decoder, its cache and noise that is keyed by what a token is."""

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.model.decoder import Decoder, Weights, rotary
from interplay.rollout.cache import BLOCK, Cache
from interplay.rollout.noise import uniform
from interplay.rollout.request import Request, Rollouts, Sampling, assemble, join, split
from interplay.rollout.sample import draw
from interplay.schema.run import Run


class Native:
    """Samples from `decoder` in `dtype`. Weights are read anew at every call, so a trained decoder needs no synchronising."""

    def __init__(self, decoder: Decoder, how: Run, dtype: torch.dtype) -> None:
        self.decoder, self.rows, self.dtype = decoder, how.engine_batch, dtype

    @torch.inference_mode()
    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests. The same requests give the same bits; so do their whole batches, see `request.split`."""
        weights = self.decoder.weights(self.dtype)
        return join([_complete(self.decoder, weights, batch, sampling) for batch in split(requests, self.rows)], sampling)


def _complete(decoder: Decoder, weights: Weights, batch: list[tuple[int, Request]], sampling: Sampling) -> Rollouts:
    """Decode one batch: groups of equal size (spare places count as finished), all at the same step of their completions."""
    device, shape = weights.norm.device, decoder.shape
    requests = [request for _, request in batch]
    width, length = max(request.count for request in requests), sampling.max_completion_length
    lengths = torch.tensor([len(request.prompt) for request in requests], device=device)
    longest = int(lengths.max())
    ids = torch.tensor([r.prompt + [sampling.pad] * (longest - len(r.prompt)) for r in requests], device=device)
    rows = [(r.key, r.first + i) for r in requests for i in range(width)]
    noise = torch.from_numpy(uniform(sampling.seed, [key for key, _ in rows], [sample for _, sample in rows], length)).to(device)
    # Attention for one new token is bound by memory, where a CPU's float32 kernels beat its bfloat16 ones.
    cache = Cache(shape, width, lengths, torch.float32 if device.type == "cpu" else weights.norm.dtype)
    tables = [table[:, 0] for table in rotary(shape, torch.arange(longest + length, device=device), weights.norm.dtype)]

    tokens = torch.full((len(rows), length), sampling.pad, device=device)
    logprobs = torch.zeros(len(rows), length, device=device)
    places = torch.arange(len(rows), device=device).view(len(requests), width)
    counts = torch.tensor([request.count for request in requests], device=device)
    finished = torch.arange(width, device=device) >= counts[:, None]
    hidden = cache.prefill(weights, ids)[:, None].expand(-1, width, -1)
    for step in range(length):
        logits = F.linear(hidden, weights.head).float().flatten(0, 1)
        drawn, chances = draw(logits, noise[places.flatten(), step], sampling)
        tokens[places.flatten(), step] = drawn
        logprobs[places.flatten(), step] = chances
        if sampling.eos is not None:
            finished |= drawn.view_as(finished) == sampling.eos
            if finished.all():
                break
        if step + 1 == length:
            break
        if step and step % BLOCK == 0:
            places, finished, drawn = _retire(cache, places, finished, drawn)
        positions = cache.lengths + step
        rope = (tables[0][positions][:, None, None], tables[1][positions][:, None, None])
        hidden = cache.decode(weights, drawn.view_as(finished), rope)
    real = [g * width + i for g, request in enumerate(requests) for i in range(request.count)]
    return assemble(batch, tokens[real], logprobs[real], sampling)


def _retire(cache: Cache, places: Tensor, finished: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Drop finished groups, and from the others as many finished samples as leave all groups equally wide."""
    alive = (~finished).sum(1)
    groups = alive.nonzero()[:, 0]
    samples = finished[groups].int().argsort(dim=1, stable=True)[:, : int(alive.max())].sort(dim=1).values
    cache.keep(groups, samples)
    kept = [rows.view(finished.shape)[groups].gather(1, samples) for rows in (places, finished, drawn)]
    return kept[0], kept[1], kept[2].flatten()
