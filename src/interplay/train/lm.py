"""The language-model trainer: pre-training, mid-training and SFT."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from interplay.core.execution import Run
from interplay.core.metrics import round_values
from interplay.core.model import UserError
from interplay.core.random import generator
from interplay.core.references import corpus_inputs
from interplay.data import batches, corpus, tokenizer
from interplay.data.batches import Batch, Prefetcher
from interplay.data.corpus import PackedRows
from interplay.model import device, folder
from interplay.model.decoder import Decoder
from interplay.model.device import pick_device, place_decoder
from interplay.optim import distributed, optimizer
from interplay.train import loop, loss
from interplay.train.loop import Job
from interplay.train.loss import token_losses
from interplay.train.spec import PositionJumps, TrainSpec

# Randomised positions: jumps of the position ids that keep a model from reading the length of a trace off its positions.


def jumping_tokens(spec: PositionJumps, tokenizer: Tokenizer) -> np.ndarray:
    """Ids of the tokens that may come with a jump; characters that the tokenizer does not know are passed over."""
    ids = [tokenizer.token_to_id(character) for character in spec.characters]
    return np.array([token for token in ids if token is not None], dtype=np.int64)


def jumps(spec: PositionJumps, tokens: np.ndarray, jumping: np.ndarray, seed: int, step: int, steps: int) -> np.ndarray | None:
    """How far positions jump at each of tokens (rows, T) in step 1..steps; None before `start` and where jumps are off.

    A function of seed and step, so that a resumed run draws the same ones."""
    if not spec.probability or step <= spec.start * steps:
        return None
    random = generator("jumps", seed, step)
    hit = np.isin(tokens, jumping) & (random.random(tokens.shape) < spec.probability)
    return hit * random.integers(1, spec.largest + 1, tokens.shape)


# THE language-model trainer: pre-training, mid-training and SFT. They differ in data, init and loss mask, which are all spec.
#
# A step sees `batch_tokens` of rows (whole rows, in an order drawn from the seed) in passes of `micro_batch_tokens`; its loss
# is the mean over all its tokens that bear loss, whatever the passes. Nothing is random after the init, so weights and
# optimiser state are all that a resumed run needs to end with the bytes of an uninterrupted one.


EVAL_LOSS = "eval_loss/"
"""Begins the key of the loss on held-out problems of a band."""


class Course(NamedTuple):
    """What is fixed before the first step."""

    corpus: PackedRows
    per_row: np.ndarray
    """(rows,) tokens of each row without padding."""
    rows_per_step: int
    rows_per_pass: int
    steps: int
    dtype: torch.dtype
    device: torch.device
    tokenizer: Path
    """The tokenizer's folder, copied into every model that is saved."""
    jumping: np.ndarray
    """Ids of the tokens at which positions may jump."""


