"""RL on TRL's GRPOTrainer (`trainer: trl`): prompts, completions, judgements, rewards and records are made as in `rl.loop`;
advantages, loss, gradients, optimiser, processes (accelerate) and checkpoints are TRL's. With `engine: hf` TRL samples, too."""

import math
import time
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import accelerate.utils
import datasets
import torch
import transformers
import trl
from torch import Tensor

from interplay.core import execution
from interplay.core.metrics import Metrics, Progress, read, telemetry
from interplay.data import tokenizer as text
from interplay.model import folder, trl as shared
from interplay.model.decoder import Decoder
from interplay.optim import distributed
from interplay.rl import assembly, draw, policy, records, update
from interplay.rl.batch import Batch
from interplay.rl.spec import RLSpec
from interplay.rollout.engine import closing
from interplay.rollout.request import Request, Rollouts, Sampling

OPTIONS = (
    *("beta", "use_bias_correction_kl", "num_iterations", "mask_truncated_completions", "off_policy_mask_threshold"),
    *("importance_sampling_level", "epsilon", "epsilon_high", "delta", "sapo_temperature_pos", "sapo_temperature_neg"),
    *("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
)
"""Options of losses that GRPOConfig has under the same names; all others are fixed (`model.trainer_spec.GRPO`)."""


def train_with_trl(spec: RLSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Train and write what `rl.loop.train_policy` writes, but for `state/`. Resumes from TRL's checkpoint in `out/resume` where
    there is one. Raises PermanentError at the first loss that is not finite, UserError for a model that transformers computes."""
    run, learner = assembly.assemble_run(spec, inputs, how, out)
    shared.prepare(how, learner.policy)
    agree = distributed.all_reduce_flags if how.processes > 1 else None
    with closing(run.engine), execution.save_points(how.save_minutes, agree) as saves:
        recorder = Recorder(run, learner.policy, out, saves)
        Trainer(recorder, inputs["init"] / "model", arguments(spec, how, out, longest_prompt(run)))
        recorder.run()
        folder.save_decoder(recorder.load_into(recorder.decoder), out / "model", run.tokenizer_files)
    records.finish(out, spec.steps)
    return records.summarise_run(read(out)) if execution.is_first_rank() else {}


def longest_prompt(run: assembly.RunState) -> int:
    """Tokens of the longest prompt."""
    return max(map(len, text.encode_texts(run.tokenizer, [row.prompt for row in run.pool.rows])))


def arguments(spec: RLSpec, how: execution.Run, out: Path, longest: int) -> trl.GRPOConfig:
    """The spec as TRL's configuration."""
    return trl.GRPOConfig(**settings(spec, how, out, longest))


def settings(spec: RLSpec, how: execution.Run, out: Path, longest: int) -> dict[str, Any]:
    """What of it differs from TRL's defaults. A pass has as many rows as fit into `run.micro_batch_tokens`, padded to the
    longest."""
    loss = spec.method.loss
    rows = spec.prompts_per_step * spec.method.allocation.num_generations // (how.processes * spec.minibatches)
    fit = how.micro_batch_tokens // (longest + spec.max_completion_length)
    chosen = shared.arguments(spec, how, out, spec.steps * spec.updates_per_step(), rows, fit)
    weighed = "dapo" if loss.loss_type == "bnpo" else loss.loss_type  # equal where an optimiser step has the whole batch
    return dict(
        **chosen,
        steps_per_generation=chosen["gradient_accumulation_steps"] * spec.minibatches,
        num_generations=spec.method.allocation.num_generations,
        max_completion_length=spec.max_completion_length,
        temperature=spec.temperature,
        scale_rewards=getattr(spec.method.advantage, "scale_rewards", "group"),
        loss_type=loss.name if loss.name in ("sapo", "vespo") else weighed,
        **{name: getattr(loss, name) for name in OPTIONS if name in type(loss).model_fields},
        model_init_kwargs={"dtype": "float32"},
        shuffle_dataset=False,
    )


class Trainer(trl.GRPOTrainer):
    """TRL's trainer, which also hands the recorder its advantages and its log-probabilities of the sampled tokens."""

    def __init__(self, run: "Recorder", base: Path, config: trl.GRPOConfig) -> None:
        self.run, self.logps = run, torch.zeros(0)
        run.trainer = self
        steps = range(run.spec.steps * run.spec.prompts_per_step)
        super().__init__(
            model=str(base),
            args=config,
            reward_funcs=run.rewards,
            train_dataset=datasets.Dataset.from_list([{"prompt": str(i)} for i in steps]),  # the sampler chooses the prompts
            processing_class=transformers.AutoTokenizer.from_pretrained(base, padding_side="left", trust_remote_code=False),
            callbacks=[run],
            rollout_func=run.rollouts,
        )
        self.remove_callback(transformers.PrinterCallback)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        found = super()._generate_and_score_completions(inputs)
        self.run.advantages = self.accelerator.gather(found["advantages"]).cpu()
        return found

    def _get_per_token_logps_and_entropies(self, *given: Any, **more: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*given, **more)
        self.logps = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        loss = super()._compute_loss(model, inputs)
        matters = (inputs["advantages"] != 0) | bool(self.run.spec.method.refers())
        mask, before = inputs["completion_mask"] * matters[:, None], inputs.get("old_per_token_logps", self.logps)
        sampled = inputs.get("sampling_per_token_logps", before)
        self.run.compare((before - sampled) * mask, (self.logps - sampled) * mask, mask, inputs["completion_mask"])
        return loss


class Recorder(shared.Recorder):
    """What `rl.loop` does around the update: draws and rewards completions, writes metrics and records."""

    trainer: Trainer
    advantages: Tensor
    batch: Batch

    def __init__(self, run: assembly.RunState, decoder: Decoder, out: Path, saves: execution.Saves) -> None:
        super().__init__(run.spec, run.spec.steps, out, saves, run.spec.updates_per_step())
        self.run_state, self.decoder = run, decoder
        self.sums: dict[str, float] = {}
        self.peaks: dict[str, float] = {}
        self.started = time.monotonic()
        if self.spec.engine == "hf":
            run.engine = Generate(self)

    def begin(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Go on with sampler, memory and files of the last save."""
        if state:
            assembly.restore_members(self.run_state, tensors, state)
        self.metrics, self.progress = Metrics(self.out, self.done), Progress(self.spec.steps, "steps", self.done)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Those of sampler and memory."""
        self.metrics.sync()
        return assembly.saved_members(self.run_state)

    # What TRL asks for.

    def rollouts(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """The completions of a step, of which each process gets its share (`rollout_func`)."""
        spec, step = self.spec, trainer.state.global_step // self.spec.updates_per_step() + 1
        self.load_into(self.decoder)
        ids = self.run_state.sampler.select(spec.prompts_per_step, step)
        self.batch = draw.draw_batch(self.run_state, ids, draw.step_context(self.run_state, step), Counter())
        self.run_state.sampler.learn(step)
        mine = range(len(self.batch))[self._share(len(self.batch))]
        cut = [(i, int(self.batch.lengths[i])) for i in mine]
        return {
            "prompt_ids": [self.batch.prompts[i] for i in mine],
            "completion_ids": [self.batch.tokens[i, :n].tolist() for i, n in cut],
            "logprobs": None if spec.engine == "hf" else [self.batch.logprobs[i, :n].tolist() for i, n in cut],
        }

    def rewards(self, completions: list[str], **_: Any) -> list[float | None]:
        """The rewards of the completions of this process (`reward_funcs`)."""
        return self.batch.rewards[self._share(len(self.batch))].tolist()

    def _share(self, rows: int) -> slice:
        size = rows // execution.world_size()
        return slice(execution.rank() * size, (execution.rank() + 1) * size)

    def compare(self, before: Tensor, now: Tensor, mask: Tensor, every: Tensor) -> None:
        """Add to the step's sums how far TRL's log-probabilities are from those that the engine sampled with, over the tokens
        (n,T) in `mask`: `before` in the first pass over them, `now` in this one. `every`: all tokens of completions (n,T)."""
        added = {
            "tokens": mask.sum(),
            "every": every.sum(),
            "kl_old": policy.k3(now).sum(),
            update.DIFFERENCE: before.abs().sum(),
        }
        self.sums = {name: self.sums.get(name, 0.0) + float(value) for name, value in added.items()}
        largest = {update.LARGEST: float(before.abs().max()), update.RATIO: math.exp(float(before.max()))}
        self.peaks = {name: max(self.peaks.get(name, 0.0), value) for name, value in largest.items()}

    def write(self, step: int) -> None:
        """Write the metrics and rollouts of a step."""
        values, spec = self._values(), self.spec
        self.metrics.write(step, **values, lr=self.lr_factor(step) * spec.optimizer.learning_rate)
        records.write_step(
            self.out, step, spec, self.run_state.pool, self.batch, self.advantages, self.run_state.tokenizer.decode_batch
        )
        self.progress.update(step, reward=values["reward"], strict=values["strict"], entropy=values["entropy"])
        self.sums, self.peaks = {}, {}

    def _values(self) -> dict[str, float]:
        """The step's metrics, under the names of the loop."""
        measured = records.measure_step(self.batch, self.advantages)
        theirs = {"loss": "loss", "grad_norm": "grad_norm", "kl": "kl", "clip_ratio/region_mean": "clip_fraction"}
        theirs |= {"cispo_clip_ratio": "clip_fraction", "vespo/phi_seq_mean": "phi"}
        means = {ours: fmean(one[name] for one in self.logs) for name, ours in theirs.items() if name in self.logs[0]}
        sums = distributed.all_reduce_dict(self.sums)
        tokens, every = max(sums.pop("tokens"), 1.0), sums.pop("every")
        own = {name: value / tokens for name, value in sums.items()} | distributed.all_reduce_max(self.peaks)
        if "clip_fraction" in means:  # TRL's mean is over all tokens, that of the loop over those in `mask`
            means["clip_fraction"] *= every / tokens
        if self.spec.engine == "hf":  # TRL's generation does not return the log-probabilities that it sampled with
            measured["entropy"] = self.logs[0]["entropy"]
            own = {"kl_old": own["kl_old"]}
        bears = update.bearing(self.spec.method.loss, self.batch)
        return {
            **measured,
            **records.sampled_counts(self.batch),
            **records.drawn_shares(self.batch, self.run_state.pool),
            **{f"sampler/{name}": value for name, value in self.run_state.sampler.metrics().items()},
            **means,
            **own,
            "optimizer_steps": float(len(self.logs)),
            "trained_tokens": float(bears.sum()),
        }

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep the checkpoints that the spec names, and say when to save."""
        step, last = divmod(state.global_step, self.updates)
        if last == 0 and step in self.spec.checkpoints:
            kept = self.out / "checkpoints" / str(step) / "model"
            folder.save_decoder(self.load_into(self.decoder), kept, self.run_state.tokenizer_files)
        super().on_step_end(args, state, control, **more)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Record the seconds of a step."""
        if self.spec.steps > self.done:
            telemetry(self.out, seconds_per_step=(time.monotonic() - self.started) / (self.spec.steps - self.done))


class Generate:
    """TRL's own generation as an engine: transformers' `generate`, with noise from torch's global generator."""

    def __init__(self, run: Recorder) -> None:
        self.run = run

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests, gathered in every process; log-probabilities are unknown and set to 0."""
        asked = [(number, request.prompt) for number, request in enumerate(requests) for _ in range(request.count)]
        mine = asked[self.run._share(len(asked))]
        made, _ = self.run.trainer._generate_single_turn([prompt for _, prompt in mine], None, {}, requests[0].count)
        rows = accelerate.utils.gather_object(made)
        width = max(map(len, rows))
        tokens = torch.tensor([row + [sampling.pad] * (width - len(row)) for row in rows])
        ends = torch.tensor([row[-1] != sampling.eos for row in rows])
        lengths, numbers = torch.tensor([len(row) for row in rows]), torch.tensor([number for number, _ in asked])
        samples = torch.tensor([i for request in requests for i in range(request.first, request.first + request.count)])
        return Rollouts(numbers, samples, tokens, lengths, torch.zeros(tokens.shape), ends)

    def close(self) -> None:
        """Releases nothing: the model is the trainer's."""
