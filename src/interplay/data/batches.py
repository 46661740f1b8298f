"""Batches of training: the order of rows, sequences as tensors, prefetching; preference pairs as tokens, few-shot contexts."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from interplay.core import model, random
from interplay.core.random import generator
from interplay.data import sets, tokenizer
from interplay.data.corpus import PackedRows, index_ranges
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import UNFINISHED, Row

CHUNK = 1 << 14
"""Rows counted at a time."""
MIN_BUCKET = 512
"""Least tokens of a bucket, except the last one."""


def epoch_order(rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the rows in one pass over the corpus, (rows,). Kept for the last two epochs of each seed."""
    kept = _orders(rows, seed)
    if epoch not in kept:
        if len(kept) > 1:
            del kept[next(iter(kept))]
        kept[epoch] = generator("epoch", seed, epoch).permutation(rows)
    return kept[epoch]


@lru_cache(maxsize=256)
def _orders(rows: int, seed: int) -> dict[int, np.ndarray]:
    return {}


def rows_between(rows: int, seed: int, start: int, end: int) -> np.ndarray:
    """Row numbers (end - start,) at places start..end-1 of the concatenation of all epochs."""
    places = np.arange(start, end)
    return np.concatenate(
        [epoch_order(rows, seed, epoch)[places[places // rows == epoch] % rows] for epoch in np.unique(places // rows)]
    )


def tokens_per_row(corpus: PackedRows) -> np.ndarray:
    """Tokens of each row without padding, (rows,) int64; in chunks, since a corpus may exceed memory."""
    rows = corpus.segments.shape[0]
    chunks = (np.arange(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK))
    return np.concatenate([(corpus.segments[chunk] != 0).sum(1) for chunk in chunks])


def steps_for(tokens: int, per_row: np.ndarray, rows_per_step: int, seed: int) -> int:
    """The least number of steps that train on at least `tokens` tokens, padding excluded, given those of each row (rows,)."""
    epochs, rest = divmod(tokens, int(per_row.sum()))
    seen = np.cumsum(per_row[epoch_order(len(per_row), seed, epochs)])
    last = int(np.searchsorted(seen, rest)) + 1 if rest else 0
    return -(-(epochs * len(per_row) + last) // rows_per_step)


IGNORED = -100
"""Target of places that pad a stacked batch, which cross-entropy leaves out."""


class Batch(NamedTuple):
    """Sequences of one forward pass, concatenated in buckets of similar length: N tokens with padding, M of which bear loss."""

    ids: Tensor
    """(N,) int64."""
    positions: Tensor
    """(N,) int64: distance from the start of the sequence."""
    buckets: list[tuple[int, int]]
    """(sequences, length) of each bucket, in order: sequences * length tokens, shorter sequences padded on the right."""
    before: Tensor
    """(M,) int64: places in 0..N-1 whose next token bears loss."""
    targets: Tensor
    """(M,) int64: those next tokens."""
    sequence: np.ndarray
    """(M,) int64: the sequence each target belongs to, numbered as given to `batch_of_sequences`."""
    units: list[int] | None = None
    """Tokens of each unit, in order, whose gradient is made by itself; None: of the batch as it is."""


class Sequences(NamedTuple):
    """Sequences whose tokens are concatenated."""

    tokens: np.ndarray
    """(sum of lengths,)."""
    lengths: np.ndarray
    """(sequences,)."""
    bears: np.ndarray
    """(sum of lengths,) bool: tokens that bear loss."""
    jumps: np.ndarray | None = None
    """(sum of lengths,): added to the positions of a token and of all later ones of its sequence."""


def sequences_of_rows(corpus: PackedRows, rows: np.ndarray, jumps: np.ndarray | None = None) -> Sequences:
    """The sequences of rows (rows,), each a run of equal segment numbers: with isolated packing the problems of a row do not
    attend to each other, so attention, quadratic in the length, need not span the row. `jumps` (rows, T) are of their tokens."""
    segments = corpus.segments[rows]
    real = segments != 0
    starts = real.copy()
    starts[:, 1:] &= segments[:, 1:] != segments[:, :-1]
    first = np.flatnonzero(starts[real])
    lengths = np.diff(first, append=real.sum())
    return Sequences(corpus.tokens[rows][real], lengths, corpus.loss[rows][real] != 0, None if jumps is None else jumps[real])


def batch_of_rows(
    corpus: PackedRows, rows: np.ndarray, device: torch.device, jumps: np.ndarray | None = None, units: list[int] | None = None
) -> Batch:
    """A batch of the sequences of rows (rows,); `jumps` (rows, T) are of their tokens."""
    return batch_of_sequences(sequences_of_rows(corpus, rows, jumps), device, units)


def batch_of_sequences(given: Sequences, device: torch.device, units: list[int] | None = None) -> Batch:
    """A batch of these sequences; in units as they are, one after the other without padding."""
    if units is None:
        order = np.argsort(-given.lengths, kind="stable")
        buckets = bucket_lengths(given.lengths[order].tolist())
    else:
        order, buckets = np.arange(len(given.lengths)), [(1, length) for length in given.lengths.tolist()]
    placed = _place(given, order, buckets)
    flat = [_to_device(device, torch.from_numpy(array)) for array in placed[:4]]
    return Batch(flat[0], flat[1], buckets, flat[2], flat[3], placed[4], units)


def stacked_batch(given: Sequence[Sequences], device: torch.device) -> Batch:
    """A batch of the sequences of several replicas, in the same buckets, which are as long as the longest replica needs: ids and
    positions are (replicas, N), `before` and `targets` (replicas, M), padded with 0 and with IGNORED. `before` counts through
    the tokens of all replicas; `sequence` is that of each replica, concatenated."""
    orders = [np.argsort(-each.lengths, kind="stable") for each in given]
    longest = np.zeros(max(map(len, orders)), np.int64)
    for each, order in zip(given, orders, strict=True):
        longest[: len(order)] = np.maximum(longest[: len(order)], each.lengths[order])
    buckets = bucket_lengths(longest.tolist(), len(given))
    placed = [_place(each, order, buckets) for each, order in zip(given, orders, strict=True)]
    size, most = len(placed[0][0]), max(len(one[2]) for one in placed)
    ids, positions = (np.stack([one[part] for one in placed]) for part in (0, 1))
    before, targets = np.zeros((len(given), most), np.int64), np.full((len(given), most), IGNORED)
    for replica, one in enumerate(placed):
        before[replica, : len(one[2])] = one[2] + replica * size
        targets[replica, : len(one[3])] = one[3]
    flat = [_to_device(device, torch.from_numpy(array)) for array in (ids, positions, before, targets)]
    return Batch(flat[0], flat[1], buckets, flat[2], flat[3], np.concatenate([one[4] for one in placed]))


def _place(given: Sequences, order: np.ndarray, buckets: list[tuple[int, int]]) -> tuple[np.ndarray, ...]:
    """ids, positions, before, targets and sequence of a batch of sequences, placed in this order into buckets that have room."""
    tokens, lengths, bears, jumps = given
    widths = np.repeat([length for _, length in buckets], [count for count, _ in buckets])
    source = index_ranges((np.cumsum(lengths) - lengths)[order], lengths[order])
    place = index_ranges((np.cumsum(widths) - widths)[: len(order)], lengths[order])
    ids = np.zeros(int(widths.sum()), np.int64)
    ids[place] = tokens[source]
    targets = place[bears[source]]
    sequence = np.repeat(order, lengths[order])[bears[source]]
    positions = index_ranges(np.zeros_like(widths), widths)
    if jumps is not None:
        positions[place] += _cumulative_jumps(jumps, lengths)[source]
    before, following = targets - 1, ids[targets]
    return ids, positions, before, following, sequence


def _to_device(device: torch.device, tensor: Tensor) -> Tensor:
    """Copy to a GPU from pinned memory, without blocking."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _cumulative_jumps(jumps: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Running sum of jumps (sum of lengths,) within each sequence."""
    total = np.cumsum(jumps)
    starts = np.cumsum(lengths) - lengths
    return total - np.repeat((total - jumps)[starts], lengths)


def bucket_lengths(lengths: list[int], replicas: int = 1) -> list[tuple[int, int]]:
    """Cut descending lengths into buckets of (sequences, longest length), each for so many replicas.

    A bucket ends where padding would exceed an eighth of a sequence, once it has MIN_BUCKET tokens: smaller ones save nothing."""
    buckets, count, longest = [], 0, lengths[0]
    for length in lengths:
        if 8 * length < 7 * longest and replicas * count * longest >= MIN_BUCKET:
            buckets.append((count, longest))
            count, longest = 0, length
        count += 1
    return [*buckets, (count, longest)]


# Prefetching.


T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Calls `make` for step numbers in order, up to `last`. On a GPU a thread makes the batch of the next step while the current
    step runs."""

    def __init__(self, make: Callable[[int], T], last: int, device: torch.device) -> None:
        self.make, self.last = make, last
        # The current GPU is set per thread and starts at 0, also where the process uses another.
        here = partial(torch.cuda.set_device, device)
        self.pool = ThreadPoolExecutor(1, "prefetch", initializer=here) if device.type == "cuda" else None
        self.pending: dict[int, Future[T]] = {}

    def __call__(self, number: int) -> T:
        """The batch of a step."""
        made = self.pending.pop(number).result() if number in self.pending else self.make(number)
        if self.pool and number < self.last:
            self.pending = {number + 1: self.pool.submit(self.make, number + 1)}
        return made


class Pairs(NamedTuple):
    """P pairs as lists of tokens; completions end with the end of sequence."""

    prompts: list[list[int]]
    chosen: list[list[int]]
    rejected: list[list[int]]
    rows: list[Row]
    """The row of each pair."""
    further: Sequence[list[list[int]]] = ()
    """Of ranked lists the completions behind the rejected one, best first."""

    def count_tokens(self, places: np.ndarray) -> int:
        """Tokens of these pairs (N,); a prompt counts once for both completions."""
        more = sum(len(one) for i in places.tolist() for one in self.behind(i))
        return more + sum(len(self.prompts[i]) + len(self.chosen[i]) + len(self.rejected[i]) for i in places.tolist())

    def behind(self, i: int) -> list[list[int]]:
        """What a ranked list has behind the rejected completion."""
        return self.further[i] if self.further else []


def load_pairs(
    folders: Sequence[Path],
    mix: list[float],
    tokenizer_of: Path,
    seed: int,
    max_length: int,
    stage: str,
    few_shot: int = 0,
    lists: bool = False,
    single: bool = False,
) -> Pairs:
    """The pairs of problem sets in these shares, in the order of the sets; which pairs of a larger set are left out is drawn from
    the seed. With `few_shot`, that many pairs of its rater precede each prompt (`few_shot_prompt`); with `lists`, ranked lists
    are read whole, in place of their first two; with `single`, rows with one completion are kept, whose rejected one is empty.
    `stage` names the kind in errors. Raises UserError where there are no pairs, a rater has too few, or a prompt with a
    completion exceeds `max_length` tokens."""
    each = [[row for row in sets.read_rows(folder, number) if row.rejected or single] for number, folder in enumerate(folders)]
    paired = any(row.rejected for rows in each for row in rows)
    for folder, rows in zip(folders, each, strict=True):
        if not rows or not paired:
            raise model.UserError(f"{stage}: data: {folder} holds no pairs; make them with a step preference_pairs")
    chosen = sets.draw_shares([len(rows) for rows in each], mix, "pairs", seed)
    taken = [rows[i] for rows, places in zip(each, chosen, strict=True) for i in places]
    encoder, eos = tokenizer.load(tokenizer_of), tokenizer.special(tokenizer_of).eos
    shots = draw_shots(taken, few_shot, seed, stage) if few_shot else [[]] * len(taken)
    texts = [few_shot_prompt(row, [taken[i] for i in of_row]) for row, of_row in zip(taken, shots, strict=True)]
    prompts = tokenizer.encode_turns(encoder, texts, eos)
    good = tokenizer.encode_texts(encoder, [row.solution for row in taken])
    good = [ids + [eos] * (row.mode != UNFINISHED) for ids, row in zip(good, taken, strict=True)]
    worse = [row.rejected.split(MARK) for row in taken]
    bad = [[*ids, eos] for ids in tokenizer.encode_texts(encoder, [texts[0] for texts in worse])]
    further = [[[*ids, eos] for ids in tokenizer.encode_texts(encoder, texts[1:])] for texts in worse] if lists else []
    others = further or [[]] * len(taken)
    longest = max(len(p) + max(map(len, (c, r, *more))) for p, c, r, more in zip(prompts, good, bad, others, strict=True))
    if longest > max_length:
        raise model.UserError(
            f"{stage}: max_length = {max_length}: the longest prompt with a completion has {longest} tokens; raise it, or drop "
            "such rows with a step `length`"
        )
    return Pairs(prompts, good, bad, taken, further)


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
        return max(len(pairs.chosen[i]), len(pairs.rejected[i]), sum(map(len, pairs.behind(i))))

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
