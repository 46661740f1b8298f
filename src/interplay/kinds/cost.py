"""What a stage costs, in tokens, rollouts and floating-point operations: planned, from its spec, or realised, from its record.

FLOPs are 6 N for each token trained on and 2 N for each token sampled, or scored by a reference, a teacher, a lagging copy or the
policy before its update (arXiv:2001.08361), N being the number of parameters. Attention is left out. Prompts of RL, which pass
once for a whole group, count where they are known: in records, not in plans; those of evaluations are left out."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from interplay.kinds.table import KINDS, TRAINERS, TUNERS
from interplay.rl.teaching.spec import TeachSpec
from interplay.train.spec import REFERENCE_FREE, TuneSpec

NOT_LETTERS = 24
"""Tokens of op_dag's character vocabulary beside its letters: two special ones, ten digits, three operators, nine signs."""


class Cost(NamedTuple):
    """One stage's cost. What holds no model costs nothing here and has 0 parameters."""

    tokens: int = 0
    """Tokens trained on, once per pass over them, prompts included; padding not counted."""
    sampled: int = 0
    """Completion tokens sampled. Planned: every completion as long as it may be, so an upper bound."""
    rollouts: int = 0
    """Completions sampled. Planned: one round of generation per step, though dynamic sampling may draw more."""
    flops: int | None = 0
    """None where the parameters are unknown."""
    parameters: int | None = 0
    """Of the model that the stage trains, samples from or passes on; None: unknown, such as a source model not yet read."""


def costs(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Cost]:
    """Planned cost by digest of stages in JSON (`kind`, `spec`, `deps`; dependencies first): stage.json or
    records, of which a source's tells its parameters. A dependency that is not among them is unknown."""
    found: dict[str, Cost] = {}
    for digest, stage in stages.items():
        found[digest] = _cost(stage, _parameters(stage, stages, found), stages)
    return found


def realised(record: Mapping[str, Any], parameters: int | None) -> Cost:
    """Cost of a finished stage from its record's metrics; `parameters` are those of its planned cost."""
    kind, metrics = record["kind"], record["metrics"]
    parameters = metrics.get("parameters", parameters)
    if kind in TRAINERS:
        return _with_flops(Cost(tokens=metrics["tokens"], parameters=parameters), 0)
    if kind in TUNERS:
        return _tuned(kind, record["spec"], metrics["tokens"], parameters)
    if kind == "rl":
        prompts = round(metrics["prompt_tokens"] / record["spec"]["method"]["allocation"]["num_generations"])
        return _rl(record["spec"], metrics["completions"], metrics["completion_tokens"], prompts, parameters)
    if kind == "teach":
        taught = TeachSpec.model_validate(record["spec"])
        rollouts = metrics["completions"] + taught.steps * taught.proposals()
        return _taught(taught, metrics["tokens"], metrics["completion_tokens"] + metrics["proposal_tokens"], rollouts, parameters)
    if kind == "evaluate":
        rollouts = metrics["all"]["n"] * record["spec"]["num_samples"]
        return _with_flops(Cost(sampled=round(rollouts * metrics["all"]["length"]), rollouts=rollouts, parameters=parameters), 0)
    return Cost(parameters=parameters)


def paper_tokens(kind: str, spec: Mapping[str, Any]) -> int:
    """Training tokens as arXiv:2512.07783 (section 5) charges them: a trainer's budget, and for RL (5/3) N r L, the pre-training
    tokens whose FLOPs equal rolling out, scoring by a reference and updating on N prompts with r completions, each charged at the
    cap L and not at its realised length; of tuning on pairs, which the paper has not, the tokens at their caps; of teaching the
    same as of RL for all completions and proposals that something is trained on, and a third for those that are sampled alone. 0
    for kinds that do not train."""
    if kind == "rl":
        return round(spec["steps"] * rl_step_tokens(spec))
    if kind == "teach":
        learnt, judged = taught_tokens(TeachSpec.model_validate(spec))
        return round(Fraction(5 * learnt + judged, 3))
    if kind in TUNERS:
        return tuned_tokens(kind, spec)
    return spec["tokens"] if kind in TRAINERS else 0


