"""Trainers: the optimiser and its schedule; who computes the losses, gradients and updates of a stage that trains, and what each
expresses of its spec and of its run block. Who adds one writes a `Foreign` for each kind that it trains; what is not in it, it
computes with any value."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import model_validator

from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.model import Model, NotNegative, Share, curves_in
from interplay.model.spec import ComputeSpec

Trainer = Literal["native", "trl", "verl"]

Spec = Mapping[str, Any]
"""A spec as JSON."""


# The optimiser of a trainer, and its schedule.


class Optimizer(Model):
    """AdamW for all parameters, or Muon for the matrices of the layers (torch.optim.Muon) and AdamW for the rest."""

    KNOWN_AS: ClassVar[Mapping[str, str]] = {"lr": "learning_rate"}
    VERSION = 2
    name: Literal["adamw", "muon"] = "muon"
    """adamw: AdamW alone; muon: both."""
    learning_rate: NotNegative = 4e-3
    """Peak rate of AdamW."""
    muon_learning_rate: NotNegative = 0.02
    """Peak rate of Muon."""
    weight_decay: NotNegative = 0.01
    """Decoupled decay of matrices."""
    adam_beta1: Share = 0.9
    """Decay of the first moment."""
    adam_beta2: Share = 0.95
    """Decay of the second moment."""
    muon_momentum: Share = 0.95
    """Momentum of Muon."""
    max_grad_norm: NotNegative = 1.0
    """Gradient norm is clipped to this; 0 leaves it alone."""


class Schedule(Model):
    """Learning rate over the run, as a factor on the peak: linear warm-up, then hold and decay."""

    name: Literal["constant", "linear", "cosine"] = "linear"
    """Shape of the decay."""
    warmup_ratio: Share = 0.02
    """Share of steps spent warming up."""
    decay_ratio: Share = 0.4
    """Share of steps, at the end, spent decaying (1.0: decay from the end of the warm-up on)."""
    min_ratio: Share = 0.0
    """Factor at the last step."""


class TuneOptimizer(Optimizer):
    """Defaults of stages that fine-tune, including RL: AdamW at a small rate without weight decay."""

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: NotNegative = 1e-4
    weight_decay: NotNegative = 0.0


class TuneSchedule(Schedule):
    """Defaults of such stages: a constant rate."""

    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup_ratio: Share = 0.0


# What a trainer from outside expresses.


class Foreign(NamedTuple):
    """What a trainer other than the native one expresses of a kind of stage."""

    name: str
    """What messages call it."""
    keys: Mapping[str, tuple[Any, ...]]
    """Dotted key of the spec -> the values that it has: of a list the names of its items."""
    more: Callable[[Spec], Mapping[str, tuple[Any, ...]]] = lambda spec: {}
    """Keys whose values depend on others of the spec."""
    run: Callable[[Spec, Run], Iterator[tuple[str, str]]] = lambda spec, run: iter(())
    """(key of the run block, what to write instead) of what it does not take."""

    def misfit(self, spec: Spec) -> str | None:
        """The first key with a value that it does not express, with the remedy; None: it expresses all."""
        for key, values in {**self.keys, **self.more(spec)}.items():
            *above, last = key.split(".")
            here: Any = spec
            for part in above:
                here = here[int(part)] if isinstance(here, list) else here[part]
            value = here.get(last, values[0]) if values else here[last]  # a loss lacks options of others
            items = [
                one.get("name") if isinstance(one, Mapping) else one for one in (value if isinstance(value, list) else [value])
            ]
            if odd := [one for one in items if one not in values]:
                able = " or ".join("null" if one is None else str(one) for one in values) or "an empty list"
                return f"{key} = {odd[0]}: {self.name} has {able}; write that, or trainer: native"
        return None


class TrainedSpec(ComputeSpec):
    """Of a stage that other trainers compute, too (`trainer`). What they do not express of it is refused."""

    FOREIGN: ClassVar[Mapping[str, Foreign]] = MappingProxyType({})
    """By the name of a trainer."""

    def foreign(self) -> Foreign | None:
        """What its trainer expresses; None: it is the native one."""
        return self.FOREIGN.get(getattr(self, "trainer", "native"))

    @model_validator(mode="after")
    def _trainer_expresses(self) -> "TrainedSpec":
        foreign = self.foreign()
        if foreign and (found := next(curves_in(self), None)):
            raise ValueError(
                f"{found[0]}: is a curve over the run, and {foreign.name} has numbers; write one, or trainer: native"
            )
        if foreign and (misfit := foreign.misfit(canonical(self))):
            raise ValueError(f"trainer = {getattr(self, 'trainer', '')}: {misfit}")
        return self

    def run_misfit(self, run: Run) -> tuple[str, str] | None:
        """The first key of a run block that its trainer does not take, and what to write instead."""
        foreign = self.foreign()
        return next(foreign.run(canonical(self), run), None) if foreign else None


# How losses of tokens are added up, by the names of verl and of TRL.


AggMode = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
AGGREGATED: dict[str | None, str] = {
    "token-mean": "bnpo",
    "seq-mean-token-sum": "luspo",
    "seq-mean-token-mean": "grpo",
    "seq-mean-token-sum-norm": "dr_grpo",
}
"""What verl calls them -> TRL's loss type with the same weights."""


