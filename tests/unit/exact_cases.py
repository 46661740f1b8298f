"""What a stage leaves, hashed, for runs that differ in nothing that a digest names. With PYTHONPATH=tests:

    python tests/unit/exact_cases.py FOLDER NUMERICS STEPS KINDS RUN    the stages in this process: a line of JSON
    python tests/unit/exact_cases.py FOLDER NUMERICS STEPS few KINDS    a table over instructions x threads x processes x batches
                                                                        x stacks, in which any two values occur together
    python tests/unit/exact_cases.py FOLDER NUMERICS STEPS all KINDS    the same over the whole product

KINDS are separated by commas, `every` is all of them, RUN is a run block as JSON. Environment variables stand in for other processors
(`processor`). A table keeps its runs in FOLDER/runs.jsonl, where it goes on; what it says is of all that are there."""

import hashlib
import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import world
from test_prefer import pair_set

from interplay.core import execution
from interplay.core.execution import Run
from interplay.data import corpus
from interplay.data.spec import CorpusSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.table import KINDS as KINDS_OF
from interplay.model.spec import Shape
from interplay.model.trainer_spec import Optimizer, TuneOptimizer, TuneSchedule
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import OwnReward, StepsReward
from interplay.rl.spec import Method, RLSpec
from interplay.run import workers
from interplay.study.plan import Stage
from interplay.train.spec import MidtrainSpec, PositionJumps, PreferSpec, PretrainSpec, SftSpec

