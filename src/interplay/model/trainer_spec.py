"""Trainers: who computes the losses, gradients and updates of a stage that trains, and what each expresses of its spec and
of its run block. Who adds one writes a `Foreign` for each kind that it trains; what is not in it, it computes with any value."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import model_validator

from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.model.spec import ComputeSpec

Trainer = Literal["native", "trl"]

Spec = Mapping[str, Any]
"""A spec as JSON."""


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
                here = here[part]
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
        if foreign and (misfit := foreign.misfit(canonical(self))):
            raise ValueError(f"trainer = {getattr(self, 'trainer', '')}: {misfit}")
        return self

    def run_misfit(self, run: Run) -> tuple[str, str] | None:
        """The first key of a run block that its trainer does not take, and what to write instead."""
        foreign = self.foreign()
        return next(foreign.run(canonical(self), run), None) if foreign else None


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
DPO: Mapping[str, tuple[Any, ...]] = MappingProxyType({**TRL, "loss_type": DPO_LOSSES, "rpo_alpha": (0,)})
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

REWARD: Mapping[str, tuple[Any, ...]] = MappingProxyType({**TRL, "heads": (1,), "routing": (None,)})
"""Of reward models (RewardTrainer)."""
TRL_REWARD = Foreign("TRL", REWARD, run=_pairs_run)