def tuned_tokens(kind: str, spec: Mapping[str, Any]) -> int:
    """Tokens of a stage of TUNERS as planned: every prompt with a completion as long as it may be, so an upper bound."""
    typed = KINDS[kind].spec.model_validate(spec)
    assert isinstance(typed, TuneSpec)
    return typed.steps * typed.rows_per_step * typed.max_length


def taught_tokens(spec: TeachSpec) -> tuple[int, int]:
    """Completion and proposal tokens of a stage of kind `teach` that something is trained on, and further ones that are sampled;
    each text as long as it may be."""
    learnt = spec.learning_rollouts() * spec.max_completion_length + spec.proposals() * spec.max_proposal_length
    return spec.steps * learnt, spec.steps * spec.judging_rollouts() * spec.max_completion_length


def rl_step_tokens(spec: Mapping[str, Any]) -> Fraction:
    """What `paper_tokens` charges for one step of an RL spec."""
    rollouts = spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"]
    cap = (spec.get("max_prompt_length") or 0) + spec["max_completion_length"]
    return Fraction(5 * rollouts * cap, 3)


def reached(kind: str, spec: Mapping[str, Any], step: int | None) -> float:
    """Share of a stage's planned budget that is spent once the model of `step` is there; 1 at its end (None)."""
    if step is None:
        return 1.0
    return min(1.0, step / spec["steps"] if "steps" in spec else step * spec["batch_tokens"] / spec["tokens"])


def shape_parameters(shape: Mapping[str, Any], vocab_size: int) -> int:
    """Parameters of a decoder of that shape (`model.spec.Shape` as JSON)."""
    width, layers, size = shape["hidden_size"], shape["num_hidden_layers"], shape["head_dim"]
    queries, keys = shape["num_attention_heads"] * size, shape["num_key_value_heads"] * size
    layer = width * (2 * queries + 2 * keys) + 3 * width * shape["intermediate_size"] + 2 * width
    layer += {"llama": 0, "qwen2": queries + 2 * keys, "qwen3": 2 * size}[shape["architecture"]]
    embeddings = vocab_size * width * (1 if shape["tie_word_embeddings"] else 2)
    return layers * layer + width + embeddings


def vocabulary(tokenizer: Mapping[str, Any]) -> int:
    """Tokens of a tokenizer, from its spec: exact for op_dag's characters, else the size that a BPE would have."""
    known = tokenizer["algorithm"] == "characters" and "letters" in tokenizer["task"]
    task = tokenizer["task"]
    return task["letters"] * task.get("contexts", 1) + NOT_LETTERS if known else tokenizer["vocab_size"]


def _parameters(stage: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]], found: Mapping[str, Cost]) -> int | None:
    deps = {role: dep.partition("@")[0] for role, dep in stage["deps"].items()}
    known = stage.get("metrics", {}).get("parameters")
    if known is not None or stage["kind"] == "source":
        return known
    if stage["spec"].get("model") and stage["kind"] in TRAINERS:
        tokenizer = stages.get(deps.get("tokenizer", ""))
        return shape_parameters(stage["spec"]["model"], vocabulary(tokenizer["spec"])) if tokenizer else None
    origin = next((deps[role] for role in ("init", "model") if role in deps), None)
    if origin is None:
        return 0
    return found[origin].parameters if origin in found else None


