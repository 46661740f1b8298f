"""Replicas of a training stage in one process: weights stacked, products batched, each with its own data, loss, optimiser state,
checkpoints and end.

A replica's parameters are slices of the stack's (`device.stacked`), so evaluations and saves are those of a run alone, and so is
a checkpoint: it goes on alone or in another stack. What does not depend on other replicas (data order, schedule, clipping) is
that of a run alone; sums differ by rounding, since products are batched and batches padded to the longest replica's."""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from interplay.core import execution
from interplay.core.model import PermanentError, UserError
from interplay.data import batches
from interplay.model import decoder, device
from interplay.optim import distributed, optimizer
from interplay.train import lm, loop
from interplay.train.spec import TrainSpec

Outcome = dict[str, Any] | UserError | PermanentError
"""The metrics of a record, or why there is none."""

NOTHING = batches.Sequences(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))


def train_replicas(replicas: Sequence[execution.Replica], how: execution.Run) -> Iterator[tuple[int, Outcome]]:
    """Train the replicas, each from its own `resume/` where there is one. Gives (number, outcome) of each when it ends, in any
    order: its files are written by then. Raises StoppedError after a signal, once all have saved."""
    runs = []
    for number, replica in enumerate(replicas):
        try:
            runs.append(Training(number, replica, how))
        except (UserError, PermanentError) as error:
            yield number, error
    with execution.save_points(how.save_minutes, steps=how.segment_steps) as saves:
        stack = Stack(runs) if runs else None
        while stack:
            started = time.monotonic()
            lines = stack.step()
            seconds = (time.monotonic() - started) / len(lines)
            for run, line in zip(stack.runs, lines, strict=True):
                if isinstance(line, PermanentError):
                    yield run.number, line
                else:
                    run.log.add(run.done, line, seconds)
                    if run.ended():
                        yield run.number, lm.finish(run.job, run.setup, run.log.result(), replicas[run.number].out)
            going = [not (isinstance(line, PermanentError) or run.ended()) for run, line in zip(stack.runs, lines, strict=True)]
            stack = stack if all(going) else stack.keep(going)
            if stack and saves.due(stack.runs[0].done):
                for run, tensors in zip(stack.runs, stack.tensors(), strict=True):
                    run.log.save(run.done, tensors)
                    distributed.keep_segment(replicas[run.number].out, run.done, how)
                saves.made(f"step {stack.runs[0].done}, in a stack of {len(stack.runs)}")


class Training:
    """A replica in training."""

    def __init__(self, number: int, replica: execution.Replica, how: execution.Run) -> None:
        spec: TrainSpec = replica.spec
        loop.seed_torch(how, spec.seed)
        self.generator = torch.get_rng_state()  # of a save; nothing is drawn
        self.number, self.spec, self.done = number, spec, 0
        self.setup = lm.prepare(spec, replica.inputs, how)
        model = lm.initial_model(spec, replica.inputs)
        self.state: dict[str, Tensor] = {}
        """Optimiser state, as in a save, until the stack has it."""
        saved = distributed.load_checkpoint(replica.out / "resume")
        if saved:
            self.done, self.state, _ = saved
            distributed.restore_model(self.state, model)
        self.model = device.place_decoder(model, how)
        self.job = lm.training_job(spec, replica.inputs, how, self.setup, self.model, _unused)
        seen = saved[2]["tokens"] if saved else 0
        self.log = loop.RunLog(self.job, replica.out, self.done, {"tokens": seen, "numerics": execution.STACKED})

    def ended(self) -> bool:
        """Whether its last step is done."""
        return self.done == self.setup.steps

    def settings(self) -> str:
        """Equal for replicas that one optimiser can update."""
        parts = (self.spec.optimizer.model_dump_json(), self.spec.schedule.model_dump_json(), self.setup.steps, self.done)
        return " ".join(map(str, parts))

    def passes(self, step: int) -> list[batches.Sequences]:
        """The sequences of the micro-batches of a step."""
        rows, jumps = lm.step_rows(self.spec, self.setup, step)
        places = lm.pass_slices(len(rows), self.setup.rows_per_pass)
        return [batches.sequences_of_rows(self.setup.rows, rows[some], None if jumps is None else jumps[some]) for some in places]


def _unused(step: int) -> dict[str, float]:
    raise AssertionError("the stack has the gradient")


class Group:
    """Replicas next to each other in a stack that one optimiser updates: their settings and their step agree."""

    def __init__(self, whole: decoder.Decoder, first: int, runs: list[Training]) -> None:
        self.runs, self.places = runs, slice(first, first + len(runs))
        self.parameters = {name: p.detach()[self.places].requires_grad_() for name, p in whole.named_parameters()}
        spec = runs[0].spec
        self.optimizers = optimizer.build_optimizers(spec.optimizer, self.parameters.items(), spec.dtype, stacked=True)
        states = [{name: value for name, value in run.state.items() if name.startswith("optimizer.")} for run in runs]
        # Counts of steps are () and agree.
        joined = {name: torch.stack([each[name] for each in states]) if one.ndim else one for name, one in states[0].items()}
        distributed.restore_optimizers(joined, self.optimizers)

    def update(self, whole: decoder.Decoder) -> float:
        """Update the parameters by the gradients of the stack; the factor on the peak learning rate."""
        run = self.runs[0]
        factor = optimizer.lr_factor(run.spec.schedule, run.done + 1, run.setup.steps)
        optimizer.set_lr(self.optimizers, factor)
        for name, parameter in whole.named_parameters():
            assert parameter.grad is not None
            self.parameters[name].grad = parameter.grad[self.places]
        for one in self.optimizers:
            one.step()
            one.zero_grad(set_to_none=True)
        return factor

    def states(self) -> Iterator[dict[str, Tensor]]:
        """Optimiser state of each replica."""
        joined = distributed.optimizer_tensors(self.optimizers)
        for number in range(len(self.runs)):
            yield {name: value[number] if value.ndim else value for name, value in joined.items()}


