"""The training loop of all gradient trainers: optimiser steps, evaluation, kept checkpoints, progress and resume;
and means over pairs in micro-batches.

The trainers of this package give the gradient of a step as a function of its number, so that a resumed run needs only weights
and optimiser state."""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from interplay.core import execution, extension
from interplay.core.metrics import Metrics, Progress, telemetry
from interplay.core.model import UserError
from interplay.data import batches
from interplay.kernels import exact
from interplay.model import device, folder
from interplay.model.decoder import Decoder
from interplay.model.spec import Numerics
from interplay.optim import distributed, optimizer
from interplay.train.spec import OwnTrainerSpec, TrainSpec, TuneSpec

LINES = 200
"""Approximate number of lines of metrics.jsonl per run."""


@dataclass
class TrainingJob:
    """The parts of a training run that depend on the trainer."""

    spec: TrainSpec | TuneSpec
    """Its optimiser, schedule and checkpoints are used."""
    model: nn.Module
    """The trained parameters."""
    steps: int
    step_gradient: Callable[[int], dict[str, float]]
    """Accumulates the gradient of step n of 1..steps on the model; returns the metrics of the step, among them `loss` and
    `tokens`."""
    save: Callable[[Path], None]
    """Writes the model to a folder."""
    evaluate: Callable[[], dict[str, float]] | None = None
    """Metrics on held-out data, at the end and at the kept checkpoints."""
    eval_every: int = 0
    """Steps between further evaluations; 0: none."""
    setup: Any = None
    """The constants of the run, for trainers other than the native one."""

    @cached_property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Of the model's parameters."""
        numerics: Numerics = getattr(self.spec, "numerics", "fast")
        return optimizer.build_optimizers(self.spec.optimizer, self.model.named_parameters(), self.spec.dtype, numerics=numerics)


def seed_torch(how: execution.Run, seed: int) -> None:
    """Set the threads and the generator of torch. Trainers draw nothing from it, but its state is saved, so it must be fixed."""
    torch.set_num_threads(how.threads)
    torch.manual_seed(seed)


class TrainingResult(NamedTuple):
    """Results of a run other than its files."""

    tokens: int
    """Tokens of all steps."""
    timed_tokens: int
    """Tokens of the timed steps: those of this process except its first one, which also compiles and warms up."""
    seconds: float
    """Time of the timed steps, without evaluations and saves."""
    evaluated: dict[str, float]
    """The metrics of the last evaluation; {} without one."""


@dataclass
class Throughput:
    """Tokens and seconds of steps. The first step compiles and warms up, so it counts only while it is the only one."""

    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0

    def add(self, tokens: int, seconds: float) -> None:
        """Add a step."""
        self.steps += 1
        restart = self.steps <= 2
        self.tokens = tokens + (0 if restart else self.tokens)
        self.seconds = seconds + (0 if restart else self.seconds)


