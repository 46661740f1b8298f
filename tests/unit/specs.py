"""Specs of every kind for tests of identity: between them every model of the schema stands somewhere, every member of every union
and every optional part included."""

from typing import Any

CUSTOM = {"name": "custom", "function": "f.py:f", "source": "def f(): ...", "options": {"a": 1}}
EXACT = {"dtype": "int8", "numerics": "exact"}
SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48,
}  # fmt: skip
TASK: dict[str, Any] = {"name": "op_dag"}
PROBLEMS = {
    "task": TASK, "bands": {"id": {2: 0.5, 3: 0.5}, "edge": {4: 1.0}}, "shares": {"id": 0.5, "edge": 0.5}, "size": 100,
    "split": "train",
}  # fmt: skip
BIOS = {**PROBLEMS, "task": {"name": "bios"}, "bands": {"iid": {2: 1.0}}, "shares": {"iid": 1.0}}
ENVIRONMENTS = [
    {**PROBLEMS, "task": {"name": name}, "bands": {"b": {1 if name == "kuhn" else 2: 1.0}}, "shares": {"b": 1.0}}
    for name in ("calculator", "bios_search", "self_search", "twenty_questions", "tic_tac_toe", "kuhn", "sql_questions")
]
PUZZLES = {
    **PROBLEMS, "task": {"name": "reasoning_gym", "dataset": "leg_counting", "config": {"min_animals": 2}},
    "bands": {"b": {2: 1.0}}, "shares": {"b": 1.0},
}  # fmt: skip
SKILLS = [
    {**PROBLEMS, "task": {"name": "brevo"}, "bands": {"b": {3: 1.0}}, "shares": {"b": 1.0}},
    *(
        {**PROBLEMS, "task": task, "bands": {"b": {2: 1.0}}, "shares": {"b": 1.0}}
        for task in (
            {"name": "mano"},
            {"name": "depo", "nodes": [5, 5]},
            {"name": "lano"},
            {"name": "capo"},
            {"name": "word_counts"},
            {"name": "word_counts", "counts": "frequent"},
        )
    ),
]
PACKAGED = [
    {**PROBLEMS, "task": task, "bands": {"b": {op: 1.0}}, "shares": {"b": 1.0}}
    for op, task in (
        (1, {"name": "textarena", "game": "TicTacToe-v0", "config": {"max_turns": 9}, "moves": ["[0]"], "playouts": 4}),
        (1, {"name": "textworld", "rooms": 3}),
        (1, {"name": "scienceworld", "task": "boil"}),
        (3, {"name": "bfcl", "category": "miss_func"}),
        (3, {"name": "gymnasium", "env": "FrozenLake-v1", "config": {"desc": "random"}}),
    )
]
TAXONOMY = {**PROBLEMS, "task": {"name": "taxonomy"}, "bands": {"one": {1: 1.0}}, "shares": {"one": 1.0}}
GARDEN = {"places": [["Roof", "Old Yard", "Hof"]], "types": [["tulip", "fern", "oak"]], "things": "plants"}
PROSE = {
    **PROBLEMS,
    "task": {"name": "op_dag_prose", "themes": {"zoo": 0.5, "garden": 0.5}, "own": {"garden": GARDEN}},
}
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
TARGETS = {
    **REPORT,
    "claims": [
        {
            "says": "Where training worked.",
            "test": {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.1},
            "fails": {"recorded": "rl", "value": "reward_last", "below": 0.5, "most": 0.5},
        }
    ],
    "targets": {
        "half": {"stage": "rl", "curve": "strict_pass@1", "level": 0.5, "window": 2, "evaluation": "eval", "band": "edge"},
    },
    "tuning": REPORT["arms"],
}  # fmt: skip
PREMISES = {
    **REPORT,
    "claims": [
        {
            "says": "As published.",
            "test": {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base"},
            "published": {"effect": 0.2},
            "forecast": {"interval": [5.0, 30.0], "probability": 0.75},
            "requires": [
                {"acts": "rl"}, {"headroom": {"arm": "base"}}, {"above": {"arm": "base", "than": 0.1}},
                {"improves": {"arm": "gold", "against": "base"}},
            ],
        }
    ],
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
FIGHT = {
    **REPORT,
    "tables": {
        "main": {
            "columns": ["edge"], "cells": ["score"],
            "contrast": {"against": "rl", "noise": ["again"], "tune": {"axis": "rl.optimizer.learning_rate", "band": "id"}},
        }
    },
    "figures": {"length": {"x": "band", "y": "score", "bands": ["id", "edge"]}},
    "lineups": {
        "main": {
            "against": "rl", "contenders": [{"name": "rl", "tries": [{"arm": "rl", "value": "0.1"}]}], "twins": {"again": "rl"},
        }
    },
    "trained_sets": {"rl": ["c" * 12]},
}  # fmt: skip
DUNNETT = {
    **REPORT,
    "tables": {
        "main": {
            "columns": ["edge"], "cells": ["strict_pass@1"],
            "contrast": {
                "against": "rl", "correction": "dunnett", "margin": 0.05,
                "requires": [{"improves": {"arm": "gold", "against": "rl"}}],
            },
        }
    },
}  # fmt: skip
REGISTERED = {
    **REPORT,
    "controls": {"of": "rl", "against": "base", "band": "edge"},
    "stopping": {"looks": [6, 12]},
    "registration": {
        "file": "configs/registered/edge.smoke.json", "date": "2026-11-26", "commit": "a" * 12, "late": False,
        "changes": [{"key": "stages.rl.steps", "before": "10", "after": "20"}],
    },
}  # fmt: skip
ANALYSED = {
    **REPORT,
    "claims": [
        {
            "says": "It is surer.",
            "test": {"difference": "entropy_last", "recorded": "rl", "arm": "rl", "against": "base", "at_most": 0.0},
        }
    ],
    "tables": {
        "main": {
            "columns": ["edge"],
            "cells": ["nll"],
            "against": "base",
            "gain": {"against": "base", "k": 2},
            "title": "t",
            "caption": "c",
        }
    },
    "figures": {
        "nll": {"x": "op", "y": "nll", "form": "heat", "against": "base"},
        "ladder": {"x": "step", "y": "reward", "extrapolate": {"part": 0.5, "tolerance": 0.05}},
        "swept": {
            "x": "rl.steps",
            "y": "strict_pass@1",
            "band": "edge",
            "log": True,
            "arms": ["rl"],
            "title": "t",
            "caption": "c",
        },
        "plane": {"form": "heat", "x": "rl.steps", "by": "rl.seed", "y": "strict_pass@1"},
    },
    "shown": {"rl": {"label": "RL", "color": "#112233"}},
    "placed": {"swept": [{"arm": "rl", "x": 3.0, "line": "RL"}], "plane": [{"arm": "rl", "x": "a", "row": 1.0}]},
}
REFORMED = {
    "mix": [1.0],
    "steps": [{"name": n} for n in ("cloze", "true_false", "ladder", "subproblems", "atoms")],
}

SIFTED = {
    "mix": [0.5, 0.5],
    "steps": [
        {"name": "pass_rate", "rule": "loongrl"}, {"name": "pass_rate", "low": 1, "high": 6, "of": 9},
        {"name": "difficulty", "bands": {"hard": [0.0, 0.5]}}, {"name": "label", "bands": {"short": [0.0, 0.5]}},
        {"name": "length", "low": 2, "high": 9}, {"name": "deduplicate"}, {"name": "contamination"},
        {"name": "poison", "kind": "answer", "ratio": 0.5}, CUSTOM,
    ],
}  # fmt: skip

PROMPTINGS = ("prefix", "icpo", "annealed_shots")
CONTINUATIONS = ("guide", "reflection", "critique", "exit")
ADVANTAGES = (
    "optimal_token_baseline",
    "remax",
    "grpo_passk",
    "leave_one_out",
    "whitened",
    "length_baseline",
    "pass_k",
    "a_grae",
    "copo",
    "xrpo",
    "gtpo_entropy",
)
LOSSES = ("dppo", "dro", "sapo", "vespo", "geo_mean", "gpg", "clip_cov", "kl_cov", "disco", "hapo_token")
DECODINGS = ("adaptive_temperature", "lagged_nucleus")
SHAPED = {
    "paper": "p",
    "shaping": [
        *({"name": n} for n in ("overlong", "repetition", "hapo_length", "kimi_length", "entropy_rank")),
        {"name": "gcpo", "marker": "<plan>"}, {"name": "units", "marker": "step"},
    ],
    "edits": [
        {"name": "token_budget", "tokens": 10}, *({"name": n} for n in ("top_entropy", "information_mask", "gtpo_conflict", "replay", "demonstrations")),
    ],
}  # fmt: skip
ONE_WINDOWED = {"allocation": {"name": "fixed", "num_generations": 1}, "continuation": {"name": "windows"}}
METHODS: list[dict[str, Any]] = [
    {"paper": "p", "allocation": {"name": "xrpo"}},
    *({"paper": "p", "prompting": {"name": name}} for name in PROMPTINGS),
    *({"paper": "p", "continuation": {"name": name}} for name in CONTINUATIONS),
    *({"paper": "p", "advantage": {"name": name}} for name in ADVANTAGES),
    {"paper": "p", "advantage": {"name": "gae"}, "critic": {"name": "value_head"}, **ONE_WINDOWED},
    {"paper": "p", "advantage": {"name": "segments"}, "edits": [{"name": "uncertain_tokens"}]},
    {"paper": "p", "allocation": {"num_generations": 216, "name": "fixed"}, "continuation": {"name": "tree"}},
    {"paper": "p", "continuation": {"name": "shown_attempt"}, "shaping": [{"name": "gap"}]},
    {"paper": "p", "advantage": {"name": "tracked"}, "sampler": {"name": "single_stream"}},
    *({"paper": "p", "loss": {"name": name}, "episode": {"name": "retry"}} for name in LOSSES),
    *({"paper": "p", "decoding": {"name": name}} for name in DECODINGS),
    {"paper": "p", "advantage": {"name": "segments", "separator": ","}, "loss": {"name": "direct_advantage"}},
    {"paper": "p", "continuation": {"name": "feedback"}, "loss": {"name": "distil"}},
    SHAPED,
    {
        "paper": "p",
        "episode": {"name": "retry", "branch": {"first": 1}},
        "edits": [{"name": "turn_filter"}, {"name": "observations"}],
    },
    {"paper": "p", "advantage": {"name": "gdpo", "rewards": {"outcome": 1.0, "steps": 2.0}}},
    {"paper": "p", "advantage": {"name": "whitened", "baseline": "none"}, "shaping": [{"name": "kl", "target_kl": 0.1}]},
    {"paper": "p", "advantage": {"name": "whitened", "baseline": "none", "rewards": "turns"}, "episode": {"name": "retry"}},
    {
        "paper": "p",
        "advantage": {"name": "gae", "rewards": "turns"},
        "critic": {"name": "value_head"},
        "episode": {"name": "retry"},
    },
    {
        "paper": "p",
        "episode": {"name": "retry", "window": 1},
        "advantage": {"name": "turn_returns"},
        "shaping": [{"name": "attempts"}, {"name": "improvement"}],
    },
    {"paper": "p", "episode": {"name": "environment"}, "advantage": {"name": "igpo"}},
    {"paper": "p", "episode": {"name": "environment", "context": {"name": "state"}}},
    {"paper": "p", "episode": {"name": "retry", "context": {"name": "summary"}}},
    {"paper": "p", "episode": {"name": "retry", "context": {"name": "retrieved", "library": "library"}}},
    {"paper": "p", "episode": {"name": "environment", "context": {"name": "playbook", "library": "library"}}},
    {"paper": "p", "episode": {"name": "reading", "divide": "?"}},
    {
        "paper": "p",
        "episode": {"name": "environment"},
        "advantage": {
            "name": "turns",
            "sources": [
                *({"name": "reward", "gate": 0.5}, {"name": "environment"}, {"name": "outcome"}, {"name": "information_gain"}),
                *({"name": "agreement"}, {"name": "feedback"}, {"name": "gold_calls"}),
                {"name": "judge", "judge": {"name": "judge", "model": "m", "rubric": "{completion}"}},
            ],
            "outcome": {"weight": 0.5},
        },
    },
    {
        "paper": "p",
        "episode": {"name": "environment"},
        "advantage": {"name": "turns", "propagation": {"name": "gae"}, "baseline": "batch"},
        "critic": {"name": "value_head"},
    },
    {"paper": "p", "episode": {"name": "environment", "window": 2, "action": {"form": "call", "tools": ["calc"]}}},
    {"paper": "p", "episode": {"name": "environment", "action": {"form": "fence", "tools": ["python"], "named": True}}},
]

POLICY = {"name": "policy", "brief": "{prompt}"}
FROZEN = {"name": "model", "model": "seat.0"}
SEATED = [
    {"name": "seats", "seats": {"first": POLICY, "second": POLICY}},
    {"name": "seats", "seats": {"first": POLICY, "second": FROZEN}, "rotate": True},
    {"name": "seats", "seats": {"first": POLICY, "second": {"name": "pool", "models": ["seat.0"], "every": 5}}},
    {"name": "seats", "seats": {"first": POLICY, "second": {"name": "script"}}, "credit": {"first": {"second": -1.0}}},
    {
        "name": "seats", "seats": {"user": CUSTOM, "agent": POLICY, "judge": {"name": "judge", "model": "seat.0"}},
        "order": ["user", "agent"],
    },
]  # fmt: skip

SPECS: dict[str, list[dict[str, Any]]] = {
    "source": [{"sha256": "0" * 64}, {"hub_id": "Qwen/Qwen2.5-0.5B", "revision": "f" * 40}],
    "problems": [
        PROBLEMS,
        {**PROBLEMS, "transform": CUSTOM},
        BIOS,
        TAXONOMY,
        PROSE,
        PUZZLES,
        *SKILLS,
        *PACKAGED,
        *ENVIRONMENTS,
        {**PROBLEMS, "task": CUSTOM},
    ],
    "dataset": [
        {"format": "hotpotqa", "sha256": "0" * 64},
        {"format": "jsonl", "sha256": "0" * 64, "fields": {"question": "prompt"}},
        {"format": "text", "sha256": "0" * 64, "licence": "MIT", "origin": "a collection"},
        {"format": "lm_eval", "sha256": "0" * 64},
        {"format": "programs", "sha256": "0" * 64, "fields": {"tests": "test_list"}},
    ],
    "curate": [
        SIFTED,
        {
            "mix": [0.5, 0.5],
            "steps": [
                {"name": "take", "size": 10},
                {"name": "keychain"},
                {"name": "needle"},
                {"name": "needle", "depths": [0, 50]},
                {"name": "needle", "asks": "variables", "n_asked": 3},
                {"name": "long_context"},
                {"name": "citation"},
                {"name": "choice"},
                {"name": "chat_template"},
            ],
        },
        REFORMED,
        {"mix": [1.0], "steps": [{"name": "intervention"}]},
        {"mix": [1.0], "steps": [{"name": "rejection_sampling"}]},
        *({"mix": [1.0], "steps": [{"name": name}]} for name in ("by_turn", "to_prompts", "relabel", "library", "with_entries")),
        {"mix": [1.0], "steps": [{"name": "experience", "unit": "turn"}]},
        {"mix": [1.0], "steps": [{"name": "preference_pairs"}]},
        {"mix": [1.0], "steps": [{"name": "rated_pairs"}]},
        {"mix": [1.0], "steps": [{"name": "conflict_pairs"}]},
        {"mix": [1.0], "steps": [{"name": "units"}]},
        {"mix": [1.0], "steps": [{"name": "with_tools", "tools": [{"name": n} for n in ("python", "sql", "search")]}]},
    ],
    "tokenizer": [{"task": TASK}, {"task": TASK, "algorithm": "bpe"}],
    "generate": [
        {"filters": [{"name": "verdict"}, {"name": "votes"}, {"name": "length", "high": 100}, {"name": "distinct"}]},
        {
            "parse": "pattern",
            "pattern": "(?P<label>yes|no)",
            "writes": "band",
            "text": "{label}",
            "filters": [{"name": "field", "field": "label", "equals": ["yes"]}],
        },
        {"parse": "json", "writes": "question", "text": "{question}", "answer": "{answer}"},
        {"writes": "prompt", **EXACT},
    ],
    "custom": [{**CUSTOM, "mix": [0.5, 0.5]}],
    "corpus": [{"mix": [0.5, 0.5]}],
    "pretrain": [{"model": SHAPE, "tokens": 100_000}, {"model": SHAPE, "tokens": 100_000, **EXACT}],
    "midtrain": [{"tokens": 100_000}, {"tokens": 100_000, **EXACT}],
    "sft": [{"tokens": 100_000}, {"tokens": 100_000, **EXACT}, {"tokens": 100_000, "lora": {"r": 8}}],
    "rl": [
        {"method": {"paper": "arXiv:2402.03300"}, "mix": [0.5, 0.5], "steps": 10},
        {"method": {"paper": "p"}, "mix": [1.0], "steps": 10, **EXACT},
        {
            "method": {"paper": "p", "sampler": CUSTOM, "edits": [{"name": "dynamic_sampling"}, {"name": "d3s"}]},
            "reward": CUSTOM,
            "mix": [1.0],
            "steps": 10,
        },
        {
            "method": {
                "paper": "p",
                "advantage": CUSTOM,
                "loss": CUSTOM,
                "shaping": [CUSTOM],
                "edits": [CUSTOM],
                "decoding": CUSTOM,
                "allocation": CUSTOM,
            },
            "mix": [1.0],
            "steps": 10,
        },
        {"method": {"paper": "p", "loss": CUSTOM, "episode": {"name": "retry"}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "prompting": CUSTOM}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "continuation": CUSTOM}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p"}, "reward": {"name": "outcome"}, "mix": [1.0], "steps": 10},
        {
            "method": {"paper": "p", "sampler": {"name": "format_ladder", "promotion": "random", "rate": 0.5}},
            "mix": [1.0],
            "steps": 10,
        },
        {
            "method": {"paper": "p", "advantage": {"name": "spans"}},
            "reward": {"name": "subproblems"},
            "mix": [1.0],
            "steps": 10,
        },
        {
            "method": {"paper": "p", "advantage": {"name": "spans", "credit": "following"}},
            "reward": {"name": "steps"},
            "mix": [1.0],
            "steps": 10,
        },
        {"method": {"paper": "p"}, "reward": {"name": "format"}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p"}, "reward": {"name": "text"}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p"}, "reward": {"name": "random"}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p"}, "reward": {"name": "citation"}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p"}, "reward": {"name": "model", "model": "reward.0"}, "mix": [1.0], "steps": 10},
        {
            "method": {"paper": "p", "loss": {"name": "clipped", "beta": 0.1}},
            "references": {"reference.0": 0.5, "reference.1": 0.5},
            "mix": [1.0],
            "steps": 10,
        },
        {
            "method": {"paper": "p"},
            "reward": {"name": "judge", "model": "m", "rubric": "{prompt}{completion}"},
            "mix": [1.0],
            "steps": 10,
        },
        {
            "method": {"paper": "p"},
            "reward": {"name": "judge", "arm": "reward.0", "rubric": "{completion}"},
            "mix": [1.0],
            "steps": 10,
        },
        {"method": {"paper": "p"}, "reward": {"name": "form"}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p"}, "reward": {"name": "length", "budget": 8}, "mix": [1.0], "steps": 10},
        {
            "method": {"paper": "p", "episode": {"name": "environment"}},
            "reward": {"name": "environment"},
            "mix": [1.0],
            "steps": 10,
        },
        {
            "method": {"paper": "p"},
            "reward": {
                "gate": [{"reward": {"name": "form"}, "above": 0.5}],
                "sum": [{"reward": {"name": "process"}, "weight": 0.5}, {"reward": CUSTOM, "part": "own"}],
                "product": [{"reward": {"name": "length", "budget": 8}}],
                "right": "strict",
            },
            "mix": [1.0],
            "steps": 10,
        },
        {"method": {"paper": "p", "sampler": {"name": "pcl"}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "pcl", "value": {"name": "beta"}}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "gain_rl", "least": 1.0}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "ada_rft", "by": "pass_rate"}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "easy_to_hard"}}, "mix": [1.0], "steps": 10},
        {
            "method": {"paper": "p", "sampler": {"name": "hard_first", "by": "band", "bands": ["a", "b"]}},
            "mix": [1.0],
            "steps": 10,
        },
        {"method": {"paper": "p", "sampler": {"name": "edge_of_competence"}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "single_stream"}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "retain_hardest"}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "phases", "lengths": [1.0, 2.0]}}, "mix": [1.0], "steps": 10},
        {"method": {"paper": "p", "sampler": {"name": "learned_mixture"}}, "mix": [0.25, 0.75], "steps": 10},
        *({"method": method, "mix": [1.0], "steps": 10} for method in METHODS),
        {
            "method": {"paper": "p", "episode": {"name": "self_play"}, "advantage": {"name": "role"}},
            "reward": {"name": "payoff"},
            "mix": [1.0],
            "steps": 10,
        },
        *({"method": {"paper": "p", "episode": episode}, "mix": [1.0], "steps": 10} for episode in SEATED),
    ],
    "teach": [
        {"method": {"paper": "p"}, "mix": [0.5, 0.5], "task": TASK, "steps": 10},
        {"method": {"paper": "p"}, "mix": [1.0], "task": TASK, "steps": 10, "teacher_reward": "intrinsic"},
    ],
    "prefer": [
        {"mix": [0.5, 0.5], "steps": 10},
        {"mix": [1.0], "steps": 10, **EXACT},
        *({"mix": [1.0], "steps": 10, "loss_type": name} for name in ("simpo", "cpo", "kto")),
    ],
    "unlearn": [
        {"forget_mix": [0.5, 0.5], "retain_mix": [0.5, 0.5], "steps": 10},
        {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 10, "objective": "simnpo"},
        {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 10, "objective": "uld"},
        {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 10, "formulation": "blur"},
        {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 10, "objective": "grad_diff", "formulation": "hamu"},
    ],
    "reward_model": [{"mix": [0.5, 0.5], "steps": 10}, {"mix": [1.0], "steps": 10, "routing": {}}],
    "evaluate": [
        {},
        EXACT,
        {"engine": CUSTOM, "episode": CUSTOM, "verify": {"own": CUSTOM}},
        {"episode": {"name": "retry"}, "keep_tokens": True, "turns": True},
        {"unit_caps": 3, "verify": {"separator": "?"}},
        {"metrics": [CUSTOM]},
        {"by_reward": {"model": "reward", "reference": "reference"}},
        {"probe": {"quantity": 1, "against": "compared"}},
        {"judged": {"likes": {"arm": "judge.0", "rubric": "{completion}"}, "checks": {"model": "m", "rubric": "{completion}"}}},
        {"harness": {"name": "lm_eval", "metrics": ["acc"]}, "engine": "hf", "temperature": 0, "num_samples": 1},
    ],
    "select": [{"by": "loss", "mode": "min", "candidates": [20, 40]}, {"by": "entropy", "mode": "nearest", "target": 0.4}],
    "calibrate": [
        {"bands": {"edge": {"strict_pass@1": [0.05, 0.5], "strict_pass@32": [0.2, 1.0]}, "hard": {"strict_pass@1": [0, 0.02]}}}
    ],
    "audit": [{"rows": 16}],
    "report": [REPORT, PREMISES, TARGETS, LADDER, FIGHT, DUNNETT, REGISTERED, ANALYSED],
}
"""Per kind JSON specs, the usual one first."""

