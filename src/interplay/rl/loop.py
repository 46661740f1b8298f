"""The RL loop: sampler, requests, episode, reward, edits, advantage, policy loss, step by step."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from interplay.core import curve, execution, random
from interplay.core.metrics import Metrics, Progress, read, telemetry
from interplay.core.model import UserError
from interplay.data import audit, sets, tokenizer as text
from interplay.data.steps.turns import open_library
from interplay.data.trajectory import read_samples
from interplay.kernels import exact
from interplay.model import decoder, device, folder, heads
from interplay.optim import distributed, optimizer
from interplay.rl import continuation, draw, edits, records, sampler, samplers, turn_credit
from interplay.rl.advantage_spec import GaeAdvantage, TurnsAdvantage
from interplay.rl.advantages import advantages, critic, cut_segments, update_baselines
from interplay.rl.batch import Batch, Memory, StepContext, join, take
from interplay.rl.opponents import frozen_engine, opponents_of
from interplay.rl.reward_spec import ModelReward, terms_of
from interplay.rl.rewards import Graders, has_steps, score_completions
from interplay.rl.spec import RLSpec
from interplay.rl.update import Learner, bearing, collisions_of, entropy_of, likelihood_of, reference_of, token_weights, update
from interplay.rollout.engine import Coroutine, Outcome, closing, engine, run_replicas, shard_engine
from interplay.rollout.judge import open_judge
from interplay.rollout.request import Request
from interplay.tasks.verdict import Row, Verdict

# What a sampler may learn from before the first step.


def offline_outcomes(
    spec: RLSpec, pool: sets.Pool, inputs: dict[str, Path], graders: Graders | None = None
) -> list[sampler.Outcome]:
    """One outcome for each prompt that was sampled, in the order of ids: the samples of the roles `offline.<set>.<part>`, judged
    and rewarded as the run's own completions are."""
    place = {(row.set, row.index): i for i, row in enumerate(pool.rows)}
    samples: dict[int, list[dict[str, Any]]] = {}
    for role in sorted(role for role in inputs if role.startswith("offline.")):
        of_set = int(role.split(".")[1])
        for sample in read_samples(inputs[role], ["index", "completion", "truncated"]):
            samples.setdefault(place[of_set, sample["index"]], []).append(sample)

    def judged(i: int, of_prompt: list[dict[str, Any]]) -> tuple[list[float], list[Verdict]]:
        texts, cut = [one.get("judged", one["completion"]) for one in of_prompt], [one["truncated"] for one in of_prompt]
        paid = [one.get("paid", 0.0) for one in of_prompt]
        return _judged(spec, [pool.rows[i]] * len(texts), texts, graders, cut, paid)

    return [sampler.outcome_of(i, *judged(i, of_prompt)) for i, of_prompt in sorted(samples.items())]


def _judged(
    spec: RLSpec,
    rows: list[Row],
    completions: list[str],
    graders: Graders | None,
    cut: list[bool],
    paid: list[float] | None = None,
) -> tuple[list[float], list[Verdict]]:
    """Rewards and verdicts of completions of rows; `cut`: which of them lack their end, `paid`: by an environment."""
    verdicts = sets.judge_completions(rows, completions, spec.verify())
    return score_completions(spec.reward, rows, completions, verdicts, graders, cut, paid).sequence, verdicts


# What a state is worth by sampling on from it (VinePPO, arXiv:2410.01679; SPO, arXiv:2505.23564).


def continuation_values(
    world: draw.TrainerState, step: int, seen: Counter[int], batch: Batch, places: Sequence[tuple[int, int]], n: int
) -> torch.Tensor:
    """(M,) float64: mean reward of `n` completions of each place (row, tokens of it that are kept); equal states are sampled
    once. n = 0: of the greedy one. `seen` counts this step's samples by noise key. The whole is cut at the run's limit, as a
    completion is."""
    state = [(tuple(batch.prompts[row]), tuple(batch.tokens[row, :kept].tolist())) for row, kept in places]
    first = {one: number for number, one in reversed(list(enumerate(state)))}
    distinct = sorted(first.values())
    values = dict(zip(distinct, _worth(world, step, seen, batch, [places[i] for i in distinct], n), strict=True))
    return torch.tensor([values[first[one]] for one in state], dtype=torch.float64)


