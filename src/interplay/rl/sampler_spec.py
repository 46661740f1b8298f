"""Specs of samplers: which prompts a step draws."""

import itertools
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Exact, Model, NotNegative, Positive, Share
from interplay.data.steps.context_spec import Format

# A target difficulty that moves with the reward (AdaRFT, arXiv:2504.05520).


class AdaRftSampler(Exact):
    """The prompts whose difficulty, on a scale of 0 to 100, is nearest to a target T. After each step T grows by
    eta * tanh(alpha * (reward - beta)), held within 0..100; reward is the mean over the step's prompts. A prompt comes again when
    all have come (whether the paper repeats them sooner was not found)."""

    name: Literal["ada_rft"] = "ada_rft"
    by: Literal["op", "pass_rate"] = "op"
    """op: 0 for the lowest `op` among the prompts, 100 for the highest; pass_rate: 100 times the failure rate of the samples
    under `offline`, as published."""
    target: NotNegative = 0.0
    """T at the first step."""
    eta: Positive = 50.0
    """Longest move of T."""
    alpha: Positive = 2.0
    """Steepness around beta."""
    beta: float = 0.5
    """Mean reward at which T stays."""


# Samplers that adapt to the results of the prompts so far. All count rewards as shares of a pass, clipped to [0, 1].


class EdgeSampler(Exact):
    """Prompts whose running pass rate is nearest to a target, and a share that was never drawn. The candidates come by the
    mix."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"pass_rates"})
    name: Literal["edge_of_competence"] = "edge_of_competence"
    target: Share = 0.5
    """Pass rate that is sought: groups have the most to say at one half (arXiv:2510.01135)."""
    band: tuple[Share, Share] | None = None
    """In place of the target: lowest and highest pass rate, between which all have equal weight."""
    explore: Share = 0.25
    """Share of the draws that go to prompts which were never drawn, as long as there are any."""
    candidates: Annotated[float, Field(ge=1)] | None = 4.0
    """Candidates per prompt that is wanted; null: all prompts."""
    prior: Positive = 0.5
    """Pseudo-counts of a pass and of a failure that every estimate starts with."""
    half_life: Positive | None = 20.0
    """Steps in which evidence halves: an old estimate drifts back to one half, and the prompt is tried again; null: never."""

    @model_validator(mode="after")
    def _ordered(self) -> "EdgeSampler":
        if self.band is not None and self.band[0] > self.band[1]:
            raise ValueError(f"band must be [lowest, highest], not {list(self.band)}")
        return self


class SingleStreamSampler(Exact):
    """Prioritised sampling of single-stream policy optimisation (SPO, arXiv:2509.13232): weight sqrt(v (1 - v)) + floor, v
    being the mean of a Beta(a, b), without replacement over all prompts. The mix multiplies the weights. It begins at a = b =
    0.5, or, where the stage names samples under `offline`, at a = (passes + 0.5) / (n + 1) / (1 - rho) and b likewise."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"pass_rates"})
    name: Literal["single_stream"] = "single_stream"
    rho: Annotated[float, Field(ge=0.875, le=0.96)] = 0.875
    """What remains of the evidence on a prompt at each visit, within the published clamp; 0.875 is the published constant
    mode. (The mode that reads rho off the drift of the policy is not there.)"""
    floor: Positive = 0.05
    """Weight of a prompt that always passes or never does."""


class Retain(Model):
    """One phase of retain_hardest."""

    steps: Positive
    """Its length, in proportion to the other phases."""
    keep: Positive
    """At most 1: share of all prompts that stay; above: their number."""


