"""What a run of RL holds: models, problems, rewards and opponents, built from its spec and inputs, saved and restored."""

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from interplay.core import execution
from interplay.core.model import UserError, at_progress
from interplay.data import audit, sets, tokenizer as text
from interplay.data.steps.turns import Library, open_library
from interplay.data.trajectory import read_samples
from interplay.kernels import exact
from interplay.model import decoder, device, folder, heads
from interplay.optim import distributed, optimizer
from interplay.rl import sampler, samplers
from interplay.rl.advantages import Critic, critic
from interplay.rl.batch import Memory
from interplay.rl.request_spec import Decoding, LaggedNucleus
from interplay.rl.reward_spec import ModelReward, terms_of
from interplay.rl.rewards import Graders, has_steps, score_completions
from interplay.rl.spec import RLSpec
from interplay.rl.update import Learner
from interplay.rollout.engine import Coroutine, Engine, engine, shard_engine
from interplay.rollout.judge import open_judge
from interplay.rollout.seat_spec import SEAT, PoolSeat
from interplay.rollout.spec import SeatsEpisode
from interplay.tasks.verdict import Row, Verdict

# The models of seats that are not the policy's: frozen ones of the graph, and past policies of the run.


PAST = "past."
"""What names of past policies begin with: `past.<step>`."""


def engine_of(spec: RLSpec, model: decoder.Decoder, how: execution.Run, source: Path) -> Engine:
    """The engine of a run for a model of another stage or time."""
    return shard_engine(engine(spec.engine, model, how, getattr(torch, spec.dtype), source / "model"))


def frozen_engine(spec: RLSpec, how: execution.Run, source: Path) -> Engine:
    """The same for the model of a stage, which is not trained."""
    found = folder.load_decoder(source / "model")
    return engine_of(spec, device.place_decoder(found, how, spec.numerics, spec.blockwise).requires_grad_(False), how, source)


class Opponents:
    """Engines by name. Past policies are copies, which are saved with every checkpoint."""

    def __init__(self, spec: RLSpec, inputs: Mapping[str, Path], policy: decoder.Decoder, how: execution.Run) -> None:
        """Raises UserError where a model has another tokenizer than the policy."""
        self.spec, self.policy, self.how, self.init = spec, policy, how, inputs["init"]
        self.fixed: dict[str, Engine] = {}
        for role in sorted(role for role in inputs if role.startswith(SEAT)):
            text.check_same(inputs[role], self.init)
            self.fixed[role] = frozen_engine(spec, how, inputs[role])
        episode = spec.method.episode
        pools = [one for one in getattr(episode, "seats", {}).values() if isinstance(one, PoolSeat) and one.every]
        self.every = pools[0].every if pools else None
        self.keep = max((one.keep for one in pools), default=0)
        self.past: dict[int, tuple[decoder.Decoder, Engine]] = {}
        if self.every:
            self._add(0)

    def _add(self, step: int) -> None:
        made = copy.deepcopy(self.policy).requires_grad_(False)
        self.past[step] = made, engine_of(self.spec, made, self.how, self.init)

    def engines(self) -> dict[str, Engine]:
        """All of them."""
        return self.fixed | {f"{PAST}{step}": one for step, (_, one) in self.past.items()}

    def past_names(self) -> list[str]:
        """Of past policies, the earliest first."""
        return [f"{PAST}{step}" for step in sorted(self.past)]

    def update(self, step: int) -> None:
        """After a step: the policy joins where it is time, and the earliest leave."""
        if self.every and step % self.every == 0:
            self._add(step)
            self._leave()

    def _leave(self) -> None:
        for step in sorted(self.past)[: -self.keep]:
            self.past.pop(step)[1].close()

    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights of past policies, as they are saved."""
        return {
            f"{PAST}{step}.{name}": value for step, (model, _) in self.past.items() for name, value in model.named_parameters()
        }

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back what was saved."""
        steps = sorted({int(name.split(".")[1]) for name in tensors if name.startswith(PAST)})
        for step in [one for one in self.past if one not in steps]:
            self.past.pop(step)[1].close()
        for step in steps:
            if step not in self.past:
                self._add(step)
            self.past[step][0].load_state_dict(distributed.with_prefix(dict(tensors), f"{PAST}{step}."), strict=False)

    def close(self) -> None:
        """Let go of all engines."""
        for one in self.engines().values():
            one.close()


def opponents_of(spec: RLSpec, inputs: Mapping[str, Path], policy: decoder.Decoder, how: execution.Run) -> Opponents | None:
    """Those of a run; None: its episodes have none."""
    return Opponents(spec, inputs, policy, how) if isinstance(spec.method.episode, SeatsEpisode) else None


# All that the steps share.