# TRL 1.16 (transformers' Trainer on accelerate). Its names are those of the keys.


def _trl_run(spec: Spec, run: Run) -> Iterator[tuple[str, str]]:
    if run.segment_steps:
        yield "segment_steps", "trainer trl has none; write 0, or trainer: native"


TRL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "dtype": ("float32", "bfloat16"),
        "numerics": ("fast",),
        "blockwise": (False,),
        "lora": (None,),
        "optimizer.name": ("adamw",),
    }
)
"""Of every kind."""

GRPO: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        **TRL,
        "references": (None,),
        "judge_credit": (False,),
        "method.allocation.name": ("fixed",),
        "method.prompting.name": ("plain",),
        "method.continuation.name": ("none",),
        "method.episode.name": ("completion",),
        "method.shaping": ("overlong", "repetition", "hapo_length", "kimi_length", "gcpo", "units"),
        "method.edits": (),
        "method.critic": (None,),
        "method.decoding": (None,),
        "method.advantage.name": ("group",),
        "method.advantage.std_epsilon": (1e-4,),
        "method.advantage.accurate_gradient": (False,),
        "method.loss.name": ("clipped", "sapo", "vespo"),
        "method.loss.importance_sampling_level": ("token", "sequence"),
        "method.loss.kl_estimator": ("k3",),
        "method.loss.loss_agg_mode": (None,),
        "method.loss.loss_denominator": (None,),
        "method.loss.entropy_coef": (0,),
        "method.loss.first_turn_beta": (0,),
        "method.loss.cispo_epsilon_low": (None,),
        "method.loss.vllm_importance_sampling_clip_max": (None,),
    }
)
"""Of RL (GRPOTrainer)."""
GRPO_WEIGHTS = {"clipped": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo"), "sapo": ("grpo",), "vespo": ("dapo",)}
"""Loss -> its `loss_type`s. TRL takes the mean of bnpo over the rows of a pass: it is there only where dapo is the same."""


def _grpo_weights(spec: Spec) -> Mapping[str, tuple[Any, ...]]:
    weights = GRPO_WEIGHTS.get(spec["method"]["loss"]["name"], ())
    return {"method.loss.loss_type": tuple(one for one in weights if spec["minibatches"] == 1 or one != "bnpo")}


def _grpo_run(spec: Spec, run: Run) -> Iterator[tuple[str, str]]:
    """Processes share the completions of a step evenly, and TRL draws minibatches within each."""
    rows = spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"]
    if rows % run.processes:
        yield "processes", f"trainer trl shares {rows} completions of a step evenly; write 1, or change prompts_per_step"
    if run.processes > 1 and spec["minibatches"] > 1:
        yield "processes", "trainer trl draws minibatches within each process; write 1, or minibatches: 1"
    yield from _trl_run(spec, run)


TRL_RL = Foreign("TRL", GRPO, _grpo_weights, _grpo_run)

SFT: Mapping[str, tuple[Any, ...]] = MappingProxyType({**TRL, "position_jumps.probability": (0,), "model": (None,)})
"""Of SFT (SFTTrainer)."""
TRL_SFT = Foreign("TRL", SFT, run=_trl_run)

DPO_LOSSES = ("sigmoid", "hinge", "ipo", "robust", "sppo_hard", "nca_pair", "apo_zero", "apo_down")
DPO: Mapping[str, tuple[Any, ...]] = MappingProxyType({**TRL, "loss_type": DPO_LOSSES, "rpo_alpha": (0,), "retain_weight": (0,)})
"""Of preferences (DPOTrainer). TRL takes the likelihood that is rpo's over the tokens of a pass, not of a step."""


def _dpo_smoothing(spec: Spec) -> Mapping[str, tuple[Any, ...]]:
    """TRL's sigmoid loss has no smoothing."""
    return {} if spec["loss_type"] == "robust" else {"label_smoothing": (0,)}


def _pairs_run(spec: Spec, run: Run) -> Iterator[tuple[str, str]]:
    pairs = spec["pairs_per_step"]
    if pairs % run.processes:
        yield "processes", f"trainer trl shares {pairs} pairs of a step evenly; write 1, or change pairs_per_step"
    yield from _trl_run(spec, run)


TRL_PREFER = Foreign("TRL", DPO, _dpo_smoothing, _pairs_run)

REWARD: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {**TRL, "heads": (1,), "routing": (None,), "contrastive_weight": (0,), "length_stages": (1,)}
)
"""Of reward models (RewardTrainer)."""
TRL_REWARD = Foreign("TRL", REWARD, run=_pairs_run)