class RetainHardestSampler(Exact):
    """Phases that each keep the hardest prompts of the phase before, by the running pass rate when the phase begins, and draw
    those uniformly (DRIVE, arXiv:2511.06307). The mix weighs the prompts that are kept; it does not enter who is."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"pass_rates"})
    SCHEDULED: ClassVar[bool] = True
    name: Literal["retain_hardest"] = "retain_hardest"
    schedule: Annotated[list[Retain], Field(min_length=1)] = [
        Retain(steps=32, keep=1.0),
        Retain(steps=64, keep=72 / 175),
        Retain(steps=32, keep=50 / 175),
        Retain(steps=32, keep=25 / 175),
    ]
    """Phases in order. As published: 32 steps of all prompts (there of another set), then the hardest 72, 50 and 25 of 175."""
    rho: Share = 0.5
    """What remains of the evidence on a prompt at each visit: 1 averages over the run, 0 keeps the last group alone."""

    @field_validator("schedule")
    @classmethod
    def _falling(cls, value: list[Retain]) -> list[Retain]:
        keeps = [phase.keep for phase in value]
        for early, late in itertools.pairwise(keeps):
            if (early <= 1) == (late <= 1) and late > early:
                raise ValueError(f"a phase keeps some of what the one before kept, so keep cannot rise, as it does in {keeps}")
        return value


class LearnedMixtureSampler(Model):
    """A bandit over kinds of prompts: Q <- alpha r + (1 - alpha) Q for each kind that was drawn, and kinds are drawn by
    softmax(Q / temperature) (SEC, arXiv:2505.14970). The shares of the mix weigh prompts within a kind; those between kinds are
    learned."""

    INEXACT: ClassVar[str] = "numpy draws the kinds by the C library's exp and log"
    name: Literal["learned_mixture"] = "learned_mixture"
    by: Literal["band", "set", "op"] = "band"
    """What a kind is. By set, the mix must be equal shares, since it says nothing."""
    reward: Literal["advantage", "progress"] = "advantage"
    """r. advantage: mean |advantage| of the kind's completions, as published; progress: |change of its mean reward since it was
    last drawn| (the release takes the change with its sign)."""
    scale_rewards: Literal["group", "none"] = "group"
    """Whether that advantage is over the standard deviation of its group."""
    alpha: Annotated[Share, Field(gt=0)] = 0.5
    """Weight of the latest r."""
    temperature: Positive = 1.0
    """Of the softmax; released commands have 1.0 (Countdown), 0.4 (mathematics) and 0.2 (puzzles)."""
    undrawn: Literal["keep", "decay"] = "keep"
    """Q of a kind that was not drawn: keep: stays; decay: as if r were 0, which is what the release does."""


# The sampler that climbs from format to format (Cog-DRIFT).


class FormatLadderSampler(Exact):
    """Every question once per epoch, in the format that it has climbed to; for problem sets that the `ladder` step made
    (Cog-DRIFT, arXiv:2604.04767). A question starts in its easiest format; promotion is for good and clears its history."""

    name: Literal["format_ladder"] = "format_ladder"
    formats: Annotated[list[Format], Field(min_length=1)] = ["four_choice", "ten_choice", "cloze", "open"]
    """From easy to hard. A question's formats are those that it has rows in; a row of another mode must be its question's only
    one."""
    promotion: Literal["adaptive", "random", "fixed"] = "adaptive"
    """adaptive: a question whose mean score exceeds the threshold moves to its next format; random: a control, others of the
    step's questions move in their place, drawn from the seed; fixed: none moves."""
    rate: Share | None = None
    """Of random promotion: share of the step's questions that move; null: as many as the adaptive rule would move."""
    promote_on: Literal["answer", "reward"] = "answer"
    """The score: the share of right answers, or, as published, the mean reward, which a reward for form raises, too."""
    chance_correction: bool = True
    """Judge (mean - c) / (1 - c), where c is what guessing earns in the format; false, as published: the mean itself, which
    guessing among four options brings half way to the threshold."""
    threshold: Share = 0.5
    """What the rolling mean must exceed."""
    window: Count = 1
    """Batches of the question that the rolling mean spans; with fewer there is no promotion."""

    @model_validator(mode="after")
    def _consistent(self) -> "FormatLadderSampler":
        if len(set(self.formats)) != len(self.formats):
            raise ValueError(f"formats must name each format once, not {self.formats}")
        if self.rate is not None and self.promotion != "random":
            raise ValueError("rate is a key of random promotion only; take it away, or write promotion: random")
        return self


# Prompts in the order of the angles between their token states (GAIN-RL, arXiv:2506.02281).