def _worth(
    world: draw.TrainerState, step: int, seen: Counter[int], batch: Batch, places: list[tuple[int, int]], n: int
) -> list[float]:
    """The mean rewards of different states."""
    spec, pool = world.spec, world.pool
    stems = [batch.tokens[row, :kept].tolist() for row, kept in places]
    requests = []
    for (row, _), stem in zip(places, stems, strict=True):
        noise = random.stream_key("continued", sets.noise_key(pool.rows[int(batch.ids[row])]), *stem)
        requests.append(Request(batch.prompts[row] + stem, noise, seen[noise], max(n, 1)))
        seen[noise] += n
    drawn = draw.sampling(world, step)
    found = world.engine.generate(requests, drawn if n else drawn._replace(temperature=0.0, heat=None))
    made_by = found.request.tolist()
    lengths = zip(found.lengths.tolist(), made_by, strict=True)
    ends = [min(length, spec.max_completion_length - len(stems[i])) for length, i in lengths]
    tokens = [stems[i] + row[:end] for i, row, end in zip(made_by, found.tokens.tolist(), ends, strict=True)]
    rows = [pool.rows[int(batch.ids[places[i][0]])] for i in made_by]
    cut = [row[-1:] != [world.special.eos] for row in tokens]
    rewards, _ = _judged(spec, rows, world.tokenizer.decode_batch(tokens), world.graders, cut)
    sums = [0.0] * len(places)
    for i, reward in zip(made_by, rewards, strict=True):
        sums[i] += reward
    return [total / max(n, 1) for total in sums]


# The RL loop: sampler -> allocation, prompting, continuation -> episode -> reward -> edits -> advantage -> loss, once per step.
#
# All randomness is keyed: prompts by (seed, set, epoch), sampling noise by (seed, step, prompt, sample, position). So a step is
# a function of the weights, the optimiser state and the sampler state before it, which are what a resume restores.


SAMPLER, MEMORY, CRITIC, LAGGED = "sampler.", "memory.", "critic.", "lagged."
"""Names of the tensors of sampler, memory, critic and lagged copy begin with these where they are saved."""

LONG = 10.0
"""Seconds of updates from which on it is worth measuring what the machine could have done."""


def rl_replicas(replicas: Sequence[execution.Replica], how: execution.Run) -> Iterator[tuple[int, Outcome]]:
    """Train the replicas step by step: all draw together, then each updates by itself, which takes few launches where decoding
    takes many. Gives (number, outcome) of each when it ends: its files are written by then. Raises StoppedError after a signal,
    once all have saved."""
    return run_replicas(train_policy, replicas, how)


def train_policy(
    spec: RLSpec, inputs: dict[str, Path], out: Path, how: execution.Run, stack: Coroutine | None = None
) -> dict[str, Any]:
    """Train and write `model/`, `checkpoints/<step>/model/`, `metrics.jsonl`, `rollouts.parquet` and `history.parquet`; and
    `state/` next to them, from which a longer run goes on. Roles: see RLSpec.

    Goes on from `out/resume` where there is one. `stack`: what it is as a replica. Raises PermanentError at the first loss that
    is not finite."""
    world, learner = assembled(spec, inputs, how, out, stack)
    others: list[Any] = [one for one in (world.opponents, world.graders and world.graders.judge) if one]
    with closing(world.engine, *others):
        done = restored(world, learner, out)
        train_steps(world, learner, out, how, done)
    folder.save_decoder(learner.policy, out / "model", world.tokenizer_files)
    records.finish(out, spec.steps)
    if how.keep_state:
        save(world, learner, out / "state", spec.steps)
        records.keep(out)
    return records.summarise_run(read(out)) if execution.is_first_rank() else {}


def loaded(
    spec: RLSpec, inputs: dict[str, Path], how: execution.Run
) -> tuple[decoder.Decoder, tuple[tuple[float, decoder.Decoder], ...], Tokenizer, sets.Pool]:
    """The model of the role `init`, the frozen references of the KL terms with their weights, its tokenizer, and the problems.
    Raises UserError where a reference has another tokenizer, or no row has the steps that `judge_credit` compares."""
    torch.set_num_threads(how.threads)
    torch.manual_seed(spec.seed)  # nothing here draws from torch's own stream, but it is saved, and starts at random otherwise
    tokenizer = text.load(inputs["init"])
    weights = spec.references or ({"init": 1.0} if spec.method.refers() else {})
    for role in weights:
        text.check_same(inputs[role], inputs["init"])
    policy, *frozen = (
        device.place_decoder(folder.load_decoder(inputs[role] / "model", lora, spec.seed), how, spec.numerics, spec.blockwise)
        for role, lora in [("init", spec.lora), *((role, None) for role in weights)]
    )
    pool = sets.load_pool([inputs[f"data.{i}"] for i in range(len(spec.mix))])
    text.check_prompt_lengths(tokenizer, [row.prompt for row in pool.rows], spec.max_prompt_length)
    if spec.judge_credit and not any(map(has_steps, pool.rows)):
        raise UserError("judge_credit: no row is a forward problem of op_dag, whose steps it compares; take it away")
    references = zip(weights.values(), (one.requires_grad_(False) for one in frozen), strict=True)
    return policy, tuple(references), tokenizer, pool


