"""Members of the seams of edits, done to a batch before it is trained on, and of shaping, added to the rewards of one."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import (
    AnyCurve,
    Count,
    Curve,
    Exact,
    Natural,
    NotNegative,
    NotNegativeCurve,
    Positive,
    PositiveCurve,
    Share,
    ShareCurve,
    Since,
)

Part = Annotated[float, Field(gt=0, le=1)]


class DynamicSampling(Exact):
    """Drop groups without an advantage, as where all rewards are equal, and draw fresh prompts in their place (DAPO,
    arXiv:2503.14476)."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"extra_draws"})
    VERSION: ClassVar[int] = 2
    """2: judged by the advantage, so that with spans a group of equal rewards and different spans stays."""
    name: Literal["dynamic_sampling"] = "dynamic_sampling"
    max_num_gen_batches: Count | None = 3
    """Rounds of generation per step at most; 1 only drops; null: until the step is full, which never ends where no group
    differs."""
    metric: Annotated[Literal["advantage", "acc"], Since("advantage")] = "advantage"
    """Which groups are dropped: those without an advantage, or those whose completions are all right or all wrong, though a
    shaping has made their rewards different (acc, as in verl's filter_groups.metric). Advantages that read a critic are not known
    yet, and want acc."""

    def refuses(self) -> frozenset[str]:
        """A critic, whose values come after all groups are drawn."""
        return self.REFUSES | ({"reads_critic"} if self.metric == "advantage" else set())


class D3S(Exact):
    """Learn from the rows whose advantages differ most, and from those of their tokens that matter most (D3S, arXiv:2509.22115).

    Both shares go linearly from their first value, at the first step, to their second, at the last. Advantages stay as they were:
    nothing is normalised again. With scope `group` and tokens [1, 1], rows are chosen as in PODS (arXiv:2504.13818)."""

    SCHEDULED: ClassVar[bool] = True
    name: Literal["d3s"] = "d3s"
    samples: tuple[Part, Part] = (0.25, 0.5)
    """Share of the rows that bear loss which is kept: those with the largest variance of advantages, that is the most negative
    and the most positive ones."""
    tokens: tuple[Part, Part] = (0.2, 0.4)
    """Share of the kept rows' tokens that bear loss: those with the largest |advantage| * entropy. Below 1 it costs a forward
    pass over the kept rows, for the entropies."""
    scope: Literal["batch", "group"] = "batch"
    """Among which rows the variance is made large: all of the step, or each group's own."""


class TokenBudget(Exact):
    """Train on completions in random order until they reach a fixed number of tokens (C3PO, Ring-lite technical report). With the
    loss's `loss_denominator` at the same number the divisor is constant, too."""

    name: Literal["token_budget"] = "token_budget"
    tokens: Count
    """Completions are taken until their lengths add up to at least this; the rest are dropped."""


class TopEntropy(Exact):
    """Only the tokens of highest entropy have a policy gradient (the 80/20 rule, arXiv:2506.01939). All count in the means of the
    loss and in its KL term, as in TRL. Costs a forward pass."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"sequence_ratios"})
    name: Literal["top_entropy"] = "top_entropy"
    top_entropy_quantile: Part = 0.2
    """Share of the batch's tokens that have one."""


class UncertainTokens(Exact):
    """Only tokens that were less probable than a threshold when they were sampled bear loss (the probability mask of SPO,
    arXiv:2505.23564)."""

    name: Literal["uncertain_tokens"] = "uncertain_tokens"
    threshold: Part = 0.9
    """Probability at and above which a token bears none."""


