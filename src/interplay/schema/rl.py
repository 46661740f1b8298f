"""Reinforcement learning: the loop's own knobs, and one union per seam. Option names are TRL's; loss_agg_mode is verl's."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from interplay.schema.base import Count, Model, Natural, NotNegative, Positive, Share, Since
from interplay.schema.custom import Custom
from interplay.schema.model import Optimizer, Schedule


class Verify(Model):
    """How a completion is judged against the gold graph."""

    operator: bool = False
    """Also demand the gold operator in each step (the published verifier compares parents and value only)."""
    extra_nodes: Literal["free", "penalised"] = "free"
    """Whether steps for nodes that the goal does not need forfeit strictness (the published evaluator forgives them, the released
    reward does not)."""


class OutcomeReward(Model):
    """1 when the answer is right, else 0."""

    name: Literal["outcome"] = "outcome"


class ProcessReward(Model):
    """Rewards that read the steps (arXiv:2512.07783, section 6; its released code where named)."""

    name: Literal["process"] = "process"
    form: Literal["strict", "blend", "blend_released", "dense"] = "strict"
    """strict: 1 when every step and the answer are right; blend: alpha * outcome + (1 - alpha) * step accuracy, as published;
    blend_released: the released code, a node may be charged twice, extras cost, and a wrong answer gives 0; dense: released step
    score without that answer gate."""
    alpha: Share = 0.2
    """Weight of the outcome in the blends."""
    verify: Verify = Verify()


Reward = Annotated[OutcomeReward | ProcessReward | Custom, Field(discriminator="name")]


class UniformSampler(Model):
    """Every prompt once per epoch, in an order drawn from the seed."""

    name: Literal["uniform"] = "uniform"


Sampler = Annotated[UniformSampler | Custom, Field(discriminator="name")]


class FixedPlanner(Model):
    """The same number of completions for every prompt."""

    name: Literal["fixed"] = "fixed"
    num_generations: Count = 8
    """Group size."""


class CompletionEpisode(Model):
    """One completion per prompt, one turn."""

    name: Literal["completion"] = "completion"


class DynamicSampling(Model):
    """Drop groups whose rewards are all equal and draw fresh prompts in their place (DAPO, arXiv:2503.14476)."""

    name: Literal["dynamic_sampling"] = "dynamic_sampling"
    max_num_gen_batches: Count = 3
    """Rounds of generation per step at most; 1 only drops."""


Edit = DynamicSampling


class GroupAdvantage(Model):
    """Reward minus the group's mean, scaled (GRPO, arXiv:2402.03300; Dr. GRPO, arXiv:2503.20783; Lite PPO, arXiv:2508.08221)."""

    name: Literal["group"] = "group"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide by the group's standard deviation, by the batch's, or not at all."""


class ClippedLoss(Model):
    """The clipped policy-gradient loss with TRL's options."""

    name: Literal["clipped"] = "clipped"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo"] = "dapo"
    """grpo: mean over rows of each one's token mean; bnpo: mean over the tokens of an optimiser step; dr_grpo: sum over rows *
    max_completion_length; dapo: sum over the tokens that an optimiser step of this batch has on average (the mean over the
    batch when there is one step); cispo: as dapo, of the clipped detached ratio times the log-probability."""
    epsilon: NotNegative = 0.2
    """Lower clip of the ratio."""
    epsilon_high: NotNegative | None = None
    """Upper clip; null: epsilon. With cispo, the cap of the ratio (5.0 is usual)."""
    delta: Positive | None = None
    """Cap of the ratio also where the advantage is negative (two-sided clipping); null: none."""
    beta: NotNegative = 0.0
    """Coefficient of the k3 estimate of the KL divergence from the reference; 0 runs without a reference model."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """Ratio per token, or the sequence's geometric mean (GSPO, arXiv:2507.18071)."""
    num_iterations: Count = 1
    """Passes over each batch of rollouts."""
    mask_truncated_completions: bool = False
    """Leave completions that hit the length limit out of the loss."""
    entropy_coef: float = 0.0
    """Coefficient of an entropy bonus."""


class Method(Model):
    """One published method: its paper and its member at each seam."""

    paper: str
    """Where the method and these settings come from."""
    sampler: Sampler = UniformSampler()
    planner: FixedPlanner = FixedPlanner()
    episode: CompletionEpisode = CompletionEpisode()
    edits: list[Edit] = []
    """What is done to a batch before it is trained on, in order."""
    advantage: GroupAdvantage = GroupAdvantage()
    loss: ClippedLoss = ClippedLoss()


class RLOptimizer(Optimizer):
    """AdamW at a small rate and without decay, unless said otherwise."""

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: NotNegative = 1e-4
    weight_decay: NotNegative = 0.0


class RLSchedule(Schedule):
    """A constant rate, unless said otherwise."""

    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup_ratio: Share = 0.0


class RLSpec(Model):
    """Reinforcement learning on problem sets. Roles: `init` (a model; also the reference when beta > 0) and `data.<i>`."""

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
    max_completion_length: Count = 128
    """Tokens after which a completion is cut."""
    temperature: NotNegative = 1.0
    """Of the rollouts; 0 takes the likeliest token."""
    engine: Literal["native", "hf"] = "native"
    """Who samples. Engines differ in the last bits, so the choice is part of the identity."""
    optimizer: RLOptimizer = RLOptimizer()
    schedule: RLSchedule = RLSchedule()
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
        if outside := [step for step in self.checkpoints if not 1 <= step <= self.steps]:
            raise ValueError(f"checkpoints: {outside[0]} is not among the steps 1..{self.steps} of this run")
        return self

    def continues(self, shorter: "RLSpec") -> bool:
        """Whether a run of this spec starts with the very steps of a `shorter` one and may go on from its end: nothing else
        differs, the rate does not hang on the length, and all that is to be kept of those steps was kept."""
        length = {"steps": self.steps, "checkpoints": self.checkpoints}
        steady = self.schedule.name == "constant" and not self.schedule.warmup_ratio
        kept = {step for step in self.checkpoints if step <= shorter.steps} <= set(shorter.checkpoints)
        return steady and kept and shorter.steps < self.steps and shorter.model_copy(update=length) == self