def reward_graders(spec: RLSpec, inputs: dict[str, Path], tokenizer: Tokenizer, how: execution.Run, out: Path) -> Graders:
    """What rewards are computed with that read more than texts; `out` keeps the answers of a judge. Raises UserError where a
    reward model has another tokenizer."""
    named = [one.model for one in terms_of(spec.reward) if isinstance(one, ModelReward)]
    at, size = device.pick_device(how), how.micro_batch_tokens
    models = {role: heads.load_scorer(inputs[role], inputs["init"], at, size).score for role in named}
    judge = open_judge(spec.judges(), inputs, how.judge, out, partial(frozen_engine, spec, how))
    return Graders(partial(text.encode_texts, tokenizer), text.special(inputs["init"]).eos, models, judge)


def assembled(
    spec: RLSpec, inputs: dict[str, Path], how: execution.Run, out: Path, stack: Coroutine | None = None
) -> tuple[draw.TrainerState, Learner]:
    """All that a run has before its first step. Raises PermanentError where an audit of its problems failed."""
    audit.refuse_failed(inputs)
    policy, references, tokenizer, pool = loaded(spec, inputs, how)
    lagged = draw.lagged_policy(spec.method.decoding, policy)
    graders = reward_graders(spec, inputs, tokenizer, how, out)
    deck = sampler.PromptSource(
        sizes=pool.sizes,
        mix=spec.mix,
        seed=spec.seed,
        steps=spec.steps,
        rows=pool.rows,
        policy=policy,
        encode=lambda ids: text.encode_texts(tokenizer, [pool.rows[i].prompt for i in ids]),
        dtype=getattr(torch, spec.dtype),
        micro_batch_tokens=how.micro_batch_tokens,
        offline=offline_outcomes(curve.at_progress(spec, 0.0), pool, inputs, graders),
        by=exact.functions(spec.numerics),
    )
    world = draw.TrainerState(
        spec=spec,
        pool=pool,
        tokenizer=tokenizer,
        special=text.special(inputs["init"]),
        tokenizer_files=text.tokenizer_folder(inputs["init"]),
        engine=shard_engine(
            engine(spec.engine, lagged or policy, how, getattr(torch, spec.dtype), inputs["init"] / "model", stack)
        ),
        sampler=samplers.build_sampler(spec.method.sampler, deck),
        memory=Memory(len(pool.rows)),
        graders=graders,
        critic=critic(spec.method.critic, policy, spec.dtype, how.micro_batch_tokens),
        stack=stack,
        numerics=execution.STACKED if stack else "",
        opponents=opponents_of(spec, inputs, policy, how),
        library=open_library(inputs, tokenizer),
    )
    optimizers = optimizer.build_optimizers(spec.optimizer, policy.named_parameters(), spec.dtype, numerics=spec.numerics)
    return world, Learner(spec, policy, references, optimizers, how.micro_batch_tokens, lagged)


def restored(world: draw.TrainerState, learner: Learner, out: Path) -> int:
    """Put both into the state that was saved last; returns the steps that it has behind it, 0 where none was."""
    saved = distributed.load_checkpoint(out / "resume" / "state")
    if saved is None:
        return 0
    done, tensors, state = saved
    world.numerics = world.numerics or state.get("numerics", "")
    distributed.restore_training(tensors, learner.policy, learner.optimizers)
    restore_members(world, tensors, state)
    if world.critic:
        world.critic.load(distributed.with_prefix(tensors, CRITIC))
    if world.opponents:
        world.opponents.load(tensors)
    if learner.lagged:
        learner.lagged.copy.load_state_dict(distributed.with_prefix(tensors, LAGGED))
    return done