class Stack:
    """Replicas that take each step together, those with equal settings next to each other."""

    def __init__(self, runs: list[Training]) -> None:
        self.runs = sorted(runs, key=Training.settings)
        self.whole = device.stacked([run.model for run in self.runs])
        self.groups: list[Group] = []
        for _, some in groupby(self.runs, Training.settings):
            first = self.groups[-1].places.stop if self.groups else 0
            self.groups.append(Group(self.whole, first, list(some)))
        self.setup = self.runs[0].setup
        limits = [run.spec.optimizer.max_grad_norm or float("inf") for run in self.runs]
        self.limits = torch.tensor(limits, device=self.setup.device)
        least = min(run.setup.steps - run.done for run in self.runs)
        self.steps, self.firsts = 0, [run.done for run in self.runs]
        self.data = batches.Prefetcher(self._data, least, self.setup.device)

    def keep(self, going: Sequence[bool]) -> "Stack | None":
        """A stack of these replicas; None of none."""
        left = [run for run, stays in zip(self.runs, going, strict=True) if stays]
        for run, state in zip(self.runs, self.tensors(), strict=True):
            run.state = {name: value.clone() for name, value in state.items()}
        return Stack(left) if left else None

    def tensors(self) -> list[dict[str, Tensor]]:
        """What a run of each replica alone would save."""
        states = [state for group in self.groups for state in group.states()]
        return [
            {**distributed.model_tensors(run.model), **state, "generator": run.generator}
            for run, state in zip(self.runs, states, strict=True)
        ]

    def step(self) -> list[dict[str, float] | PermanentError]:
        """The next step of each replica: the metrics of `loop.training_step`, or that they are not finite."""
        self.steps += 1
        passes, counts, tokens = self.data(self.steps)
        with device.report_out_of_memory("stack", len(self.runs), self._attempt):
            losses = sum((self._backward(batch, counts) for batch in passes), torch.zeros_like(self.limits))
        norms = _clip(self.whole, self.limits)
        factors = [factor for group in self.groups for factor in [group.update(self.whole)] * len(group.runs)]
        self.whole.zero_grad(set_to_none=True)
        lines: list[dict[str, float] | PermanentError] = []
        for run, *values in zip(self.runs, losses.tolist(), factors, norms.tolist(), tokens, strict=True):
            run.done += 1
            line = dict(zip(("loss", "lr_factor", "grad_norm", "tokens"), values, strict=True))
            try:
                optimizer.check_finite(run.done, run.setup.steps, line["loss"], line["grad_norm"])
                lines.append(line)
            except PermanentError as error:
                lines.append(error)
        return lines

    def _data(self, number: int) -> tuple[list[batches.Batch], Tensor, list[int]]:
        """Of step `number` of this stack: micro-batches, tokens of each replica that bear loss, (replicas,), and all of them."""
        each = [run.passes(first + number) for run, first in zip(self.runs, self.firsts, strict=True)]
        passes = [batches.stacked_batch(some, self.setup.device) for some in zip_longest(*each, fillvalue=NOTHING)]
        counts = [max(1, sum(int(one.bears.sum()) for one in some)) for some in each]
        return passes, torch.tensor(counts, device=self.setup.device), [sum(len(one.tokens) for one in some) for some in each]

    def _attempt(self, replicas: int) -> None:
        """The first micro-batch of fewer replicas."""
        some = [run.passes(run.done + 1)[0] for run in self.runs[:replicas]]
        whole = device.stacked([run.model for run in self.runs[:replicas]])
        lm.token_losses(whole, batches.stacked_batch(some, self.setup.device), self.setup.dtype).sum().backward()

    def _backward(self, batch: batches.Batch, counts: Tensor) -> Tensor:
        """Accumulate the gradient of the mean loss of each replica; its part in this batch, (replicas,)."""
        means = lm.token_losses(self.whole, batch, self.setup.dtype).sum(1) / counts
        means.sum().backward()
        return means.detach()


def _clip(whole: nn.Module, limits: Tensor) -> Tensor:
    """Clip the gradient of each replica to its norm in limits (replicas,); the norms before, (replicas,)."""
    gradients = [p.grad for p in whole.parameters() if p.grad is not None]
    each = torch.stack([torch.linalg.vector_norm(g, dim=tuple(range(1, g.ndim))) for g in gradients])
    norms = torch.linalg.vector_norm(each, dim=0)
    factors = (limits / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))
    return norms
