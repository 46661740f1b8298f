"""Specs of the RL loop: method, critic, decoding. The members of each seam have a `spec.py` in the seam's folder."""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Formerly, Model, Natural, NotNegative, Share, Since
from interplay.model.spec import TuneOptimizer, TuneSchedule, check_checkpoints
from interplay.rl.advantages.spec import (
    Advantage,
    GaeAdvantage,
    GroupAdvantage,
    PassKAdvantage,
    SegmentAdvantage,
    SpanAdvantage,
    TrackedAdvantage,
    WhitenedAdvantage,
)
from interplay.rl.compatibility import beginning, check_compatibility, off_policy_edit
from interplay.rl.edits.spec import DynamicSampling, Edit
from interplay.rl.losses.spec import ClippedLoss, Loss
from interplay.rl.requests.spec import (
    Allocation,
    Continuation,
    FixedAllocation,
    IcpoPrompting,
    NoContinuation,
    PlainPrompting,
    Prompting,
    ShownAttemptContinuation,
    TreeContinuation,
    WindowContinuation,
)
from interplay.rl.rewards.spec import OF_SPANS, ProcessReward, Reward, Shaping
from interplay.rl.samplers.spec import LearnedMixtureSampler, Sampler, UniformSampler, expects
from interplay.rollout.spec import CompletionEpisode, Episode
from interplay.tasks.spec import Verify

# The critic: what foretells, at each token, the reward that is to come.


class ValueHead(Model):
    """A network apart from the policy, which begins with its weights, with a linear head on the state before each token (PPO,
    arXiv:1707.06347). Its rate follows the policy's schedule."""

    name: Literal["value_head"] = "value_head"
    learning_rate: NotNegative = 3e-4
    """Of its AdamW."""
    gamma: Share = 1.0
    """Discount of a token in what it is to foretell."""
    lam: Share = 0.95
    """It learns lambda-returns; 1: the rewards themselves (Monte Carlo)."""
    cliprange_value: NotNegative = 0.2
    """A value that has moved further than this in a step is not pulled on; 0: no limit."""
    num_iterations: Count = 1
    """Optimiser steps on each batch."""
    warmup_steps: Natural = 0
    """First steps of the run in which it alone learns."""


# Members of the decoding seam: what tokens of rollouts are drawn from, where that is not the policy at the run's temperature.


class AdaptiveTemperature(Model):
    """A temperature for each token (HAPO, heterogeneous tokens): that of the run times 1 + temperature_tau h. h in [-1, 1] is the
    log entropy of what the token would be drawn from, less the `entropy_pivot` quantile over the tokens that the last step learnt
    from, over the largest such value on its side of 0; the first step has one temperature. Ratios are of the policy at the run's
    temperature, as released. Costs a forward pass over the batch."""

    ENGINES: ClassVar[tuple[str, ...]] = ("native", "hf", "vllm")
    """Those that decode so."""
    name: Literal["adaptive_temperature"] = "adaptive_temperature"
    temperature_tau: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Largest change of the temperature, as a share of it."""
    entropy_pivot: Share = 0.8
    """Quantile at which h is 0."""


class LaggedNucleus(Model):
    """Tokens within the nucleus of a copy of the policy that lags behind it (NLPO, arXiv:2210.01241): the likeliest tokens of the
    copy, at temperature 1, whose probabilities sum to `top_p`. The policy, renormalised over them, is what is sampled, and what
    log-probabilities, ratios, entropies and the divergence from the reference are of. The copy decodes beside the policy, and
    passes beside it wherever a batch passes."""

    ENGINES: ClassVar[tuple[str, ...]] = ("native",)
    """Those that decode so."""
    name: Literal["lagged_nucleus"] = "lagged_nucleus"
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    """1: all tokens, so that nothing is masked."""
    sync_every: Count = 20
    """Steps after which the copy becomes the policy as it then stands."""


class OwnDecoding(Extension):
    """A decoding of the user's own: `function(sampling, memory, **options) -> sampling`, before each step."""

    ENGINES: ClassVar[tuple[str, ...]] = ("native", "hf", "vllm")
    """Those that decode what it changes."""
    UNION: ClassVar[str] = "decoding"


Decoding = Annotated[AdaptiveTemperature | LaggedNucleus | OwnDecoding, Field(discriminator="name"), written_as(OwnDecoding)]


# Reinforcement learning: the loop's own knobs; the members of each seam stand in a file of their own. Option names are TRL's.