# verl 0.9.1 (its v1 trainer: FSDP, vLLM, Ray).

VERL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "dtype": ("bfloat16",),
        "numerics": ("fast",),
        "lora": (None,),
        "engine": ("vllm",),
        "references": (None,),
        "keep_tokens": (False,),
        "judge_credit": (False,),
        "optimizer.name": ("adamw",),
        "method.allocation.name": ("fixed",),
        "method.prompting.name": ("plain",),
        "method.continuation.name": ("none",),
        "method.episode.name": ("completion",),
        "method.shaping": ("overlong", "kl"),
        "method.edits": ("dynamic_sampling",),
        "method.decoding": (None,),
        "method.advantage.name": ("group", "leave_one_out", "length_baseline", "whitened", "grpo_passk", "gae"),
        "method.advantage.accurate_gradient": (False,),
        "method.advantage.normalize_advantages": (False,),
        "method.advantage.rewards": ("outcome",),
        "method.advantage.whiten": (True,),
        "method.loss.name": ("clipped", "sapo", "gpg", "dppo", "dro"),
        "method.loss.loss_denominator": (None,),
        "method.loss.first_turn_beta": (0,),
        "method.loss.use_bias_correction_kl": (False,),
        "method.loss.mask_truncated_completions": (False,),
        "method.loss.off_policy_mask_threshold": (None,),
    }
)
"""Of RL."""
VERL_FIXED = ("uniform", "easy_to_hard", "hard_first")
"""Samplers whose draws are known in advance, unless they go by pass rates."""
VERL_LEARNING = ("edge_of_competence", "single_stream", "retain_hardest", "phases", "learned_mixture", "ada_rft", "format_ladder")
"""Samplers that learn from verdicts and rewards, and from nothing of the model's."""
VERL_REWARDS = ("outcome", "format", "process", "text", "citation", "form")
"""Rewards that a single completion has."""


def _verl_more(spec: Spec) -> Mapping[str, tuple[Any, ...]]:
    """Where one key says what another may be."""
    method, loss, advantage = spec["method"], spec["method"]["loss"], spec["method"]["advantage"]
    return {
        **_verl_rewards(spec["reward"]),
        # Dynamic sampling draws more than a step's prompts, so that what was learnt when is not known.
        "method.sampler.name": VERL_FIXED if method["edits"] else (*VERL_FIXED, *VERL_LEARNING),
        **({"method.sampler.by": ("op", "length", "band")} if method["edits"] else {}),
        **_verl_advantage(advantage, method["critic"]),
        **_verl_loss(loss, advantage, spec["minibatches"]),
        "schedule.name": ("constant",) if spec["schedule"]["decay_ratio"] < 1 else ("constant", "cosine"),
        **{f"method.edits.{i}.max_num_gen_batches": (None,) for i in range(len(method["edits"]))},
    }


