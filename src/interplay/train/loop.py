"""The loop of every trainer that makes one optimiser step after another: measures, kept checkpoints, progress and resume.

What a step does is its trainer's: `lm` (pre-training, mid-training, SFT), `prefer`, `unlearn` and `reward_model` hand it over as
a function of the step's number, so that weights and optimiser state are all that a resumed run needs."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from interplay.core import execution
from interplay.core.execution import Run
from interplay.core.metrics import Metrics, Progress, telemetry
from interplay.core.model import PermanentError
from interplay.core.stop import save_points
from interplay.model import device
from interplay.model.decoder import Decoder
from interplay.model.spec import Schedule
from interplay.optim import checkpoint, distributed, optimizer

LINES = 200
"""About so many lines of metrics.jsonl per run."""


class Job(NamedTuple):
    """What a trainer hands over."""

    model: nn.Module
    """All that is trained."""
    optimizers: list[torch.optim.Optimizer]
    steps: int
    schedule: Schedule
    max_grad_norm: float
    """Gradients are clipped to it; 0: they are left."""
    learn: Callable[[int], dict[str, float]]
    """Adds up the gradient of step n of 1..steps on the model and returns its line; `loss` and `tokens`, those of this step, are
    among its values."""
    save: Callable[[Path], None]
    """Writes the model into a folder."""
    checkpoints: list[int]
    """Steps after which the model is kept."""
    measure: Callable[[], dict[str, float]] | None = None
    """Values on held-out data, at the end and at the kept checkpoints."""
    eval_every: int = 0
    """Steps between further measures; 0: none."""


class Ended(NamedTuple):
    """What a run leaves beside its files."""

    tokens: int
    """Of all steps."""
    trained: int
    """Of those steps that are timed: what this process made but for its first one, which also compiles and warms up."""
    seconds: float
    """That those took, without measures and saves."""
    measured: dict[str, float]
    """The last measure; {} where there is none."""


@dataclass
class Pace:
    """Tokens and seconds of steps. The first one compiles and warms up: it counts only while it is the only one."""

    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0

    def add(self, tokens: int, seconds: float) -> None:
        """One more step."""
        self.steps += 1
        alone = self.steps <= 2
        self.tokens = tokens + (0 if alone else self.tokens)
        self.seconds = seconds + (0 if alone else self.seconds)


def train(job: Job, out: Path, how: Run) -> Ended:
    """Every step, going on from `out/resume` where there is one. Writes `metrics.jsonl` and `checkpoints/<step>/model`; the model
    of the end is the caller's to save."""
    done, seen = 0, 0
    if saved := checkpoint.load(out / "resume"):
        done, tensors, state = saved
        checkpoint.restore_training(tensors, job.model, job.optimizers)
        seen = state["tokens"]
    metrics, progress = Metrics(out, done), Progress(job.steps, "steps", done)
    pace, measured = Pace(), {}
    with save_points(how.save_minutes, distributed.all_reduce_flags if how.processes > 1 else None) as saves:
        for step in range(done + 1, job.steps + 1):
            started = time.monotonic()
            line = one_step(job, step)
            pace.add(int(line["tokens"]), time.monotonic() - started)
            seen = line["tokens"] = seen + int(line["tokens"])
            last, kept = step == job.steps, step in job.checkpoints
            if last or kept or step % max(1, job.steps // LINES) == 0:
                metrics.write(step, **line)
            if job.measure and (last or kept or (job.eval_every and step % job.eval_every == 0)):
                distributed.gather_parameters(job.model)
                measured = job.measure()
                metrics.write(step, **measured)
            if kept:
                job.save(out / "checkpoints" / str(step) / "model")
            progress.update(step, loss=line["loss"], tokens_per_second=pace.tokens / pace.seconds)
            if not last and saves.due():
                metrics.sync()
                checkpoint.save(out / "resume", step, checkpoint.training_tensors(job.model, job.optimizers), {"tokens": seen})
                saves.made(f"step {step} of {job.steps}")
    return Ended(seen, pace.tokens, pace.seconds, measured)


def one_step(job: Job, step: int) -> dict[str, float]:
    """Step `step` of 1..steps: what `learn` says, with lr_factor, and grad_norm before clipping, ahead of its tokens. Raises
    PermanentError where the loss or that norm is not finite."""
    factor = optimizer.lr_factor(job.schedule, step, job.steps)
    optimizer.set_lr(job.optimizers, factor)
    values = job.learn(step)
    norm = optimizer.apply_gradients(job.optimizers, list(job.model.parameters()), job.max_grad_norm).item()
    if not (math.isfinite(values["loss"]) and math.isfinite(norm)):
        raise PermanentError(f"step {step} of {job.steps}: loss {values['loss']}, gradient norm {norm}; lower the learning rate")
    tokens = values.pop("tokens")
    return {**values, "lr_factor": factor, "grad_norm": norm, "tokens": tokens}


def tell_pace(out: Path, ended: Ended, decoder: Decoder, dtype: torch.dtype) -> None:
    """Telemetry of the steps alone, without measures and saves, of all processes together: tokens a second, and what share of the
    processes' arithmetic in `dtype` (measured here and now) training `decoder` on them uses. Nothing where a resume left no step
    to do."""
    if not ended.seconds:
        return
    rate, peak = ended.trained / ended.seconds, device.peak_flops(dtype, decoder.head().device) * execution.world_size()
    used = device.model_flops_utilisation(device.matrix_parameters(decoder), rate, peak)
    telemetry(
        out,
        tokens_per_second=round(rate, 1),
        mfu=round(used, 4),
        measured_peak_gflops=round(peak / 1e9, 1),
        train_seconds=round(ended.seconds, 3),
    )
