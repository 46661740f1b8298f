"""Members of the advantage seam, and the critic that some of them read."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Exact, Model, Natural, NotNegative, Positive, Share, Since
from interplay.rl.turn_credit_spec import GainAdvantage, TurnAdvantage, TurnsAdvantage


class AdvantageMember(Model):
    """What most advantages have: they compare completions, and know more of a reward than its difference from its group."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"varied_attempts"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"single_completions"})


class GroupAdvantage(Exact, AdvantageMember):
    """Reward minus the group's mean, scaled (GRPO, arXiv:2402.03300; Dr. GRPO, arXiv:2503.20783; Lite PPO, arXiv:2508.08221)."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset()
    name: Literal["group"] = "group"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide by the group's standard deviation, by the batch's, or not at all."""
    std_epsilon: Annotated[Positive, Since(1e-4)] = 1e-4
    """Added to the deviation before dividing: 1e-4 in TRL, 1e-6 in verl."""
    accurate_gradient: Annotated[bool, Since(False)] = False
    """Times B / (B - M), M of the B completions of a step being those of groups without a difference, so that such groups do
    not shrink the step (accurate gradient estimation: GPG, arXiv:2504.02546)."""


class SpanAdvantage(Exact, AdvantageMember):
    """Each span's reward less the mean, over the standard deviation; tokens of a span get its advantage, those outside all spans
    0 (SCRL, arXiv:2605.22074). Needs a reward that judges spans, `subproblems` or `steps`, and a loss per token."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"spans"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"single_completions", "sequence_ratios", "several_turns"})
    name: Literal["spans"] = "spans"
    normalise: Literal["per_position", "pooled"] = "per_position"
    """per_position: mean and deviation of the spans at one position of a group, as published; pooled: of all spans of a group."""
    credit: Annotated[Literal["own", "following"], Since("own")] = "own"
    """own: a span's tokens get its advantage; following: a token gets the sum over the spans that end behind it (process
    supervision, arXiv:2402.03300, section 4.1.3)."""

    def refuses(self) -> frozenset[str]:
        """Pooled, the spans of one completion are compared."""
        return self.REFUSES - ({"single_completions"} if self.normalise == "pooled" else set())


class LeaveOneOutAdvantage(Exact, AdvantageMember):
    """Reward minus the mean of the others of the group (RLOO, arXiv:2402.14740)."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset()
    name: Literal["leave_one_out"] = "leave_one_out"
    normalize_advantages: Annotated[bool, Since(False)] = False
    """Then centred and scaled over the completions of the batch."""


Rewarded = Literal["outcome", "spans", "turns"]
NEEDED = {"outcome": frozenset[str](), "spans": frozenset({"spans"}), "turns": frozenset({"several_turns"})}
"""What another member must provide."""


class WhitenedAdvantage(Exact, AdvantageMember):
    """Reward less a baseline, then centred and scaled over all tokens of the batch, so that long completions weigh more
    (REINFORCE++, arXiv:2501.03262)."""

    name: Literal["whitened"] = "whitened"
    baseline: Literal["group", "none"] = "group"
    """group: the group's mean first, as in REINFORCE++-baseline; none: each token's return, what is earned from it on."""
    gamma: Annotated[Share, Since(1.0)] = 1.0
    """Discount of a token in returns, without a baseline."""
    rewards: Annotated[Rewarded, Since("outcome")] = "outcome"
    """What returns are of, as in `gae`, without a baseline."""

    @model_validator(mode="after")
    def _returns(self) -> "WhitenedAdvantage":
        if self.baseline == "group" and (self.gamma < 1 or self.rewards != "outcome"):
            raise ValueError("gamma and rewards are of returns: write baseline: none")
        return self

    def needs(self) -> frozenset[str]:
        """What earns the rewards."""
        return NEEDED[self.rewards]

    def provides(self) -> frozenset[str]:
        """Without a baseline rewards are compared across groups."""
        return self.PROVIDES if self.baseline == "none" else frozenset()

    def refuses(self) -> frozenset[str]:
        """Without a baseline a group may have one completion."""
        return self.REFUSES if self.baseline == "group" else frozenset()


