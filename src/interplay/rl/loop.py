"""The RL loop: sampler -> planner -> episode -> reward -> edits -> advantage -> policy loss, once per step.

All randomness is keyed: prompts by (seed, set, epoch), sampling noise by (seed, step, prompt, sample, position). So a step is a
function of the weights, the optimiser state and the sampler state before it, which are what a resume restores."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interplay.data import pool as pools
from interplay.data import tokenizer as text
from interplay.model import folder, throughput
from interplay.model.decoder import Decoder
from interplay.model.device import placed
from interplay.optim import checkpoint, optimizer, ranks, schedule, sharding
from interplay.rl import records
from interplay.rl.advantages.table import advantages, cut, remember
from interplay.rl.batch import Batch, join, take
from interplay.rl.continued import continued
from interplay.rl.critic import critic
from interplay.rl.decoding.table import followed, lagging, learnt
from interplay.rl.draw import World, draw, gold, tokens_of
from interplay.rl.edits.table import after, before
from interplay.rl.measure import measure, shares, spent, summary
from interplay.rl.now import Memory, Now
from interplay.rl.offline import offline
from interplay.rl.planners.table import carried, settled
from interplay.rl.samplers.sampler import Deck
from interplay.rl.samplers.table import sampler
from interplay.rl.spans import offsets
from interplay.rl.update import Learner, bearing, entropy_of, likelihood_of, update
from interplay.rollout.dealt import dealt
from interplay.rollout.engine import closing, engine
from interplay.schema.rl import RLSpec
from interplay.schema.run import Run
from interplay.store import worker
from interplay.store.metrics import Metrics, Progress, read, telemetry
from interplay.store.stop import saving

SAMPLER, MEMORY, CRITIC, LAGGED = "sampler.", "memory.", "critic.", "lagged."
"""Names of the tensors of sampler, memory, critic and lagged copy begin with these where they are saved."""

LONG = 10.0
"""Seconds of updates from which on it is worth measuring what the machine could have done."""


def run(spec: RLSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Train and write `model/`, `checkpoints/<step>/model/`, `metrics.jsonl`, `rollouts.parquet` and `history.parquet`; and
    `state/` beside them, from which a longer run goes on. Roles: see RLSpec.

    Goes on from `out/resume` where there is one. Raises PermanentError at the first loss that is not finite."""
    world, learner = assembled(spec, inputs, how)
    with closing(world.engine):
        done = restored(world, learner, out)
        train(world, learner, out, how, done)
    folder.save(learner.policy, out / "model", world.tokenizer_files)
    records.finish(out, spec.steps)
    if how.keep_state:
        save(world, learner, out / "state", spec.steps)
        records.keep(out)
    return summary(read(out)) if worker.first() else {}


def assembled(spec: RLSpec, inputs: dict[str, Path], how: Run) -> tuple[World, Learner]:
    """All that a run has before its first step."""
    torch.set_num_threads(how.threads)
    torch.manual_seed(spec.seed)  # nothing here draws from torch's own stream, but it is saved, and starts at random otherwise
    policy = placed(folder.load(inputs["init"] / "model"), how)
    base = inputs["init"] / "model"
    reference = placed(folder.load(base), how).requires_grad_(False) if spec.method.loss.refers() else None
    lagged = lagging(spec.method.decoding, policy)
    pool = pools.load([inputs[f"data.{i}"] for i in range(len(spec.mix))])
    tokenizer = text.load(inputs["init"])
    pools.check_prompts(pool, tokenizer, spec.max_prompt_length)
    deck = Deck(
        sizes=pool.sizes,
        mix=spec.mix,
        seed=spec.seed,
        steps=spec.steps,
        rows=pool.rows,
        policy=policy,
        encode=lambda ids: pools.encode(tokenizer, [pool.rows[i].prompt for i in ids]),
        dtype=getattr(torch, spec.dtype),
        micro_batch_tokens=how.micro_batch_tokens,
        offline=offline(spec, pool, inputs),
    )
    world = World(
        spec=spec,
        pool=pool,
        tokenizer=tokenizer,
        special=text.special(inputs["init"]),
        tokenizer_files=text.tokenizer_folder(inputs["init"]),
        engine=dealt(engine(spec.engine, lagged or policy, how, getattr(torch, spec.dtype), base)),
        sampler=sampler(spec.method.sampler, deck),
        memory=Memory(len(pool.rows)),
        critic=critic(spec, policy, how.micro_batch_tokens),
    )
    sharding.placed(policy, how)  # what is copied of it was copied by now
    optimizers = optimizer.build(spec.optimizer, policy.named_parameters())
    return world, Learner(spec, policy, reference, optimizers, how.micro_batch_tokens, lagged)


