"""Members of the loss seam: what the policy descends on, given advantages. Option names are TRL's."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import (
    AnyCurve,
    Count,
    Exact,
    Model,
    NotNegative,
    NotNegativeCurve,
    Positive,
    PositiveCurve,
    Share,
    Since,
)
from interplay.model.trainer_spec import AggMode


class PolicyLoss(Model):
    """What every policy loss has."""

    NEEDS_RATIO: ClassVar[bool] = False
    """Whether what is its own is what it does with ratios that are not 1, where it is plain."""
    PLAIN: ClassVar[bool] = False
    """Whether it is the policy gradient, -A grad log pi, as `loss_type` weighs it, where all ratios are 1."""
    INERT: ClassVar[frozenset[str]] = frozenset()
    """Options that do nothing there, of a loss that is not plain."""
    beta: NotNegativeCurve = 0.0
    """Coefficient of the KL divergence from the reference; 0 runs without a reference model."""
    kl_estimator: Annotated[Literal["k1", "abs", "k2", "k3", "k1+", "k3+"], Since("k3")] = "k3"
    """Its estimate at each token, with d = log pi - log pi_ref: k1 d, abs |d|, k2 d^2 / 2, k3 exp(-d) + d - 1. In a loss k2
    alone has the gradient of the divergence where the policy is what sampled, and k1 none on average: k1+ and k3+ have the value
    of theirs and the gradient of k2 (verl's names)."""
    use_bias_correction_kl: Annotated[bool, Since(False)] = False
    """The estimate times the ratio pi / pi_old, with the gradient of both, so that it is unbiased after the first update, too
    (DeepSeek-V3.2, arXiv:2512.02556; TRL's default): per token, or the sequence's where the loss has one ratio for each."""
    loss_agg_mode: Annotated[AggMode | None, Since(None)] = None
    """Weights of tokens in the loss, its entropy bonus and the critic's loss (verl's names). token-mean: mean over the tokens
    of an optimiser step; seq-mean-token-sum: mean over rows of each one's sum; seq-mean-token-mean: of each one's mean;
    seq-mean-token-sum-norm: of each one's sum over max_completion_length. null: the loss by `loss_type`, the others by tokens."""
    num_iterations: Count = 1
    """Passes over each batch of rollouts."""
    mask_truncated_completions: bool = False
    """Leave completions that hit the length limit out of the loss."""
    entropy_coef: AnyCurve = 0.0
    """Coefficient of an entropy bonus."""
    first_turn_beta: Annotated[NotNegativeCurve, Since(0.0)] = 0.0
    """What is added to `beta` for the tokens of an episode's first turn (SCoRe's first stage, arXiv:2409.12917)."""

    def refers(self) -> bool:
        """Whether it needs a reference model."""
        return bool(self.beta or self.first_turn_beta)

    def needs_ratio(self) -> bool:
        """Whether it does with its options as they are."""
        return self.NEEDS_RATIO

    def at_ratio_one(self) -> "PolicyLoss":
        """One loss in place of all that have its gradient where the ratio is exactly 1."""
        level, fields = "importance_sampling_level", type(self).model_fields
        product = getattr(self, level, "") == "product"  # there each token has the weights of its whole row
        if not (self.PLAIN or self.NEEDS_RATIO):
            return self.model_copy(update={name: fields[name].default for name in self.INERT - ({level} if product else set())})
        shared = {name: getattr(self, name) for name in fields if name in RatioLoss.model_fields}
        return ClippedLoss(**{**shared, level: "product" if product else "token"})

    def needs(self) -> frozenset[str]:
        """Also turns, for a term of the first one."""
        return self.NEEDS | ({"first_turn"} if self.first_turn_beta else set())


class CorrectedLoss(PolicyLoss):
    """A loss that can make up for completions that are off policy."""

    vllm_importance_sampling_clip_max: Annotated[Positive | None, Since(None)] = None
    """Truncated importance sampling (https://fengyao.notion.site/off-policy-rl; TRL's mode token_truncate), whatever engine
    sampled: the loss of a token, without its KL term, is weighed by the policy's probability over the engine's, as both were
    before the first update, but by no more than this; 2 is usual. null: not weighed."""
    off_policy_mask_threshold: Annotated[Positive | None, Since(None)] = None
    """Completions with a negative advantage whose tokens are less likely by now than when the engine sampled them, by this many
    nats on average, bear no loss (DeepSeek-V3.2, arXiv:2512.02556; TRL's name). null: all do."""


class RatioLoss(CorrectedLoss):
    """A loss of each token's ratio pi / pi_old and its advantage."""

    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "dapo"
    """How tokens are weighed. grpo: mean over rows of each one's token mean; bnpo: mean over the tokens of an optimiser step;
    dr_grpo: sum over rows * max_completion_length; dapo: sum over the tokens that an optimiser step of this batch has on average
    (the mean over the batch when there is one step); luspo: mean over rows of each one's sum, so that with a ratio per sequence
    long ones are not held back (arXiv:2602.05261)."""
    loss_denominator: Annotated[Positive | None, Since(None)] = None
    """Tokens by which an optimiser step's sum is divided in place of those that `loss_type` counts; null: as that says."""
    importance_sampling_level: Literal["token", "turn", "sequence", "sequence_token", "product"] = "token"
    """token: a ratio for each token; sequence: one for the completion, the geometric mean of its tokens' (GSPO, arXiv:2507.18071,
    eq. 7), so that its tokens share the mean of their advantages; sequence_token: the same value, of which each token has the
    gradient with its own advantage (GSPO-token, section 4.3), which is `sequence` where all advantages of a row are one;
    product: the product of its tokens' (TRL's RLOOTrainer, with loss_type grpo); turn: one for each turn of an episode, the
    geometric mean of its tokens', so that a turn is clipped as a whole (in `clipped` alone)."""

    @model_validator(mode="after")
    def _turns_are_clipped(self) -> "RatioLoss":
        if self.importance_sampling_level == "turn" and not isinstance(self, ClippedLoss):
            raise ValueError("importance_sampling_level = turn: is of the loss clipped alone; write token")
        return self

    @model_validator(mode="after")
    def _weighed_once(self) -> "RatioLoss":
        if self.loss_denominator and self.loss_agg_mode:
            raise ValueError(f"loss_agg_mode = {self.loss_agg_mode}: loss_denominator weighs tokens, too; give one of them")
        return self

    def needs(self) -> frozenset[str]:
        """Also turns, for ratios of them."""
        return super().needs() | ({"several_turns"} if self.importance_sampling_level == "turn" else set())

    def needs_ratio(self) -> bool:
        """Also where a turn or a sequence has one."""
        return self.NEEDS_RATIO or self.importance_sampling_level != "token"

    def provides(self) -> frozenset[str]:
        """Also ratios per sequence."""
        return self.PROVIDES | ({"sequence_ratios"} if self.importance_sampling_level in ("sequence", "product") else set())


class ClippedLoss(Exact, RatioLoss):
    """The clipped policy-gradient loss with TRL's options."""

    PLAIN: ClassVar[bool] = True
    name: Literal["clipped"] = "clipped"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo"] = "dapo"  # type: ignore[assignment]
    """As in every loss of ratios; cispo: as dapo, of the clipped detached ratio times the log-probability."""
    epsilon: NotNegativeCurve = 0.2
    """Lower clip of the ratio."""
    epsilon_high: NotNegativeCurve | None = None
    """Upper clip; null: epsilon. With cispo, the cap of the ratio (5.0 is usual)."""
    delta: PositiveCurve | None = None
    """Cap of the ratio also where the advantage is negative (two-sided clipping); null: none."""
    cispo_epsilon_low: Annotated[Share | None, Since(None)] = None
    """With cispo, a token's weight is 1 minus this at least; null: no bound, as the paper ran it."""

    def needs_ratio(self) -> bool:
        """Of cispo the ratio is all; else clipping only guards."""
        return super().needs_ratio() or self.loss_type == "cispo"

    def at_ratio_one(self) -> PolicyLoss:
        """cispo weighs as dapo, and scales the gradient where its cap is below 1."""
        if self.loss_type != "cispo":
            return super().at_ratio_one()
        cap = self.epsilon if self.epsilon_high is None else self.epsilon_high
        return self if cap < 1 else self.model_copy(update={"loss_type": "dapo"}).at_ratio_one()


class SapoLoss(Exact, RatioLoss):
    """Soft adaptive policy optimisation (SAPO, arXiv:2511.20347): a sigmoid gate in place of the clip."""

    NEEDS_RATIO: ClassVar[bool] = True
    name: Literal["sapo"] = "sapo"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "grpo"
    sapo_temperature_pos: PositiveCurve = 1.0
    """How sharply the gate closes where the advantage is positive."""
    sapo_temperature_neg: PositiveCurve = 1.05
    """The same where it is not."""


class VespoLoss(Exact, PolicyLoss):
    """Variational sequence-level soft policy optimisation (VESPO, arXiv:2602.10693): the log-probability weighed by
    e^lambda w^k e^(-lambda w), without a gradient through w, the product of the sequence's ratios. Defaults are TRL's."""

    NEEDS_RATIO: ClassVar[bool] = True
    name: Literal["vespo"] = "vespo"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "dapo"
    """How tokens are weighed, as in losses of ratios."""
    vespo_k_pos: Positive = 2.0
    """How fast the weight falls where w < 1 and the advantage is not negative."""
    vespo_lambda_pos: Positive = 3.0
    """How fast it falls where w > 1."""
    vespo_k_neg: Positive = 3.0
    """The same for negative advantages."""
    vespo_lambda_neg: Positive = 2.0
    """The same for negative advantages."""


class GeoMeanLoss(Exact, CorrectedLoss):
    """Geometric-mean policy optimisation (GMPO, arXiv:2507.20673): the geometric mean of the tokens' clipped ratios."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"sequence_ratios"})
    NEEDS_RATIO: ClassVar[bool] = True
    name: Literal["geo_mean"] = "geo_mean"
    loss_type: Literal["grpo"] = "grpo"
    """Mean over rows."""
    loss_agg_mode: Annotated[Literal[None], Since(None)] = None
    """As `loss_type` says."""
    epsilon: NotNegativeCurve = 0.4
    """The log of a token's ratio is cut at -epsilon, as published; verl does so, too."""
    epsilon_high: NotNegativeCurve | None = None
    """And at +epsilon_high; null: epsilon."""


class GpgLoss(Exact, CorrectedLoss):
    """Group policy gradient (GPG, arXiv:2504.02546): advantage times log-probability, neither ratio nor clip."""

    PLAIN: ClassVar[bool] = True
    name: Literal["gpg"] = "gpg"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "dapo"
    """How tokens are weighed, as in losses of ratios."""


class DppoLoss(Exact, CorrectedLoss):
    """Divergence proximal policy optimisation (DPPO, arXiv:2602.04879): a token keeps its gradient unless its advantage drives
    its probability further from where it was than a bound on the divergence of the choice between this token and all others."""

    NEEDS_RATIO: ClassVar[bool] = True
    name: Literal["dppo"] = "dppo"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "dapo"
    """How tokens are weighed, as in losses of ratios."""
    divergence: Literal["tv", "kl"] = "tv"
    """tv: |p - p_old|; kl: KL of (p_old, 1 - p_old) from (p, 1 - p), in nats."""
    epsilon: NotNegativeCurve = 0.15
    """Bound where the advantage is not positive."""
    epsilon_high: NotNegativeCurve | None = None
    """Bound where it is; null: epsilon."""
    ratio_cap: Annotated[float, Field(ge=1)] = 20.0
    """The ratio, which weighs the log-probability without a gradient, is at most this (section 5.4; verl's clip_ratio_c)."""


class DroLoss(Exact, CorrectedLoss):
    """-(A log pi - dro_beta / 2 (log pi - log pi_old)^2) (verl's `dro`, after direct reward optimisation, arXiv:2405.19107)."""

    NEEDS_RATIO: ClassVar[bool] = True
    name: Literal["dro"] = "dro"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "dapo"
    """How tokens are weighed, as in losses of ratios."""
    dro_beta: PositiveCurve = 0.1
    """Weight of the penalty; verl asks for it and names no usual value."""


class ClipCovLoss(Exact, RatioLoss):
    """Clip-Cov (arXiv:2505.22617): a few tokens whose log-probability and advantage covary most lose their gradient, at random
    among those within bounds, so that entropy does not collapse."""

    INERT: ClassVar[frozenset[str]] = frozenset({"epsilon", "epsilon_high", "importance_sampling_level"})
    name: Literal["clip_cov"] = "clip_cov"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "bnpo"
    epsilon: NotNegativeCurve = 0.2
    """Lower clip of the ratio."""
    epsilon_high: NotNegativeCurve | None = None
    """Upper clip; null: epsilon."""
    clip_cov_ratio: Share = 0.0002
    """Share of the tokens of an optimiser step that lose their gradient, one at least."""
    clip_cov_lb: float = 1.0
    """Lowest covariance of those."""
    clip_cov_ub: float = 5.0
    """Highest one."""


class KlCovLoss(Exact, RatioLoss):
    """KL-Cov (arXiv:2505.22617): ratio times advantage without a clip; the tokens that covary most pay for leaving the policy
    that sampled."""

    NEEDS_RATIO: ClassVar[bool] = True
    name: Literal["kl_cov"] = "kl_cov"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "bnpo"
    kl_cov_ratio: Share = 0.0002
    """Share of the tokens of an optimiser step that pay, one at least."""
    ppo_kl_coef: NotNegativeCurve = 1.0
    """What |log ratio| costs them."""


class DiscoLoss(Exact, PolicyLoss):
    """Discriminative constrained optimisation (DisCO, arXiv:2505.12366): scores of right completions above those of wrong ones,
    held near the policy that sampled by a squared hinge on the KL divergence. It reads which completions are right,
    and of rewards and advantages only whether a step has any to learn from."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"reads_rollouts", "reads_right"})
    VERSION: ClassVar[int] = 2
    """2: the mean over prompts counts those whose completions are all right or all wrong, as released."""
    INERT: ClassVar[frozenset[str]] = frozenset({"delta", "disco_beta"})
    name: Literal["disco"] = "disco"
    loss_type: Literal["grpo"] = "grpo"
    """Mean over the tokens of a row."""
    loss_agg_mode: Annotated[Literal[None], Since(None)] = None
    """As `loss_type` says."""
    score: Literal["logL", "Lratio"] = "logL"
    """Mean log-probability of the tokens, or mean ratio to the policy that sampled."""
    tau: Positive | None = None
    """Temperature over wrong completions, of which likely ones weigh more; null: 10 for logL and 1 for Lratio, as released."""
    basic: bool = False
    """DisCO-b: all wrong completions have equal weight."""
    delta: NotNegative = 1e-4
    """KL divergence from the policy that sampled, mean per token in nats, that is free."""
    disco_beta: NotNegative = 1000.0
    """Weight of what lies above, squared and halved."""

    def needs_ratio(self) -> bool:
        """Scores that are ratios distinguish wrong completions only where these are not 1."""
        return self.score == "Lratio" and not self.basic

    def at_ratio_one(self) -> PolicyLoss:
        """Nothing has diverged, and scores that are ratios are equal, so that they weigh as in the basic form."""
        basic = self.basic or self.score == "Lratio"
        return super().at_ratio_one().model_copy(update={"basic": True, "score": "logL", "tau": None} if basic else {})


class HapoTokenLoss(Exact, RatioLoss):
    """Heterogeneous adaptive policy optimisation (HAPO): clip bounds and advantages of a token by its entropy. h in [-1, 1] is
    log entropy less its `entropy_pivot` quantile over the tokens of an optimiser step, over the largest such value on its side of
    0. (The release multiplies the lower side by a negative number, so that h is never below 0 there; here it is.) Its adaptive
    temperature is a decoding; its token-level group average is not here."""

    VERSION: ClassVar[int] = 2
    """2: what leaves the advantage alone is half of the token's own clip bounds, and the quantile one of the entropies, as
    released."""
    INERT: ClassVar[frozenset[str]] = frozenset({"epsilon", "epsilon_high", "importance_sampling_level"})
    name: Literal["hapo_token"] = "hapo_token"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "dapo"
    epsilon: NotNegativeCurve = 0.2
    """Lower clip at h >= 0; widened by 1 - h below."""
    epsilon_high: NotNegativeCurve = 0.2
    """Upper clip at h <= 0; widened by 1 + h above."""
    entropy_pivot: Share = 0.8
    """Quantile at which h is 0."""


class DistilLoss(RatioLoss):
    """What the policy would say had it read the feedback, learnt at the states that it visits without (DistIL, arXiv:2606.05152):
    at each token of a completion a divergence of the policy from its teacher, which is the policy itself, without a gradient,
    behind the context that the continuation `feedback` made. Rewards matter to `mix_rlvr` alone. Costs a forward pass of the
    teacher for each pass over a batch."""

    INEXACT: ClassVar[str] = "its divergences are over all logits, in PyTorch's sums"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"teacher_context"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"distillation", "reads_rollouts"})
    INERT: ClassVar[frozenset[str]] = frozenset({"epsilon", "epsilon_high", "importance_sampling_level"})
    name: Literal["distil"] = "distil"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"] = "dapo"
    divergence: Literal["fwd_ce", "rev_kl", "js"] = "fwd_ce"
    """Over the whole vocabulary. fwd_ce: cross-entropy of the policy under the teacher, as published; rev_kl: KL of the policy
    from the teacher; js: Jensen-Shannon, at most ln 2."""
    mix_rlvr: NotNegativeCurve = 0.0
    """Weight of the clipped policy-gradient loss that is added; 0: none."""
    epsilon: NotNegativeCurve = 0.2
    """Lower clip of that one's ratio."""
    epsilon_high: NotNegativeCurve | None = None
    """Upper clip; null: epsilon."""
    first_turn_beta: Literal[0] = 0
    """Episodes have one turn here."""


class DirectAdvantageLoss(Exact, PolicyLoss):
    """The log ratio of each reasoning step to the reference is regressed on what the step gains (Direct Advantage Policy
    Optimization, arXiv:2412.18279; the form is inferred): (direct_beta (log pi - log pi_ref) - A)^2, log-probabilities summed
    over the step. Needs the advantage `segments`. Steps that gain nothing are held to the reference, as long as others of the
    optimiser step gain something."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"steps"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"reads_rollouts"})
    name: Literal["direct_advantage"] = "direct_advantage"
    loss_type: Literal["luspo"] = "luspo"
    """Mean over rows of the sum over each one's steps, so that all steps have equal weight."""
    loss_agg_mode: Annotated[Literal[None], Since(None)] = None
    """As `loss_type` says."""
    direct_beta: Positive = 0.1
    """What a nat of the log ratio stands for in reward. (The published value was not found.)"""
    first_turn_beta: Literal[0] = 0
    """Episodes have one turn here."""

    def refers(self) -> bool:
        """Whether it needs a reference model."""
        return True


class OwnLoss(Extension, RatioLoss):
    """A loss of the user's own: `function(seen, **options) -> (n, T)`, the loss of each token of a micro-batch."""

    UNION: ClassVar[str] = "loss"


Loss = Annotated[
    ClippedLoss
    | SapoLoss
    | VespoLoss
    | GeoMeanLoss
    | GpgLoss
    | DppoLoss
    | DroLoss
    | ClipCovLoss
    | KlCovLoss
    | DiscoLoss
    | HapoTokenLoss
    | DistilLoss
    | DirectAdvantageLoss
    | OwnLoss,
    Field(discriminator="name"),
    written_as(OwnLoss),
]
