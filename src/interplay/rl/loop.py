"""The RL loop. A step is

    sampler -> allocation, prompting, continuation -> episode -> reward -> shaping -> edits -> advantage -> edits -> loss

(`unrecorded_step`); `rl/draw.py` holds it up to the shaped rewards, `rl/update.py` the loss and the optimizer. For GRPO
(arXiv:2402.03300) that is: prompts in a random order, G completions of each, their rewards normalised over the group
(`rl/group_advantages.py`), and the clipped policy loss (`rl/losses.py`).

All randomness is keyed: prompts by (seed, set, epoch), sampling noise by (seed, step, prompt, sample, position). So a step is a
function of the weights, the optimizer state and the sampler state before it, which are what a resume restores."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from interplay.core import execution
from interplay.core.metrics import Metrics, Progress, read, telemetry
from interplay.core.model import at_progress, curves_in, progress_at
from interplay.model import decoder, device, folder
from interplay.optim import distributed, optimizer
from interplay.rl import continuation, draw, edits, records, turn_credit
from interplay.rl.advantage_spec import GaeAdvantage, TurnsAdvantage
from interplay.rl.advantages import advantages, cut_segments, update_baselines
from interplay.rl.assembly import RunState, assemble_run, restore_run, save_run
from interplay.rl.batch import Batch, StepContext, join, take
from interplay.rl.spec import RLSpec
from interplay.rl.update import Learner, bearing, collisions_of, entropy_of, likelihood_of, reference_of, token_weights, update
from interplay.rollout.engine import Coroutine, Outcome, closing, run_replicas

LONG = 10.0
"""Seconds of updates from which on it is worth measuring what the machine could have done."""


def train_policy(
    spec: RLSpec, inputs: dict[str, Path], out: Path, how: execution.Run, stack: Coroutine | None = None
) -> dict[str, Any]:
    """Train and write `model/`, `checkpoints/<step>/model/`, `metrics.jsonl`, `rollouts.parquet` and `history.parquet`; and
    `state/` next to them, from which a longer run goes on. Roles: see RLSpec.

    Goes on from `out/resume` where there is one. `stack`: what it is as a replica. Raises PermanentError at the first loss that
    is not finite."""
    run, learner = assemble_run(spec, inputs, how, out, stack)
    others: list[Any] = [one for one in (run.opponents, run.graders and run.graders.judge) if one]
    with closing(run.engine, *others):
        done = restore_run(run, learner, out)
        train_steps(run, learner, out, how, done)
    folder.save_decoder(learner.policy, out / "model", run.tokenizer_files)
    records.finish(out, spec.steps)
    if how.keep_state:
        save_run(run, learner, out / "state", spec.steps)
        records.keep(out)
    return records.summarise_run(read(out)) if execution.is_first_rank() else {}


def rl_replicas(replicas: Sequence[execution.Replica], how: execution.Run) -> Iterator[tuple[int, Outcome]]:
    """Train the replicas step by step: all draw together, then each updates by itself, which takes few launches where decoding
    takes many. Gives (number, outcome) of each when it ends: its files are written by then. Raises StoppedError after a signal,
    once all have saved."""
    return run_replicas(train_policy, replicas, how)


def train_steps(run: RunState, learner: Learner, out: Path, how: execution.Run, done: int) -> None:
    """Steps done + 1 to the last, saving to `out/resume` every `save_minutes`."""
    spec = run.spec
    metrics, progress = Metrics(out, done), Progress(spec.steps, "steps", done)
    started, agree = run.clock(), distributed.all_reduce_flags if how.processes > 1 else None
    tokens, learnt_from, seconds = 0.0, 0.0, {"sampler": 0.0, "rollout": 0.0, "update": 0.0}
    with execution.save_points(how.save_minutes, run.stack.agree if run.stack else agree, how.segment_steps) as saves:
        for step in range(done + 1, spec.steps + 1):
            factor = optimizer.lr_factor(spec.schedule, step, spec.steps)
            optimizer.set_lr([*learner.optimizers, *(run.critic.optimizers if run.critic else ())], factor)
            values = one_step(run, learner, out, step, seconds)
            metrics.write(step, **values, lr=factor * spec.optimizer.learning_rate)
            tokens += values["completion_tokens"]
            learnt_from += values["trained_tokens"] * spec.method.loss.num_iterations
            if step in spec.checkpoints:
                folder.save_decoder(learner.policy, out / "checkpoints" / str(step) / "model", run.tokenizer_files)
            progress.update(step, reward=values["reward"], strict=values["strict"], entropy=values["entropy"])
            if step < spec.steps and saves.due(step):
                metrics.sync()
                save_run(run, learner, out / "resume", step)
                distributed.keep_segment(out, step, how)
                saves.made(f"step {step} of {spec.steps}")
    if spec.steps > done:
        per_step = (run.clock() - started) / (spec.steps - done)
        parts = {f"seconds_{name}": round(value, 3) for name, value in seconds.items()}
        telemetry(out, seconds_per_step=per_step, completion_tokens_per_second=tokens / seconds["rollout"], **parts)
        if seconds["update"] >= LONG:
            telemetry(out, update_mfu=round(_mfu(spec, learner.policy, learnt_from / seconds["update"]), 4))


def one_step(run: RunState, learner: Learner, out: Path, step: int, seconds: dict[str, float]) -> dict[str, float]:
    """Draw, edit, learn and record. Adds to `seconds` what the choice of prompts, rollouts and updates took; returns the step's
    metrics."""
    spec = run.spec
    known, advantage, logged = unrecorded_step(run, learner, step, seconds)
    records.write_step(out, step, spec, run.pool, known, advantage, run.tokenizer.decode_batch)
    return logged


def unrecorded_step(
    run: RunState, learner: Learner, step: int, seconds: dict[str, float]
) -> tuple[Batch, torch.Tensor, dict[str, float]]:
    """The same without a record: all rows that the step drew and whose rewards are known, the mean of each one's advantage over
    its tokens (N,), 0 where an edit dropped it, and the metrics."""
    run, learner, curves = with_curves_at(run, learner, step)
    spec, seen = run.spec, Counter[int]()
    drawn: list[Batch] = []

    def draw_more(m: int) -> Batch:
        with adding_seconds(seconds, "sampler", run.clock):
            ids = [] if drawn else continuation.carried_prompts(now, m)
            ids += run.sampler.select(m - len(ids), step) if m > len(ids) else []
        with adding_seconds(seconds, "rollout", run.clock):
            fresh = draw.draw_batch(run, ids, now, seen)
        first = sum(len(batch) for batch in drawn)
        drawn.append(replace(fresh, row=torch.arange(first, first + len(fresh))))
        return continuation.kept_rollouts(drawn[-1], now)

    now = draw.step_context(
        run,
        step,
        draw=draw_more,
        continued=partial(draw.continuation_values, run, step, seen),
        entropy=partial(entropy_of, learner),
        reference=partial(reference_of, learner),
        collisions=partial(collisions_of, learner),
        likelihood=partial(likelihood_of, learner),
    )
    batch = edits.edits_before_advantage(draw_more(spec.prompts_per_step), now)
    everything = join(drawn, run.special.pad)
    with adding_seconds(seconds, "update", run.clock):
        batch, advantage, values = with_advantages(run, batch, now)
        values |= records.credit_metrics(batch, advantage)
        values |= records.rank_steps(batch, advantage, now) if spec.judge_credit else {}
        update_baselines(spec.method.advantage, batch, now)
        draw.update_decoding(spec.method.decoding, batch, now)
        batch, advantage, bears = edits.edits_after_advantage(batch, advantage, bearing(spec.method.loss, batch), now)
        values |= update(learner, batch, advantage, step, bears)
        draw.update_lagged(spec.method.decoding, learner.lagged, step)
        if run.opponents:
            run.opponents.update(step)
    with adding_seconds(seconds, "sampler", run.clock):
        run.sampler.learn(step)
    recorded, per_row, measured = measured_step(run, everything, batch, advantage, now)
    return recorded, per_row, measured | values | curves


def measured_step(
    run: RunState, everything: Batch, batch: Batch, advantage: torch.Tensor, now: StepContext
) -> tuple[Batch, torch.Tensor, dict[str, float]]:
    """Of all rows that a step drew: those whose rewards are known, the mean advantage of each (N,), and metrics; `batch`: the
    rows that it learnt from, with their advantages (M,T)."""
    of_rows, own = now.by.summed(advantage * batch.mask(), 1) / batch.num_action_tokens().clamp(min=1), batch.row >= 0
    per_row = torch.zeros(len(everything)).index_copy_(0, batch.row[own], of_rows[own])
    recorded = everything
    if everything.unfinished is not None and (known := everything.finished()).any():
        recorded, per_row = take(everything, known.nonzero()[:, 0]), per_row[known]
    measured = {
        **records.measure_step(recorded, per_row, now.by),
        **records.sampled_counts(everything),
        **records.drawn_shares(everything, run.pool),
        **{f"sampler/{name}": value for name, value in run.sampler.metrics().items()},
    }
    return recorded, per_row, measured


def with_curves_at(run: RunState, learner: Learner, step: int) -> tuple[RunState, Learner, dict[str, float]]:
    """Both with the spec of a step, in which every curve has its value, and what is logged of these. Sampler, memory, critic and
    models are the very objects."""
    progress = progress_at(step, run.spec.steps)
    now = at_progress(run.spec, progress)
    if now is run.spec:
        return run, learner, {}
    logged = {f"curve/{place}": one.at(progress) for place, one in curves_in(run.spec)}
    return replace(run, spec=now), learner._replace(spec=now), logged


def with_advantages(run: RunState, batch: Batch, now: StepContext) -> tuple[Batch, torch.Tensor, dict[str, float]]:
    """The batch with its steps, and with the values that the critic gave it before it learnt from it; the advantages (N,T), 0
    while the critic learns alone; and what the critic logs."""
    batch = cut_segments(now.method.advantage, batch, now)
    judge = run.critic
    if judge is None:
        return batch, advantages(now.method.advantage, batch, now), {}
    batch = replace(batch, values=judge.values(batch))
    chosen, targets = now.method.advantage, None
    if isinstance(chosen, TurnsAdvantage):
        paid = turn_credit.earned(chosen, batch, now)  # by both: sources may cost forward passes
        advantage = turn_credit.placed(batch, turn_credit.credit(chosen, batch, paid))
        targets = turn_credit.critic_targets(batch, paid, judge.spec.gamma, judge.spec.lam)
    else:
        advantage = advantages(chosen, batch, now)
    rewards = chosen.rewards if isinstance(chosen, GaeAdvantage) else "outcome"
    mask, mode = batch.mask() & batch.finished()[:, None], run.spec.method.loss.loss_agg_mode
    weights = token_weights(mode, mask, int(mask.sum()), 1, now.max_completion_length) if mode and not targets else None
    return batch, advantage * (now.step > judge.spec.warmup_steps), judge.learn(batch, rewards, weights, targets)


@contextmanager
def adding_seconds(seconds: dict[str, float], what: str, clock: Callable[[], float]) -> Iterator[None]:
    """Add the time that the block takes to `seconds[what]`."""
    started = clock()
    yield
    seconds[what] += clock() - started


def _mfu(spec: RLSpec, policy: decoder.Decoder, tokens_per_second: float) -> float:
    """What share of the processes' arithmetic updates used, counting the tokens that bore loss: neither prompts nor passes
    without a gradient."""
    peak = device.stage_flops(getattr(torch, spec.dtype), policy.head().device)
    return device.model_flops_utilisation(device.matrix_parameters(policy), tokens_per_second, peak)