SHAPE = Shape(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=96
)
STAGES = ("pretrain", "midtrain", "sft", "prefer", "rl", "evaluate")
PAIRED = ("ipo", "robust", "sppo_hard", "nca_pair", "apo_zero", "apo_down", "kto", "simpo", "cpo", "orpo", "hinge")
"""Losses of pairs behind DPO, a case each."""
GROUPS = {"allocation": {"name": "fixed", "num_generations": 4}}
METHODS: dict[str, dict[str, Any]] = {
    "sapo": {
        "loss": {"name": "sapo", "entropy_coef": 0.01, "beta": 0.1},
        "advantage": {"name": "whitened"},
        "sampler": {"name": "edge_of_competence", "explore": 0.5},
        "shaping": [
            *({"name": "overlong", "cache": 8}, {"name": "repetition"}, {"name": "hapo_length"}, {"name": "kimi_length"}),
            *({"name": "gcpo", "marker": ",", "length": 0.1}, {"name": "units", "marker": ","}, {"name": "entropy_rank"}),
        ],
    },
    "cov": {
        "loss": {"name": "clip_cov", "clip_cov_ratio": 0.05, "clip_cov_lb": -1.0},
        "advantage": {"name": "copo"},
        "sampler": {"name": "single_stream"},
        "edits": [{"name": "top_entropy", "top_entropy_quantile": 0.5}, {"name": "token_budget", "tokens": 300}],
    },
    "entropy": {
        "loss": {"name": "kl_cov", "kl_cov_ratio": 0.1},
        "advantage": {"name": "gtpo_entropy", "entropy_range": [0.0, 9.0]},
        "edits": [{"name": "gtpo_conflict", "entropy_limit": 3.8}],
        "sampler": {"name": "retain_hardest"},
    },
    "disco": {
        "loss": {"name": "disco", "delta": 0.0},
        "advantage": {"name": "xrpo"},
        "continuation": {"name": "guide", "mode": "append", "guided": 4},
        "edits": [{"name": "uncertain_tokens"}],
    },
    "gspo": {
        "loss": {"name": "clipped", "importance_sampling_level": "sequence", "vllm_importance_sampling_clip_max": 2.0},
        "advantage": {"name": "pass_k", "k": 2},
        "continuation": {"name": "reflection", "threshold": 1.0},
        "edits": [{"name": "replay"}, {"name": "dynamic_sampling"}],
    },
    "spans": {"advantage": {"name": "spans", "credit": "following"}, "sampler": {"name": "phases", "bounds": [12, 16]}},
    "tree": {
        "advantage": {"name": "leave_one_out", "normalize_advantages": True},
        "continuation": {"name": "tree", "branches": [2, 2], "segment": 8},
    },
    "frontier": {
        "allocation": {"name": "fixed", "num_generations": 4},
        "advantage": {"name": "leave_one_out"},
        "continuation": {"name": "tree", "branches": [2, 2], "segment": 6, "expansions": 3},
    },
    "windows": {
        "allocation": {"name": "fixed", "num_generations": 1},
        "advantage": {"name": "gae"},
        "critic": {"name": "value_head"},
        "continuation": {"name": "windows", "window": 8},
    },
    "critique": {
        "continuation": {"name": "critique"},
        "edits": [{"name": "demonstrations"}, {"name": "information_mask", "begin": ",", "end": "?"}],
        "sampler": {"name": "hard_first"},
    },
    "prefix": {"prompting": {"name": "prefix"}, "advantage": {"name": "optimal_token_baseline"}},
    "dppo": {
        "loss": {"name": "dppo", "divergence": "kl", "epsilon": 0.0, "off_policy_mask_threshold": 0.1},
        "advantage": {"name": "gdpo", "rewards": {"overlong": 0.5, "units": 1.0}},
        "shaping": [{"name": "overlong", "cache": 8}, {"name": "units", "marker": ","}],
    },
    "dro": {"loss": {"name": "dro"}, "advantage": {"name": "remax"}},
    "passk": {
        "loss": {"name": "clipped", "importance_sampling_level": "product", "loss_type": "grpo"},
        "advantage": {"name": "grpo_passk"},
    },
    "terms": {
        "shaping": [{"name": "kl", "kl_estimator": "k3", "target_kl": 0.1, "horizon": 100}],
        "advantage": {"name": "whitened", "baseline": "none", "gamma": 0.9},
        "loss": {"name": "clipped", "importance_sampling_level": "sequence_token", "loss_agg_mode": "seq-mean-token-sum"}
        | {"beta": 0.1, "kl_estimator": "k1+", "use_bias_correction_kl": True, "entropy_coef": 0.01},
    },
    "ppo": {
        "loss": {"name": "clipped", "num_iterations": 2},
        "advantage": {"name": "gae"},
        "critic": {"name": "value_head", "num_iterations": 2},
    },
    "segments": {
        "loss": {"name": "direct_advantage"},
        "advantage": {"name": "segments", "samples": 4},
    },
    "unlikely": {
        "advantage": {"name": "segments", "samples": 4, "whiten": True},
        "edits": [{"name": "uncertain_tokens"}],
    },
    "vespo": {
        "loss": {"name": "vespo"},
        "advantage": {"name": "length_baseline"},
        "edits": [{"name": "d3s", "samples": [0.5, 1.0], "tokens": [0.5, 0.9]}],
        "sampler": {"name": "ada_rft"},
    },
    "geo_mean": {
        "loss": {"name": "geo_mean"},
        "advantage": {"name": "a_grae", "alpha": 0.5},
        "sampler": {"name": "easy_to_hard", "by": "pass_rate"},
        "prompting": {"name": "icpo", "steered": 2, "floor": 0.0},
    },
    "hapo": {
        "loss": {"name": "hapo_token"},
        "advantage": {"name": "tracked"},
        "sampler": {"name": "pcl", "value": {"name": "beta"}},
        "prompting": {"name": "annealed_shots", "schedule": [1, 0]},
    },
    "turns": {
        "loss": {"name": "clipped", "beta": 0.05, "first_turn_beta": 0.2},
        "advantage": {"name": "turn_returns", "gamma": 0.9},
        "episode": {"name": "retry", "max_turns": 2, "feedback": ","},
        "shaping": [{"name": "attempts"}, {"name": "improvement"}],
    },
    "gain": {
        "loss": {"name": "gpg"},
        "advantage": {"name": "igpo", "space": "prob"},
        "episode": {"name": "retry", "max_turns": 2, "feedback": ",", "always": True},
        "edits": [{"name": "turn_filter"}],
    },
    "credit": {
        "loss": {"name": "clipped"},
        "advantage": {
            "name": "turns",
            "sources": [{"name": "feedback", "placeholder": ","}, {"name": "agreement"}],
            "propagation": {"name": "returns", "rescale": "sqrt"},
            "outcome": {},
        },
        "episode": {"name": "retry", "max_turns": 2, "feedback": ",", "always": True},
        "edits": [{"name": "observations"}],
    },
    "lite": {
        "loss": {"name": "clipped"},
        "advantage": {"name": "group", "scale_rewards": "batch", "accurate_gradient": True},
        "continuation": {"name": "shown_attempt", "references": 2, "feedback": ","},
        "shaping": [{"name": "gap"}],
    },
}
"""Members of RL's seams that sums and functions enter, several to a case."""
KINDS = (*STAGES, *(f"prefer.{name}" for name in PAIRED), *(f"rl.{name}" for name in METHODS), "evaluate.nll")
WIDER = torch.backends.cpu.get_cpu_capability() not in ("AVX2", "DEFAULT")
"""Whether this processor has instructions beyond those of the level below."""
LEVELS = {"native": "", "avx2": "x86-64-v3", "baseline": "x86-64"}
REWARDS = """
def commas(problems, completions, verdicts):
    return [c.count(",") / max(len(c), 1) for c in completions]


def held(problems, completions, verdicts):
    return [float("," in c) for c in completions]
"""
HELD = ("gspo", "tree")
"""Cases that are paid 1 or 0, and with steps by the reward of that name."""
DIFFERENCE = "sampling/sampling_logp_difference/max"


