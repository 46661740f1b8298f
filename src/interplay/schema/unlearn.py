"""Unlearning: what a model was trained on is to be forgotten, and the rest retained."""

from typing import Literal

from pydantic import model_validator

from interplay.schema.base import Count, Natural, NotNegative, Positive, Share
from interplay.schema.mix import Mix
from interplay.schema.tune import TuneSpec

OPTIONS = {
    "beta": ("npo", "simnpo"),
    "simnpo_gamma": ("simnpo",),
    "retain_weight": ("grad_diff", "npo", "simnpo", "uld"),
    "assistant_layers": ("uld",),
    "logit_weight": ("uld",),
    "top_logit_filter": ("uld",),
}
"""Option -> the objectives that read it."""
FORMULATIONS = {"blur_gamma": "blur", "hamu_gain": "hamu"}
"""Option -> the formulation that reads it."""


class UnlearnSpec(TuneSpec):
    """Unlearning. Roles: `init` (a model; also the frozen reference of npo), `forget.<i>` and `retain.<i>` (problem sets, whose
    gold solutions are meant)."""

    objective: Literal["gradient_ascent", "grad_diff", "npo", "simnpo", "uld"] = "npo"
    """What is minimised. gradient_ascent: minus the loss on what is forgotten, alone; grad_diff: the same beside the loss on what
    is retained (arXiv:2203.12817); npo: 2404.05868, eq. 3; simnpo: 2410.07163, eq. 4, without a reference; both beside the retain
    loss. uld: an assistant learns what is to be forgotten and nothing of the rest, and its logits are taken off the model's
    (arXiv:2406.08607, eqs. 3 and 4)."""
    formulation: Literal["weighted_sum", "blur", "hamu"] = "weighted_sum"
    """How both losses make one step. weighted_sum: retain_weight times the one beside the other. blur: forgetting comes first:
    the retain gradient loses what lies along the forget gradient, which is added blur_gamma times (BLUR, arXiv:2506.08164). hamu:
    the step that costs the retain loss least among those that raise the forget loss enough (HAMU-Q, 2606.02119, over all
    parameters at once)."""
    beta: Positive = 0.1
    """Of npo and simnpo: how soon what is forgotten no longer pulls. simnpo wants about 2.5."""
    simnpo_gamma: NotNegative = 0.0
    """Margin of simnpo, in nats."""
    retain_weight: NotNegative = 1.0
    """Weight of the retain loss; of uld, of the pull towards knowing nothing."""
    blur_gamma: Positive = 1.0
    """Length of the step along the forget gradient, in its own lengths."""
    hamu_gain: Share = 0.5
    """Rise of the forget loss that a step must bring to first order, as a share of the greatest that one as long as the retain
    gradient can. The paper fixes it in nats, which with AdamW would mean nothing."""
    assistant_layers: Natural = 0
    """First layers of the model that uld's assistant is made of, with its embedding and head; 0: half of them."""
    logit_weight: Positive = 0.75
    """Weight of the assistant's logits that are taken off."""
    top_logit_filter: Share = 0.01
    """Tokens less likely than this share of the likeliest keep the model's own logits."""
    forget_mix: Mix
    """Share of each `forget.<i>` role; sums to 1."""
    retain_mix: Mix
    """Share of each `retain.<i>` role; sums to 1."""
    problems_per_step: Count = 16
    """Problems to forget per optimiser step, and as many to retain."""
    eval_every: Natural = 0
    """Steps between losses over 256 problems of either side; 0: only at the end and at the kept checkpoints."""

    @model_validator(mode="after")
    def _read(self) -> "UnlearnSpec":
        given = {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}
        for name, objectives in OPTIONS.items():
            if name in given and self.objective not in objectives:
                raise ValueError(f"{name} is read by objective {', '.join(objectives)} only; take it away from {self.objective}")
        for name, formulation in FORMULATIONS.items():
            if name in given and self.formulation != formulation:
                raise ValueError(f"{name} is read by formulation {formulation} only; take it away from {self.formulation}")
        if self.objective == "uld" and self.checkpoints:
            raise ValueError("checkpoints of objective uld would hold the assistant alone; take them away")
        if self.formulation != "weighted_sum":
            if self.objective in ("gradient_ascent", "uld"):
                raise ValueError(f"formulation {self.formulation} weighs two gradients; objective {self.objective} has not both")
            if self.formulation == "hamu" and self.objective != "grad_diff":
                raise ValueError("formulation hamu bounds the forget loss itself; give it objective grad_diff")
            if "retain_weight" in given:
                raise ValueError(f"retain_weight is read by formulation weighted_sum only; take it away from {self.formulation}")
        return self

    @property
    def rows_per_step(self) -> int:
        """As many problems of either side."""
        return 2 * self.problems_per_step