class InformationMask(Exact):
    """What the policy writes as if it had found it bears no loss: only look-ups and answers are learnt from (the masking of
    information tokens in SSRL, arXiv:2508.10874)."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns", "begun_completions"})
    name: Literal["information_mask"] = "information_mask"
    begin: str = Field(default=")", min_length=1)
    """Text behind which information begins."""
    end: str = Field(default="\n", min_length=1)
    """Text with which it ends; without that, the rest of the completion is information."""


class ConflictTokens(Exact):
    """Tokens that right and wrong completions of a group share at one place, from the start or from the end: wrong ones leave
    them alone and right ones weigh them more; completions of high entropy are dropped (GTPO, trajectory-based,
    arXiv:2508.03772)."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"sequence_ratios"})
    VERSION: ClassVar[int] = 2
    """2: a token that is in conflict from both ends is weighed twice, as released."""
    name: Literal["gtpo_conflict"] = "gtpo_conflict"
    positive: NotNegative = 2.0
    """What advantages of shared tokens in completions with a positive advantage are multiplied by."""
    negative: NotNegative = 0.0
    """The same in those with a negative one."""
    entropy_limit: Positive | None = 0.6931471805599453
    """Completions whose mean entropy in nats is this or more are dropped: ln 2 as published, 0.7 as released; null: none are,
    which is the paper's rule where the entropy is above it at the start. Costs a forward pass."""
    entropy_price: NotNegative = 0.1
    """What a completion's mean entropy takes from its advantage, where there is a limit."""


class Replay(Exact):
    """Groups in which all failed get past successes on the same prompt, and groups in which all passed get past failures (R3,
    arXiv:2601.19620). The rows are off policy, with the log-probabilities they were sampled with, and count in the statistics of
    their group. Of episodes, all turns and what was read between them. It acts from a prompt's second visit on: give RL fewer
    prompts than steps * prompts_per_step."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"other_completions", "reads_right"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"windowed_turns", "seats", "begun_completions"})
    name: Literal["replay"] = "replay"
    rows: Count = 1
    """Rows that such a group gets at most. (The published value was not found.)"""
    scale: NotNegativeCurve = 1.0
    """What their advantages are multiplied by. (The published form was not found; this one is inferred.)"""
    keep: Count = 4
    """Successes, and failures, that are kept per prompt: the latest."""


class Demonstrations(Exact):
    """Groups with few successes are dropped for the gold solution, which is learnt by its likelihood (HPT, arXiv:2509.04419,
    strategy `switch`)."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"other_completions", "reads_right"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns", "begun_completions"})
    name: Literal["demonstrations"] = "demonstrations"
    switch_gate: Natural = 0
    """Successes up to which a group gives way; as published 0 for Qwen models, and 2 of 8 for Llama."""
    sft_loss_coef: NotNegativeCurve = 1.0
    """Weight of the gold solution's tokens: their advantage."""
    own_mean: Annotated[bool, Since(False)] = False
    """With loss_type dr_grpo, which divides sums by the length limit: gold solutions are divided by their own lengths, that is,
    their advantages are times the limit over the length."""


class TurnFilter(Exact):
    """Episodes from which nothing is learnt: with a void turn, one that has neither a readable action nor an answer (SimpleTIR,
    arXiv:2509.02479), that ran out of turns (over-turn masking, as in Mini-o3, arXiv:2509.07969), or of a group in which none is
    right."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"reads_right"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"windowed_turns"})
    name: Literal["turn_filter"] = "turn_filter"
    void: bool = True
    """Those with a void turn: the environment replied that it could not read the turn, or got nothing, or the length limit cut
    the turn."""
    overrun: bool = False
    """Those that their environment had not ended after `max_turns`, whose last turn was not cut; none of `retry` and of games."""
    hopeless: bool = False
    """All of a group in which none is right."""
    count: bool = True
    """Whether their rewards count in the statistics of their group."""


class Observations(Exact):
    """What was read between the turns is learnt, too, by its likelihood: a model of the world, as an ablation of masked tool
    replies does, or early experience (arXiv:2510.08558). Such tokens count in the means of the loss and in its KL and entropy
    terms."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"windowed_turns", "sequence_ratios"})
    name: Literal["observations"] = "observations"
    weight: NotNegativeCurve = 0.1
    """What their log-likelihood weighs: their advantage, with a ratio of 1 at the first update. 0: they are read alone."""


