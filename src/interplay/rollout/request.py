"""What an engine is asked for and what it gives back."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from interplay.rollout.uncertainty import Heat


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

    request: Tensor
    """(N,) int64: index of the request."""
    sample: Tensor
    """(N,) int64: number of the sample."""
    tokens: Tensor
    """(N, T) int64: completion with its end token, then pad."""
    lengths: Tensor
    """(N,) int64: tokens of the completion, its end token included."""
    logprobs: Tensor
    """(N, T) float32: log-probabilities at the temperature that the token had, before top-p and top-k; 0 after the end."""
    truncated: Tensor
    """(N,) bool: ended by the length limit."""


def split(requests: list[Request], rows: int) -> list[list[tuple[int, Request]]]:
    """Cut (index, request) pairs into batches of at most `rows` samples; a request larger than that is cut itself.

    A batch is filled in order, counting every request as its largest, so a list of requests of one size that is handed over in
    whole batches gives what it gives at once."""
    batches: list[list[tuple[int, Request]]] = [[]]
    widest = 0
    for index, request in enumerate(requests):
        for first in range(0, request.count, rows):
            part = replace(request, first=request.first + first, count=min(rows, request.count - first))
            widest = max(widest, part.count)
            if (len(batches[-1]) + 1) * widest > rows:
                batches.append([])
                widest = part.count
            batches[-1].append((index, part))
    return [batch for batch in batches if batch]


def assemble(batch: list[tuple[int, Request]], tokens: Tensor, logprobs: Tensor, sampling: Sampling) -> Rollouts:
    """Rollouts of raw rows (N, T), one per sample of the batch: whatever follows the end token is blanked."""
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

    def fit(part: Rollouts, name: str) -> Tensor:
        value = getattr(part, name)
        if value.dim() == 1:
            return value
        return torch.nn.functional.pad(value[:, :width], (0, max(0, width - value.shape[1])), value=fill[name])

    return Rollouts(*(torch.cat([fit(part, name) for part in parts]) for name in Rollouts._fields))