class Method(Model):
    """One published method: its paper and its member at each seam."""

    paper: str
    """Where the method and these settings come from."""
    sampler: Sampler = UniformSampler()
    allocation: Annotated[Allocation, Formerly("planner")] = FixedAllocation()
    """How many completions each prompt gets."""
    prompting: Annotated[Prompting, Since(PlainPrompting())] = PlainPrompting()
    """From which text they are sampled."""
    continuation: Annotated[Continuation, Since(NoContinuation())] = NoContinuation()
    """What follows from rollouts: further completions, and which are kept."""
    episode: Episode = CompletionEpisode()
    shaping: Annotated[list[Shaping], Since([])] = []
    """What is added to the rewards before they are compared; each kind once."""
    edits: list[Edit] = []
    """What is done to a batch before it is trained on, in order."""
    advantage: Advantage = GroupAdvantage()
    loss: Loss = ClippedLoss()
    critic: Annotated[ValueHead | None, Since(None)] = None
    """What foretells rewards token by token, for advantages that ask it; null: nothing."""
    decoding: Annotated[Decoding | None, Since(None)] = None
    """What tokens of rollouts are drawn from; null: the policy at the run's temperature."""


class RLSpec(Model):
    """Reinforcement learning on problem sets. Roles: `init` (a model; also the reference when beta > 0), `data.<i>`,
    and `offline.<i>.<part>` where the stage names under `offline` an evaluate stage: samples of `init` on `data.<i>`, from which
    the sampler starts."""

    method: Method
    reward: Reward = ProcessReward()
    mix: list[float]
    """Share of each `data.<i>` role among the prompts; sums to 1."""
    steps: Count
    """Rollout steps; each makes num_iterations * minibatches optimiser steps."""
    prompts_per_step: Count = 32
    """Distinct prompts per step."""
    minibatches: Count = 1
    """Optimiser steps per pass over a batch of rollouts."""
    max_prompt_length: Annotated[Count | None, Since(None)] = None
    """Most tokens of a prompt: a run with a longer one is refused. The published charge of a step counts it, too
    (arXiv:2512.07783: L = 1,024 + 1,024); null: no limit, and L is max_completion_length."""
    max_completion_length: Count = 128
    """Tokens after which a completion is cut."""
    temperature: NotNegative = 1.0
    """Of the rollouts; above 0, since equal completions teach nothing."""
    engine: Literal["native", "hf", "vllm"] = "native"
    """Who samples. Engines differ in the last bits, so the choice is part of the identity. vllm needs the extra of that name."""
    optimizer: TuneOptimizer = TuneOptimizer()
    schedule: TuneSchedule = TuneSchedule()
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of rollouts and updates."""
    checkpoints: Annotated[list[Count], Since([])] = []
    """Steps whose weights are kept in checkpoints/<step>/model/ as part of the artifact."""
    keep_rollouts: Natural = 16
    """Rollouts per step kept in rollouts.parquet."""
    seed: Natural = 0
    """Order of prompts and noise of sampling."""

    @model_validator(mode="after")
    def _divides(self) -> "RLSpec":
        if self.minibatches < 1 or self.prompts_per_step % self.minibatches:
            raise ValueError("prompts_per_step must be a multiple of minibatches")
        if self.reward.name in OF_SPANS and (edit := off_policy_edit(self)):
            raise ValueError(f"method.edits: {edit} adds rows that the reward {self.reward.name} has not judged")
        if self.reward.name in OF_SPANS and (begins := beginning(self.method)):
            raise ValueError(f"{begins} begins completions itself; the reward {self.reward.name} judges parts of whole ones")
        if self.method.advantage.name == "spans":
            if self.reward.name not in OF_SPANS:
                needed = " or ".join(OF_SPANS)
                raise ValueError(f"method.advantage = spans needs the reward {needed}; {self.reward.name} judges no spans")
            if getattr(self.method.loss, "importance_sampling_level", "token") == "sequence":
                raise ValueError("method.advantage = spans needs importance_sampling_level token: its advantages are of tokens")
        check_checkpoints(self.checkpoints, self.steps)
        return self

    @model_validator(mode="after")
    def _can_learn(self) -> "RLSpec":
        """Without completions of a group that may differ every advantage is 0, and the run would end with its first weights."""
        advantage, group = self.method.advantage, self.method.allocation.num_generations
        if isinstance(advantage, PassKAdvantage) and advantage.k > group:
            raise ValueError(f"method.advantage.k = {advantage.k}: at most num_generations, {group}")
        if isinstance(advantage, TrackedAdvantage) and not expects(self.method.sampler):
            one = self.method.sampler.name
            raise ValueError(f"method.advantage = tracked needs a sampler that expects a pass rate; {one} does not")
        if isinstance(advantage, GaeAdvantage) != (self.method.critic is not None):
            if self.method.critic:
                raise ValueError(f"method.critic: the advantage '{advantage.name}' never asks it; take gae, or leave it out")
            raise ValueError("method.advantage = gae needs method.critic: {name: value_head}")
        self._requests()
        pooled = isinstance(advantage, SpanAdvantage) and advantage.normalise == "pooled"  # compares the spans of one completion
        bare = isinstance(advantage, WhitenedAdvantage) and advantage.baseline == "none"
        if group < 2 and not (pooled or bare or isinstance(advantage, TrackedAdvantage | GaeAdvantage)):
            must = f"the advantage '{advantage.name}' compares completions of one prompt; give 2 at least"
            raise ValueError(f"method.allocation.num_generations = {group}: {must}")
        if (decoding := self.method.decoding) and self.engine not in decoding.ENGINES:
            able = " or ".join(decoding.ENGINES)
            raise ValueError(f"engine = {self.engine}: cannot decode with method.decoding = {decoding.name}; write {able}")
        if self.temperature == 0:
            raise ValueError("temperature = 0 makes all completions of a prompt equal: nothing is learnt; write 1.0")
        return self

    def _requests(self) -> None:
        """Whether allocation, prompting and continuation fit each other and what judges their completions."""
        method, continuation, group = self.method, self.method.continuation, self.method.allocation.num_generations
        plain = method.allocation.name == "fixed" and method.prompting.name == "plain"
        if continuation.name != "none" and not plain:
            raise ValueError(
                f"method.continuation = {continuation.name} goes on from groups of one size and bare prompts; write "
                "allocation fixed and prompting plain"
            )
        steered = method.prompting.steered if isinstance(method.prompting, IcpoPrompting) else 0
        if steered and (method.allocation.name != "fixed" or steered >= group):
            raise ValueError(
                f"method.prompting.steered = {steered}: must be less than num_generations, {group}, of the allocation fixed"
            )
        if isinstance(method.advantage, SegmentAdvantage) and not (plain and continuation.name == "none" and not method.shaping):
            raise ValueError(
                "method.advantage = segments samples on from plain prompts: allocation fixed, prompting plain, "
                "continuation none, and no shaping"
            )
        if isinstance(continuation, WindowContinuation):
            if not isinstance(method.advantage, GaeAdvantage) or expects(method.sampler):
                raise ValueError("method.continuation = windows needs the advantage gae and a sampler that expects no pass rates")
            if any(isinstance(edit, DynamicSampling) for edit in method.edits):
                raise ValueError("method.continuation = windows draws once a step; leave out dynamic_sampling")
            if group != 1:
                raise ValueError(f"method.allocation.num_generations = {group}: must be 1 with the continuation windows")
        if isinstance(continuation, TreeContinuation):
            if group != (leaves := math.prod(continuation.branches)):
                raise ValueError(f"method.allocation.num_generations = {group}: must be the product of branches, {leaves}")
            if continuation.segment * (len(continuation.branches) - 1) >= self.max_completion_length:
                segments = f"{len(continuation.branches) - 1} segments of {continuation.segment} tokens"
                raise ValueError(
                    f"method.continuation: {segments} leave nothing of max_completion_length, {self.max_completion_length}"
                )
        if isinstance(continuation, ShownAttemptContinuation):
            references = continuation.references
            if group % references or group - references < 2:
                must = f"must divide num_generations, {group}, and leave two completions at least"
                raise ValueError(f"method.continuation.references = {references}: {must}")

    @model_validator(mode="after")
    def _members_fit(self) -> "RLSpec":
        if found := check_compatibility(self):
            raise ValueError(found)
        return self

    @model_validator(mode="after")
    def _mix_counts(self) -> "RLSpec":
        sampler = self.method.sampler
        if isinstance(sampler, LearnedMixtureSampler) and sampler.by == "set" and len(set(self.mix)) > 1:
            raise ValueError("learned_mixture by set learns the shares of the sets, so the mix must be equal shares")
        return self

    def verify(self) -> Verify:
        """How completions are judged."""
        return self.reward.verify if isinstance(self.reward, ProcessReward) else Verify()

    def continues(self, shorter: "RLSpec") -> bool:
        """Whether a run of this spec starts with the very steps of a `shorter` one and may go on from its end: nothing else
        differs, neither the rate nor a member of a seam hangs on the length, and all that is to be kept of those was kept."""
        length = {"steps": self.steps, "checkpoints": self.checkpoints}
        members = (self.method.sampler, self.method.prompting, *self.method.shaping, *self.method.edits)
        scheduled = any(member.SCHEDULED for member in members)
        steady = self.schedule.name == "constant" and not self.schedule.warmup_ratio and not scheduled
        kept = {step for step in self.checkpoints if step <= shorter.steps} <= set(shorter.checkpoints)
        return steady and kept and shorter.steps < self.steps and shorter.model_copy(update=length) == self
