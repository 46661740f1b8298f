"""Specs of the trainers: pre-training, mid-training, SFT, preference optimisation, reward models, unlearning."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.extension import Extension
from interplay.core.model import Count, Model, Natural, NotNegative, Positive, Share, Since
from interplay.core.references import Mix
from interplay.model.spec import Optimizer, Schedule, Shape, TuneOptimizer, TuneSchedule, check_checkpoints

# The LM trainer: pre-training, mid-training and SFT differ in data, init and loss mask only.


class PositionJumps(Model):
    """Randomised positions (after Ruoss et al., arXiv:2305.16843): at each of some characters, position ids jump ahead with a
    probability, so that the position does not tell how long a trace will be. Without it a small model ends every trace where
    the longest trained one ended, and fails at the first op beyond (docs/log.md). Inference uses plain positions."""

    characters: str = ",|?"
    """Tokens with this text may come with a jump."""
    probability: Share = 0.0
    """Chance of a jump at each; 0: plain positions."""
    largest: Count = 16
    """Jumps are uniform in 1..largest."""
    start: Share = 0.4
    """Share of the steps before the first jump: look-ups form faster on plain positions."""


class TrainSpec(Model):
    """Next-token training on a corpus. Roles: `corpus` (`corpus.0`, `corpus.1`, ... where the data come in shards); `init` (a
    model) unless `model` is given; `tokenizer` when it is; `validation` (a problem set) for the loss by band."""

    model: Shape | None = None
    """Shape of a fresh model (pretrain); null to start from the `init` role (midtrain, sft)."""
    tokens: Count
    """Training budget in tokens, padding not counted. The corpus is repeated when it is shorter."""
    batch_tokens: Count = 4096
    """Tokens per optimiser step, padding included; a whole number of rows."""
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the matrix products; weights and optimiser state stay float32. bfloat16 is for GPUs, and for CPUs that have
    its instructions: on others it is thirty times slower."""
    position_jumps: PositionJumps = PositionJumps()
    eval_every: Natural = 0
    """Steps between losses on the validation set; 0: only at the end and at the kept checkpoints."""
    checkpoints: list[Count] = []
    """Steps whose weights are kept in checkpoints/<step>/model/ as part of the artifact."""
    seed: Natural = 0
    """Initial weights and data order."""

    @model_validator(mode="after")
    def _positive(self) -> "TrainSpec":
        if self.tokens < self.batch_tokens:
            raise ValueError(f"tokens ({self.tokens}) is less than one batch_tokens ({self.batch_tokens})")
        return self


class PretrainSpec(TrainSpec):
    """Training from a fresh model."""

    model: Shape


class MidtrainSpec(TrainSpec):
    """Continued training on a mixture, from the model before it."""


class SftSpec(TrainSpec):
    """Supervised fine-tuning on gold solutions, from the model before it."""


# What trainers share that take a model through a number of steps on few data: prefer, unlearn and reward_model.


