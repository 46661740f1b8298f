"""What all of TRL's trainers have in common here (`trainer: trl`): their configuration, and as a callback the learning rate,
checkpoints, resume and kept models. What a kind feeds to its trainer and logs is its own."""

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import datasets
import transformers
from torch import Tensor

from interplay.core import execution, model
from interplay.model.decoder import Decoder
from interplay.optim import distributed, optimizer

UNCLIPPED = 1e30
"""Norm to which gradients are clipped where they are not: TRL measures it only when it clips."""


def prepare(how: execution.Run, policy: Decoder) -> None:
    """Set up the libraries. Raises UserError for a model that transformers computes."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    datasets.disable_progress_bars()
    os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", **({} if how.gpus else {"ACCELERATE_USE_CPU": "true"})}
    if type(policy) is not Decoder:  # of a source whose config.json the plan did not know
        raise model.UserError("trainer = trl: does not train a model that transformers computes; write trainer: native")


def arguments(spec: Any, how: execution.Run, out: Path, steps: int, rows: int, fit: int) -> dict[str, Any]:
    """What the configurations of all trainers share: so many optimiser steps of `rows` rows in each process, in passes of at most
    `fit` rows."""
    chosen = spec.optimizer
    size = max(n for n in range(1, rows + 1) if rows % n == 0 and n <= max(1, fit))
    return {
        "output_dir": str(out / "resume" / "trl"),
        "seed": spec.seed,
        "max_steps": steps,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": rows // size,
        "learning_rate": chosen.learning_rate,
        "lr_scheduler_type": "constant",  # the recorder sets the factor of each step
        "weight_decay": chosen.weight_decay,
        "adam_beta1": chosen.adam_beta1,
        "adam_beta2": chosen.adam_beta2,
        "max_grad_norm": chosen.max_grad_norm or UNCLIPPED,
        "bf16": spec.dtype == "bfloat16",
        "gradient_checkpointing": False,
        "use_cpu": not how.gpus,
        "dataloader_pin_memory": False,
        "torch_compile": how.compile,
        "save_strategy": "no",  # the recorder says when
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "report_to": [],
    }


class Recorder(transformers.TrainerCallback):
    """What the project's loops do around an update, as callbacks of TRL. A step of a stage is `updates` optimiser steps."""

    trainer: Any
    """That of TRL, set by the function that makes it."""
    done = 0
    """Steps of earlier attempts."""

    def __init__(self, spec: Any, steps: int, out: Path, saves: execution.Saves, updates: int = 1) -> None:
        self.spec, self.steps, self.out, self.saves, self.updates = spec, steps, out, saves, updates
        self.logs: list[dict[str, float]] = []

    # What a kind says.

    def begin(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Start from what `state` gave of the last save; {} where there was none."""
        raise NotImplementedError

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON data of a save, in addition to TRL's checkpoint."""
        raise NotImplementedError

    def write(self, step: int) -> None:
        """Write the metrics of a step, of whose optimiser steps TRL said `logs`."""
        raise NotImplementedError

    # What all share.

    def load_into(self, decoder: Decoder) -> Decoder:
        """The decoder, with the current weights of TRL's model."""
        weights = self.trainer.accelerator.unwrap_model(self.trainer.model).state_dict()
        weights = {name: tensor for name, tensor in weights.items() if name != "score.weight"}  # of a reward model
        decoder.load_state_dict(weights, strict=False)
        return decoder

    def run(self) -> None:
        """Train, from the last save where there is one."""
        saved = distributed.load_checkpoint(self.out / "resume" / "state")
        self.done = saved[0] if saved else 0
        keep = f"checkpoint-{self.done * self.updates}"
        self._remove_others(keep)
        self.begin(*(saved[1:] if saved else ({}, {})))
        self.trainer.train(resume_from_checkpoint=str(self.out / "resume" / "trl" / keep) if saved else None)

    def _remove_others(self, keep: str) -> None:
        """Checkpoints that a kill left unfinished, and those of earlier saves."""
        for path in (self.out / "resume" / "trl").glob("checkpoint-*") if execution.is_first_rank() else ():
            if path.name != keep:
                shutil.rmtree(path, ignore_errors=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Set the learning rate of the step."""
        optimizer.set_lr([more["optimizer"]], self.lr_factor(state.global_step // self.updates + 1))

    def lr_factor(self, step: int) -> float:
        """Of the schedule."""
        return optimizer.lr_factor(self.spec.schedule, step, self.steps)

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep what an optimiser step logged; after the last one of a step, write."""
        logs = more["logs"]
        if "loss" not in logs:
            return
        step, last = divmod(state.global_step, self.updates)
        optimizer.check_finite(step + (last > 0), self.steps, logs["loss"], logs["grad_norm"])
        self.logs.append(logs)
        if last == 0:
            self.write(step)
            self.logs = []

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Say when to save."""
        step, last = divmod(state.global_step, self.updates)
        if last == 0:
            control.should_save = step < self.steps and self.saves.due(step)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Make TRL's checkpoint the one to resume from, once all processes have written it."""
        step = state.global_step // self.updates
        tensors, kept = self.state()
        self.trainer.accelerator.wait_for_everyone()
        distributed.save_checkpoint(self.out / "resume" / "state", step, tensors, kept)
        self._remove_others(f"checkpoint-{state.global_step}")
        self.saves.made(f"step {step} of {self.steps}")
