"""Specs of the RL loop: the method, and which members of the seams go together. The members of each seam have a module
`<seam>_spec`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, get_args

from pydantic import model_validator

from interplay.core.extension import Extension
from interplay.core.keys import SHARES, ByName
from interplay.core.model import Count, Formerly, Model, Natural, NotNegativeCurve, Since, curves_in, first_repeated, smallest
from interplay.model.spec import ExactSpec, TunedSpec, check_checkpoints
from interplay.model.trainer_spec import AGGREGATED, TRL_RL, VERL_RL, Foreign, TrainedSpec, Trainer, TuneOptimizer, TuneSchedule
from interplay.rl import advantage_spec, edit_spec, loss_spec, request_spec as requests_spec, reward_spec, sampler_spec
from interplay.rollout.seat_spec import Rubric
from interplay.rollout.spec import CompletionEpisode, EngineName, Episode, SeatsEpisode, check_dtype
from interplay.tasks.spec import Verify

# Which members of the seams go together: they declare capabilities (`NEEDS`, `PROVIDES`, `REFUSES`), which one rule checks.


CAPABILITIES = {
    "begun_completions": "begins completions itself",
    "critic": "estimates the value of each token",
    "distillation": "learns from a teacher over all tokens",
    "first_turn": "has a first turn for first_turn_beta",
    "equal_groups": "samples equally many completions of every prompt",
    "every_prompt": "draws every prompt once per epoch",
    "extra_draws": "may draw several times a step",
    "bare_prompts": "samples from the prompts as they are",
    "game_payoff": "pays what a game pays",
    "learned_reward": "pays what another model says",
    "one_round": "keeps one round of completions",
    "other_completions": "adds completions that were not sampled in this step",
    "other_text": "samples from another text than the one that is learnt",
    "paid_turns": "has turns that an environment can pay",
    "pass_rates": "expects a pass rate of each prompt",
    "reads_critic": "reads the values of a critic",
    "reads_right": "reads which completions are right",
    "reads_rollouts": "reads more of a completion than its advantage",
    "seats": "plays the seats of a game",
    "sequence_ratios": "gives a completion's tokens one ratio and the mean of their advantages (write importance_sampling_level: "
    "sequence_token in place of sequence, or take a loss with ratios of tokens)",
    "several_turns": "has several turns",
    "shaped_rewards": "adds a term to rewards",
    "shown_attempts": "shows own attempts in the context",
    "single_completions": "samples one completion a prompt (num_generations = 1; give 2 at least)",
    "spans": "judges parts of a completion",
    "stateful_steps": "keeps a state from step to step",
    "steps": "has an advantage for each reasoning step",
    "teacher_context": "gives the teacher of a loss its context",
    "verdict_rewards": "pays the verdict itself",
    "varied_attempts": "shows different attempts to a group, or compares rewards across groups",
    "windowed_turns": "reads a window of its turns (window; write null)",
}
"""Capability -> what a member that provides it does."""

Members = Sequence[tuple[str, Model]]
"""Each chosen member with its place, such as `method.loss = clipped`."""


def check_compatibility(members: Members, seams: Mapping[str, Iterable[type[Model]]]) -> str | None:
    """Why members do not go together, in one line; None: they do. `seams`: the classes of each seam, for the remedy."""
    provided = {word for _, member in members for word in member.provides()}
    for place, member in members:
        for word in sorted(member.needs() - provided):
            return f"{place} needs a member that {CAPABILITIES[word]}{_remedy(word, seams)}"
    for place, member in members:
        for other, another in members:
            if refused := sorted(member.refuses() & another.provides()):
                return f"{place} does not go with {other}, which {CAPABILITIES[refused[0]]}; change one of them"
    return None


def _remedy(word: str, seams: Mapping[str, Iterable[type[Model]]]) -> str:
    """`; write method.sampler = pcl or phases`: the members that provide a capability with any options."""
    found = {
        seam: [one.model_fields["name"].default for one in classes if word in one.PROVIDES and not issubclass(one, Extension)]
        for seam, classes in seams.items()
    }
    return "".join(f"; write {seam} = {', '.join(names)}" for seam, names in found.items() if names)


# Reinforcement learning: the loop's own knobs; the members of each seam are in a file of their own. Option names are TRL's.


class Method(Model):
    """One published method: its paper and its member at each seam."""

    KNOWN_AS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("beta", "kl_coef", "kl_loss_coef"), "loss.beta"),
        **dict.fromkeys(("num_iterations", "ppo_epochs"), "loss.num_iterations"),
        **dict.fromkeys(("epsilon", "clip_ratio", "clip_ratio_low"), "loss.epsilon"),
        **dict.fromkeys(("epsilon_high", "clip_ratio_high"), "loss.epsilon_high"),
        **{name: f"loss.{name}" for name in ("loss_type", "loss_agg_mode")},
        **dict.fromkeys(("num_generations", "group_size", "n"), "allocation.num_generations"),
        "name": "method: NAME; an arm changes keys of it, as in set: {rl.method.loss.beta: 0.1}",
    }
    paper: str
    """Where the method and these settings come from."""
    sampler: Annotated[sampler_spec.Sampler, ByName("curriculum")] = sampler_spec.UniformSampler()
    """Which prompts a step gets: a file of configs/curriculum by its name, or its content."""
    allocation: Annotated[requests_spec.Allocation, Formerly("planner")] = requests_spec.FixedAllocation()
    """How many completions each prompt gets."""
    prompting: Annotated[requests_spec.Prompting, Since(requests_spec.PlainPrompting())] = requests_spec.PlainPrompting()
    """From which text they are sampled."""
    continuation: Annotated[requests_spec.Continuation, Since(requests_spec.NoContinuation())] = requests_spec.NoContinuation()
    """What follows from rollouts: further completions, and which are kept."""
    episode: Episode = CompletionEpisode()
    shaping: Annotated[list[edit_spec.Shaping], Since([])] = []
    """What is added to the rewards before they are compared; each kind once."""
    edits: list[edit_spec.Edit] = []
    """What is done to a batch before it is trained on, in order."""
    advantage: advantage_spec.Advantage = advantage_spec.GroupAdvantage()
    loss: loss_spec.Loss = loss_spec.ClippedLoss()
    minibatches: Annotated[Count | None, Since(None)] = None
    """Optimiser steps per pass over a batch, as the paper has them; at most as many as the prompts of a step can be shared out
    to evenly. A stage, or the scale, that gives `minibatches` is followed in place of it. null: one."""
    critic: Annotated[advantage_spec.ValueHead | None, Since(None)] = None
    """Value function (critic) for advantages that read one; null: none."""
    decoding: Annotated[requests_spec.Decoding | None, Since(None)] = None
    """What tokens of rollouts are drawn from; null: the policy at the run's temperature."""

    @model_validator(mode="after")
    def _shaped_once(self) -> "Method":
        """A term is kept by its name."""
        if twice := first_repeated(getattr(term, "function", term.name) for term in self.shaping):
            raise ValueError(f"shaping: {twice} is there twice; write it once")
        return self

    def refers(self) -> bool:
        """Whether a step needs a reference model."""
        return self.loss.refers() or any(isinstance(term, edit_spec.KlShaping) for term in self.shaping)