def _cost(stage: Mapping[str, Any], parameters: int | None, stages: Mapping[str, Mapping[str, Any]]) -> Cost:
    kind, spec = stage["kind"], stage["spec"]
    if kind in TRAINERS:
        return _with_flops(Cost(tokens=spec["tokens"], parameters=parameters), 0)
    if kind in TUNERS:
        return _tuned(kind, spec, tuned_tokens(kind, spec), parameters)
    if kind == "rl":
        rollouts = _rollouts(spec)
        sampled = rollouts * spec["max_completion_length"] * _turns(spec["method"])
        return _rl(spec, rollouts, sampled, 0, parameters)
    if kind == "teach":
        taught = TeachSpec.model_validate(spec)
        learnt, judged = taught_tokens(taught)
        rollouts = taught.steps * (taught.learning_rollouts() + taught.judging_rollouts() + taught.proposals())
        return _taught(taught, learnt, learnt + judged, rollouts, parameters)
    if kind == "evaluate":
        problems = planned_size(stage["deps"]["data"], stages)
        rollouts = problems * spec["num_samples"]
        sampled = rollouts * spec["max_completion_length"] * _turns(spec)
        return _with_flops(Cost(sampled=sampled, rollouts=rollouts, parameters=parameters), 0)
    return Cost(parameters=parameters)


def planned_size(digest: str, stages: Mapping[str, Mapping[str, Any]]) -> int:
    """Rows of a problem set as far as its plan tells: of a mix without a size, those of the sets that it is made of; 0:
    unknown."""
    stage = stages.get(digest)
    if stage is None:
        return 0
    if stage["spec"].get("size") is not None:
        return int(stage["spec"]["size"])
    return sum(planned_size(dep, stages) for role, dep in stage["deps"].items() if role.startswith("data."))


def _rl(spec: Mapping[str, Any], rollouts: int, sampled: int, prompts: int, parameters: int | None) -> Cost:
    """`prompts`: their tokens, each prompt once for its group, as it passes."""
    loss, passing = spec["method"]["loss"], sampled + prompts
    refers = bool(loss["beta"] or loss.get("first_turn_beta") or loss.get("name") == "direct_advantage")
    decoding = (spec["method"].get("decoding") or {}).get("name")
    teaches = loss["num_iterations"] * (loss.get("name") == "distil")
    scorings = (loss["num_iterations"] * spec["minibatches"] > 1) + refers + teaches + (decoding == "adaptive_temperature")
    if decoding == "lagged_nucleus":  # its copy decodes, and passes with every pass
        scorings = 2 * scorings + loss["num_iterations"] + 1
    cost = Cost(tokens=passing * loss["num_iterations"], sampled=sampled, rollouts=rollouts, parameters=parameters)
    return _with_flops(cost, prompts + passing * scorings)


def _taught(spec: TeachSpec, learnt: int, sampled: int, rollouts: int, parameters: int | None) -> Cost:
    """`learnt`: tokens that students and teacher are trained on, once."""
    passes = spec.method.loss.num_iterations
    scorings = (passes * spec.minibatches > 1) + spec.method.loss.refers()
    cost = Cost(tokens=learnt * passes, sampled=sampled, rollouts=rollouts, parameters=parameters)
    return _with_flops(cost, learnt * scorings)


def _turns(spec: Mapping[str, Any]) -> int:
    """Turns that an episode has at most."""
    return int((spec.get("episode") or {}).get("max_turns", 1))


def _tuned(kind: str, spec: Mapping[str, Any], tokens: int, parameters: int | None) -> Cost:
    """A stage of TUNERS; a loss with a reference scores each token by it once, or of npo the half
    that is to be forgotten. Of uld, whose assistant is a part of the model, an upper bound."""
    scored = tokens if kind == "prefer" and spec["loss_type"] not in REFERENCE_FREE else 0
    if kind == "unlearn" and spec["objective"] == "npo":
        scored = tokens // 2
    return _with_flops(Cost(tokens=tokens, parameters=parameters), scored)


def _rollouts(spec: Mapping[str, Any]) -> int:
    return spec["steps"] * spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"]


def _with_flops(cost: Cost, scored: int) -> Cost:
    if cost.parameters is None:
        return cost._replace(flops=None)
    return cost._replace(flops=cost.parameters * (6 * cost.tokens + 2 * (cost.sampled + scored)))
