"""Corpora: problem sets mixed, tokenised and packed."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from interplay.data import packing, sets, tokenizer
from interplay.data.packing import Encoded
from interplay.schema.base import UserError
from interplay.schema.data import CorpusSpec
from interplay.schema.run import Run
from interplay.store.generator import generator
from interplay.tasks.row import UNFINISHED


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
    end of sequence follows an unfinished solution: a model must not learn to stop there."""
    table = sets.load(data, ["prompt", "solution", "mode"])
    encoder, eos = tokenizer.load(tokenizer_of), tokenizer.special(tokenizer_of).eos
    prompt, prompts = tokenizer.encode_all(encoder, table["prompt"].to_pylist())
    solution, solutions = tokenizer.encode_all(encoder, table["solution"].to_pylist())
    finished = np.array([mode != UNFINISHED for mode in table["mode"].to_pylist()], np.int64)
    lengths = prompts + solutions + finished
    starts = np.cumsum(lengths) - lengths
    tokens = np.full(int(lengths.sum()), eos, np.uint32)
    tokens[packing.spans(starts, prompts)] = prompt
    tokens[packing.spans(starts + prompts, solutions)] = solution
    return Encoded(tokens, lengths, prompts)


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
