"""Prompts as a model reads them: padded batches of bounded size."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

Encode = Callable[[Sequence[int]], list[list[int]]]
"""Ids -> tokens of their prompts."""
SLICE = 1000
"""Prompts whose tokens are at hand at once: a list takes many bytes a token, and a deck may hold more tokens than memory."""


def slices(encode: Encode, count: int) -> Iterator[list[list[int]]]:
    """The tokens of prompts 0 to count - 1, some at a time."""
    for start in range(0, count, SLICE):
        yield encode(range(start, min(start + SLICE, count)))


def lengths(encode: Encode, count: int) -> list[int]:
    """Tokens of prompts 0 to count - 1."""
    return [len(prompt) for some in slices(encode, count) for prompt in some]


def pieces(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """The numbers of all prompts in pieces of at most `tokens` tokens, padding counted (a prompt that exceeds that stands alone);
    those of about one length meet."""
    cut: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not cut or (len(cut[-1]) + 1) * lengths[cut[-1][0]] > tokens:
            cut.append([])
        cut[-1].append(i)
    return cut


def padded(prompts: Sequence[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids (n, T) int64 padded with 0 on the right, where a causal model's earlier states do not see it; and lengths (n,)."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    ids = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.int64)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    return ids.to(device), lengths.to(device)