def _verl_rewards(reward: Spec) -> Mapping[str, tuple[Any, ...]]:
    terms = [f"reward.{key}.{i}.reward.name" for key in ("gate", "sum", "product") for i in range(len(reward.get(key, ())))]
    return dict.fromkeys(terms, VERL_REWARDS) or {"reward.name": VERL_REWARDS}


def _verl_advantage(advantage: Spec, critic: Spec | None) -> Mapping[str, tuple[Any, ...]]:
    """verl adds 1e-6 to deviations, and has one discount for advantages and for what the critic learns."""
    if advantage["name"] == "gae" and critic:
        return {f"method.critic.{key}": (advantage[key],) for key in ("gamma", "lam")}
    scales = {"group": ("group", "none"), "grpo_passk": ("none",)}.get(advantage["name"])
    scaled = {"method.advantage.std_epsilon": (1e-6,)} if advantage.get("scale_rewards") == "group" else {}
    return {"method.critic": (None,), **({"method.advantage.scale_rewards": scales, **scaled} if scales else {})}


def _verl_loss(loss: Spec, advantage: Spec, minibatches: int) -> Mapping[str, tuple[Any, ...]]:
    """verl takes means over an optimiser step, weighs entropy as the loss, and clips ratios of sequences without a cap."""
    means = ("bnpo", "grpo", "dr_grpo", "luspo", *(("dapo",) if minibatches == 1 else ()))
    found: dict[str, tuple[Any, ...]] = {"method.loss.importance_sampling_level": ("token", "sequence_token")}
    if loss["name"] == "sapo":
        found |= {"method.loss.loss_agg_mode": (None, "seq-mean-token-mean"), "method.loss.importance_sampling_level": ("token",)}
        means = ("grpo",)
    elif loss.get("loss_type") == "cispo":
        means, found["method.loss.importance_sampling_level"] = ("cispo",) if minibatches == 1 else means, ("token",)
    elif advantage["name"] != "gae" and advantage.get("baseline") != "none":  # one advantage for all tokens of a row
        found["method.loss.importance_sampling_level"] = ("token", "sequence", "sequence_token")
    if loss.get("importance_sampling_level", "token") != "token" or (loss.get("delta") or 2) <= 1:
        found["method.loss.delta"] = (None,)
    if loss["loss_agg_mode"] is None:
        found["method.loss.loss_type"] = means
        if loss.get("loss_type") not in ("dapo", "bnpo"):
            found["method.loss.entropy_coef"] = (0,)
    return found


def _verl_run(spec: Spec, run: Run) -> Iterator[tuple[str, str]]:
    """One process starts verl, on GPUs that lie evenly on the nodes and share the rows of an optimiser step evenly."""
    spread, rows = run.verl, spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"] // spec["minibatches"]
    here, shares = run.gpus // run.nodes, run.gpus // spread.ulysses_sequence_parallel_size
    if run.processes > 1:
        yield "processes", "trainer verl starts its own; write 1, and run.gpus"
    if run.segment_steps:
        yield "segment_steps", "trainer verl has none; write 0, or trainer: native"
    if run.gpus < 1 or run.gpus % run.nodes:
        yield "gpus", f"trainer verl spreads a stage over GPUs, equally many on each node; write a multiple of {run.nodes}"
    elif here % spread.tensor_model_parallel_size or run.gpus % spread.ulysses_sequence_parallel_size:
        yield "verl", f"tensor_model_parallel_size must divide the {here} GPUs of a node, ulysses_sequence_parallel_size all"
    elif rows % shares:
        yield "gpus", f"trainer verl shares the {rows} completions of an optimiser step evenly; write a divisor of that"
    if odd := [step for step in spec["checkpoints"] if step % spread.save_freq]:
        yield "verl", f"checkpoint {odd[0]} is not at a multiple of save_freq, {spread.save_freq}; change one of them"


VERL_RL = Foreign("verl", VERL, _verl_more, _verl_run)