def train_steps(world: draw.TrainerState, learner: Learner, out: Path, how: execution.Run, done: int) -> None:
    """Steps done + 1 to the last, saving to `out/resume` every `save_minutes`."""
    spec = world.spec
    metrics, progress = Metrics(out, done), Progress(spec.steps, "steps", done)
    started, agree = world.clock(), distributed.all_reduce_flags if how.processes > 1 else None
    tokens, learnt_from, seconds = 0.0, 0.0, {"sampler": 0.0, "rollout": 0.0, "update": 0.0}
    with execution.save_points(how.save_minutes, world.stack.agree if world.stack else agree, how.segment_steps) as saves:
        for step in range(done + 1, spec.steps + 1):
            factor = optimizer.lr_factor(spec.schedule, step, spec.steps)
            optimizer.set_lr([*learner.optimizers, *(world.critic.optimizers if world.critic else ())], factor)
            values = one_step(world, learner, out, step, seconds)
            metrics.write(step, **values, lr=factor * spec.optimizer.learning_rate)
            tokens += values["completion_tokens"]
            learnt_from += values["trained_tokens"] * spec.method.loss.num_iterations
            if step in spec.checkpoints:
                folder.save_decoder(learner.policy, out / "checkpoints" / str(step) / "model", world.tokenizer_files)
            progress.update(step, reward=values["reward"], strict=values["strict"], entropy=values["entropy"])
            if step < spec.steps and saves.due(step):
                metrics.sync()
                save(world, learner, out / "resume", step)
                distributed.keep_segment(out, step, how)
                saves.made(f"step {step} of {spec.steps}")
    if spec.steps > done:
        per_step = (world.clock() - started) / (spec.steps - done)
        parts = {f"seconds_{name}": round(value, 3) for name, value in seconds.items()}
        telemetry(out, seconds_per_step=per_step, completion_tokens_per_second=tokens / seconds["rollout"], **parts)
        if seconds["update"] >= LONG:
            telemetry(out, update_mfu=round(_mfu(spec, learner.policy, learnt_from / seconds["update"]), 4))


def save(world: draw.TrainerState, learner: Learner, resume: Path, step: int) -> None:
    """Make the state after `step` the one to go on from."""
    numerics = {"numerics": world.numerics} if world.numerics else {}
    of_members, state = saved_members(world)
    tensors = distributed.training_tensors(learner.policy, learner.optimizers) | of_members
    if world.critic:
        tensors |= {CRITIC + name: tensor for name, tensor in world.critic.tensors().items()}
    if world.opponents:
        tensors |= world.opponents.tensors()
    if learner.lagged:
        tensors |= {LAGGED + name: parameter for name, parameter in learner.lagged.copy.named_parameters()}
    distributed.save_checkpoint(resume / "state", step, tensors, {**state, **numerics})


def saved_members(world: draw.TrainerState) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The state of the sampler and of the memory: tensors and JSON data."""
    tensors = {SAMPLER + name: tensor for name, tensor in world.sampler.tensors().items()}
    tensors |= {MEMORY + name: tensor for name, tensor in world.memory.tensors.items()}
    return tensors, {"sampler": world.sampler.state_dict(), "memory": world.memory.notes}


def restore_members(world: draw.TrainerState, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Put the sampler and the memory back into a state of `saved_members`."""
    world.sampler.load_state_dict(state["sampler"], distributed.with_prefix(tensors, SAMPLER))
    memory = distributed.with_prefix(tensors, MEMORY)
    world.memory.load(state.get("memory", {}), memory)  # a state may be older than the memory


def one_step(world: draw.TrainerState, learner: Learner, out: Path, step: int, seconds: dict[str, float]) -> dict[str, float]:
    """Draw, edit, learn and record. Adds to `seconds` what the choice of prompts, rollouts and updates took; returns the step's
    metrics."""
    spec = world.spec
    known, advantage, logged = stepped(world, learner, step, seconds)
    records.write_step(out, step, spec, world.pool, known, advantage, world.tokenizer.decode_batch)
    return logged


