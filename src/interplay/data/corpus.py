"""Corpora: problem sets and texts mixed, tokenised and packed into rows of equal length."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap
from tokenizers import Tokenizer

from interplay.core import execution, model, random
from interplay.data import sets, tokenizer
from interplay.data.spec import CorpusSpec
from interplay.tasks import transcripts, verdict


class Encoded(NamedTuple):
    """Problems as tokens: prompt, solution and end of sequence of each, concatenated."""

    tokens: np.ndarray
    """(total,) uint32."""
    lengths: np.ndarray
    """(problems,) int64, end of sequence included."""
    prompts: np.ndarray
    """(problems,) int64: tokens of the prompt."""


class PackedRows(NamedTuple):
    """Rows of packed problems, each array (rows, sequence_length); memory-mapped when read from a corpus, concatenated when read
    from several."""

    tokens: "np.ndarray | ConcatenatedRows"
    """Ids, uint16 or uint32, 0 for padding."""
    segments: "np.ndarray | ConcatenatedRows"
    """uint16: 1-based number of the problem within the row, 0 for padding."""
    loss: "np.ndarray | ConcatenatedRows"
    """uint8: 1 where the token is a target that bears loss."""


def build_corpus(spec: CorpusSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `tokens.npy`, `segments.npy` and `loss.npy`, each (rows, sequence_length).

    Roles: `tokenizer` (or a model that carries one) and `data.<i>`, one per share of the mix."""
    roles = [f"data.{i}" for i in range(len(spec.mix))]
    if missing := [role for role in roles if role not in inputs]:
        raise model.UserError(
            f"corpus: mix has {len(spec.mix)} shares, but there is no {missing[0]}; give one problem set per share"
        )
    encoded = [encode_pieces(inputs[role], inputs["tokenizer"], spec.sequence_length)[0] for role in roles]
    rng = random.generator("corpus", spec.seed)
    taken = [select_problems(each, chosen) for each, chosen in zip(encoded, mix_problems(encoded, spec, rng), strict=True)]
    everything = Encoded(*(np.concatenate(parts) for parts in zip(*taken, strict=True)))
    shuffled = select_problems(everything, rng.permutation(len(everything.lengths)))
    placed = pack_best_fit(shuffled.lengths, spec.sequence_length)
    small = tokenizer.load(inputs["tokenizer"]).get_vocab_size() <= 1 << 16
    out.mkdir(parents=True, exist_ok=True)
    dtypes = {"tokens": np.uint16 if small else np.uint32, "segments": np.uint16, "loss": np.uint8}
    shape = (placed.rows, spec.sequence_length)
    arrays = {name: open_memmap(out / f"{name}.npy", "w+", dtype, shape) for name, dtype in dtypes.items()}
    for name in dtypes:
        allocate_file(out / f"{name}.npy")
    write_rows(shuffled, placed, spec.loss_on, spec.packing == "isolated", **arrays)
    for array in arrays.values():
        array.flush()
    sizes = np.array([len(each.tokens if spec.by == "tokens" else each.lengths) for each in taken], float)
    return {
        "rows": placed.rows,
        "tokens": len(shuffled.tokens),
        "loss_tokens": int(arrays["loss"].sum(dtype=np.int64)),
        "problems": len(shuffled.lengths),
        "problems_by_set": [len(each.lengths) for each in taken],
        "shares": [round(share, 6) for share in (sizes / sizes.sum()).tolist()],
        "longest_problem": int(shuffled.lengths.max()),
        "fill": round(len(shuffled.tokens) / arrays["tokens"].size, 6),
    }


def allocate_file(file: Path) -> None:
    """Allocate the disk space of a memory-mapped file, so that a full disk raises OSError here and not SIGBUS at a write."""
    with open(file, "r+b") as handle:
        try:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from None


