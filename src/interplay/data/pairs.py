"""Pairs of completions as tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from interplay.data import pool, sets, tokenizer
from interplay.schema.base import UserError
from interplay.tasks.row import UNFINISHED, Row


class Pairs(NamedTuple):
    """P pairs, each as token lists; completions end with the end of sequence."""

    prompts: list[list[int]]
    chosen: list[list[int]]
    rejected: list[list[int]]
    rows: list[Row]
    """What they were made from."""

    def tokens(self, places: np.ndarray) -> int:
        """Tokens of these pairs (N,), a prompt once for both of its completions."""
        return sum(len(self.prompts[i]) + len(self.chosen[i]) + len(self.rejected[i]) for i in places.tolist())


def load(folders: Sequence[Path], mix: list[float], tokenizer_of: Path, seed: int, max_length: int, stage: str) -> Pairs:
    """The pairs of problem sets in these shares, in the order of the sets; which ones where a set has too many is drawn from
    the seed. Raises UserError where a set has none, or a completion is longer with its prompt than `max_length`; `stage` is who
    asks."""
    each = [[row for row in sets.rows(folder, number) if row.rejected] for number, folder in enumerate(folders)]
    for folder, rows in zip(folders, each, strict=True):
        if not rows:
            raise UserError(f"{stage}: data: {folder} holds no pairs; make them with a step preference_pairs")
    chosen = sets.in_shares([len(rows) for rows in each], mix, "pairs", seed)
    return encode([rows[i] for rows, places in zip(each, chosen, strict=True) for i in places], tokenizer_of, max_length, stage)


def encode(rows: list[Row], tokenizer_of: Path, max_length: int, stage: str) -> Pairs:
    """Rows with a rejected completion as tokens. Raises UserError where one is longer with its prompt than `max_length`."""
    encoder, eos = tokenizer.load(tokenizer_of), tokenizer.special(tokenizer_of).eos
    end = [] if eos is None else [eos]
    prompts, chosen, rejected = (
        pool.encode(encoder, [getattr(row, name) for row in rows]) for name in ("prompt", "solution", "rejected")
    )
    chosen = [ids + (end if row.mode != UNFINISHED else []) for ids, row in zip(chosen, rows, strict=True)]
    rejected = [ids + end for ids in rejected]
    longest = max(len(p) + max(len(c), len(r)) for p, c, r in zip(prompts, chosen, rejected, strict=True))
    if longest > max_length:
        raise UserError(
            f"{stage}: max_length = {max_length}: the longest prompt with a completion has {longest} tokens; raise it, or leave "
            "such rows out with a step `length`"
        )
    return Pairs(prompts, chosen, rejected, rows)


def pieces(pairs: Pairs, places: np.ndarray, pass_tokens: int) -> list[np.ndarray]:
    """Cut `places` (N,) into pieces of at most `pass_tokens` tokens each, padding counted; a pair that exceeds that by itself
    stands alone. Pairs of about one length meet, so that little is padded."""

    def width(i: int) -> int:
        return max(len(pairs.chosen[i]), len(pairs.rejected[i]))

    found: list[list[int]] = []
    for i in sorted(places.tolist(), key=lambda i: (-width(i), -len(pairs.prompts[i]))):
        wide = 2 * width(found[-1][0]) if found else 0
        high = max((len(pairs.prompts[j]) for j in (*found[-1], i)), default=0) if found else 0
        if not found or (len(found[-1]) + 1) * (wide + high) > pass_tokens:
            found.append([])
        found[-1].append(i)
    return [np.array(piece) for piece in found]


def padded(completions: Sequence[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Completions as (n, T) int64 on the device, filled with 0 on the right, and their lengths (n,) int64."""
    longest = max(map(len, completions))
    rows = [[*tokens, *[0] * (longest - len(tokens))] for tokens in completions]
    return torch.tensor(rows, device=device), torch.tensor([len(tokens) for tokens in completions])