class GainRlSampler(Model):
    """Rank prompts by how aligned the initial policy's states of their tokens are, and draw around a rank mu that moves on as
    rewards rise: p is proportional to exp(-((rank - mu) / sigma)^2 / 2). After each step mu grows by
    step * (tanh(alpha * (reward - beta)) + tanh(alpha * angle)), held between `least` and `most`; reward and angle are means over
    the step's prompts."""

    INEXACT: ClassVar[str] = "its angles are PyTorch's sums over states"
    name: Literal["gain_rl"] = "gain_rl"
    weight: NotNegative = 8.0
    """Weight of the mean cosine between question and fixed prefix against that within the question."""
    mu: NotNegative = 0.0
    """Rank to begin with; 0 has the highest score."""
    sigma: Positive = 1000.0
    """Spread in ranks."""
    step: NotNegative = 500.0
    """Ranks that either part of a move may cover."""
    alpha: Positive = 2.0
    """Steepness of both parts."""
    beta: float = 0.5
    """Mean reward, on a scale of 0 to 1, at which the first part changes sign."""
    least: NotNegative = 0.0
    """Smallest move."""
    most: NotNegative = 1000.0
    """Largest move."""
    reference: Count | None = None
    """Number of prompts that sigma, step, least and most are meant for: they are multiplied by the number there are over it; null
    takes them as they are."""
    lag: Literal["old", "new"] = "new"
    """Whether a step draws around the mu before the last move (old) or after it (new); the released code does either."""

    @model_validator(mode="after")
    def _ordered(self) -> "GainRlSampler":
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) must not exceed most ({self.most})")
        return self


# Samplers that follow an order: of difficulty, or of length.


class Paced(Exact):
    """What an order needs: a measure of difficulty, and how fast the prompts are opened along it."""

    SCHEDULED: ClassVar[bool] = True
    by: Literal["op", "length", "pass_rate", "band"] = "op"
    """What makes a prompt hard: its `op`; its length in tokens; a low running pass rate (0.5 for prompts that were never
    drawn); or its band, by the order of `bands`."""
    bands: list[str] | None = None
    """By band: all bands of the prompts, from easy to hard."""
    pacing: Literal["linear", "root", "step"] = "root"
    """Share of the prompts that is open at progress t of the run, s being `start`: linear: s + (1 - s) t; root: the square root
    of s^2 + (1 - s^2) t, as competence-based curricula have it (arXiv:1903.09848, eq. 7); step: in `stages` equal jumps."""
    start: Share = 0.2
    """Share that is open at the first step."""
    until: Annotated[Share, Field(gt=0)] = 0.8
    """Share of the run after which all prompts are open."""
    stages: Annotated[Count, Field(ge=2)] = 4
    """Of the `step` pacing: levels, the first and the last one included."""

    @model_validator(mode="after")
    def _bands_are_ordered(self) -> "Paced":
        if (self.by == "band") != (self.bands is not None):
            raise ValueError("by: band needs bands: [easiest, ..., hardest], and nothing else does")
        if self.bands is not None and len(set(self.bands)) < max(2, len(self.bands)):
            raise ValueError(f"bands must name two bands at least, each once, not {self.bands}")
        return self


class EasyToHardSampler(Paced):
    """The easiest prompts first; harder ones are opened as the run goes on, and what is open is drawn by the mix, uniformly
    within a set (competence-based curriculum, arXiv:1903.09848). The mix decides which share of the draws is open."""

    name: Literal["easy_to_hard"] = "easy_to_hard"


class HardFirstSampler(Paced):
    """The hardest prompts first; easier ones are opened as the run goes on. The mix counts as for easy_to_hard."""

    name: Literal["hard_first"] = "hard_first"