class OwnEdit(Extension):
    """An edit of the user's own: `function(batch, now, **options) -> batch` before advantages are known, or `function(batch,
    advantage, bears, now, **options) -> (batch, advantage, bears)` after."""

    UNION: ClassVar[str] = "edit"
    SCHEDULED: ClassVar[bool] = True


Edit = Annotated[
    DynamicSampling
    | D3S
    | TokenBudget
    | TopEntropy
    | UncertainTokens
    | InformationMask
    | ConflictTokens
    | Replay
    | Demonstrations
    | TurnFilter
    | Observations
    | OwnEdit,
    Field(discriminator="name"),
    written_as(OwnEdit),
]


# Members of the shaping seam: what is added to the rewards of a step's completions before they are compared. The sampler and
# the records of what passed see the rewards as they were.


class ShapingTerm(Exact):
    """What every shaping has."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"shaped_rewards"})


class OverlongShaping(ShapingTerm):
    """A penalty that grows over the last tokens before the length limit (DAPO, arXiv:2503.14476, eq. 13)."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["overlong"] = "overlong"
    cache: Count = 32
    """Tokens before the limit over which the penalty goes from 0 to 1."""
    cache_share: Annotated[Share | None, Since(None)] = None
    """The same as a share of the limit, in place of `cache`; DAPO's run has 4,096 of 20,480 tokens, 0.2."""
    weight: NotNegativeCurve = 1.0
    """What the full penalty takes."""


class RepetitionShaping(ShapingTerm):
    """A penalty for completions that end in a loop (CAMPO, arXiv:2507.14683)."""

    name: Literal["repetition"] = "repetition"
    mode: Literal["share", "truncated"] = "share"
    """share: `weight` times the share of the completion from the start of the loop, for every completion, as the text says;
    truncated: `weight` for those that the length limit cut while they looped, as the released code does."""
    weight: NotNegativeCurve = 0.1
    """Released: 0.1."""


class HistoryLengthShaping(ShapingTerm):
    """A length term in addition to the reward, relative to the shortest right completion of the prompt so far (HAPO, history
    aware, arXiv:2505.11225). It acts from a prompt's second visit on: give RL fewer prompts than steps * prompts_per_step."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    name: Literal["hapo_length"] = "hapo_length"
    weight: ShareCurve = 1.0
    """w; at most 1, so that a right answer is worth more than a wrong one."""


class KimiLengthShaping(ShapingTerm):
    """A length term relative to the shortest and longest completion of the group: 0.5 - (l - min) / (max - min) for right ones,
    at most 0 for wrong ones (Kimi k1.5, arXiv:2501.12599, section 2.3.3)."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    SCHEDULED: ClassVar[bool] = True
    name: Literal["kimi_length"] = "kimi_length"
    weight: NotNegativeCurve = 1.0
    """What the term is worth."""
    warmup: Share = 0.0
    """Share of the run's steps before it counts: the report starts without it."""


class ContrastShaping(ShapingTerm):
    """A bonus for completions that use an auxiliary device where their group shows that it helps, and a malus where it hurts
    (GCPO, arXiv:2506.07160): group-contrastive masking."""

    name: Literal["gcpo"] = "gcpo"
    marker: str = Field(min_length=1)
    """Text that a completion holds where it uses the device, such as `<plan>`."""
    bonus: NotNegativeCurve = 0.1
    """Size of bonus and malus."""
    margin: NotNegative = 0.0
    """Difference of mean rewards with and without below which there is neither."""
    length: AnyCurve = 0.0
    """Added per share of the length limit that is used: the paper rewards length."""