class LengthBaselineAdvantage(Exact, AdvantageMember):
    """Reward minus the mean of the group's rewards weighed by length: the baseline of least variance where the gradient's norm
    grows with length (OPO, arXiv:2505.23585)."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset()
    name: Literal["length_baseline"] = "length_baseline"


class RemaxAdvantage(Exact, AdvantageMember):
    """What is earned from a token on, less the reward of the prompt's greedy completion (ReMax, arXiv:2310.10505): a baseline
    without a group and without a critic, for one more completion of each prompt, which `match` does not count."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"bare_prompts", "one_round"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["remax"] = "remax"


class DecoupledAdvantage(Exact, AdvantageMember):
    """Each part of the reward standardised over its group by itself, then their sum over the batch (GDPO, arXiv:2601.05242), so
    that a part with a small deviation is not drowned."""

    name: Literal["gdpo"] = "gdpo"
    rewards: dict[str, float] = Field(min_length=1)
    """Part -> its weight: parts of the reward (`reward/<part>` among the metrics) and names of shapings."""
    whiten: Literal["completions", "tokens", "none"] = "completions"
    """What the sum is centred and scaled over: the completions of the batch, as published; its tokens, as in verl; or nothing."""


class MaximumAdvantage(Exact, AdvantageMember):
    """The best completion of a group is paid by how far it is above the second best, the others nothing: the gradient of the
    expected maximum of a group (arXiv:2503.19595), which is pass@k with k the size of the group where rewards are 0 and 1."""

    name: Literal["grpo_passk"] = "grpo_passk"
    scale_rewards: Literal["group", "none"] = "group"
    """Whether to divide by the deviation of the group's rewards."""


class TokenBaselineAdvantage(Exact, AdvantageMember):
    """What is earned from a token on, less the baseline of least variance for that token among the completions of its group that
    reach it (optimal token baseline, https://richardli.xyz/optimal-token-baseline; verl's `optimal_token_baseline`): they weigh
    by what they have added to the norm of the gradient so far. Costs a forward pass."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"single_completions", "sequence_ratios", "several_turns"})
    name: Literal["optimal_token_baseline"] = "optimal_token_baseline"
    handle_zero_tail: bool = True
    """Where one completion is longer than all others, its tokens behind their ends have no baseline, which would be its own
    reward."""


class PassKAdvantage(Exact, AdvantageMember):
    """The advantage of groups of k completions that are paid for their best (pass@k training, arXiv:2508.10751, in closed form).
    It reads verdicts, and no rewards."""

    PROVIDES: ClassVar[frozenset[str]] = AdvantageMember.PROVIDES | {"reads_right"}
    name: Literal["pass_k"] = "pass_k"
    k: Count = 4
    """Completions that share a reward; at most the group's size."""


class GraeAdvantage(Exact, AdvantageMember):
    """Group advantages, asymmetric between easy and hard prompts and between right and wrong completions (A-GRAE,
    arXiv:2602.05548)."""

    name: Literal["a_grae"] = "a_grae"
    alpha: NotNegative = 1.0
    """Positive advantages are multiplied by min(1, w^alpha), w the mean reward of the batch; 1 for mathematics, 0.5 for images as
    published. (The release has min(1, w / alpha).)"""


class GlobalAdvantage(Exact, AdvantageMember):
    """Group advantages blended with those of whole prompts, by how much the group's answers agree (COPO, arXiv:2508.04138). One
    clipped loss of the blend stands for the blend of two clipped losses: equal where no ratio is clipped."""

    VERSION: ClassVar[int] = 2
    """2: the entropy of answers is in bits, as released."""
    name: Literal["copo"] = "copo"
    blend: Literal["soft_zero", "soft_forced", "soft", "only_global", "no_global"] = "soft_forced"
    """soft: w of the group's own advantage, 1 - w of the prompt's; soft_zero: w = 0 for completions whose reward is 0, as
    released; soft_forced: w = 0 where the group's own advantage is 0, as in earlier commits of the release."""
    steepness: Positive = 5.0
    """k in w = sigmoid(k (H - b)), H the entropy of the group's answers in bits; 5 in the release's script."""
    threshold: NotNegative = 1.0
    """b; 1 in the release's script."""
    consistency: Share = 0.0
    """lambda: a prompt's reward is its mean reward times 1 - lambda H."""