def processor(name: str, folder: Path) -> dict[str, str]:
    """Environment of a process that computes as a processor of this name would: PyTorch, its libraries and our kernels."""
    if name == "native":
        return {}
    compiler = folder / f"cc-{name}"
    if not compiler.exists():
        version = f'if [ "$1" = --version ]; then echo {name}; fi\n'  # another library than that for this processor
        compiler.write_text(f'#!/bin/bash\n{version}exec gcc "${{@/-march=native/-march={LEVELS[name]}}}"\n')
        compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    torch = {"avx2": "avx2", "baseline": "default"}[name]
    isa = {"avx2": "AVX2", "baseline": "SSE41"}[name]
    more = {"MKL_CBWR": "COMPATIBLE"} if name == "baseline" else {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    return {"CC": str(compiler), "ATEN_CPU_CAPABILITY": torch, "ONEDNN_MAX_CPU_ISA": isa, **more}


def laid_out(folder: Path) -> None:
    """A model, problems, pairs and a corpus."""
    world.model(folder, "a" * 12, shape=SHAPE, numerics="exact")
    pair_set(folder, "b" * 12)
    train = world.problem_set(folder, "c" * 12, 200, split="train")
    roles = {"tokenizer": folder / "pretrain" / ("a" * 12), "data.0": train}
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=64), roles, folder / "corpus", Run())


def spec_of(kind: str, numerics: str, steps: int) -> Any:
    both: dict[str, Any] = {"dtype": "int8", "numerics": numerics}
    tune = TuneOptimizer(learning_rate=5e-3)
    if kind == "pretrain":
        return PretrainSpec(model=SHAPE, tokens=900 * steps, batch_tokens=1024, **both)
    if kind == "midtrain":
        jumps = PositionJumps(probability=0.4, start=0.0)
        return MidtrainSpec(tokens=900 * steps, batch_tokens=1024, position_jumps=jumps, save_dtype="bfloat16", **both)
    if kind == "sft":
        return SftSpec(tokens=900 * steps, batch_tokens=1024, optimizer=Optimizer(name="adamw"), **both)
    kind, _, name = kind.partition(".")
    if kind == "prefer":
        more = {"loss_type": name} if name else {}
        return PreferSpec(mix=[1.0], steps=steps, pairs_per_step=8, max_length=128, optimizer=tune, **(both | more))
    if kind == "evaluate":
        scored = bool(name)
        return EvaluateSpec(num_samples=8, max_completion_length=24, nll=scored, entropy=scored, **both)
    method = Method(
        paper="test",
        allocation=FixedAllocation(num_generations=4),
        loss=ClippedLoss(beta=0.1, num_iterations=2),
    )
    if name:
        method = Method.model_validate({"paper": "test", **GROUPS, **METHODS[name]})
    paid = "held" if name in HELD else "commas"
    schedule = TuneSchedule(name="cosine" if name else "constant")
    return RLSpec(
        method=method,
        schedule=schedule,
        reward=StepsReward() if name == "spans" else OwnReward(function=f"mine.py:{paid}", source=REWARDS),
        mix=[1.0],
        steps=steps,
        prompts_per_step=8,
        minibatches=2,
        max_completion_length=24,
        optimizer=tune,
        **both,
    )