class PhasesSampler(Exact):
    """Phases by prompt length: phase k draws prompts longer than the (k-1)th bound and up to the kth, and carries hard ones of
    earlier phases along (QwenLong-L1, arXiv:2505.17667). The mix weighs the prompts within a phase."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"pass_rates"})
    SCHEDULED: ClassVar[bool] = True
    name: Literal["phases"] = "phases"
    bounds: Annotated[list[Positive], Field(min_length=1)] = [20_000, 60_000]
    """Longest prompt of each phase, rising. Prompts beyond the last are never drawn."""
    unit: Literal["tokens", "share"] = "tokens"
    """tokens: of the prompt; share: of the prompts in order of length, so that bounds of [0.5, 1] make two phases of equal
    size."""
    lengths: list[Positive] | None = None
    """Length of each phase in proportion to the others; null: equal."""
    carry: Literal["weighted", "unsolved", "none"] = "weighted"
    """What of earlier phases is drawn again. weighted: by 1 / mean reward over all that was seen of a prompt, as published;
    unsolved: those alone whose mean reward is 0, which is what the release does; none."""
    carried: Share = 0.25
    """Share of the draws that go to earlier phases; the publication gives none."""
    cap: Annotated[float, Field(ge=1)] = 8.0
    """Largest weight, that of a mean reward of 0 included. A prompt that was never drawn has a mean reward of 0.5."""

    @field_validator("bounds")
    @classmethod
    def _rising(cls, value: list[float]) -> list[float]:
        if any(low >= high for low, high in itertools.pairwise(value)):
            raise ValueError(f"bounds must rise from each phase to the next, not {value}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> "PhasesSampler":
        if self.unit == "share" and self.bounds[-1] > 1:
            raise ValueError(f"bounds in shares end at 1 at most, not at {self.bounds[-1]}")
        if self.lengths is not None and len(self.lengths) != len(self.bounds):
            raise ValueError(f"lengths must have one number per bound, {len(self.bounds)}, not {len(self.lengths)}")
        return self


# Prompt curriculum learning: prompts whose expected reward is near a threshold (PCL, arXiv:2510.01135).


class ModelValue(Model):
    """V(x) of a language model with a linear head on the last token of the prompt, which starts as the policy and learns along
    with it, as published."""

    name: Literal["model"] = "model"
    learning_rate: Positive = 3e-4
    """Rate of its own AdamW, which makes one step for each step of the run."""


class BetaValue(Model):
    """V(x) = a / (a + b) of a Beta distribution per prompt, which sees no prompt but those that it remembers: a stand-in that
    costs nothing."""

    name: Literal["beta"] = "beta"
    rho: Share = 0.9
    """Factor on a and b at each further group of the prompt: what it was taught long ago counts less."""


class PclSampler(Model):
    """Look at several candidates for each prompt that is drawn and take those whose expected reward V(x) is nearest to `tau`,
    then teach V the rewards of the step. No rollout is spent on the choice, and V lags the policy by one step."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"pass_rates"})
    name: Literal["pcl"] = "pcl"
    candidates: Count = 4
    """Candidates per prompt that is drawn, k of the paper; they come by the mix, each prompt once per epoch."""
    tau: float = 0.5
    """Expected reward that is sought."""
    value: Annotated[ModelValue | BetaValue, Field(discriminator="name")] = ModelValue()
    """The model of a prompt's reward."""

    def inexact(self) -> str:
        """A network that learns."""
        return "" if isinstance(self.value, BetaValue) else "its network is PyTorch's; write value: {name: beta}"


# Members of the sampler seam: which prompts a step draws.


class UniformSampler(Exact):
    """Every prompt once per epoch, in an order drawn from the seed."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"every_prompt"})
    name: Literal["uniform"] = "uniform"


class OwnSampler(Extension):
    """A sampler of the user's own: a function that chooses ids by the success history of each prompt, or a class."""

    UNION: ClassVar[str] = "sampler"
    SCHEDULED: ClassVar[bool] = True


Sampler = Annotated[
    UniformSampler
    | EasyToHardSampler
    | HardFirstSampler
    | EdgeSampler
    | SingleStreamSampler
    | RetainHardestSampler
    | PhasesSampler
    | LearnedMixtureSampler
    | PclSampler
    | GainRlSampler
    | AdaRftSampler
    | FormatLadderSampler
    | OwnSampler,
    Field(discriminator="name"),
    written_as(OwnSampler),
]


def reads_offline(sampler: Model) -> bool:
    """Whether the member learns from samples that were made before the first step."""
    adaptive = (EdgeSampler, SingleStreamSampler, RetainHardestSampler, PhasesSampler)
    return isinstance(sampler, adaptive) or (isinstance(sampler, Paced | AdaRftSampler) and sampler.by == "pass_rate")