@dataclass
class RunState:
    """What the steps of a run share. Sampler, memory and critic have state that is saved with every checkpoint."""

    spec: RLSpec
    pool: sets.Pool
    tokenizer: Tokenizer
    special: text.Special
    tokenizer_files: Path
    """The folder whose files go into every model that is saved."""
    engine: Engine
    sampler: sampler.Sampler
    memory: Memory
    critic: Critic | None = None
    stack: Coroutine | None = None
    """What the run is as a replica of a stack."""
    numerics: str = ""
    """Of a record: `stacked` where a step was made in a stack."""
    graders: Graders | None = None
    """What rewards are computed with that read more than texts."""
    opponents: Opponents | None = None
    """Who plays the seats that are not the policy's."""
    library: Library | None = None
    """Entries that the context of an episode finds."""

    def clock(self) -> float:
        """Seconds, of a replica its own."""
        return self.stack.clock() if self.stack else time.monotonic()


def load_models(
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


def lagged_policy(spec: Decoding | None, policy: decoder.Decoder) -> heads.Lagged | None:
    """The policy with a copy of its present weights, in whose nucleus it acts (NLPO, arXiv:2210.01241); None: it acts freely."""
    if not isinstance(spec, LaggedNucleus):
        return None
    return heads.Lagged(policy, copy.deepcopy(policy).requires_grad_(False), spec.top_p)


def assemble_run(
    spec: RLSpec, inputs: dict[str, Path], how: execution.Run, out: Path, stack: Coroutine | None = None
) -> tuple[RunState, Learner]:
    """All that a run has before its first step. Raises PermanentError where an audit of its problems failed."""
    audit.refuse_failed(inputs)
    policy, references, tokenizer, pool = load_models(spec, inputs, how)
    lagged = lagged_policy(spec.method.decoding, policy)
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
        offline=offline_outcomes(at_progress(spec, 0.0), pool, inputs, graders),
        by=exact.functions(spec.numerics),
    )
    run = RunState(
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
    return run, Learner(spec, policy, references, optimizers, how.micro_batch_tokens, lagged)


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
        return judged_completions(spec, [pool.rows[i]] * len(texts), texts, graders, cut, paid)

    return [sampler.outcome_of(i, *judged(i, of_prompt)) for i, of_prompt in sorted(samples.items())]


def judged_completions(
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


# What is saved, from which a run goes on.


SAMPLER, MEMORY, CRITIC, LAGGED = "sampler.", "memory.", "critic.", "lagged."
"""Names of the tensors of sampler, memory, critic and lagged copy begin with these where they are saved."""


def restore_run(run: RunState, learner: Learner, out: Path) -> int:
    """Put both into the state that was saved last; returns the steps that it has behind it, 0 where none was."""
    saved = distributed.load_checkpoint(out / "resume" / "state")
    if saved is None:
        return 0
    done, tensors, state = saved
    run.numerics = run.numerics or state.get("numerics", "")
    distributed.restore_training(tensors, learner.policy, learner.optimizers)
    restore_members(run, tensors, state)
    if run.critic:
        run.critic.load(distributed.with_prefix(tensors, CRITIC))
    if run.opponents:
        run.opponents.load(tensors)
    if learner.lagged:
        learner.lagged.copy.load_state_dict(distributed.with_prefix(tensors, LAGGED))
    return done


def save_run(run: RunState, learner: Learner, resume: Path, step: int) -> None:
    """Make the state after `step` the one to go on from."""
    numerics = {"numerics": run.numerics} if run.numerics else {}
    of_members, state = saved_members(run)
    tensors = distributed.training_tensors(learner.policy, learner.optimizers) | of_members
    if run.critic:
        tensors |= {CRITIC + name: tensor for name, tensor in run.critic.tensors().items()}
    if run.opponents:
        tensors |= run.opponents.tensors()
    if learner.lagged:
        tensors |= {LAGGED + name: parameter for name, parameter in learner.lagged.copy.named_parameters()}
    distributed.save_checkpoint(resume / "state", step, tensors, {**state, **numerics})


def saved_members(run: RunState) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The state of the sampler and of the memory: tensors and JSON data."""
    tensors = {SAMPLER + name: tensor for name, tensor in run.sampler.tensors().items()}
    tensors |= {MEMORY + name: tensor for name, tensor in run.memory.tensors.items()}
    return tensors, {"sampler": run.sampler.state_dict(), "memory": run.memory.notes}


def restore_members(run: RunState, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Put the sampler and the memory back into a state of `saved_members`."""
    run.sampler.load_state_dict(state["sampler"], distributed.with_prefix(tensors, SAMPLER))
    memory = distributed.with_prefix(tensors, MEMORY)
    run.memory.load(state.get("memory", {}), memory)  # a state may be older than the memory