def restored(world: World, learner: Learner, out: Path) -> int:
    """Put both into the state that was saved last; returns the steps that it has behind it, 0 where none was."""
    saved = checkpoint.load(out / "resume" / "state")
    if saved is None:
        return 0
    done, tensors, state = saved
    checkpoint.restore_training(tensors, learner.policy, learner.optimizers)
    world.sampler.load_state_dict(state["sampler"], checkpoint.with_prefix(tensors, SAMPLER))
    memory = checkpoint.with_prefix(tensors, MEMORY)
    world.memory.load(state.get("memory", {}), memory)  # a state may be older than the memory
    if world.critic:
        world.critic.load(checkpoint.with_prefix(tensors, CRITIC))
    if learner.lagged:
        learner.lagged.copy.load_state_dict(checkpoint.with_prefix(tensors, LAGGED))
    return done


def train(world: World, learner: Learner, out: Path, how: Run, done: int) -> None:
    """Steps done + 1 to the last, saving to `out/resume` every `save_minutes`."""
    spec = world.spec
    metrics, progress = Metrics(out, done), Progress(spec.steps, "steps", done)
    clock = time.monotonic()
    tokens, learnt_from, seconds = 0.0, 0.0, {"sampler": 0.0, "rollout": 0.0, "update": 0.0}
    with saving(how.save_minutes, ranks.agreed if how.processes > 1 else None) as saves:
        for step in range(done + 1, spec.steps + 1):
            factor = schedule.factor(spec.schedule, step, spec.steps)
            optimizer.set_lr([*learner.optimizers, *(world.critic.optimizers if world.critic else ())], factor)
            values = one_step(world, learner, out, step, seconds)
            metrics.write(step, **values, lr=factor * spec.optimizer.learning_rate)
            tokens += values["completion_tokens"]
            learnt_from += values["trained_tokens"] * spec.method.loss.num_iterations
            if step in spec.checkpoints:
                folder.save(learner.policy, out / "checkpoints" / str(step) / "model", world.tokenizer_files)
            progress.update(step, reward=values["reward"], strict=values["strict"], entropy=values["entropy"])
            if step < spec.steps and saves.due():
                metrics.sync()
                save(world, learner, out / "resume", step)
                saves.made(f"step {step} of {spec.steps}")
    if spec.steps > done:
        per_step = (time.monotonic() - clock) / (spec.steps - done)
        telemetry(out, seconds_per_step=per_step, completion_tokens_per_second=tokens / seconds["rollout"], **_shares(seconds))
        if seconds["update"] >= LONG:
            telemetry(out, update_mfu=round(_mfu(spec, learner.policy, learnt_from / seconds["update"]), 4))


def save(world: World, learner: Learner, resume: Path, step: int) -> None:
    """Make the state after `step` the one to go on from."""
    state = {"sampler": world.sampler.state_dict(), "memory": world.memory.notes}
    tensors = checkpoint.training_tensors(learner.policy, learner.optimizers)
    tensors |= {SAMPLER + name: tensor for name, tensor in world.sampler.tensors().items()}
    tensors |= {MEMORY + name: tensor for name, tensor in world.memory.tensors.items()}
    if world.critic:
        tensors |= {CRITIC + name: tensor for name, tensor in world.critic.tensors().items()}
    if learner.lagged:
        tensors |= {LAGGED + name: parameter for name, parameter in learner.lagged.copy.named_parameters()}
    checkpoint.save(resume / "state", step, tensors, state)


class Stepped(NamedTuple):
    """What a step leaves."""

    told: Batch
    """All rows that it drew and whose rewards are known."""
    advantage: Tensor
    """(N,) mean over the tokens of each; 0 where an edit dropped it."""
    metrics: dict[str, float]