def encode_pieces(data: Path, tokenizer_of: Path, width: int) -> tuple[Encoded, np.ndarray]:
    """A problem set as tokens, its documents cut into pieces of at most `width` tokens, of which the last one has the end of
    sequence; and the row of each problem or piece (problems,) int64. Of transcripts each turn is a problem."""
    encoded = encode_problems(data, tokenizer_of)
    table = sets.read_table(data, ["mode", "solution"])
    turns = [len(transcripts.policy_turns(solution)) for solution in table["solution"].to_pylist()]
    rows = np.repeat(np.arange(len(turns)), turns)
    documents = np.array([mode == transcripts.DOCUMENT for mode in table["mode"].to_pylist()], bool)[rows]
    pieces = np.where(documents, -(-encoded.lengths // width), 1)
    number = index_ranges(np.zeros_like(pieces), pieces)
    lengths = np.repeat(encoded.lengths, pieces)
    cut = np.repeat(documents, pieces)
    lengths = np.where(cut, np.minimum(lengths - number * width, width), lengths)
    return Encoded(encoded.tokens, lengths, np.repeat(encoded.prompts, pieces)), np.repeat(rows, pieces)


def encode_problems(data: Path, tokenizer_of: Path) -> Encoded:
    """A problem set as tokens. Prompt and solution are encoded separately, since generation starts from the prompt's own tokens.
    An unfinished solution has no end of sequence, so that a model does not learn to stop there. Transcripts: see
    `encode_transcripts`."""
    table = sets.read_table(data, ["prompt", "solution", "mode"])
    encoder, eos = tokenizer.load(tokenizer_of), tokenizer.special(tokenizer_of).eos
    texts = table["solution"].to_pylist()
    finished = np.array([mode != verdict.UNFINISHED for mode in table["mode"].to_pylist()], np.int64)
    asked = table["prompt"].to_pylist()
    if any(transcripts.MARK in text for text in (*texts, *asked)):
        return encode_transcripts(asked, texts, finished, encoder, eos)
    prompt, prompts = tokenizer.encode_all(encoder, asked)
    solution, solutions = tokenizer.encode_all(encoder, texts)
    lengths = prompts + solutions + finished
    starts = np.cumsum(lengths) - lengths
    tokens = np.full(int(lengths.sum()), eos, np.uint32)
    tokens[index_ranges(starts, prompts)] = prompt
    tokens[index_ranges(starts + prompts, solutions)] = solution
    return Encoded(tokens, lengths, prompts)


def encode_transcripts(prompts: list[str], solutions: list[str], finished: np.ndarray, encoder: Tokenizer, eos: int) -> Encoded:
    """Transcripts (tasks.environments.games) as tokens. Each turn becomes a problem, whose prompt is the transcript before it
    with the end tokens of earlier turns, as in an episode. A prompt may hold earlier turns, which are read alone."""
    before_it = [prompt.split(transcripts.MARK) for prompt in prompts]
    pieces = [[*read, *solution.split(transcripts.MARK)] for read, solution in zip(before_it, solutions, strict=True)]
    flat, sizes = tokenizer.encode_all(encoder, [piece for row in pieces for piece in row])
    ends = np.cumsum(sizes)
    texts = iter([flat[end - size : end] for end, size in zip(ends, sizes, strict=True)])
    found: list[np.ndarray] = []
    before: list[int] = []
    end = np.array([eos], flat.dtype)
    for row, read, is_finished in zip(pieces, before_it, finished.tolist(), strict=True):
        context = next(texts)
        for number in range(1, len(row)):
            text = next(texts)
            if number % 2 and number < len(read):  # what it wrote before
                context = np.concatenate([context, text, end])
            elif number % 2:  # what the policy writes
                turn = np.concatenate([text, end]) if is_finished or number + 1 < len(row) else text
                found.append(np.concatenate([context, turn]))
                before.append(len(context))
                context = found[-1]
            else:
                context = np.concatenate([context, text])
    lengths = np.array([len(each) for each in found], np.int64)
    return Encoded(np.concatenate(found).astype(np.uint32), lengths, np.array(before, np.int64))


def mix_problems(encoded: list[Encoded], spec: CorpusSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Problem numbers taken from each set: a random order of it, truncated so that the shares hold. The set that is smallest for
    its share is used up, and no problem is used twice."""
    orders = [rng.permutation(len(each.lengths)) for each in encoded]
    sizes = [
        np.cumsum(each.lengths[order] if spec.by == "tokens" else np.ones(len(order)))
        for each, order in zip(encoded, orders, strict=True)
    ]
    total = min(size[-1] / share for size, share in zip(sizes, spec.mix, strict=True) if share > 0)
    cuts = [np.searchsorted(size, total * share * (1 + 1e-9), side="right") for size, share in zip(sizes, spec.mix, strict=True)]
    return [order[:cut] for order, cut in zip(orders, cuts, strict=True)]


# Whole problems packed into rows of equal length.


class Placement(NamedTuple):
    """The place of each problem in the packed rows."""

    row: np.ndarray
    """(problems,) int64."""
    offset: np.ndarray
    """(problems,) int64: first column."""
    segment: np.ndarray
    """(problems,) int64: 1-based number within the row."""
    rows: int


def select_problems(encoded: Encoded, chosen: np.ndarray) -> Encoded:
    """The problems `chosen` (N,), in that order."""
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    lengths = encoded.lengths[chosen]
    return Encoded(encoded.tokens[index_ranges(starts[chosen], lengths)], lengths, encoded.prompts[chosen])


def index_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The indices starts[0], ..., starts[0] + lengths[0] - 1, starts[1], ... as one array (lengths.sum(),)."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + within


def pack_best_fit(lengths: np.ndarray, sequence_length: int) -> Placement:
    """Online best-fit packing: each problem goes into the open row with the least sufficient room, else into a new row. `lengths`
    (problems,) are tokens.

    A bit mask over rooms finds that row in constant time. Raises UserError when a problem is longer than a row."""
    if len(lengths) and lengths.max() > sequence_length:
        raise model.UserError(
            f"corpus: sequence_length = {sequence_length}: the longest problem needs {lengths.max()} tokens; raise it"
        )
    row, offset, segment = (np.zeros(len(lengths), np.int64) for _ in range(3))
    open_rows: list[list[int]] = [[] for _ in range(sequence_length + 1)]
    """Rows by room left."""
    rooms, rows = 0, 0
    problems_in: list[int] = []
    for i, length in enumerate(lengths.tolist()):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            place = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            room, place = sequence_length, rows
            rows += 1
            problems_in.append(0)
        problems_in[place] += 1
        row[i], offset[i], segment[i] = place, sequence_length - room, problems_in[place]
        left = room - length
        if left:
            open_rows[left].append(place)
            rooms |= 1 << left
    return Placement(row, offset, segment, rows)


def write_rows(
    encoded: Encoded, placed: Placement, loss_on: str, isolated: bool, tokens: np.ndarray, segments: np.ndarray, loss: np.ndarray
) -> None:
    """Write the problems into the arrays of rows (rows, sequence_length), which are zero before.

    Loss is borne by solution and end of sequence; with loss_on `all`, by every token except the first that attention reaches (of
    the problem when isolated, of the row when causal), which nothing predicts."""
    width = tokens.shape[1]
    place = index_ranges(placed.row * width + placed.offset, encoded.lengths)
    within = index_ranges(np.zeros_like(encoded.lengths), encoded.lengths)
    if loss_on == "solution":
        bears = within >= np.repeat(np.maximum(encoded.prompts, 1), encoded.lengths)
    else:
        bears = (within if isolated else place % width) > 0
    tokens.reshape(-1)[place] = encoded.tokens
    segments.reshape(-1)[place] = np.repeat(placed.segment, encoded.lengths) if isolated else 1
    loss.reshape(-1)[place] = bears


class ConcatenatedRows:
    """A lazy concatenation of arrays of equal width, (rows, width), indexed by row numbers; only indexed rows are copied."""

    def __init__(self, parts: list[np.ndarray]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.shape = (int(self.ends[-1]), parts[0].shape[1])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """The rows of these numbers (N,), in that order: (N, width)."""
        found = np.empty((len(rows), self.shape[1]), self.parts[0].dtype)
        holders = np.searchsorted(self.ends, rows, side="right")
        for holder in np.unique(holders):
            here, part = holders == holder, self.parts[holder]
            found[here] = part[rows[here] - (self.ends[holder] - len(part))]
        return found


def load_rows(paths: Sequence[Path]) -> PackedRows:
    """The rows of corpus artifacts, concatenated. Raises UserError when a file is absent or damaged."""
    corpora = [_map_rows(path) for path in paths]
    return (
        corpora[0] if len(corpora) == 1 else PackedRows(*(ConcatenatedRows(list(parts)) for parts in zip(*corpora, strict=True)))
    )


def _map_rows(path: Path) -> PackedRows:
    try:
        return PackedRows(*(np.load(path / f"{name}.npy", mmap_mode="r") for name in PackedRows._fields))
    except (OSError, ValueError) as error:
        raise model.UserError(f"{path}: not readable as a corpus ({error}); make the stage again") from None
