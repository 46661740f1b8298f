"""Corpora: problem sets mixed, tokenised and packed."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from tokenizers import Tokenizer

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.core.random import generator
from interplay.data import packing, sets, tokenizer
from interplay.data.packing import Encoded
from interplay.data.spec import CorpusSpec
from interplay.tasks.environments.transcript import MARK
from interplay.tasks.verdict import UNFINISHED


def run(spec: CorpusSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write `tokens.npy`, `segments.npy` and `loss.npy`, each (rows, sequence_length).

    Roles: `tokenizer` (or a model that carries one) and `data.<i>`, one per share of the mix."""
    roles = [f"data.{i}" for i in range(len(spec.mix))]
    if missing := [role for role in roles if role not in inputs]:
        raise UserError(f"corpus: mix has {len(spec.mix)} shares, but there is no {missing[0]}; give one problem set per share")
    sets = [encode(inputs[role], inputs["tokenizer"]) for role in roles]
    rng = generator("corpus", spec.seed)
    taken = [packing.select(each, chosen) for each, chosen in zip(sets, mix(sets, spec, rng), strict=True)]
    everything = Encoded(*(np.concatenate(parts) for parts in zip(*taken, strict=True)))
    shuffled = packing.select(everything, rng.permutation(len(everything.lengths)))
    placed = packing.best_fit(shuffled.lengths, spec.sequence_length)
    small = tokenizer.load(inputs["tokenizer"]).get_vocab_size() <= 1 << 16
    out.mkdir(parents=True, exist_ok=True)
    tokens, segments, loss = (
        open_memmap(out / f"{name}.npy", mode="w+", dtype=dtype, shape=(placed.rows, spec.sequence_length))
        for name, dtype in (("tokens", np.uint16 if small else np.uint32), ("segments", np.uint16), ("loss", np.uint8))
    )
    for name in ("tokens", "segments", "loss"):
        claim(out / f"{name}.npy")
    packing.fill(shuffled, placed, spec.loss_on, spec.packing == "isolated", tokens, segments, loss)
    for array in (tokens, segments, loss):
        array.flush()
    sizes = np.array([len(each.tokens if spec.by == "tokens" else each.lengths) for each in taken], float)
    return {
        "rows": placed.rows,
        "tokens": len(shuffled.tokens),
        "loss_tokens": int(loss.sum(dtype=np.int64)),
        "problems": len(shuffled.lengths),
        "problems_by_set": [len(each.lengths) for each in taken],
        "shares": [round(share, 6) for share in (sizes / sizes.sum()).tolist()],
        "longest_problem": int(shuffled.lengths.max()),
        "fill": round(len(shuffled.tokens) / tokens.size, 6),
    }


def claim(file: Path) -> None:
    """Have the disk hold room for all of a file that is mapped into memory: where it is full, that is an OSError here, and no
    SIGBUS at a write."""
    with open(file, "r+b") as handle:
        try:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from None


def encode(data: Path, tokenizer_of: Path) -> Encoded:
    """A problem set as tokens. Prompt and solution are encoded apart, since generation starts from the prompt's own tokens. No
    end of sequence follows an unfinished solution: a model must not learn to stop there.
    Where solutions are transcripts, see `turns`."""
    table = sets.load(data, ["prompt", "solution", "mode"])
    encoder, eos = tokenizer.load(tokenizer_of), tokenizer.special(tokenizer_of).eos
    texts = table["solution"].to_pylist()
    finished = np.array([mode != UNFINISHED for mode in table["mode"].to_pylist()], np.int64)
    if any(MARK in text for text in texts):
        return turns(table["prompt"].to_pylist(), texts, finished, encoder, eos)
    prompt, prompts = tokenizer.encode_all(encoder, table["prompt"].to_pylist())
    solution, solutions = tokenizer.encode_all(encoder, texts)
    lengths = prompts + solutions + finished
    starts = np.cumsum(lengths) - lengths
    tokens = np.full(int(lengths.sum()), eos, np.uint32)
    tokens[packing.spans(starts, prompts)] = prompt
    tokens[packing.spans(starts + prompts, solutions)] = solution
    return Encoded(tokens, lengths, prompts)


def turns(prompts: list[str], solutions: list[str], finished: np.ndarray, encoder: Tokenizer, eos: int) -> Encoded:
    """Transcripts (tasks.environments.games) as tokens: each turn is a problem of its own, whose prompt is all before it, end
    tokens of earlier turns included, as an episode has it."""
    pieces = [[prompt, *solution.split(MARK)] for prompt, solution in zip(prompts, solutions, strict=True)]
    flat, sizes = tokenizer.encode_all(encoder, [piece for row in pieces for piece in row])
    ends = np.cumsum(sizes)
    texts = iter([flat[end - size : end] for end, size in zip(ends, sizes, strict=True)])
    found: list[np.ndarray] = []
    before: list[int] = []
    end = np.array([eos], flat.dtype)
    for row, whole in zip(pieces, finished.tolist(), strict=True):
        context = next(texts)
        for number in range(1, len(row)):
            text = next(texts)
            if number % 2:  # what the policy writes
                turn = np.concatenate([text, end]) if whole or number + 1 < len(row) else text
                found.append(np.concatenate([context, turn]))
                before.append(len(context))
                context = found[-1]
            else:
                context = np.concatenate([context, text])
    lengths = np.array([len(each) for each in found], np.int64)
    return Encoded(np.concatenate(found).astype(np.uint32), lengths, np.array(before, np.int64))


def mix(sets: list[Encoded], spec: CorpusSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Indices taken from each set: a random order of it, cut so that the shares hold. The set that is smallest for its share is
    used up, and no problem is used twice."""
    orders = [rng.permutation(len(each.lengths)) for each in sets]
    sizes = [
        np.cumsum(each.lengths[order] if spec.by == "tokens" else np.ones(len(order)))
        for each, order in zip(sets, orders, strict=True)
    ]
    total = min(size[-1] / share for size, share in zip(sizes, spec.mix, strict=True) if share > 0)
    cuts = [np.searchsorted(size, total * share * (1 + 1e-9), side="right") for size, share in zip(sizes, spec.mix, strict=True)]
    return [order[:cut] for order, cut in zip(orders, cuts, strict=True)]