def stepped(
    world: draw.TrainerState, learner: Learner, step: int, seconds: dict[str, float]
) -> tuple[Batch, torch.Tensor, dict[str, float]]:
    """The same without a record: all rows that the step drew and whose rewards are known, the mean of each one's advantage over
    its tokens (N,), 0 where an edit dropped it, and the metrics."""
    world, learner, curves = at_step(world, learner, step)
    spec, seen = world.spec, Counter[int]()
    drawn: list[Batch] = []

    def draw_more(m: int) -> Batch:
        with timed(seconds, "sampler", world.clock):
            ids = [] if drawn else continuation.carried_prompts(now, m)
            ids += world.sampler.select(m - len(ids), step) if m > len(ids) else []
        with timed(seconds, "rollout", world.clock):
            fresh = draw.draw_batch(world, ids, now, seen)
        first = sum(len(batch) for batch in drawn)
        drawn.append(replace(fresh, row=torch.arange(first, first + len(fresh))))
        return continuation.kept_rollouts(drawn[-1], now)

    now = draw.step_context(
        world,
        step,
        draw=draw_more,
        continued=partial(continuation_values, world, step, seen),
        entropy=partial(entropy_of, learner),
        reference=partial(reference_of, learner),
        collisions=partial(collisions_of, learner),
        likelihood=partial(likelihood_of, learner),
    )
    batch = edits.edits_before_advantage(draw_more(spec.prompts_per_step), now)
    everything = join(drawn, world.special.pad)
    with timed(seconds, "update", world.clock):
        batch, advantage, values = valued(world, batch, now)
        values |= turn_credit.credit_metrics(batch, advantage)
        values |= records.rank_steps(batch, advantage, now) if spec.judge_credit else {}
        update_baselines(spec.method.advantage, batch, now)
        draw.update_decoding(spec.method.decoding, batch, now)
        batch, advantage, bears = edits.edits_after_advantage(batch, advantage, bearing(spec.method.loss, batch), now)
        values |= update(learner, batch, advantage, step, bears)
        draw.update_lagged(spec.method.decoding, learner.lagged, step)
        if world.opponents:
            world.opponents.update(step)
    with timed(seconds, "sampler", world.clock):
        world.sampler.learn(step)
    of_rows, own = now.by.summed(advantage * batch.mask(), 1) / batch.num_action_tokens().clamp(min=1), batch.row >= 0
    per_row = torch.zeros(len(everything)).index_copy_(0, batch.row[own], of_rows[own])
    recorded = everything
    if everything.unfinished is not None and (known := everything.finished()).any():
        recorded, per_row = take(everything, known.nonzero()[:, 0]), per_row[known]
    logged = {
        **records.measure_step(recorded, per_row, now.by),
        **records.sampled_counts(everything),
        **records.drawn_shares(everything, world.pool),
        **values,
        **{f"sampler/{name}": value for name, value in world.sampler.metrics().items()},
        **curves,
    }
    return recorded, per_row, logged


def at_step(world: draw.TrainerState, learner: Learner, step: int) -> tuple[draw.TrainerState, Learner, dict[str, float]]:
    """Both with the spec of a step, in which every curve has its value, and what is logged of these. Sampler, memory, critic and
    models are the very objects."""
    progress = curve.progress_at(step, world.spec.steps)
    now = curve.at_progress(world.spec, progress)
    if now is world.spec:
        return world, learner, {}
    logged = {f"curve/{place}": one.at(progress) for place, one in curve.curves_in(world.spec)}
    return replace(world, spec=now), learner._replace(spec=now), logged


def valued(world: draw.TrainerState, batch: Batch, now: StepContext) -> tuple[Batch, torch.Tensor, dict[str, float]]:
    """The batch with its steps, and with the values that the critic gave it before it learnt from it; the advantages (N,T), 0
    while the critic learns alone; and what the critic logs."""
    batch = cut_segments(now.method.advantage, batch, now)
    judge = world.critic
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
    mask, mode = batch.mask() & batch.finished()[:, None], world.spec.method.loss.loss_agg_mode
    weights = token_weights(mode, mask, int(mask.sum()), 1, now.max_completion_length) if mode and not targets else None
    return batch, advantage * (now.step > judge.spec.warmup_steps), judge.learn(batch, rewards, weights, targets)


@contextmanager
def timed(seconds: dict[str, float], what: str, clock: Callable[[], float]) -> Iterator[None]:
    """Add the time that the block takes to `seconds[what]`."""
    started = clock()
    yield
    seconds[what] += clock() - started


def _mfu(spec: RLSpec, policy: decoder.Decoder, tokens_per_second: float) -> float:
    """What share of the processes' arithmetic updates used, counting the tokens that bore loss: neither prompts nor passes
    without a gradient."""
    peak = device.stage_flops(getattr(torch, spec.dtype), policy.head().device)
    return device.model_flops_utilisation(device.matrix_parameters(policy), tokens_per_second, peak)
