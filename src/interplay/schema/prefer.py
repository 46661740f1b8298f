"""Preference optimisation on pairs (the DPO family). Option names are TRL's."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from interplay.schema.base import Count, Natural, NotNegative, Positive, Since
from interplay.schema.mix import Mix
from interplay.schema.tune import TuneSpec

REFERENCE_FREE = ("simpo", "cpo", "orpo")
"""Losses that know no reference model."""
OPTIONS = {
    "label_smoothing": ("sigmoid", "robust", "simpo", "cpo"),
    "simpo_gamma": ("simpo",),
    "cpo_alpha": ("cpo",),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
}
"""Option -> the losses that read it."""


class PreferSpec(TuneSpec):
    """Preference optimisation of a policy. Roles: `init` (a model; also the frozen reference of losses that have one), `data.<i>`
    (problem sets that hold pairs, see the step preference_pairs) and, where the stage names one, `validation` (such a set)."""

    loss_type: Literal[
        "sigmoid",
        "hinge",
        "ipo",
        "robust",
        "sppo_hard",
        "nca_pair",
        "apo_zero",
        "apo_down",
        "kto",
        "simpo",
        "cpo",
        "orpo",
    ] = "sigmoid"
    """sigmoid: DPO (arXiv:2305.18290, eq. 7), with label_smoothing cDPO; hinge: SLiC (2305.10425); ipo: 2310.12036, eq. 17, on
    means over tokens as TRL has it; robust: 2403.00409; sppo_hard: 2405.00675, eq. 4.7, with certain wins; nca_pair: 2402.05369;
    apo_zero, apo_down: 2408.06266, eqs. 7 and 8; kto: 2402.01306, eq. 7, both halves of a pair on their own; simpo: 2405.14734,
    eq. 6; cpo: 2401.08417, eq. 3; orpo: 2403.07691, eq. 6. The last three need no reference."""
    beta: Positive = 0.1
    """Strength of the pull towards the reference: the scale of rewards; ipo's tau; orpo's lambda. simpo wants about 2."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Chance that a label is wrong (sigmoid, robust, simpo, cpo)."""
    simpo_gamma: NotNegative = 0.5
    """Margin that simpo wants between the rewards."""
    cpo_alpha: NotNegative = 1.0
    """Weight of cpo's negative log-likelihood of the chosen completions, per token."""
    rpo_alpha: NotNegative = 0.0
    """The same for the other losses (RPO, arXiv:2404.19733, eq. 1); cpo and orpo have their own."""
    desirable_weight: NotNegative = 1.0
    """Of kto's chosen completions."""
    undesirable_weight: NotNegative = 1.0
    """Of kto's rejected completions."""
    mix: Mix
    """Share of each `data.<i>` role among the pairs; sums to 1. The set that is smallest for its share is used up."""
    pairs_per_step: Count = 32
    """Pairs per optimiser step."""
    few_shot: Annotated[Natural, Since(0)] = 0
    """Pairs of the same rater, asking something else, that stand before each prompt, the chosen completion of each before the
    rejected one, so that the policy learns to read a taste from its context (FSPO, arXiv:2502.19312). For pairs with raters (the
    step rated_pairs); the same holds for the validation. Which pairs is drawn from the seed."""

    @model_validator(mode="after")
    def _read(self) -> "PreferSpec":
        for name, losses in OPTIONS.items():
            if getattr(self, name) != type(self).model_fields[name].default and self.loss_type not in losses:
                raise ValueError(f"{name} is read by loss_type {', '.join(losses)} only; take it away from {self.loss_type}")
        if self.rpo_alpha and self.loss_type in ("cpo", "orpo"):
            raise ValueError(f"rpo_alpha: loss_type {self.loss_type} has a likelihood term of its own; take it away")
        if self.loss_type == "kto" and self.pairs_per_step < 2:
            raise ValueError("pairs_per_step must be at least 2 for kto, which estimates a divergence across pairs")
        return self

    @property
    def rows_per_step(self) -> int:
        """Two completions a pair."""
        return 2 * self.pairs_per_step