class TuneSpec(Model):
    """Steps, rate and length of a run."""

    steps: Count
    """Optimiser steps. The data are repeated where they are fewer than the steps take, in a new order each time."""
    max_length: Count = 512
    """Most tokens of a prompt with one completion, its end included (TRL's name): a run with a longer one is refused, and the
    plan's cost reckons with all of it."""
    optimizer: TuneOptimizer = TuneOptimizer()
    schedule: TuneSchedule = TuneSchedule()
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the matrix products; weights and optimiser state stay float32."""
    checkpoints: list[Count] = []
    """Steps whose weights are kept in checkpoints/<step>/model/ as part of the artifact."""
    seed: Natural = 0
    """Order of the data."""

    @model_validator(mode="after")
    def _kept(self) -> "TuneSpec":
        check_checkpoints(self.checkpoints, self.steps)
        return self

    @property
    def rows_per_step(self) -> int:
        """Prompts with a completion, at most max_length tokens each, that one step trains on."""
        raise NotImplementedError

    @classmethod
    def reference_tokens(cls, spec: Mapping[str, Any], tokens: int) -> int:
        """Of so many tokens that a run with this spec (as JSON) trains on, those that a frozen reference scores, too."""
        return 0


# Preference optimisation on pairs (the DPO family). Option names are TRL's.


REFERENCE_FREE = ("simpo", "cpo", "orpo")
"""Losses that know no reference model."""
PREFERENCE_OPTIONS = {
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
        for name, losses in PREFERENCE_OPTIONS.items():
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

    @classmethod
    def reference_tokens(cls, spec: Mapping[str, Any], tokens: int) -> int:
        """All, of losses with a reference."""
        return 0 if spec["loss_type"] in REFERENCE_FREE else tokens


# Reward models: what a pair of completions says about how good either is.


class Routing(Model):
    """Which heads to trust is told by a few labelled pairs of a rater (MiCRo's second stage, arXiv:2505.24846): the weights start
    from the gate's at the prompt and are updated by Hedge, w_k <- w_k exp(-eta l_k), l_k the logistic loss of head k on a pair.
    (That a rater's pairs are drawn for each held-out pair anew, and eta, are inferred.)"""

    pairs: Count = 4
    """Labelled pairs of the same rater, asking something else, for each held-out pair; of the validation set itself."""
    eta: Positive = 1.0
    """Rate of the update; 1 is Bayes' rule."""


class RewardModelSpec(TuneSpec):
    """A reward model after Bradley and Terry: a model with a head that reads the state at the end of a completion. Roles: `init`
    (a model), `data.<i>` and `validation` (problem sets that hold pairs), and where the stage names an evaluation under
    `samples`, `samples.<b>` (its blocks) and `prompts` (its problems), among whose samples the best by reward are picked."""

    heads: Count = 1
    """Heads, each a rater with a taste of its own; the prompt says how much each counts. 1: one taste for all; more: the mixture
    of MiCRo's first stage (arXiv:2505.24846), for pairs whose raters disagree."""
    margin: Literal["none", "score"] = "none"
    """By how much the chosen reward should exceed the other. none: any; score: by as much as the verifier's scores of both differ
    (Llama 2, arXiv:2307.09288, eq. 2)."""
    center_rewards_coefficient: NotNegative = 0.0
    """Weight of the squared sum of a pair's rewards, which keeps them around 0 (TRL's name; arXiv:2312.09244, eq. 2)."""
    mix: Mix
    """Share of each `data.<i>` role among the pairs; sums to 1."""
    pairs_per_step: Count = 32
    """Pairs per optimiser step."""
    routing: Annotated[Routing | None, Since(None)] = None
    """Also measure, at the end, the accuracy on held-out pairs with the heads weighed for their raters, `eval_routed_accuracy`,
    and what that adds, `eval_routing_gain`; needs pairs with raters (the step rated_pairs). null: not."""
    eval_every: Natural = 0
    """Steps between measures on the held-out pairs; 0: only at the end and at the kept checkpoints."""

    @property
    def rows_per_step(self) -> int:
        """Two completions a pair."""
        return 2 * self.pairs_per_step


# Unlearning: what a model was trained on is to be forgotten, and the rest retained.


UNLEARN_OPTIONS = {
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
        for name, objectives in UNLEARN_OPTIONS.items():
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

    @classmethod
    def reference_tokens(cls, spec: Mapping[str, Any], tokens: int) -> int:
        """Of npo the half that is to be forgotten. Of uld, whose assistant is a part of the model, `tokens` is an upper bound."""
        return tokens // 2 if spec["objective"] == "npo" else 0


# A trainer of the user's own.


class OwnTrainerSpec(Extension):
    """A trainer of the user's own: `function(spec, inputs, out, how, **options)`, which leaves a model in `out/model` and returns
    metrics. Roles: `init` (a model) and `data.<i>` (problem sets)."""

    UNION: ClassVar[str] = "trainer"
    mix: Mix
    """Share of each `data.<i>` role; sums to 1."""
    tokens: Natural = 0
    """Training budget in tokens, for the function to read; the plan's cost is counted by it."""
    seed: Natural = 0
    """For the function to read."""