def one_step(world: World, learner: Learner, out: Path, step: int, seconds: dict[str, float]) -> dict[str, float]:
    """Draw, edit, learn and record. Adds to `seconds` what the choice of prompts, rollouts and updates took; returns the step's
    metrics."""
    spec, made = world.spec, stepped(world, learner, step, seconds)
    records.write_step(out, step, spec.seed, spec.keep_rollouts, world.pool, made.told, made.advantage)
    return made.metrics


def stepped(world: World, learner: Learner, step: int, seconds: dict[str, float]) -> Stepped:
    """The same without a record."""
    spec, seen = world.spec, Counter[int]()
    drawn: list[Batch] = []
    sharding.gather(learner.policy)

    def draw_more(m: int) -> Batch:
        with timed(seconds, "sampler"):
            ids = [] if drawn else carried(now, m)
            ids += world.sampler.select(m - len(ids), step) if m > len(ids) else []
        with timed(seconds, "rollout"):
            fresh = draw(world, ids, now, seen)
        first = sum(len(batch) for batch in drawn)
        drawn.append(replace(fresh, row=torch.arange(first, first + len(fresh))))
        return settled(drawn[-1], now)

    now = Now(
        method=spec.method,
        memory=world.memory,
        step=step,
        progress=(step - 1) / max(spec.steps - 1, 1),
        max_completion_length=spec.max_completion_length,
        pad=world.special.pad,
        rows=world.pool.rows,
        seed=spec.seed,
        draw=draw_more,
        gold=partial(gold, world),
        continued=partial(continued, world, step, seen),
        entropy=partial(entropy_of, learner),
        encode=partial(tokens_of, world),
        offsets=partial(offsets, world.tokenizer),
        likelihood=partial(likelihood_of, learner),
    )
    batch = before(draw_more(spec.prompts_per_step), now)
    everything = join(drawn, world.special.pad)
    with timed(seconds, "update"):
        batch, advantage, values = valued(world, batch, now)
        remember(spec.method.advantage, batch, now)
        learnt(spec.method.decoding, batch, now)
        batch, advantage, bears = after(batch, advantage, bearing(spec.method.loss, batch), now)
        values |= update(learner, batch, advantage, step, bears)
        followed(spec.method.decoding, learner.lagged, step)
    with timed(seconds, "sampler"):
        world.sampler.learn(step)
    of_rows, own = advantage.sum(1) / batch.written().clamp(min=1), batch.row >= 0
    per_row = torch.zeros(len(everything)).index_copy_(0, batch.row[own], of_rows[own])
    told = everything
    if everything.unfinished is not None and (known := everything.finished()).any():
        told, per_row = take(everything, known.nonzero()[:, 0]), per_row[known]
    chosen = {f"sampler/{name}": value for name, value in world.sampler.metrics().items()}
    logged = {**measure(told, per_row), **spent(everything), **shares(everything, world.pool), **values, **chosen}
    return Stepped(told, per_row, logged)


def valued(world: World, batch: Batch, now: Now) -> tuple[Batch, Tensor, dict[str, float]]:
    """The batch with its steps, and with the values that the critic gave it before it learnt from it; the advantages (N,T), 0
    while the critic learns alone; and what the critic logs."""
    batch = cut(now.method.advantage, batch, now)
    judge = world.critic
    if judge is None:
        return batch, advantages(now.method.advantage, batch, now), {}
    batch = replace(batch, values=judge.values(batch))
    advantage = advantages(now.method.advantage, batch, now)
    return batch, advantage * (now.step > judge.spec.warmup_steps), judge.learn(batch)


@contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Add the time that the block takes to `seconds[what]`."""
    started = time.monotonic()
    yield
    seconds[what] += time.monotonic() - started


def _mfu(spec: RLSpec, policy: Decoder, tokens_per_second: float) -> float:
    """What share of the processes' arithmetic updates used, counting the tokens that bore loss: neither prompts nor passes
    without a gradient."""
    peak = throughput.peak_flops(getattr(torch, spec.dtype), policy.head().device) * worker.count()
    return throughput.model_flops_utilisation(throughput.matrix_parameters(policy), tokens_per_second, peak)


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    return {f"seconds_{name}": round(value, 3) for name, value in seconds.items()}