class RunLog:
    """What a run leaves while it trains: `metrics.jsonl`, `checkpoints/<step>/model`, saves, progress lines."""

    def __init__(self, job: TrainingJob, out: Path, done: int, state: dict[str, Any]) -> None:
        self.job, self.out, self.state = job, out, state
        """`state` is JSON data of a save: its `tokens` are those of the steps so far."""
        self.metrics, self.progress = Metrics(out, done), Progress(job.steps, "steps", done)
        self.throughput, self.evaluated = Throughput(), dict[str, float]()

    def add(self, step: int, line: dict[str, float], seconds: float) -> None:
        """Log a step that took so long, and evaluate and keep its model where they are due."""
        job = self.job
        self.throughput.add(int(line["tokens"]), seconds)
        self.state["tokens"] = line["tokens"] = self.state["tokens"] + int(line["tokens"])
        last, kept = step == job.steps, step in job.spec.checkpoints
        if last or kept or step % max(1, job.steps // LINES) == 0:
            self.metrics.write(step, **line)
        if job.evaluate and (last or kept or (job.eval_every and step % job.eval_every == 0)):
            self.evaluated = job.evaluate()
            self.metrics.write(step, **self.evaluated)
        if kept:
            job.save(self.out / "checkpoints" / str(step) / "model")
        rate = self.throughput.tokens / self.throughput.seconds
        self.progress.update(step, loss=line["loss"], tokens_per_second=rate)

    def save(self, step: int, tensors: dict[str, torch.Tensor]) -> None:
        """Save the state after a step to `resume/`."""
        self.metrics.sync()
        distributed.save_checkpoint(self.out / "resume", step, tensors, self.state)

    def result(self) -> TrainingResult:
        """After the last step."""
        return TrainingResult(self.state["tokens"], self.throughput.tokens, self.throughput.seconds, self.evaluated)


Runner = Callable[[TrainingJob, Path, execution.Run], TrainingResult]
"""Who trains a job: `run_training`, or another trainer."""


def run_training(job: TrainingJob, out: Path, how: execution.Run) -> TrainingResult:
    """Run all steps, resuming from `out/resume` where there is one. Writes `metrics.jsonl` and `checkpoints/<step>/model`; the
    caller saves the final model. Raises PermanentError at the first loss or gradient norm that is not finite."""
    done, state = 0, {"tokens": 0}
    if saved := distributed.load_checkpoint(out / "resume"):
        done, tensors, state = saved
        distributed.restore_training(tensors, job.model, job.optimizers)
    log = RunLog(job, out, done, state)
    agree = distributed.all_reduce_flags if how.processes > 1 else None
    with execution.save_points(how.save_minutes, agree, how.segment_steps) as saves:
        for step in range(done + 1, job.steps + 1):
            started = time.monotonic()
            line = training_step(job, step)
            log.add(step, line, time.monotonic() - started)
            if step < job.steps and saves.due(step):
                log.save(step, distributed.training_tensors(job.model, job.optimizers))
                distributed.keep_segment(out, step, how)
                saves.made(f"step {step} of {job.steps}")
    return log.result()


def training_step(job: TrainingJob, step: int) -> dict[str, float]:
    """Step `step` of 1..steps: the metrics of its gradient, with lr_factor and grad_norm (before clipping) before its tokens.
    Raises PermanentError where the loss or that norm is not finite."""
    factor = optimizer.lr_factor(job.spec.schedule, step, job.steps)
    optimizer.set_lr(job.optimizers, factor)
    values = job.step_gradient(step)
    norm = optimizer.apply_gradients(job.optimizers, list(job.model.parameters()), job.spec.optimizer.max_grad_norm).item()
    optimizer.check_finite(step, job.steps, values["loss"], norm)
    tokens = values.pop("tokens")
    return {**values, "lr_factor": factor, "grad_norm": norm, "tokens": tokens}


def write_throughput(out: Path, result: TrainingResult, decoder: Decoder, dtype: torch.dtype) -> None:
    """Write telemetry of the timed steps of all processes: tokens per second, and model FLOPs utilisation (share of the peak in
    `dtype`, measured now). Nothing where a resume had no step left."""
    if not result.seconds:
        return
    rate, peak = result.timed_tokens / result.seconds, device.stage_flops(dtype, decoder.head().device)
    used = device.model_flops_utilisation(device.matrix_parameters(decoder), rate, peak)
    telemetry(
        out,
        tokens_per_second=round(rate, 1),
        mfu=round(used, 6),
        measured_peak_gflops=round(peak / 1e9, 1),
        train_seconds=round(result.seconds, 3),
    )


# Trainers of the user's own: the kind `custom`, which a study writes as `kind: "file.py:Name"` (core.extension).


def run_custom_trainer(spec: OwnTrainerSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Call `function(spec, inputs, out, how, **options) -> metrics`. The function writes the model to `out/model` in the format
    of Hugging Face; `inputs` are folders by role: `init` (a model, in `init/model`) and `data.<i>` (problem sets). Metrics: the
    returned ones, `tokens` (the budget, unless returned) and `parameters`. Raises UserError where a metric is not a finite number
    or there is no model."""
    made = extension.call(spec, spec, inputs, out, how)
    wrong = not isinstance(made, dict) or [name for name, value in made.items() if not _is_metric(name, value)]
    if wrong:
        what = f"{wrong[0]!r} is none" if isinstance(wrong, list) else f"it returned {type(made).__name__}"
        raise UserError(f"{spec.function}: must return metrics, finite numbers by name; {what}")
    decoder = folder.load_decoder(out / "model")
    return {"tokens": spec.tokens, "parameters": sum(weight.numel() for weight in decoder.parameters()), **made}


def _is_metric(name: Any, value: Any) -> bool:
    return isinstance(name, str) and isinstance(value, (int, float)) and math.isfinite(value)


# Pairs of completions.


def mean_over_pairs(
    model: nn.Module,
    data: batches.Pairs,
    places: np.ndarray,
    pass_tokens: int,
    pair_values: Callable[[np.ndarray], dict[str, Tensor]],
    backward: bool,
    before: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Means over the pairs `places` (N,) of the values (n,) that `pair_values` gives of each micro-batch (n,). With `backward`
    the gradient of the mean of `loss` is accumulated on the model. `before` is called ahead of the passes. Raises
    PermanentError where a micro-batch does not fit into memory."""
    sums: dict[str, float] = defaultdict(float)
    split, exactly = partial(batches.micro_batches, data, places), getattr(model, "sums", None) is not None

    def one_pass(piece: np.ndarray) -> dict[str, Tensor]:
        with torch.set_grad_enabled(backward):
            values = pair_values(piece)
        if backward and exactly:
            values["loss"].backward(torch.full_like(values["loss"], 1.0 / len(places)))
        elif backward:
            (values["loss"].sum() / len(places)).backward()
        return values

    def attempt(tokens: int) -> None:
        one_pass(split(tokens)[0])

    with (
        distributed.accumulate_gradient(model) if backward else nullcontext(),
        device.report_out_of_memory("micro_batch_tokens", pass_tokens, attempt),
    ):
        before()
        for piece in distributed.shard_micro_batches(split, pass_tokens, len(places)):
            for name, value in one_pass(piece).items():
                sums[name] += exact.total(value) if exactly else value.detach().double().sum().item()
    return {name: total / len(places) for name, total in distributed.all_reduce_dict(sums).items()}
