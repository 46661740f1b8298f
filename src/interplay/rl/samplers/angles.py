"""How alike the states of a prompt's tokens point (GAIN-RL, arXiv:2506.02281), by spans of tokens.

The released code cuts the block of the question out of the cosine matrix by slicing it twice along its rows, and at positions
that belong to one template. Here the fixed prefix is what all prompts begin with, and the question is the rest."""

from collections.abc import Sequence

import torch
from torch import Tensor

from interplay.model.decoder import Decoder
from interplay.rl.samplers.prompts import Encode, padded, pieces, slices


def common_prefix(prompts: Sequence[list[int]]) -> int:
    """Number of first tokens that all prompts share, each keeping at least one that is its own."""
    first, last = min(prompts), max(prompts)  # lists in order of their tokens: what these two share all share
    most = min(len(prompt) for prompt in prompts) - 1
    return next((i for i in range(most) if first[i] != last[i]), most)


def angles(states: Tensor, prefix: int) -> tuple[float, float]:
    """Of the states (T, D) of a prompt whose first `prefix` tokens are fixed: the mean cosine over the pairs i < j of tokens of
    the question, and over all pairs of one token of the question and one of the prefix. 0 where there is no pair.

    No matrix is needed: with unit vectors u, sum over i < j of u_i u_j = (|sum u|^2 - n) / 2."""
    unit = torch.nn.functional.normalize(states.double(), dim=-1)
    fixed, question = unit[:prefix].sum(0), unit[prefix:].sum(0)
    n = len(states) - prefix
    within = float((question @ question - n) / (n * (n - 1))) if n > 1 else 0.0
    across = float(question @ fixed / (n * prefix)) if n and prefix else 0.0
    return within, across


def score_all(decoder: Decoder, encode: Encode, count: int, tokens: int, dtype: torch.dtype) -> Tensor:
    """(P, 2) float64: `angles` of each of `count` prompts' states where they enter the last layer's MLP, in passes of `tokens`
    tokens. Prompts are encoded again for their pass, so that never all tokens are at hand."""
    sizes: list[int] = []
    ends: list[list[int]] = []  # of each slice first, last and shortest: what `common_prefix` looks at
    for some in slices(encode, count):
        sizes += map(len, some)
        ends += [min(some), max(some), min(some, key=len)]
    prefix, device = common_prefix(ends), decoder.head().device
    found = torch.zeros(count, 2, dtype=torch.float64)
    with torch.no_grad():
        for piece in pieces(sizes, tokens):
            ids, lengths = padded(encode(piece), device)
            states = decoder.mlp_input(ids, torch.arange(ids.shape[1], device=device)[None], dtype)
            for row, i in enumerate(piece):
                found[i] = torch.tensor(angles(states[row, : lengths[row]], prefix), dtype=torch.float64)
    return found