def inputs_of(kind: str, folder: Path) -> dict[str, Path]:
    model, problems = folder / "pretrain" / ("a" * 12), folder / "problems"
    kind = kind.partition(".")[0]
    if kind in ("pretrain", "midtrain", "sft"):
        first = {"tokenizer": model} if kind == "pretrain" else {"init": model}
        return {"corpus": folder / "corpus", "validation": problems / ("c" * 12), **first}
    if kind == "evaluate":
        return {"model": model, "data": problems / ("c" * 12)}
    return {"init": model, "data.0": folder / "curate" / ("b" * 12) if kind == "prefer" else problems / ("c" * 12)}


def left(out: Path) -> dict[str, Any]:
    """Hashes of the files of a stage."""
    files = [*out.glob("model/model.safetensors"), *sorted(out.glob("*.parquet")), *sorted(out.glob("resume/**/*.safetensors"))]
    found: dict[str, Any] = {}
    for file in files:
        name = "state" if "resume" in file.parts else file.stem
        found[name] = hashlib.sha256(found.get(name, "").encode() + file.read_bytes()).hexdigest()[:12]
    lines = (
        [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        if (out / "metrics.jsonl").exists()
        else []
    )
    differences = [line[DIFFERENCE] for line in lines if DIFFERENCE in line]
    logged = {"metrics": hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:12]} if lines else {}
    return found | ({"difference": max(differences)} if differences else {}) | logged


def made(
    folder: Path, kind: str, numerics: str, steps: int, look: Callable[[Path], dict[str, Any]] = left, **run: Any
) -> dict[str, Any]:
    """Hashes of weights, of the last save (weights and state of the optimiser) and of tables; with RL how far the trainer's
    log-probabilities were from the engine's. Or what `look` sees in the folder."""
    out, how, spec = folder / f"out.{os.getpid()}" / kind, Run(save_minutes=0.0, **run), spec_of(kind, numerics, steps)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    inputs = inputs_of(kind, folder)
    if how.stack > 1 and KINDS_OF[kind.partition(".")[0]].stacked:
        others = spec.model_copy(update={"seed": spec.seed + 1}), inputs, out / "other"
        replicas = [execution.Replica(*others), execution.Replica(spec, inputs, out)]
        for number, outcome in workers.call_stacked(kind.partition(".")[0], replicas, how):
            assert isinstance(outcome, dict), (number, outcome)
    elif how.processes > 1:
        (out / "stage.json").write_text("{}")
        workers.run_workers(Stage.make(kind.partition(".")[0], spec, {}, how, kind).as_json(), inputs, out, how)
    else:
        workers.load_function(kind.partition(".")[0])(spec, inputs, out, how)
    return look(out)


