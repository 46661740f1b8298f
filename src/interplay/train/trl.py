"""SFT, preference optimisation and reward models on TRL's trainers (`trainer: trl`). Rows, their order, held-out values and
files are made as by the native trainers; losses, gradients, optimiser, processes (accelerate) and checkpoints are TRL's."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import torch
import transformers
import trl
from torch import Tensor
from trl.trainer import dpo_trainer, reward_trainer, sft_trainer

from interplay.core import execution
from interplay.core.model import UserError
from interplay.data import batches
from interplay.model import heads, trl as shared
from interplay.optim import distributed
from interplay.train import lm, loop, prefer, reward_model
from interplay.train.spec import PreferSpec, RewardModelSpec, SftSpec

PAIRS = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected")
"""What the native trainer of preferences and TRL's log under one name."""


def sft_with_trl(spec: SftSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """`train.lm.train_language_model` by SFTTrainer. A packed row is given to it as its problems, which do not attend to each
    other."""
    return lm.train_language_model(spec, inputs, out, how, partial(_sft, inputs["init"] / "model"))


def prefer_with_trl(spec: PreferSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """`train.prefer.train_preferences` by DPOTrainer, which passes a prompt once for each of its completions."""
    return prefer.train_preferences(spec, inputs, out, how, partial(_dpo, inputs["init"] / "model"))


def reward_with_trl(spec: RewardModelSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """`train.reward_model.train_reward_model` by RewardTrainer, from the same initial head."""
    return reward_model.train_reward_model(spec, inputs, out, how, partial(_reward, inputs["init"] / "model"))


class Feed(NamedTuple):
    """What a trainer of TRL is fed."""

    trainer: Any
    """Its class, and that of its configuration."""
    config: Any
    options: dict[str, Any]
    """Of the configuration, in addition to those that all share."""
    rows: int
    """Of a step."""
    width: int
    """Tokens of a row at most."""
    examples: Callable[[int, int], list[dict[str, Any]]]
    """Rows start..end-1 of all steps, as TRL's collator takes them."""
    collate: Any
    """The class of that collator."""
    tokens: Callable[[int], int]
    """Of a step."""
    logged: tuple[str, ...] = ()
    """Names of metrics of a step."""


def _sft(base: Path, job: loop.TrainingJob, out: Path, how: execution.Run) -> loop.TrainingResult:
    setup: lm.Setup = job.setup

    def rows(start: int, end: int) -> np.ndarray:
        return batches.rows_between(len(setup.per_row), job.spec.seed, start, end)

    def examples(start: int, end: int) -> list[dict[str, Any]]:
        given = batches.sequences_of_rows(setup.rows, rows(start, end))
        tokens, cuts = given.tokens.astype(np.int64), np.cumsum(given.lengths)[:-1]
        labels = np.where(given.bears, tokens, batches.IGNORED)
        pairs = zip(np.split(tokens, cuts), np.split(labels, cuts), strict=True)
        return [{"input_ids": ids.tolist(), "labels": targets.tolist()} for ids, targets in pairs]

    size, kind = setup.rows_per_step, sft_trainer.DataCollatorForLanguageModeling
    feed = Feed(
        trl.SFTTrainer,
        trl.SFTConfig,
        {"max_length": None},
        size,
        setup.rows.tokens.shape[1],
        examples,
        kind,
        lambda step: int(setup.per_row[rows((step - 1) * size, step * size)].sum()),
    )
    return _train(base, job, out, how, feed)


def _dpo(base: Path, job: loop.TrainingJob, out: Path, how: execution.Run) -> loop.TrainingResult:
    setup: prefer.Setup = job.setup
    spec, pairs = setup.spec, setup.pairs

    def example(i: int) -> dict[str, Any]:
        return {"prompt_ids": pairs.prompts[i], "chosen_ids": pairs.chosen[i], "rejected_ids": pairs.rejected[i]}

    options = {"loss_type": [spec.loss_type], "beta": spec.beta, "label_smoothing": spec.label_smoothing}
    classes = trl.DPOTrainer, trl.DPOConfig, dpo_trainer.DataCollatorForPreference
    return _train(base, job, out, how, _feed_of_pairs(classes, options, spec, pairs, example, PAIRS))


def _reward(base: Path, job: loop.TrainingJob, out: Path, how: execution.Run) -> loop.TrainingResult:
    setup: reward_model.Setup = job.setup
    spec, pairs = setup.spec, setup.pairs

    def example(i: int) -> dict[str, Any]:
        chosen, rejected = (pairs.prompts[i] + completions[i] for completions in (pairs.chosen, pairs.rejected))
        return {"chosen_ids": chosen, "rejected_ids": rejected, "margin": float(setup.margins[i])}

    options = {"center_rewards_coefficient": spec.center_rewards_coefficient or None}
    classes = trl.RewardTrainer, trl.RewardConfig, reward_trainer.DataCollatorForPreference
    return _train(base, job, out, how, _feed_of_pairs(classes, options, spec, pairs, example, ("accuracy", "margin")))


def _feed_of_pairs(
    classes: tuple[Any, Any, Any],
    options: dict[str, Any],
    spec: PreferSpec | RewardModelSpec,
    pairs: batches.Pairs,
    example: Callable[[int], dict[str, Any]],
    logged: tuple[str, ...],
) -> Feed:
    """Each pair as the `example` of its number, in the order of the native loops. `classes`: a trainer, its configuration and its
    collator."""
    trainer, config, collate = classes
    size = spec.pairs_per_step
    each = zip(pairs.prompts, pairs.chosen, pairs.rejected, strict=True)
    longest = max(len(prompt) + max(len(one), len(other)) for prompt, one, other in each)

    def places(start: int, end: int) -> np.ndarray:
        return batches.rows_between(len(pairs.prompts), spec.seed, start, end)

    return Feed(
        trainer,
        config,
        {**options, "max_length": None},
        size,
        2 * longest,
        lambda start, end: [example(i) for i in places(start, end).tolist()],
        collate,
        lambda step: pairs.count_tokens(places((step - 1) * size, step * size)),
        logged,
    )


def _train(base: Path, job: loop.TrainingJob, out: Path, how: execution.Run, feed: Feed) -> loop.TrainingResult:
    """`loop.run_training` by a trainer of TRL, from the model at `base`. Raises UserError where processes cannot share rows of
    a step evenly."""
    judging = isinstance(job.model, heads.RewardModel)
    decoder: Any = job.model.decoder if judging else job.model
    shared.prepare(how, decoder)
    if feed.rows % how.processes:
        must = f"trainer trl shares {feed.rows} rows of a step evenly; write 1"
        raise UserError(f"run.processes = {how.processes}: {must}")
    agree = distributed.all_reduce_flags if how.processes > 1 else None
    with execution.save_points(how.save_minutes, agree) as saves:
        run = Recorder(job, decoder, out, saves, feed)
        reader = transformers.AutoTokenizer.from_pretrained(base, trust_remote_code=False)
        reader.pad_token = reader.pad_token or reader.eos_token
        chosen = shared.arguments(job.spec, how, out, job.steps, feed.rows // how.processes, how.micro_batch_tokens // feed.width)
        config = feed.config(
            **chosen,
            **feed.options,
            **({} if judging else {"model_init_kwargs": {"dtype": "float32"}}),
            train_sampling_strategy="sequential",
            remove_unused_columns=False,
        )
        run.trainer = _in_order(feed.trainer)(
            model=_classifier(base, job.model) if isinstance(job.model, heads.RewardModel) else str(base),
            args=config,
            data_collator=partial(_collated, feed.examples, feed.collate(pad_token_id=reader.pad_token_id)),
            train_dataset=datasets.Dataset.from_dict({"row": range(job.steps * feed.rows)}),
            processing_class=reader,
            callbacks=[run],
        )
        run.trainer.remove_callback(transformers.PrinterCallback)
        run.run()
        run.adopt()
    return run.log.result()


def _in_order(trainer: Any) -> Any:
    """The trainer on numbers of rows, which its collator makes examples of."""
    return type(trainer.__name__, (trainer,), {"_prepare_dataset": lambda self, dataset, *given, **more: dataset})


def _collated(examples: Callable[[int, int], list[dict[str, Any]]], collate: Any, items: list[dict[str, int]]) -> Any:
    """A pass over rows that follow each other."""
    return collate(examples(items[0]["row"], items[-1]["row"] + 1))


def _classifier(base: Path, model: heads.RewardModel) -> Any:
    """TRL's reward model, with the same initial head."""
    made = transformers.AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=1, dtype="float32", trust_remote_code=False
    )
    with torch.no_grad():
        made.score.weight.copy_(model.score)
    return made


class Recorder(shared.Recorder):
    """What `loop.run_training` does around a step: metrics, held-out values, kept models, saves."""

    log: loop.RunLog

    def __init__(self, job: loop.TrainingJob, decoder: Any, out: Path, saves: execution.Saves, feed: Feed) -> None:
        super().__init__(job.spec, job.steps, out, saves)
        self.of, self.decoder, self.feed, self.started = job, decoder, feed, 0.0
        evaluate = self.evaluate if job.evaluate else None
        self.job = dataclasses.replace(job, save=self.save, evaluate=evaluate)

    def adopt(self) -> None:
        """Load TRL's weights into the job's model."""
        self.load_into(self.decoder)
        if isinstance(self.of.model, heads.RewardModel):
            theirs = self.trainer.accelerator.unwrap_model(self.trainer.model)
            with torch.no_grad():
                self.of.model.score.copy_(theirs.score.weight)

    def save(self, path: Path) -> None:
        """Write the model as it is now."""
        self.adopt()
        self.of.save(path)

    def evaluate(self) -> dict[str, float]:
        """Held-out values of the model as it is now."""
        assert self.of.evaluate is not None
        self.adopt()
        return self.of.evaluate()

    def begin(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Go on with the files of the last save."""
        self.log = loop.RunLog(self.job, self.out, self.done, state or {"tokens": 0})

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tokens so far."""
        self.log.metrics.sync()
        return {}, self.log.state

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Start the step's clock."""
        self.started = time.monotonic()
        super().on_step_begin(args, state, control, **more)

    def write(self, step: int) -> None:
        """A line of metrics under the names of the native trainers."""
        logs = self.logs[-1]
        named = {name: logs[name] for name in ("loss", *self.feed.logged)}
        tokens = self.feed.tokens(step)
        line = {**named, "lr_factor": self.lr_factor(step), "grad_norm": logs["grad_norm"], "tokens": tokens}
        self.log.add(step, line, time.monotonic() - self.started)
