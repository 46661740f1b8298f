"""Specs of the trainers: pre-training, mid-training, SFT, preference optimisation, reward models, unlearning."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.extension import Extension
from interplay.core.keys import ByName, Mix
from interplay.core.model import Count, Model, Natural, NotNegative, Positive, Share, Since
from interplay.model import trainer_spec
from interplay.model.spec import ExactSpec, LearnSpec, Shape, TunedSpec, check_checkpoints
from interplay.model.trainer_spec import Optimizer, Schedule, TuneOptimizer, TuneSchedule

# The language-model trainer: pre-training, mid-training and SFT differ in data, init and loss mask only.


class PositionJumps(Model):
    """Randomised positions (after Ruoss et al., arXiv:2305.16843): at each of some characters, position ids jump ahead with a
    probability, so that positions do not reveal the length of a trace. Without it a small model ends every trace where the
    longest training trace ended, and fails at the first op beyond (docs/log.md). Inference uses plain positions."""

    characters: str = ",|?"
    """Tokens with this text may have a jump."""
    probability: Share = 0.0
    """Probability of a jump at each; 0: plain positions."""
    largest: Count = 16
    """Jumps are uniform in 1..largest."""
    start: Share = 0.4
    """Share of the steps before the first jump: retrieval is learnt faster on plain positions."""


class TrainSpec(ExactSpec, LearnSpec):
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
    position_jumps: PositionJumps = PositionJumps()
    eval_every: Natural = 0
    """Steps between losses on the validation set; 0: only at the end and at the kept checkpoints."""
    checkpoints: list[Count] = []
    """Steps whose weights are kept in checkpoints/<step>/model/ as part of the artifact."""
    save_dtype: Annotated[Literal["float32", "bfloat16"], Since("float32")] = "float32"
    """Precision to which weights are rounded when a model is written; training and its losses are before that."""
    seed: Natural = 0
    """Initial weights and data order."""

    @model_validator(mode="after")
    def _positive(self) -> "TrainSpec":
        if self.tokens < self.batch_tokens:
            raise ValueError(f"tokens ({self.tokens}) is less than one batch_tokens ({self.batch_tokens})")
        return self

    def stack_key(self) -> tuple[Any, ...]:
        """Also by what fixes the shape of a step."""
        return self.model and self.model.model_dump_json(), *super().stack_key(), self.batch_tokens


class PretrainSpec(TrainSpec):
    """Training from a fresh model."""

    model: Annotated[Shape, ByName("model")]
    """A file of configs/model by its name, or its content."""


class MidtrainSpec(TrainSpec):
    """Continued training on a mixture, from an initial model."""


class SftSpec(trainer_spec.TrainedSpec, TrainSpec, TunedSpec):
    """Supervised fine-tuning on gold solutions, from an initial model."""

    FOREIGN: ClassVar[Mapping[str, trainer_spec.Foreign]] = {"trl": trainer_spec.TRL_SFT}
    trainer: Annotated[Literal["native", "trl"], Since("native")] = "native"
    """Who computes losses and updates. trl: TRL's SFTTrainer with accelerate, which needs the extra of that name;
    docs/guide/trainers.md says what it expresses. Rows and their order are the same."""


# Common options of trainers with a number of steps on small data: prefer, unlearn and reward_model.


class TuneSpec(LearnSpec):
    """Steps, rate and length of a run."""

    steps: Count
    """Optimiser steps. Data are repeated in epochs, each in a new order."""
    max_length: Count = 512
    """Most tokens of a prompt with one completion, its end included (TRL's name): a run with a longer one is refused, and the
    plan's cost assumes this length."""
    optimizer: TuneOptimizer = TuneOptimizer()
    schedule: TuneSchedule = TuneSchedule()
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

    def leaves_pair(self) -> bool:
        """Whether the model is one and an assistant, which can be evaluated natively and not trained on."""
        return False

    @classmethod
    def reference_tokens(cls, spec: Mapping[str, Any], tokens: int) -> int:
        """Of so many tokens that a run with this spec (as JSON) trains on, those that a frozen reference scores, too."""
        return 0


# Preference optimisation on pairs (DPO and related losses). Option names are TRL's.


PreferenceLoss = Literal[
    "sigmoid", "hinge", "ipo", "robust", "sppo_hard", "nca_pair", "apo_zero", "apo_down", "kto", "simpo", "cpo", "orpo", "irpo"
]
REFERENCE_FREE = ("simpo", "cpo", "orpo")
"""Losses without a reference model."""
PREFERENCE_OPTIONS = {
    "label_smoothing": ("sigmoid", "robust", "simpo", "cpo"),
    "simpo_gamma": ("simpo",),
    "cpo_alpha": ("cpo",),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
}
"""Option -> losses that use it."""


class PairSpec(TuneSpec):
    """Keys of trainers on pairs."""

    mix: Mix
    """Share of each `data.<i>` role among the pairs; sums to 1. The set that is smallest for its share is used up."""
    pairs_per_step: Count = 32
    """Pairs per optimiser step."""

    @property
    def rows_per_step(self) -> int:
        """Two completions a pair."""
        return 2 * self.pairs_per_step


class PreferSpec(trainer_spec.TrainedSpec, ExactSpec, PairSpec, TunedSpec):
    """Preference optimisation of a policy. Roles: `init` (a model; also the frozen reference of losses that have one), `data.<i>`
    (problem sets that hold pairs, see the step preference_pairs) and, where the stage names one, `validation` (such a set)."""

    FOREIGN: ClassVar[Mapping[str, trainer_spec.Foreign]] = {"trl": trainer_spec.TRL_PREFER}
    loss_type: PreferenceLoss = "sigmoid"
    """sigmoid: DPO (arXiv:2305.18290, eq. 7), with label_smoothing cDPO; hinge: SLiC (2305.10425); ipo: 2310.12036, eq. 17, on
    means over tokens as TRL has it; robust: 2403.00409; sppo_hard: 2405.00675, eq. 4.7, with win probability 1; nca_pair:
    2402.05369; apo_zero, apo_down: 2408.06266, eqs. 7 and 8; kto: 2402.01306, eq. 7, both completions of a pair separately;
    simpo: 2405.14734, eq. 6; cpo: 2401.08417, eq. 3; orpo: 2403.07691, eq. 6; these three need no reference. irpo: 2504.15477,
    over ranked lists, of which the others take the first two."""
    beta: Positive = 0.1
    """Strength of the regularisation to the reference: the scale of rewards; ipo's tau; orpo's lambda. About 2 for simpo."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Probability that a label is wrong (sigmoid, robust, simpo, cpo)."""
    simpo_gamma: NotNegative = 0.5
    """simpo's target margin between the rewards."""
    cpo_alpha: NotNegative = 1.0
    """Weight of cpo's negative log-likelihood of the chosen completions, per token."""
    rpo_alpha: NotNegative = 0.0
    """The same for the other losses (RPO, arXiv:2404.19733, eq. 1); cpo and orpo have their own."""
    desirable_weight: NotNegative = 1.0
    """Weight of kto's chosen completions."""
    undesirable_weight: NotNegative = 1.0
    """Weight of kto's rejected completions."""
    few_shot: Annotated[Natural, Since(0)] = 0
    """Pairs of the same rater with other questions before each prompt, each as chosen and then rejected completion, so that the
    policy learns to infer preferences from its context (FSPO, arXiv:2502.19312). For pairs with raters (the step rated_pairs),
    also in validation. The pairs are drawn from the seed."""
    retain_weight: Annotated[NotNegative, Since(0.0)] = 0.0
    """Rows with one completion stay, and this times its negative log-likelihood per token is their loss: what the model wrote
    where a piece of feedback does not apply is to stay likely (C3PO of RLVF, arXiv:2402.10893). 0: they are left out."""
    trainer: Annotated[Literal["native", "trl"], Since("native")] = "native"
    """Who computes losses and updates. trl: TRL's DPOTrainer with accelerate, which needs the extra of that name;
    docs/guide/trainers.md says what it expresses. Pairs and their order are the same."""

    @model_validator(mode="after")
    def _read(self) -> "PreferSpec":
        for name, losses in PREFERENCE_OPTIONS.items():
            if getattr(self, name) != type(self).model_fields[name].default and self.loss_type not in losses:
                raise ValueError(f"{name} is used by loss_type {', '.join(losses)} only; remove it from {self.loss_type}")
        if self.rpo_alpha and self.loss_type in ("cpo", "orpo"):
            raise ValueError(f"rpo_alpha: loss_type {self.loss_type} has its own likelihood term; remove it")
        if self.loss_type == "kto" and self.pairs_per_step < 2:
            raise ValueError("pairs_per_step must be at least 2 for kto, which estimates a divergence across pairs")
        return self

    def inexact(self) -> str:
        """Passes over ranked lists, and rows without a rejected completion."""
        return "loss_type = irpo" if self.loss_type == "irpo" else "retain_weight" if self.retain_weight else super().inexact()

    @classmethod
    def reference_tokens(cls, spec: Mapping[str, Any], tokens: int) -> int:
        """All, of losses with a reference."""
        return 0 if spec["loss_type"] in REFERENCE_FREE else tokens


# Reward models.


class Routing(Model):
    """Weights of the heads from a few labelled pairs of a rater (MiCRo's second stage, arXiv:2505.24846): they start from the
    gate at the prompt and are updated by Hedge, w_k <- w_k exp(-eta l_k), l_k the logistic loss of head k on a pair. (That a
    rater's pairs are redrawn for each held-out pair, and eta, are inferred.)"""

    pairs: Count = 4
    """Labelled pairs of the same rater with other questions for each held-out pair, from the validation set."""
    eta: Positive = 1.0
    """Rate of the update; 1 is Bayes' rule."""


class RewardModelSpec(trainer_spec.TrainedSpec, PairSpec):
    """A Bradley-Terry reward model: a decoder with heads on the state at the end of a completion. Roles: `init`
    (a model), `data.<i>` and `validation` (problem sets that hold pairs), and where the stage names an evaluation under
    `samples`, `samples.<b>` (its blocks) and `prompts` (its problems), for best-of-n by reward."""

    FOREIGN: ClassVar[Mapping[str, trainer_spec.Foreign]] = {"trl": trainer_spec.TRL_REWARD}
    heads: Count = 1
    """Number of heads, each a latent rater, weighted as a function of the prompt. 1: one preference for all; more: the mixture of
    MiCRo's first stage (arXiv:2505.24846), for pairs whose raters disagree."""
    margin: Literal["none", "score"] = "none"
    """Margin of the chosen reward over the other. none: 0; score: the difference of the verifier's scores (Llama 2,
    arXiv:2307.09288, eq. 2)."""
    center_rewards_coefficient: NotNegative = 0.0
    """Weight of the squared sum of a pair's rewards, which centres them at 0 (TRL's name; arXiv:2312.09244, eq. 2)."""
    contrastive_weight: Annotated[NotNegative, Since(0.0)] = 0.0
    """Weight of the goal-conditioned loss of hidden states: those of a chosen completion resemble its later ones, and not those
    of the rejected one (arXiv:2407.13887; 0.5 as released)."""
    length_stages: Annotated[Count, Since(1)] = 1
    """Stages of equally many steps, of growing length: the pairs, ordered by length, are cut into as many parts (after LongRM,
    arXiv:2510.06915, which trains on short contexts before long ones)."""
    routing: Annotated[Routing | None, Since(None)] = None
    """Also evaluate, at the end, the accuracy on held-out pairs with heads weighted by routing, `eval_routed_accuracy`, and its
    gain, `eval_routing_gain`; needs pairs with raters (the step rated_pairs). null: no routing."""
    eval_every: Natural = 0
    """Steps between evaluations on the held-out pairs; 0: only at the end and at the kept checkpoints."""
    trainer: Annotated[Literal["native", "trl"], Since("native")] = "native"
    """Who computes losses and updates. trl: TRL's RewardTrainer with accelerate, which needs the extra of that name;
    docs/guide/trainers.md says what it expresses. Pairs, their order and the initial head are the same."""

    @model_validator(mode="after")
    def _stages_have_steps(self) -> "RewardModelSpec":
        if self.length_stages > self.steps:
            raise ValueError(f"length_stages = {self.length_stages}: each takes a step at least; write at most {self.steps}")
        return self

    def evaluated(self) -> tuple[str, ...]:
        """Names of what its record says of the held-out pairs; one that ends with / begins those by rater."""
        routed = ("eval_gated_accuracy", "eval_routed_accuracy")
        of_routing = (*routed, *(f"{name}/" for name in routed), "eval_routing_gain") if self.routing else ()
        return ("eval_accuracy", "eval_nll", "eval_margin", *of_routing)


# Unlearning: some training data is to be forgotten, the rest retained.


UNLEARN_OPTIONS = {
    "beta": ("npo", "simnpo"),
    "simnpo_gamma": ("simnpo",),
    "retain_weight": ("grad_diff", "npo", "simnpo", "uld"),
    "assistant_layers": ("uld",),
    "logit_weight": ("uld",),
    "top_logit_filter": ("uld",),
}
"""Option -> objectives that use it."""
FORMULATIONS = {"blur_gamma": "blur", "hamu_gain": "hamu"}
"""Option -> the formulation that uses it."""


class UnlearnSpec(TuneSpec):
    """Unlearning. Roles: `init` (a model; also the frozen reference of npo), `forget.<i>` and `retain.<i>` (problem sets with
    gold solutions)."""

    objective: Literal["gradient_ascent", "grad_diff", "npo", "simnpo", "uld"] = "npo"
    """Minimised objective. gradient_ascent: minus the forget loss alone; grad_diff: minus the forget loss plus the retain loss
    (arXiv:2203.12817); npo: 2404.05868, eq. 3; simnpo: 2410.07163, eq. 4, without a reference; both plus the retain loss. uld: an
    assistant is trained on the data to forget and to be uniform on the rest, and its logits are subtracted from the model's
    (arXiv:2406.08607, eqs. 3 and 4)."""
    formulation: Literal["weighted_sum", "blur", "hamu"] = "weighted_sum"
    """Combination of both losses. weighted_sum: the forget objective plus retain_weight times the retain loss. blur: forgetting
    has priority: the retain gradient is projected orthogonally to the forget gradient, which is added blur_gamma times (BLUR,
    arXiv:2506.08164). hamu: the step with the least retain loss among those that raise the forget loss enough (HAMU-Q,
    2606.02119, over all parameters at once)."""
    beta: Positive = 0.1
    """Inverse temperature of npo and simnpo: how fast the gradient of forgotten data vanishes. About 2.5 for simnpo."""
    simnpo_gamma: NotNegative = 0.0
    """Margin of simnpo, in nats."""
    retain_weight: NotNegative = 1.0
    """Weight of the retain loss; with uld, of the divergence from the uniform distribution."""
    blur_gamma: Positive = 1.0
    """Length of the step along the forget gradient, in units of its norm."""
    hamu_gain: Share = 0.5
    """Least first-order increase of the forget loss per step, as a share of the largest increase of a step of the retain
    gradient's norm. The paper gives it in nats, which is not meaningful with AdamW."""
    assistant_layers: Natural = 0
    """Layers of uld's assistant: the first layers of the model, with its embedding and head; 0: half of them."""
    logit_weight: Positive = 0.75
    """Weight of the subtracted logits of the assistant."""
    top_logit_filter: Share = 0.01
    """Tokens with probability below this share of the largest keep the model's own logits."""
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
                raise ValueError(f"{name} is used by objective {', '.join(objectives)} only; remove it from {self.objective}")
        for name, formulation in FORMULATIONS.items():
            if name in given and self.formulation != formulation:
                raise ValueError(f"{name} is used by formulation {formulation} only; remove it from {self.formulation}")
        if self.objective == "uld" and self.checkpoints:
            raise ValueError("checkpoints of objective uld would have the assistant only; remove them")
        if self.formulation != "weighted_sum":
            if self.objective in ("gradient_ascent", "uld"):
                raise ValueError(
                    f"formulation {self.formulation} combines two gradients; objective {self.objective} does not have both"
                )
            if self.formulation == "hamu" and self.objective != "grad_diff":
                raise ValueError("formulation hamu constrains the forget loss itself; write objective: grad_diff")
            if "retain_weight" in given:
                raise ValueError(f"retain_weight is used by formulation weighted_sum only; remove it from {self.formulation}")
        return self

    @property
    def rows_per_step(self) -> int:
        """As many problems of either side."""
        return 2 * self.problems_per_step

    def leaves_pair(self) -> bool:
        """With objective uld."""
        return self.objective == "uld"

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