def in_child(folder: Path, numerics: str, steps: int, kinds: tuple[str, ...], name: str, **run: Any) -> dict[str, Any]:
    """The same of kinds in a process on another processor."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **processor(name, folder)}
    given = [str(folder), numerics, str(steps), ",".join(kinds), json.dumps(run)]
    done = subprocess.run([sys.executable, __file__, *given], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def covering(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Few of the rows, in which any two values of two columns occur together that do so in some row."""

    def pairs(row: tuple[Any, ...]) -> set[Any]:
        return set(itertools.combinations(enumerate(row), 2))

    left, chosen = set().union(*map(pairs, rows)), list[tuple[Any, ...]]()
    while left:
        chosen.append(max(rows, key=lambda row: len(pairs(row) & left)))
        left -= pairs(chosen[-1])
    return chosen


AXES: dict[str, list[Any]] = {
    "processor": list(LEVELS),
    "threads": [1, 2],
    "processes": [1, 2],
    "micro_batch_tokens": [256, 8192],
    "engine_batch": [8, 256],
    "stack": [1, 2],
}


def rows_of(kind: str, whole: bool) -> list[tuple[Any, ...]]:
    """Values of the axes: few, or all, but for those that a kind has no use for: no engine trains, and pairs are not stacked."""
    rows = [row for row in itertools.product(*AXES.values()) if not row[2] == row[5] == 2]  # a stack is one process
    if not whole:
        return covering(rows)
    family = kind.partition(".")[0]
    sampled, stacked = family in ("rl", "evaluate"), KINDS_OF[family].stacked
    return [row for row in rows if (sampled or row[4] == 256) and (stacked or row[5] == 1)]


def table(folder: Path, numerics: str, steps: int, whole: bool, kinds: tuple[str, ...]) -> None:
    """Makes what is not there yet, and says how many kinds of bytes there are of each file, over how many runs, and what axis
    alone moves them."""
    kept = folder / "runs.jsonl"
    runs: dict[tuple[Any, ...], Any] = {}
    if kept.exists():
        runs = {(one["kind"], *one["row"]): one["found"] for one in map(json.loads, kept.read_text().splitlines())}
    wanted = {kind: rows_of(kind, whole) for kind in kinds}
    for row in itertools.product(*AXES.values()):
        new, (name, *values) = tuple(kind for kind in kinds if row in wanted[kind] and (kind, *row) not in runs), row
        run = dict(zip(list(AXES)[1:], values, strict=True))
        for kind, found in in_child(folder, numerics, steps, new, name, **run).items() if new else ():
            runs[kind, *row] = found
            with kept.open("a") as file:
                file.write(json.dumps({"kind": kind, "row": row, "found": found}) + "\n")
            print(kind, *row, json.dumps(found)[:300], flush=True)
    for kind in kinds:
        of_kind = {row[1:]: found for row, found in runs.items() if row[0] == kind}
        for what in next(iter(of_kind.values()), {}):
            several = {json.dumps(found[what]) for found in of_kind.values()}
            pairs = [(a, b) for a, b in itertools.combinations(of_kind, 2) if of_kind[a][what] != of_kind[b][what]]
            axes = {differing[0] for pair in pairs if len(differing := apart(*pair)) == 1}
            moved = ", ".join(axis for axis in AXES if axis in axes) or "nothing"
            said = f", at most {max(found[what] for found in of_kind.values()):.3g}" if what == "difference" else ""
            print(f"{numerics} {kind} {what}: {len(several)} kinds of bytes in {len(of_kind)} runs{said}; moved by {moved}")


def apart(one: tuple[Any, ...], other: tuple[Any, ...]) -> list[str]:
    """The axes by which two cells differ."""
    return [axis for axis, x, y in zip(AXES, one, other, strict=True) if x != y]


if __name__ == "__main__":
    place, kind_of, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if sys.argv[4] in ("few", "all"):
        if not place.exists():
            place.mkdir(parents=True)
            laid_out(place)
        given = KINDS if sys.argv[5] == "every" else tuple(sys.argv[5].split(","))
        table(place, kind_of, number, sys.argv[4] == "all", given)
    else:
        results = {kind: made(place, kind, kind_of, number, **json.loads(sys.argv[5])) for kind in sys.argv[4].split(",")}
        shutil.rmtree(place / f"out.{os.getpid()}")
        print(json.dumps(results))
