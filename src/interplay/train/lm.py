"""THE language-model trainer: pre-training, mid-training and SFT. They differ in data, init and loss mask, which are all spec.

A step sees `batch_tokens` of rows (whole rows, in an order drawn from the seed) in passes of `micro_batch_tokens`; the loss is the mean
over all tokens of the step that bear loss, whatever the passes. Nothing random happens after the init, so that data order, weights
and optimiser state make a resumed run give the bytes of an uninterrupted one."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interplay.data import batches, packing, tokenizer
from interplay.data.packing import Rows
from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.optim import checkpoint, optimizer, schedule
from interplay.schema.base import PermanentError, UserError
from interplay.schema.run import Run
from interplay.schema.train import TrainSpec
from interplay.store.metrics import Metrics, Progress, telemetry
from interplay.train import throughput, validation
from interplay.train.loss import token_losses

LINES = 200
"""About so many lines of metrics.jsonl per run."""


def run(spec: TrainSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Train and write `model/`, `metrics.jsonl` and `checkpoints/<step>/`. Roles: see TrainSpec.

    Goes on from `out/resume` where there is one. Raises PermanentError at the first loss or gradient that is not finite."""
    torch.set_num_threads(how.threads)
    device = torch.device("cuda" if how.gpus and torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, spec.dtype)
    corpus = packing.load(inputs["corpus"])
    per_row, rows_per_step = batches.tokens_per_row(corpus), rows_in(spec.batch_tokens, corpus)
    steps = batches.steps_for(spec.tokens, per_row, rows_per_step, spec.seed)
    if late := [step for step in spec.checkpoints if not 1 <= step <= steps]:
        raise UserError(f"train: checkpoints: step {late[0]} is not among the steps 1..{steps} of this run")
    rows_per_pass = max(1, how.micro_batch_tokens // corpus.tokens.shape[1])

    tokenizer_of = inputs["tokenizer"] if spec.model else inputs["init"]
    if spec.model:
        model = folder.init(spec.model, tokenizer.load(tokenizer_of).get_vocab_size(), spec.seed)
    else:
        model = folder.load(inputs["init"] / "model")
    model = model.to(device)
    optimizers = optimizer.build(spec.optimizer, model.named_parameters())
    parameters = list(model.parameters())
    held_out = None
    if "validation" in inputs:
        held_out = validation.load(inputs["validation"], tokenizer_of, corpus.tokens.shape[1])

    done, seen, losses = 0, 0, {}
    if saved := checkpoint.load(out / "resume"):
        done, tensors, state = saved
        checkpoint.restore_training(tensors, model, optimizers)
        seen, losses = state["tokens"], state["losses"]
    metrics, progress = Metrics(out, done), Progress(steps, "steps", done)
    started, seen_before, saved_at = time.monotonic(), seen, time.monotonic()
    for step in range(done + 1, steps + 1):
        rows = batches.rows_between(len(per_row), spec.seed, (step - 1) * rows_per_step, step * rows_per_step)
        factor = schedule.factor(spec.schedule, step, steps)
        optimizer.set_lr(optimizers, factor)
        loss = backward(model, corpus, rows, rows_per_pass, dtype, device)
        norm = optimizer.step(optimizers, parameters, spec.optimizer.max_grad_norm).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise PermanentError(f"step {step} of {steps}: loss {loss}, gradient norm {norm}; lower the learning rate or use float32")
        seen += int(per_row[rows].sum())
        if step % max(1, steps // LINES) == 0 or step == steps:
            metrics.write(step, loss=loss, lr_factor=factor, grad_norm=norm, tokens=seen)
        if held_out and (step == steps or (spec.eval_every and step % spec.eval_every == 0)):
            losses = validation.loss_by_band(model, held_out, rows_per_pass, dtype, device)
            metrics.write(step, **{f"eval_loss/{band}": value for band, value in losses.items()})
        if step in spec.checkpoints:
            folder.save(model, out / "checkpoints" / str(step), tokenizer.tokenizer_folder(tokenizer_of))
        if step < steps and time.monotonic() - saved_at >= how.save_minutes * 60:
            metrics.sync()
            tensors = checkpoint.training_tensors(model, optimizers)
            checkpoint.save(out / "resume", step, tensors, {"tokens": seen, "losses": losses})
            saved_at = time.monotonic()
        rate = (seen - seen_before) / (time.monotonic() - started)
        progress.update(step, loss=loss, tok_per_s=rate)

    folder.save(model, out / "model", tokenizer.tokenizer_folder(tokenizer_of))
    return {"steps": steps, "tokens": seen}


def rows_in(batch_tokens: int, corpus: Rows) -> int:
    """Rows of a batch. Raises UserError unless they are whole."""
    width = corpus.tokens.shape[1]
    if batch_tokens % width:
        raise UserError(f"train: batch_tokens = {batch_tokens}: must be a multiple of the corpus' sequence_length, {width}")
    return batch_tokens // width


def backward(
    model: Decoder, corpus: Rows, rows: np.ndarray, rows_per_pass: int, dtype: torch.dtype, device: torch.device
) -> float:
    """Accumulate the gradient of the mean loss over all tokens of `rows` that bear loss, and return that loss (nats per token)."""
    passes = [batches.batch(corpus, rows[i : i + rows_per_pass], device) for i in range(0, len(rows), rows_per_pass)]
    count = sum(len(one.targets) for one in passes)
    total = torch.zeros((), device=device)
    for one in passes:
        loss = token_losses(model, one, dtype).sum() / count
        loss.backward()
        total += loss.detach()
    return total.item()