SEAMS: dict[str, tuple[type[Model], ...]] = {
    "reward": get_args(get_args(reward_spec.Reward)[0]),
    "method.sampler": get_args(get_args(sampler_spec.Sampler)[0]),
    "method.allocation": get_args(get_args(requests_spec.Allocation)[0]),
    "method.prompting": get_args(get_args(requests_spec.Prompting)[0]),
    "method.continuation": get_args(get_args(requests_spec.Continuation)[0]),
    "method.episode": get_args(get_args(Episode)[0]),
    "method.decoding": get_args(get_args(requests_spec.Decoding)[0]),
    "method.critic": (advantage_spec.ValueHead,),
    "method.shaping": get_args(get_args(edit_spec.Shaping)[0]),
    "method.edits": get_args(get_args(edit_spec.Edit)[0]),
    "method.advantage": get_args(get_args(advantage_spec.Advantage)[0]),
    "method.loss": get_args(get_args(loss_spec.Loss)[0]),
}
"""Place of each seam -> the classes of its members."""


class RLSpec(TrainedSpec, ExactSpec, TunedSpec):
    """Reinforcement learning on problem sets. Roles: `init` (a model; also the reference when beta > 0), `data.<i>`,
    `reward.<i>` where term i of the reward names a reward model, `reference.<i>` of its references, and `offline.<i>.<part>`
    where the stage names under `offline` an evaluate stage: samples of `init` on `data.<i>`, from which the sampler starts."""

    KNOWN_AS: ClassVar[Mapping[str, str]] = {
        **TunedSpec.KNOWN_AS,
        **{name: f"method.{key}" for name, key in Method.KNOWN_AS.items() if name != "name"},
        **dict.fromkeys(("loss", "policy_loss"), "method.loss"),
        **dict.fromkeys(("algorithm", "adv_estimator"), "method"),
        **dict.fromkeys(("reward_funcs", "rewards", "custom_reward_function"), "reward"),
        **dict.fromkeys(("max_steps", "total_training_steps"), "steps"),
        **dict.fromkeys(("batch_size", "train_batch_size"), "prompts_per_step"),
        **dict.fromkeys(("max_new_tokens", "max_tokens", "max_response_length"), "max_completion_length"),
    }
    FOREIGN: ClassVar[Mapping[str, Foreign]] = {"trl": TRL_RL, "verl": VERL_RL}
    TOTALS: ClassVar[tuple[str, ...]] = ("optimizer_steps", "completions", "prompt_tokens", "completion_tokens")
    """Values of a step that a record sums over the run."""
    MEANS: ClassVar[tuple[str, ...]] = (
        *("reward", "strict", "answer", "frac_all_pass", "frac_all_fail", "effective_ratio", "entropy", "length", "truncated"),
    )
    """Values whose means over the first and the last tenth of the run are in its record, as `NAME_first` and `NAME_last`."""
    CREDIT: ClassVar[tuple[str, ...]] = ("credit/auc", "credit/pairs")
    """The same with `judge_credit`."""
    method: Annotated[Method, ByName("method")]
    """A file of configs/method by its name, or its content."""
    reward: reward_spec.Reward = reward_spec.ProcessReward()
    references: Annotated[Annotated[dict[str, float], SHARES] | None, Since(None)] = None
    """Arms whose final models, at the same seed, replace `init` in the KL term, and their weights, which sum to 1: sum_i weight_i
    KL(policy || reference_i) is, up to a constant, the KL to their normalised weighted geometric mean (arXiv:2502.01203). Each
    costs a forward pass. The planner replaces arms by roles."""
    mix: list[float]
    """Share of each `data.<i>` role among the prompts; sums to 1."""
    steps: Count
    """Rollout steps; each makes num_iterations * minibatches optimiser steps."""
    prompts_per_step: Count = 32
    """Distinct prompts per step."""
    minibatches: Count = 1
    """Optimiser steps per pass over a batch of rollouts. 1 < the method's own number < the scale < the stage < an arm. At 1, with
    one pass, the ratio is exactly 1, and losses differ in the weights of tokens alone."""
    max_prompt_length: Annotated[Count | None, Since(None)] = None
    """Most tokens of a prompt: a run with a longer one is refused. The published charge of a step counts it, too
    (arXiv:2512.07783: L = 1,024 + 1,024); null: no limit, and L is max_completion_length."""
    max_completion_length: Count = 128
    """Tokens after which a completion is cut."""
    temperature: NotNegativeCurve = 1.0
    """Of the rollouts; above 0, since equal completions teach nothing."""
    engine: EngineName = "native"
    """Who samples. Engines differ in the last bits, so the choice is part of the identity. vllm needs the extra of that name."""
    trainer: Annotated[Trainer, Since("native")] = "native"
    """Who computes advantages, losses and updates; docs/guide/trainers.md says what each expresses. trl: TRL's GRPOTrainer, which
    needs the extra of that name. Prompts, rewards and records are the same, and so are completions, except with engine hf, where
    TRL samples itself. Its minibatches hold random rows, those of native whole groups. verl: many GPUs, in its environment."""
    optimizer: TuneOptimizer = TuneOptimizer()
    schedule: TuneSchedule = TuneSchedule()
    checkpoints: Annotated[list[Count], Since([])] = []
    """Steps whose weights are kept in checkpoints/<step>/model/ as part of the artifact."""
    keep_rollouts: Natural = 16
    """Rollouts per step kept in rollouts.parquet."""
    keep_tokens: Annotated[bool, Since(False)] = False
    """Also keep their tokens and log-probabilities, and the tokens of the prompt, as segments: about 8 bytes a token."""
    judge_credit: Annotated[bool, Since(False)] = False
    """Also log how well advantages separate right steps from the first wrong one (credit/auc), of op_dag's forward problems."""
    seed: Natural = 0
    """Order of prompts and noise of sampling."""

    def refuses(self) -> frozenset[str]:
        """Where steps are judged, completions of which a part is given: their tokens are not all of what is judged."""
        return self.REFUSES | ({"begun_completions"} if self.judge_credit else set())

    def updates_per_step(self) -> int:
        """Optimiser steps of a rollout step."""
        return self.method.loss.num_iterations * self.minibatches

    @model_validator(mode="before")
    @classmethod
    def _minibatches_of_method(cls, value: Any) -> Any:
        """The number of the method becomes the stage's where that has none."""
        method = value.get("method") if isinstance(value, dict) else None
        given = dict(method) if isinstance(method, dict | Method) else {}
        own = given.pop("minibatches", None)
        if not isinstance(own, int) or own < 1:
            return value
        prompts = value.get("prompts_per_step", cls.model_fields["prompts_per_step"].default)
        even = max((n for n in range(1, own + 1) if isinstance(prompts, int) and prompts % n == 0), default=own)
        return {"minibatches": even, **value, "method": given}

    @model_validator(mode="after")
    def _members_fit(self) -> "RLSpec":
        if found := check_compatibility(self.members(), SEAMS):
            raise ValueError(found)
        return self

    @model_validator(mode="after")
    def _adapters_sample(self) -> "RLSpec":
        if self.lora and self.engine != "hf":
            raise ValueError(f"engine = {self.engine}: does not sample from a model with adapters (lora); write hf")
        if self.lora and self.lora.dropout:
            raise ValueError(f"lora.dropout = {self.lora.dropout}: ratios would compare passes that differ by chance; write 0")
        return self

    @model_validator(mode="after")
    def _can_learn(self) -> "RLSpec":
        if self.minibatches < 1 or self.prompts_per_step % self.minibatches:
            raise ValueError("prompts_per_step must be a multiple of minibatches")
        if (decoding := self.method.decoding) and self.engine not in decoding.ENGINES:
            able = " or ".join(decoding.ENGINES)
            raise ValueError(f"engine = {self.engine}: cannot decode with method.decoding = {decoding.name}; write {able}")
        check_dtype(self.engine, self.dtype)
        if smallest(self.temperature) == 0:
            raise ValueError("temperature = 0 makes all completions of a prompt equal: nothing is learnt; write 1.0")
        check_checkpoints(self.checkpoints, self.steps)
        if self.references and not self.method.refers():
            raise ValueError("references: no KL term reads them; write method.loss.beta, such as 0.04, or take them away")
        if self.references and any(getattr(one, "kl_estimator", "k1") != "k1" for one in self.method.shaping):
            raise ValueError("references: a shaping takes several with kl_estimator: k1, which adds up; write that")
        return self

    @model_validator(mode="after")
    def _group_size_fits(self) -> "RLSpec":
        """Numbers of members that must fit the group size or the limit of a completion."""
        method, group, limit = self.method, self.method.allocation.num_generations, self.max_completion_length
        chosen, size = method.continuation, f"method.allocation.num_generations = {group}"
        if isinstance(method.advantage, advantage_spec.PassKAdvantage) and method.advantage.k > group:
            raise ValueError(f"method.advantage.k = {method.advantage.k}: at most num_generations, {group}")
        if isinstance(method.advantage, advantage_spec.DecoupledAdvantage):
            known = [*self.reward.parts(), *(getattr(term, "function", term.name) for term in method.shaping)]
            if odd := [name for name in method.advantage.rewards if name not in known]:
                raise ValueError(f"method.advantage.rewards: {odd[0]}: the parts are {', '.join(known) or 'none'}")
        if (branch := getattr(method.episode, "branch", None)) and not branch.first < group:
            raise ValueError(f"method.episode.branch.first = {branch.first}: must be less than num_generations, {group}")
        if isinstance(method.prompting, requests_spec.IcpoPrompting) and method.prompting.steered >= group:
            raise ValueError(f"method.prompting.steered = {method.prompting.steered}: must be less than num_generations, {group}")
        if isinstance(chosen, requests_spec.TreeContinuation):
            if group != math.prod(chosen.branches):
                raise ValueError(f"{size}: must be the product of branches, {math.prod(chosen.branches)}")
            if chosen.segment * (len(chosen.branches) - 1) >= limit:
                segments = f"{len(chosen.branches) - 1} segments of {chosen.segment} tokens"
                raise ValueError(f"method.continuation: {segments} leave nothing of max_completion_length, {limit}")
        if isinstance(chosen, requests_spec.ShownAttemptContinuation) and (
            group % chosen.references or group - chosen.references < 2
        ):
            must = f"must divide num_generations, {group}, and leave two completions at least"
            raise ValueError(f"method.continuation.references = {chosen.references}: {must}")
        return self

    @model_validator(mode="after")
    def _seats_learn(self) -> "RLSpec":
        episode, group = self.method.episode, self.method.allocation.num_generations
        if isinstance(episode, SeatsEpisode) and not episode.trained():
            raise ValueError("method.episode.seats: no seat is trained; write {name: policy} for one")
        if isinstance(episode, SeatsEpisode) and episode.rotate and group % len(episode.players()):
            raise ValueError(f"method.episode.rotate: num_generations = {group} is no multiple of {len(episode.players())} seats")
        return self

    @model_validator(mode="after")
    def _mix_counts(self) -> "RLSpec":
        sampler = self.method.sampler
        if isinstance(sampler, sampler_spec.LearnedMixtureSampler) and sampler.by == "set" and len(set(self.mix)) > 1:
            raise ValueError("learned_mixture by set learns the shares of the sets, so the mix must be equal shares")
        return self

    def hashed_version(self) -> int:
        """One more where what is right and what is paid differ for a member that reads which completions are right: that was read
        off the rewards before. Shaping and continuations read before rewards are shaped."""
        pays, shaped = "verdict_rewards" in self.reward.provides(), bool(self.method.shaping)
        for place, member in self.members():
            early = place.startswith(("method.shaping", "method.continuation"))
            if "reads_right" in member.provides() and not (pays and (early or not shaped)):
                return super().hashed_version() + 1
        return super().hashed_version()

    def ratio_is_one(self) -> bool:
        """Whether pi / pi_old is exactly 1 at every token: one optimiser step a batch, whose rows the policy itself made."""
        foreign = {"other_completions", "other_text"}
        made_here = not any(member.provides() & foreign for _, member in self.members())
        return made_here and self.minibatches * self.method.loss.num_iterations == 1

    def equal_gradients(self) -> "RLSpec":
        """One spec in place of all whose runs have the gradients of this one."""
        loss: Any = self.method.loss.at_ratio_one() if self.ratio_is_one() else self.method.loss
        cispo = loss.loss_type == "cispo"  # a surrogate of its own, however its tokens are weighed
        weights = loss.loss_type if cispo else AGGREGATED.get(loss.loss_agg_mode, loss.loss_type)
        if not cispo and (getattr(loss, "loss_denominator", None) or (weights == "bnpo" and self.minibatches == 1)):
            weights = "dapo"
        mode = loss.loss_agg_mode if cispo or loss.entropy_coef or self.method.critic else None
        estimator = {"k1+": "k2", "k3+": "k2"}.get(loss.kl_estimator, loss.kl_estimator) if loss.refers() else "k3"
        estimator = loss.kl_estimator if loss.use_bias_correction_kl else estimator
        loss = loss.model_copy(update={"loss_type": weights, "loss_agg_mode": mode, "kl_estimator": estimator})
        return self.model_copy(update={"method": self.method.model_copy(update={"loss": loss, "paper": ""})})

    def inexact(self) -> str:
        """Engines but the native one, and members that sums or functions of other libraries enter."""
        if self.trainer != "native":
            return f"trainer = {self.trainer}"
        if self.engine != "native":
            return f"engine = {self.engine}"
        return next((f"{place} ({member.inexact()})" for place, member in self.members()[1:] if member.inexact()), "")

    def members(self) -> list[tuple[str, Model]]:
        """The stage itself and each chosen member, with its place in the spec."""
        found: list[tuple[str, Model]] = [
            (f"kind = {type(self).__name__.removesuffix('Spec').lower()}", self),
            (f"reward = {self.reward.name}", self.reward),
            *(("reward: " + one.name, one) for one in reward_spec.terms_of(self.reward) if one is not self.reward),
        ]
        for seam in SEAMS:
            chosen = getattr(self.method, seam.removeprefix("method."), None)
            if isinstance(chosen, list):
                found += [(f"{seam}: {one.name}", one) for one in chosen]
            elif isinstance(chosen, Model):
                found.append((f"{seam} = {chosen.name}", chosen))  # type: ignore[attr-defined]
        return found

    def verify(self) -> Verify:
        """How completions are judged."""
        terms = reward_spec.terms_of(self.reward)
        return next((one.verify for one in terms if isinstance(one, reward_spec.ProcessReward)), Verify())

    def judges(self) -> list[Rubric]:
        """What language models are asked, by turn credit and by rewards."""
        credit = self.method.advantage
        by_turns = credit.judges() if isinstance(credit, advantage_spec.TurnsAdvantage) else []
        return [*by_turns, *(one for one in reward_spec.terms_of(self.reward) if isinstance(one, reward_spec.JudgeReward))]

    def recorded(self) -> tuple[str, ...]:
        """Names of the numbers in its record."""
        means = (*self.MEANS, *(self.CREDIT if self.judge_credit else ()))
        return ("steps", *self.TOTALS, *(f"{name}_{end}" for name in means for end in ("first", "last")))

    def continues(self, shorter: "RLSpec") -> bool:
        """Whether a run of this spec starts with the very steps of a `shorter` one and may go on from its end: nothing else
        differs, neither the rate nor a member of a seam depends on the length, and all that is to be kept of those was kept."""
        length = {"steps": self.steps, "checkpoints": self.checkpoints}
        scheduled = any(member.SCHEDULED for _, member in self.members()) or next(curves_in(self), None)
        steady = self.schedule.name == "constant" and not self.schedule.warmup_ratio and not scheduled
        kept = {step for step in self.checkpoints if step <= shorter.steps} <= set(shorter.checkpoints)
        return steady and kept and shorter.steps < self.steps and shorter.model_copy(update=length) == self