def run(spec: TrainSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Train and write `model/`, `metrics.jsonl` and `checkpoints/<step>/`, going on from `out/resume` where there is one.

    Roles: see TrainSpec. Raises UserError where batch or checkpoints do not fit the corpus, PermanentError at the first loss or
    gradient that is not finite."""
    torch.set_num_threads(how.threads)
    torch.manual_seed(spec.seed)  # nothing here draws from torch's own stream, but it is saved, and starts at random otherwise
    course = plan(spec, inputs, how)
    model = distributed.shard_model(place_decoder(initial(spec, inputs), how), how)
    optimizers = optimizer.build_optimizers(spec.optimizer, model.named_parameters())
    held_out = loss.load_validation(inputs["validation"], course.tokenizer) if "validation" in inputs else None

    def measure(of: loss.Validation) -> dict[str, float]:
        losses = loss.loss_by_band(model, of, how.micro_batch_tokens, course.dtype, course.device)
        return {f"{EVAL_LOSS}{band}": value for band, value in losses.items()}

    steps = Prefetcher(partial(step_of, spec, course), course.steps, course.device)
    job = Job(
        model=model,
        optimizers=optimizers,
        steps=course.steps,
        schedule=spec.schedule,
        max_grad_norm=spec.optimizer.max_grad_norm,
        learn=lambda step: learn(course, model, steps(step)),
        save=lambda path: folder.save_decoder(model, path, course.tokenizer),
        checkpoints=spec.checkpoints,
        measure=partial(measure, held_out) if held_out else None,
        eval_every=spec.eval_every,
    )
    ended = loop.train(job, out, how)
    folder.save_decoder(model, out / "model", course.tokenizer)
    loop.tell_pace(out, ended, model, course.dtype)
    rounded = {name.removeprefix(EVAL_LOSS): loss for name, loss in round_values(ended.measured).items()}
    parameters = sum(p.numel() for p in model.parameters())
    return {"steps": course.steps, "tokens": ended.tokens, "parameters": parameters, "eval_loss": rounded}


def plan(spec: TrainSpec, inputs: dict[str, Path], how: Run) -> Course:
    """Rows and steps. The budget is met by the first step after which at least `tokens` tokens, padding apart, were seen."""
    rows = corpus.load_rows(corpus_inputs(inputs))
    width = rows.tokens.shape[1]
    if spec.batch_tokens % width:
        raise UserError(f"train: batch_tokens = {spec.batch_tokens}: must be a multiple of the corpus' sequence_length, {width}")
    per_row, rows_per_step = batches.tokens_per_row(rows), spec.batch_tokens // width
    steps = batches.steps_for(spec.tokens, per_row, rows_per_step, spec.seed)
    if outside := [step for step in spec.checkpoints if not 1 <= step <= steps]:
        raise UserError(f"train: checkpoints: {outside[0]} is not among the steps 1..{steps} of this run")
    source = inputs["tokenizer"] if spec.model else inputs["init"]
    return Course(
        corpus=rows,
        per_row=per_row,
        rows_per_step=rows_per_step,
        rows_per_pass=distributed.batch_limit(max(1, how.micro_batch_tokens // width), rows_per_step),
        steps=steps,
        dtype=torch.bfloat16 if spec.dtype == "bfloat16" else torch.float32,
        device=pick_device(how),
        tokenizer=tokenizer.tokenizer_folder(source),
        jumping=jumping_tokens(spec.position_jumps, tokenizer.load(source)),
    )


def initial(spec: TrainSpec, inputs: dict[str, Path]) -> Decoder:
    """A fresh model of the spec's shape, or the one of the `init` role."""
    if spec.model is None:
        return folder.load_decoder(inputs["init"] / "model")
    return folder.init_decoder(spec.model, tokenizer.load(inputs["tokenizer"]).get_vocab_size(), spec.seed)


class Step(NamedTuple):
    """What a step learns from."""

    rows: np.ndarray
    """(rows,) of the corpus, those of all processes."""
    leaps: np.ndarray | None
    """(rows, T): by how much positions jump."""
    passes: list[Batch]
    """Of this process."""


def step_of(spec: TrainSpec, course: Course, step: int) -> Step:
    """Step `step` of 1..steps."""
    per_step = course.rows_per_step
    rows = batches.rows_between(len(course.per_row), spec.seed, (step - 1) * per_step, step * per_step)
    leaps = jumps(spec.position_jumps, course.corpus.tokens[rows], course.jumping, spec.seed, step, course.steps)
    return laid_out(course, rows, leaps)


def laid_out(course: Course, rows: np.ndarray, leaps: np.ndarray | None = None) -> Step:
    """A step on these rows."""
    places = dealt(len(rows), course.rows_per_pass)
    return Step(rows, leaps, [_batch(course, rows, leaps, some) for some in places])


def _batch(course: Course, rows: np.ndarray, leaps: np.ndarray | None, places: slice) -> Batch:
    return batches.batch_of_rows(course.corpus, rows[places], course.device, None if leaps is None else leaps[places])


def learn(course: Course, model: Decoder, step: Step) -> dict[str, float]:
    """The gradient of a step. Returns its loss (nats per token) and tokens."""
    return {"loss": backward(model, course, step), "tokens": int(course.per_row[step.rows].sum())}


def backward(model: Decoder, course: Course, step: Step) -> float:
    """Add up the gradient of the mean loss over all tokens of the step that bear loss, and return that loss."""

    def attempt(tokens: int) -> None:
        batch = _batch(course, step.rows, step.leaps, slice(max(1, tokens // width)))
        token_losses(model, batch, course.dtype).sum().backward()

    def one_pass(batch: Batch) -> torch.Tensor:  # a function, so that its graph goes with its frame where memory does not suffice
        loss = token_losses(model, batch, course.dtype).sum() / count
        loss.backward()
        return loss.detach()

    width = course.corpus.tokens.shape[1]
    count = max(1, int(distributed.all_reduce_sum(torch.tensor(sum(len(batch.targets) for batch in step.passes)))))
    total = torch.zeros((), device=course.device)
    with (
        distributed.accumulate_gradient(model),
        device.report_out_of_memory("micro_batch_tokens", course.rows_per_pass * width, attempt),
    ):
        for batch in step.passes:
            total += one_pass(batch)
    return distributed.all_reduce_sum(total).item()


def dealt(rows: int, size: int) -> list[slice]:
    """The places among the rows of a step of each pass of this process, `size` rows at a time."""
    return [slice(start, min(start + size, rows)) for start in distributed.shard_round_robin(range(0, rows, size))]
