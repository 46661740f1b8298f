"""Drawing tokens from logits with given noise."""

import torch
from torch import Tensor

from interplay.model.nucleus import nucleus
from interplay.rollout.request import Sampling
from interplay.rollout.uncertainty import heated


def draw(logits: Tensor, noise: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Tokens (N,) int64 and their log-probabilities (N,) float32 from logits (N, vocab) float32 and noise (N,) float64 in (0, 1).

    Inverts the cumulative distribution, summed in float64: the token is the first whose cumulative probability exceeds the noise.
    At temperature 0 the likeliest token is taken and its log-probability is that at temperature 1."""
    logprobs = (logits / sampling.temperature if sampling.temperature not in (0.0, 1.0) else logits).log_softmax(-1)
    if sampling.heat is not None:
        logprobs = heated(logprobs, sampling.heat)
    if sampling.temperature == 0.0:
        tokens = logprobs.argmax(-1)
    else:
        cumulative = keep(logprobs, sampling).exp().cumsum(-1, dtype=torch.float64)
        below = cumulative <= noise[:, None] * cumulative[:, -1:]
        tokens = below.sum(-1).clamp_(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


def keep(logprobs: Tensor, sampling: Sampling) -> Tensor:
    """Log-probabilities (N, vocab) with minus infinity outside top-k and, of what is left, outside top-p, as transformers has it:
    top-p keeps the smallest set of the likeliest tokens whose probabilities sum to at least p."""
    vocab = logprobs.shape[-1]
    if 0 < sampling.top_k < vocab:
        bound = logprobs.topk(sampling.top_k).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < bound, float("-inf"))
    if sampling.top_p < 1.0:
        logprobs = logprobs.masked_fill(~nucleus(logprobs, sampling.top_p), float("-inf"))
    return logprobs
