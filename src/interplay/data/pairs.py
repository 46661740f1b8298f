"""Preference pairs as tokens: loading, few-shot contexts, micro-batches."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from interplay.core import model, random
from interplay.data import sets, tokenizer
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import UNFINISHED, Row


class Pairs(NamedTuple):
    """P pairs as lists of tokens; completions end with the end of sequence."""

    prompts: list[list[int]]
    chosen: list[list[int]]
    rejected: list[list[int]]
    rows: list[Row]
    """The row of each pair."""

    def count_tokens(self, places: np.ndarray) -> int:
        """Tokens of these pairs (N,); a prompt counts once for both completions."""
        return sum(len(self.prompts[i]) + len(self.chosen[i]) + len(self.rejected[i]) for i in places.tolist())


def load_pairs(
    folders: Sequence[Path], mix: list[float], tokenizer_of: Path, seed: int, max_length: int, stage: str, few_shot: int = 0
) -> Pairs:
    """The pairs of problem sets in these shares, in the order of the sets; which pairs of a larger set are left out is drawn from
    the seed. With `few_shot`, that many pairs of its rater precede each prompt (`few_shot_prompt`). `stage` names the kind in
    errors. Raises UserError where a set has no pairs, a rater has too few, or a prompt with a completion exceeds `max_length`
    tokens."""
    each = [[row for row in sets.read_rows(folder, number) if row.rejected] for number, folder in enumerate(folders)]
    for folder, rows in zip(folders, each, strict=True):
        if not rows:
            raise model.UserError(f"{stage}: data: {folder} holds no pairs; make them with a step preference_pairs")
    chosen = sets.draw_shares([len(rows) for rows in each], mix, "pairs", seed)
    taken = [rows[i] for rows, places in zip(each, chosen, strict=True) for i in places]
    encoder, eos = tokenizer.load(tokenizer_of), tokenizer.special(tokenizer_of).eos
    shots = draw_shots(taken, few_shot, seed, stage) if few_shot else [[]] * len(taken)
    texts = [few_shot_prompt(row, [taken[i] for i in of_row]) for row, of_row in zip(taken, shots, strict=True)]
    prompts = tokenizer.encode_turns(encoder, texts, eos)
    good = tokenizer.encode_texts(encoder, [row.solution for row in taken])
    good = [ids + [eos] * (row.mode != UNFINISHED) for ids, row in zip(good, taken, strict=True)]
    bad = [[*ids, eos] for ids in tokenizer.encode_texts(encoder, [row.rejected for row in taken])]
    longest = max(len(p) + max(len(c), len(r)) for p, c, r in zip(prompts, good, bad, strict=True))
    if longest > max_length:
        raise model.UserError(
            f"{stage}: max_length = {max_length}: the longest prompt with a completion has {longest} tokens; raise it, or drop "
            "such rows with a step `length`"
        )
    return Pairs(prompts, good, bad, taken)


def draw_shots(rows: Sequence[Row], count: int, seed: int, stage: str) -> list[list[int]]:
    """For each pair, the numbers of `count` other pairs of its rater with another question, drawn from the seed. Raises UserError
    where pairs have no rater, or a rater has too few."""
    of_rater: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        of_rater[row.rater].append(number)
    if "" in of_rater:
        raise model.UserError(f"{stage}: data: pairs without a rater; make them with a step rated_pairs")
    same_origin = Counter((row.rater, row.origin) for row in rows)
    found = []
    for number, row in enumerate(rows):
        pairs, chosen = of_rater[row.rater], dict[int, None]()
        others = len(pairs) - same_origin[row.rater, row.origin]
        if others < count:
            raise model.UserError(f"{stage}: needs {count} other pairs of the rater '{row.rater}', and a pair has {others}")
        stream = random.generator("shots", seed, number)
        while len(chosen) < count:
            one = pairs[int(stream.integers(len(pairs)))]
            if rows[one].origin != row.origin:
                chosen[one] = None
        found.append(list(chosen))
    return found


def few_shot_prompt(row: Row, shots: Sequence[Row]) -> str:
    """A prompt after pairs: for each pair its prompt, the chosen and the rejected completion, with an end token after either
    completion (data.tokenizer.encode_turns)."""
    return MARK.join([*(part for one in shots for part in (one.prompt, one.solution, "", one.rejected)), row.prompt])


def micro_batches(pairs: Pairs, places: np.ndarray, pass_tokens: int) -> list[np.ndarray]:
    """Split the pairs `places` (N,) into micro-batches of at most `pass_tokens` tokens, padding included; a longer pair is one by
    itself. Pairs are sorted by length, so that little is padded."""

    def width(i: int) -> int:
        return max(len(pairs.chosen[i]), len(pairs.rejected[i]))

    found: list[list[int]] = []
    for i in sorted(places.tolist(), key=lambda i: (-width(i), -len(pairs.prompts[i]))):
        wide = 2 * width(found[-1][0]) if found else 0
        high = max((len(pairs.prompts[j]) for j in (*found[-1], i)), default=0) if found else 0
        if not found or (len(found[-1]) + 1) * (wide + high) > pass_tokens:
            found.append([])
        found[-1].append(i)
    return [np.array(places_of) for places_of in found]


def pad_completions(completions: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Completions as (n, T) int64 on the device, filled with 0 on the right, and their lengths (n,) int64."""
    longest = max(map(len, completions))
    rows = [[*tokens, *[0] * (longest - len(tokens))] for tokens in completions]
    return torch.tensor(rows, device=device), torch.tensor([len(tokens) for tokens in completions])
