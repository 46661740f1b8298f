"""Specs of every kind for tests of identity: between them every model of the schema stands somewhere, every member of every union
and every optional part included."""

from typing import Any

CUSTOM = {"name": "custom", "function": "f.py:f", "source": "def f(): ...", "options": {"a": 1}}
SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48,
}  # fmt: skip
TASK: dict[str, Any] = {"name": "op_dag"}
PROBLEMS = {
    "task": TASK, "bands": {"id": {2: 0.5, 3: 0.5}, "edge": {4: 1.0}}, "shares": {"id": 0.5, "edge": 0.5}, "size": 100,
    "split": "train",
}  # fmt: skip
REPORT = {
    "study": "edge", "scale": "smoke", "question": "Does it?",
    "arms": [
        {
            "arm": "rl", "seed": 0, "control": "base", "path": [{"name": "rl", "kind": "rl", "digest": "a" * 12}],
            "evaluations": {"eval": "b" * 12},
        }
    ],
    "bands": {"edge": [3, 4]}, "trained_ops": {"rl": [3]},
    "tables": {"main": {"columns": ["edge"], "cells": ["strict_pass@1"]}},
    "figures": {"k": {"x": "k", "y": "strict_pass"}},
    "claims": [
        {"says": "It does.", "test": {"value": "strict_pass@1", "band": "edge", "arm": "rl", "within": [0.1, 0.5]}},
        {
            "says": "More than before.",
            "test": {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.1},
        },
        {
            "says": "But not by much.",
            "test": {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_most": 0.1},
        },
    ],
    "match": [{"budget": "tokens", "among": ["rl", "base"]}],
}  # fmt: skip
LADDER = {
    **REPORT,
    "arms": [
        {
            "arm": "rl", "seed": 0, "path": [{"name": "base", "kind": "pretrain", "digest": "a" * 12, "step": 20}],
            "evaluations": {"eval": "b" * 12},
            "rungs": [{"evaluation": "along", "stage": "base", "step": 10, "digest": "c" * 12}],
        }
    ],
    "blocks": {"b" * 12: ["d" * 12]},
}  # fmt: skip

SPECS: dict[str, list[dict[str, Any]]] = {
    "source": [{"sha256": "0" * 64}, {"hub_id": "Qwen/Qwen2.5-0.5B", "revision": "f" * 40}],
    "problems": [PROBLEMS, {**PROBLEMS, "transform": CUSTOM}],
    "dataset": [{"format": "hotpotqa", "sha256": "0" * 64}],
    "curate": [{"mix": [0.5, 0.5], "steps": [{"name": "take", "size": 10}, {"name": "keychain"}, {"name": "choice"}]}],
    "tokenizer": [{"task": TASK}],
    "corpus": [{"mix": [0.5, 0.5]}],
    "pretrain": [{"model": SHAPE, "tokens": 100_000}],
    "midtrain": [{"tokens": 100_000}],
    "sft": [{"tokens": 100_000}],
    "rl": [
        {"method": {"paper": "arXiv:2402.03300"}, "mix": [0.5, 0.5], "steps": 10},
        {"method": {"paper": "p", "sampler": CUSTOM, "edits": [{}]}, "reward": CUSTOM, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p"}, "reward": {"name": "outcome"}, "mix": [1.0], "steps": 10},
    ],
    "evaluate": [{}],
    "select": [{"by": "loss", "mode": "min", "candidates": [20, 40]}],
    "report": [REPORT, LADDER],
}
"""Per kind JSON specs, the usual one first."""

DEPS: dict[str, dict[str, str]] = {
    "curate": {"data.0": "a" * 12, "data.1": "b" * 12, "tokenizer": "c" * 12},
    "corpus": {"data.0": "a" * 12, "data.1": "b" * 12, "tokenizer": "c" * 12},
    "pretrain": {"corpus": "a" * 12, "tokenizer": "b" * 12},
    "midtrain": {"corpus": "a" * 12, "init": "b" * 12},
    "sft": {"corpus": "a" * 12, "init": "b" * 12},
    "rl": {"data.0": "a" * 12, "data.1": "b" * 12, "init": "c" * 12},
    "evaluate": {"model": "a" * 12, "data": "b" * 12},
    "select": {"init": "a" * 12},
    "report": {"a" * 12: "a" * 12},
}
"""Dependencies that go with the first spec of a kind."""
