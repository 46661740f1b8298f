"""Members of the loss seam: what the policy descends on, given advantages. Option names are TRL's."""

from typing import Annotated, Literal

from pydantic import Field

from interplay.schema.base import Count, Model, NotNegative, Positive


class PolicyLoss(Model):
    """What every policy loss has."""

    beta: NotNegative = 0.0
    """Coefficient of the k3 estimate of the KL divergence from the reference; 0 runs without a reference model."""
    num_iterations: Count = 1
    """Passes over each batch of rollouts."""
    mask_truncated_completions: bool = False
    """Leave completions that hit the length limit out of the loss."""
    entropy_coef: float = 0.0
    """Coefficient of an entropy bonus."""


class RatioLoss(PolicyLoss):
    """A loss of each token's ratio pi / pi_old and its advantage."""

    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = "dapo"
    """How tokens are weighed. grpo: mean over rows of each one's token mean; bnpo: mean over the tokens of an optimiser step;
    dr_grpo: sum over rows * max_completion_length; dapo: sum over the tokens that an optimiser step of this batch has on average
    (the mean over the batch when there is one step)."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """Ratio per token, or the sequence's geometric mean (GSPO, arXiv:2507.18071)."""


class ClippedLoss(RatioLoss):
    """The clipped policy-gradient loss with TRL's options."""

    name: Literal["clipped"] = "clipped"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo"] = "dapo"  # type: ignore[assignment]
    """As in every loss of ratios; cispo: as dapo, of the clipped detached ratio times the log-probability."""
    epsilon: NotNegative = 0.2
    """Lower clip of the ratio."""
    epsilon_high: NotNegative | None = None
    """Upper clip; null: epsilon. With cispo, the cap of the ratio (5.0 is usual)."""
    delta: Positive | None = None
    """Cap of the ratio also where the advantage is negative (two-sided clipping); null: none."""


class SapoLoss(RatioLoss):
    """Soft adaptive policy optimisation (SAPO, arXiv:2511.20347): a sigmoid gate in place of the clip."""

    name: Literal["sapo"] = "sapo"
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = "grpo"
    sapo_temperature_pos: Positive = 1.0
    """How sharply the gate closes where the advantage is positive."""
    sapo_temperature_neg: Positive = 1.05
    """The same where it is not."""


Loss = Annotated[ClippedLoss | SapoLoss, Field(discriminator="name")]