class TurnsShaping(ShapingTerm):
    """A price for every unit of thinking beyond the first (MinD, arXiv:2505.19788): right completions lose `weight` for each
    further marker."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["units"] = "units"
    marker: str = Field(min_length=1)
    """Text that every unit holds once, such as the mark of its answer."""
    weight: NotNegativeCurve = 0.05
    """(The published coefficient was not found.)"""


class RankShaping(ShapingTerm):
    """Rewards by rank for truncated completions of a group in which none is right: those that are uncertain throughout and at
    their peaks rank first (R3's structural entropy, arXiv:2601.19620). Costs a forward pass where such groups are."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    name: Literal["entropy_rank"] = "entropy_rank"
    peak: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the tokens, those of highest entropy, that make the peak. (The published value was not found.)"""
    most: PositiveCurve = 0.1
    """Reward of the first. (The published value was not found.)"""


class KlShaping(ShapingTerm):
    """An estimate of the KL divergence from the reference, taken off the reward of each token (arXiv:1909.08593, eq. 2).
    Advantages of returns (`gae`, `whitened` without a baseline) see it token by token, the others its sum over the completion.
    Costs a forward pass of the reference model over what was drawn."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_text", "other_completions"})
    name: Literal["kl"] = "kl"
    kl_coef: PositiveCurve = 0.05
    """What a nat costs; TRL's default for PPO and RLOO."""
    kl_estimator: Literal["k1", "abs", "k2", "k3"] = "k1"
    """With d = log pi - log pi_ref of a token: k1 d, abs |d|, k2 d^2 / 2, k3 exp(-d) + d - 1. In a reward k1 alone has the right
    gradient on average."""
    target_kl: Positive | None = None
    """Divergence to which the coefficient is steered, the mean over completions of each one's mean over its tokens: after B
    completions it is multiplied by 1 + clip(KL / target_kl - 1, -0.2, 0.2) B / horizon (arXiv:1909.08593, section 2.2). null: it
    stays as it is."""
    horizon: Count = 10000
    """Completions over which it is steered."""

    @model_validator(mode="after")
    def _one_rule(self) -> "KlShaping":
        if self.target_kl is not None and isinstance(self.kl_coef, Curve):
            raise ValueError("kl_coef: target_kl steers it from one number on; write a number, or target_kl: null")
        return self


class GapShaping(ShapingTerm):
    """The reward is what a completion is worth beyond the own attempt that its prompt shows, r(y) - r(y_ref) (PIT,
    arXiv:2310.00898). Needs a continuation that shows one."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"shown_attempts", "varied_attempts"})
    name: Literal["gap"] = "gap"


class AttemptsShaping(ShapingTerm):
    """Later answers are worth less, and answers given again cost (UFO, arXiv:2507.14295): with n turns, of which the last earns
    r, r gamma^(n - 1) - repeats (1 - different answers / n)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["attempts"] = "attempts"
    gamma: ShareCurve = 0.5
    """Released: 0.5."""
    repeats: NotNegativeCurve = 0.5
    """Of answers that are compared in lower case and without blanks."""


class ImprovementShaping(ShapingTerm):
    """A bonus for the second of two answers over the first (SCoRe, arXiv:2409.12917): r2 + alpha (r2 - r1)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["improvement"] = "improvement"
    alpha: NotNegativeCurve = 10.0
    """What improving is worth."""
    first: ShareCurve = 1.0
    """What the first answer's own reward is multiplied by; 0 in the first stage, which pays the second answer alone."""


class OwnShaping(Extension):
    """A term of the user's own: `function(batch, now, **options) -> (N,)`, which is added to the rewards, or `(N, T)`, what each
    token earns."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"shaped_rewards"})
    UNION: ClassVar[str] = "shaping"
    SCHEDULED: ClassVar[bool] = True


Shaping = Annotated[
    AttemptsShaping
    | ImprovementShaping
    | GapShaping
    | OverlongShaping
    | RepetitionShaping
    | HistoryLengthShaping
    | KimiLengthShaping
    | ContrastShaping
    | TurnsShaping
    | RankShaping
    | KlShaping
    | OwnShaping,
    Field(discriminator="name"),
    written_as(OwnShaping),
]