class TrackedAdvantage(Exact, AdvantageMember):
    """Reward minus the pass rate that the sampler expected, over the batch's standard deviation: works with one completion per
    prompt (single-stream policy optimisation, arXiv:2509.13232). Needs a sampler that expects one: edge_of_competence,
    single_stream, retain_hardest, phases or pcl."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"pass_rates"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"shown_attempts"})
    name: Literal["tracked"] = "tracked"
    std_epsilon: Annotated[Positive, Since(1e-4)] = 1e-4
    """Added to the deviation before dividing; 1e-8 in the release."""


class SharpenedAdvantage(Exact, AdvantageMember):
    """Group advantages, with a bonus for right completions that the policy finds less likely than the rest of their group (XRPO,
    arXiv:2510.06672; from its reviews and a third party's code)."""

    PROVIDES: ClassVar[frozenset[str]] = AdvantageMember.PROVIDES | {"reads_right"}
    name: Literal["xrpo"] = "xrpo"
    scale: NotNegative = 2.5
    """lambda: the bonus is lambda (1 - eta), eta = exp(s - mean s), s the mean log-probability of a completion's tokens."""
    cap: NotNegative = 0.5
    """kappa: the bonus is at most this times the advantage."""


class EntropyAdvantage(Exact, AdvantageMember):
    """Rewards shaped by entropy before they are compared: right completions gain where the policy was uncertain, wrong ones lose
    where it was sure (GTPO and GRPO-S, arXiv:2508.04349; formulas from a third party's code). Costs a forward pass."""

    PROVIDES: ClassVar[frozenset[str]] = AdvantageMember.PROVIDES | {"reads_right"}
    name: Literal["gtpo_entropy"] = "gtpo_entropy"
    level: Literal["token", "sequence"] = "token"
    """token: GTPO, shares of entropy at each place among the completions that are that long; sequence: GRPO-S, shares of mean
    entropy among the completions."""
    bonus: NotNegative = 0.1
    """b2: weight of the shares relative to the reward; 0.2 hurts, as published."""
    wrong: bool = True
    """Whether wrong completions are shaped, too."""
    entropy_range: tuple[NotNegative, NotNegative] = (0.2, 0.28)
    """Entropies are cut to this range first."""

    def refuses(self) -> frozenset[str]:
        """Shares at each place also need losses of tokens."""
        return self.REFUSES | ({"sequence_ratios"} if self.level == "token" else set())


class GaeAdvantage(Exact, AdvantageMember):
    """Generalised advantage estimates from the values of the method's critic, which it needs (PPO, arXiv:1707.06347, eq. 11)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"critic"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"reads_critic", "varied_attempts"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"sequence_ratios"})
    name: Literal["gae"] = "gae"
    gamma: Share = 1.0
    """Discount of a token."""
    gamma_turn: Annotated[Share | None, Since(None)] = None
    """Discount from the last token of a turn to what follows it, in place of gamma (Bellman backup with action decomposition,
    with gamma 1 within turns: POAD, arXiv:2405.15821); null: gamma."""
    lam: Share = 0.95
    """0: the critic's word for all that follows; 1: the rewards alone, less the critic's value."""
    whiten: bool = True
    """Centred and scaled over the tokens of the batch."""
    rewards: Annotated[Rewarded, Since("outcome")] = "outcome"
    """What tokens earn, next to terms of shapings that come with single tokens (`kl`). outcome: the reward of the completion,
    with its last token; spans: that of each part that the reward judges, with the last token of the part; turns: that of each
    turn of the episode, with its last token."""

    def needs(self) -> frozenset[str]:
        """Also what earns the rewards, and turns where these have a discount."""
        return self.NEEDS | NEEDED[self.rewards] | (frozenset() if self.gamma_turn is None else NEEDED["turns"])


class SegmentAdvantage(Exact, AdvantageMember):
    """Each segment's gain of what is to be expected, which is estimated by sampling on from its start and from its end
    (SPO-chain, arXiv:2505.23564)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts", "one_round"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"steps", "varied_attempts"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"single_completions", "shaped_rewards", "several_turns", "sequence_ratios"})
    name: Literal["segments"] = "segments"
    samples: Count = 9
    """Completions from each border of segments: a multiple of the run's rollouts."""
    cutpoint_interval: Count = 5
    """Cut-points that a segment holds."""
    threshold: Share = 0.9
    """A token less probable than this is a cut-point."""
    whiten: Annotated[bool, Since(False)] = False
    """Centred and scaled over the tokens less probable than the threshold, from which alone the release learns; 0 elsewhere."""
    separator: Annotated[str | None, Since(None)] = Field(default=None, min_length=1)
    """What ends a reasoning step: then each segment is one, with the token that its last character lies in, and cut-points do not
    matter; null: segments of cut-points."""

    def hashed_version(self) -> int:
        """2 of cut-points: the first segment begins at the first of them, not at the first token."""
        return self.VERSION + (self.separator is None)


class RoleAdvantage(Exact, AdvantageMember):
    """Reward minus a moving mean of the rewards of the seat that it was earned from, in the game that was played (SPIRAL,
    arXiv:2506.24119): a baseline for each role. Needs the episode self_play."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"seats"})
    name: Literal["role"] = "role"
    decay: Share = 0.95
    """What a baseline keeps of itself at each game; it starts at 0."""


class OwnAdvantage(Extension):
    """An advantage of the user's own: `function(batch, now, **options) -> (N, T)`."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"varied_attempts"})
    UNION: ClassVar[str] = "advantage"
    SCHEDULED: ClassVar[bool] = True


Advantage = Annotated[
    GroupAdvantage
    | GainAdvantage
    | RoleAdvantage
    | TurnAdvantage
    | TurnsAdvantage
    | SpanAdvantage
    | LeaveOneOutAdvantage
    | WhitenedAdvantage
    | LengthBaselineAdvantage
    | RemaxAdvantage
    | DecoupledAdvantage
    | MaximumAdvantage
    | TokenBaselineAdvantage
    | PassKAdvantage
    | GraeAdvantage
    | GlobalAdvantage
    | TrackedAdvantage
    | SharpenedAdvantage
    | EntropyAdvantage
    | GaeAdvantage
    | SegmentAdvantage
    | OwnAdvantage,
    Field(discriminator="name"),
    written_as(OwnAdvantage),
]


# The critic: a value function of the tokens.


class ValueHead(Exact):
    """A network apart from the policy, which begins with its weights, with a linear head on the state before each token (PPO,
    arXiv:1707.06347), or, where the advantage is `turns` with gae, before each turn. Its rate follows the policy's schedule."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"reads_critic"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"critic", "stateful_steps"})
    name: Literal["value_head"] = "value_head"
    learning_rate: NotNegative = 3e-4
    """Of its AdamW."""
    gamma: Share = 1.0
    """Discount of a token in the returns that it estimates; of a turn, where it estimates turns."""
    gamma_turn: Annotated[Share | None, Since(None)] = None
    """As in the advantage `gae`."""
    lam: Share = 0.95
    """It learns lambda-returns; 1: the rewards themselves (Monte Carlo)."""
    cliprange_value: NotNegative = 0.2
    """A value that has moved further than this in a step is not pulled on; 0: no limit."""
    num_iterations: Count = 1
    """Optimiser steps on each batch."""
    warmup_steps: Natural = 0
    """First steps of the run in which it alone learns."""

    def needs(self) -> frozenset[str]:
        """An advantage that reads it, and turns where these have a discount."""
        return self.NEEDS if self.gamma_turn is None else self.NEEDS | NEEDED["turns"]
