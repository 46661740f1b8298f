"""What stages cost (`formulas`): planned, from their specs, or realised, from their records."""

from collections.abc import Mapping
from typing import Any

from interplay.kinds.formulas import Cost
from interplay.kinds.table import KINDS, is_trainer

NOT_LETTERS = 24
"""Tokens of op_dag's character vocabulary other than letters: two special ones, ten digits, three operators, nine signs."""


def costs(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Cost]:
    """Planned cost by digest of stages in JSON (`kind`, `spec`, `deps`; dependencies first): stage.json or
    records; the record of a source has its parameters. A dependency that is not among them is unknown."""
    found: dict[str, Cost] = {}
    for digest, stage in stages.items():
        found[digest] = _planned(stage, _parameters(stage, stages, found), stages)
    return found


def realised(record: Mapping[str, Any], parameters: int | None) -> Cost:
    """Cost of a finished stage from its record's metrics; `parameters` are those of its planned cost."""
    return KINDS[record["kind"]].cost.realised(record, record["metrics"].get("parameters", parameters))


def paper_tokens(kind: str, spec: Mapping[str, Any]) -> int:
    """Training tokens as arXiv:2512.07783 (section 5) charges them: a trainer's budget, and for RL (5/3) N r L, the pre-training
    tokens whose FLOPs equal rolling out, scoring by a reference and updating on N prompts with r completions, each charged at the
    cap L and not at its realised length; of tuning on pairs, which the paper has not, the tokens at their caps; of teaching the
    same as of RL for all completions and proposals that something is trained on, and a third for those that are sampled alone. 0
    for kinds that do not train."""
    return KINDS[kind].cost.charged(spec)


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
    """Of the record, of the shape that a trainer is given, or of the model that the stage starts from; None: unknown."""
    deps = {role: dep.partition("@")[0] for role, dep in stage["deps"].items()}
    known = stage.get("metrics", {}).get("parameters")
    if known is not None:
        return known
    if is_trainer(stage["kind"]) and stage["spec"].get("model"):
        tokenizer = stages.get(deps.get("tokenizer", ""))
        return shape_parameters(stage["spec"]["model"], vocabulary(tokenizer["spec"])) if tokenizer else None
    origin = next((deps[role] for role in ("init", "model") if role in deps), None)
    if origin is None:
        return None if KINDS[stage["kind"]].makes == "model" else 0
    return found[origin].parameters if origin in found else None


def _planned(stage: Mapping[str, Any], parameters: int | None, stages: Mapping[str, Mapping[str, Any]]) -> Cost:
    row = KINDS[stage["kind"]]
    problems = planned_size(stage["deps"]["data"], stages) if row.makes == "samples" else 0
    return row.cost.planned(stage["spec"], problems, parameters)


def planned_size(digest: str, stages: Mapping[str, Mapping[str, Any]]) -> int:
    """Rows of a problem set as far as the plan fixes it: of a mix without a size, those of the sets that it is made of; 0:
    unknown."""
    stage = stages.get(digest)
    if stage is None:
        return 0
    if stage["spec"].get("size") is not None:
        return int(stage["spec"]["size"])
    return sum(planned_size(dep, stages) for role, dep in stage["deps"].items() if role.startswith("data."))