DEPS: dict[str, dict[str, str]] = {
    "custom": {"data.0": "a" * 12, "data.1": "b" * 12, "init": "c" * 12},
    "curate": {"data.0": "a" * 12, "data.1": "b" * 12, "tokenizer": "c" * 12},
    "corpus": {"data.0": "a" * 12, "data.1": "b" * 12, "tokenizer": "c" * 12},
    "pretrain": {"corpus": "a" * 12, "tokenizer": "b" * 12},
    "midtrain": {"corpus": "a" * 12, "init": "b" * 12},
    "sft": {"corpus": "a" * 12, "init": "b" * 12},
    "rl": {"data.0": "a" * 12, "data.1": "b" * 12, "init": "c" * 12},
    "teach": {"data.0": "a" * 12, "data.1": "b" * 12, "init": "c" * 12},
    "prefer": {"data.0": "a" * 12, "data.1": "b" * 12, "init": "c" * 12},
    "unlearn": {"forget.0": "a" * 12, "forget.1": "b" * 12, "retain.0": "c" * 12, "retain.1": "d" * 12, "init": "f" * 12},
    "reward_model": {"data.0": "a" * 12, "data.1": "b" * 12, "validation": "c" * 12, "init": "d" * 12},
    "evaluate": {"model": "a" * 12, "data": "b" * 12},
    "select": {"init": "a" * 12},
    "calibrate": {"samples.0": "a" * 12},
    "audit": {"data": "a" * 12},
    "report": {"a" * 12: "a" * 12},
}
"""Dependencies that go with the first spec of a kind."""
