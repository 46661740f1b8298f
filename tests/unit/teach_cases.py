"""Runs of teaching for tests: a model that writes problems of its task and nothing else, and small specs."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import world

from interplay.core.execution import Run
from interplay.data import sets, tokenizer
from interplay.data.batches import Batch, Sequences, batch_of_sequences
from interplay.model import folder
from interplay.model.trainer_spec import Optimizer, TuneOptimizer
from interplay.optim import optimizer
from interplay.rl.teach_spec import TeachSpec
from interplay.train.lm import token_losses

METHOD: dict[str, Any] = {
    "paper": "test",
    "allocation": {"name": "fixed", "num_generations": 4},
    "advantage": {"name": "leave_one_out"},
    "loss": {"name": "gpg", "loss_type": "luspo"},
}
HOW = Run(engine_batch=64, micro_batch_tokens=2000, save_minutes=0.0)


def spec_of(**more: Any) -> TeachSpec:
    values: dict[str, Any] = {
        "method": METHOD,
        "mix": [1.0],
        "task": world.TASK,
        "steps": 2,
        "prompts_per_step": 4,
        "max_completion_length": 24,
        "datasets": 2,
        "problems_per_dataset": 8,
        "inner_steps": 2,
        "probe_problems": 6,
        "probe_samples": 4,
        "max_proposal_length": 24,
        "by": "answer",
        "reward": {"name": "outcome"},
        "optimizer": TuneOptimizer(learning_rate=3e-4),
        "teacher_optimizer": TuneOptimizer(learning_rate=1e-3),
    }
    return TeachSpec(**{**values, **more})


def writer(results: Path, digest: str, learnt: Path, steps: int = 240, seed: int = 0) -> Path:
    """`results/pretrain/<digest>`: a model that has learnt 30 problems of the set `learnt` by heart, and errs at known rates.

    Half of the texts have a prompt that is no problem, and half a solution of another problem. A model that fits them writes a
    valid problem, and solves one, about half of the time, however far it is trained and in whichever order a CPU adds."""
    out = world.model(results, digest, seed)
    decoder, words = folder.load_decoder(out / "model"), tokenizer.load(out)
    eos = tokenizer.special(out).eos
    rows = sets.read_rows(learnt, 0)[:30]
    others = [*rows[1:], rows[0]]
    pairs = [
        prompt + solution
        for row, other in zip(rows, others, strict=True)
        for prompt in (row.prompt, row.prompt[1:])  # without its first letter, the first statement defines nothing
        for solution in (row.solution, other.solution)
    ]
    texts = [[*ids, eos] for ids in tokenizer.encode_texts(words, pairs)]
    rule = Optimizer(name="adamw", learning_rate=5e-3)
    optimizers = optimizer.build_optimizers(rule, decoder.named_parameters())
    batch = _batch(texts)
    for _ in range(steps):
        token_losses(decoder, batch, torch.float32).mean().backward()
        optimizer.apply_gradients(optimizers, list(decoder.parameters()), 1.0)
    folder.save_decoder(decoder, out / "model", out / "tokenizer")
    return out


def _batch(texts: list[list[int]]) -> Batch:
    lengths = np.array([len(text) for text in texts])
    flat = np.array([token for text in texts for token in text])
    first = np.cumsum(lengths) - lengths
    bears = np.ones(len(flat), dtype=bool)
    bears[first] = False
    return batch_of_sequences(Sequences(flat, lengths, bears), torch.device("cpu"))
