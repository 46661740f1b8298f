"""Sampling requests and rollouts, and what is kept of an episode between two requests; sampling noise keyed by (seed, prompt,
sample, position); drawing tokens from logits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from interplay.core import random
from interplay.kernels import exact
from interplay.model.heads import nucleus_mask

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


# What is kept of an episode from turn to turn, so that a turn reads what is new alone.
#
# Where kernels compute the layers, a key or value is a function of the tokens up to its own: the operations and their order are
# those of a pass over all of them, however many rows share a pass and wherever it is cut (docs/numerics.md). So no byte of a
# sample depends on what is kept, and what is kept may be dropped at any time: by the limit of memory, by a kill, or because the
# next context is another. A context reuses what it has in common with the last one from the first token on, by comparison of the
# tokens themselves. The sums of PyTorch's products depend on the rows of a pass, so there (float32, bfloat16) nothing is kept:
# last bits would depend on what was kept.


class Kept:
    """What an engine keeps of one sample."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.pieces: list[Tensor] = []
        """Keys and values of the tokens, one piece after the other, (layers, 2, n, kv heads, head_dim) float32 each. The samples
        of a group share that of their prompt."""

    def common(self, prompt: list[int]) -> int:
        """With how many of the tokens the prompt begins, its last token left out, which is passed in any case."""
        most = min(len(self.tokens), len(prompt) - 1)
        if prompt[:most] == self.tokens[:most]:  # at once, where nothing parts
            return most
        return next(i for i in range(most) if prompt[i] != self.tokens[i])

    def cut(self, count: int) -> None:
        """Drop all but the first tokens. Of the piece that they end in there is a view, which takes no memory and stays shared;
        its end stays, too, as long as the piece does."""
        del self.tokens[count:]
        for place, piece in enumerate(self.pieces):
            if piece.shape[2] > count:
                self.pieces[place:] = [piece[:, :, :count]] * (count > 0)
                break
            count -= piece.shape[2]

    def copy(self) -> "Kept":
        """The same for an episode that branches off."""
        made = Kept()
        made.tokens, made.pieces = [*self.tokens], [*self.pieces]
        return made


class Room:
    """Memory for what is kept: `limit` bytes for all that is alive."""

    def __init__(self, limit: int) -> None:
        self.limit, self.left = limit, 0
        self.alive = WeakSet[Kept]()

    def count(self, requests: Iterable["Request"]) -> None:
        """What is left of it next to what is kept of these and of earlier requests."""
        self.alive.update(one for request in requests for one in request.kept)
        held = (piece.untyped_storage() for one in self.alive for piece in one.pieces)
        self.left = self.limit - sum({one.data_ptr(): one.nbytes() for one in held}.values())

    def add(self, some: Iterable[Kept], piece: Tensor, tokens: list[int]) -> bool:
        """Whether the piece fits in, which is that of these tokens in all of `some`; a copy of it is kept."""
        fits = piece.nbytes <= self.left
        if fits:
            self.left -= piece.nbytes
            kept = piece.clone()
            for one in some:
                one.pieces.append(kept)
                one.tokens += tokens
        return fits


# What an engine is asked for and what it gives back.


@dataclass(frozen=True)
class Request:
    """Samples first .. first + count - 1 of one prompt. `key` names the prompt in the noise: equal keys, equal noise."""

    prompt: list[int]
    key: int
    first: int
    count: int
    kept: tuple[Kept, ...] = field(default=(), compare=False, repr=False)
    """Of each sample, where its episode goes on. Those of one request have the same history."""

    def part(self, skipped: int, count: int) -> "Request":
        """Some of the samples."""
        return replace(self, first=self.first + skipped, count=count, kept=self.kept[skipped : skipped + count])


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

    def written(self) -> list[list[int]]:
        """Each completion without what pads it."""
        return unpadded(self.tokens, self.lengths)


def unpadded(rows: torch.Tensor, lengths: torch.Tensor) -> list[list[Any]]:
    """Rows (N, T) as lists, each as long as `lengths` (N,) says."""
    return [row[:length] for row, length in zip(rows.tolist(), lengths.tolist(), strict=True)]


def select_rows(value: Any, rows: Tensor) -> Any:
    """The given rows (M,) int64 of a tensor, of a list, or of each value of a dict; None of None."""
    if isinstance(value, Tensor):
        return value[rows]
    if isinstance(value, dict):
        return {name: select_rows(item, rows) for name, item in value.items()}
    return value if value is None else [value[i] for i in rows.tolist()]


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
            (index, request.part(first, min(rows, request.count - first)))
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


def share_prompts(requests: Sequence[Request]) -> list[Request]:
    """The same samples in the same order, where neighbours that ask for the next samples of one prompt, and of which nothing is
    kept yet, are one request: its prompt is passed once. Only for an engine whose bytes do not depend on what shares a pass."""
    made: list[Request] = []
    for one in requests:
        if made and _follows(made[-1], one):
            made[-1] = replace(made[-1], count=made[-1].count + one.count, kept=made[-1].kept + one.kept)
        else:
            made.append(one)
    return made


def _follows(last: Request, one: Request) -> bool:
    same = (one.key, one.first, bool(one.kept)) == (last.key, last.first + last.count, bool(last.kept))
    return same and one.prompt == last.prompt and not any(kept.tokens for kept in (*last.kept, *one.kept))


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
