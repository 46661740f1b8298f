"""What a stage leaves, hashed, for runs that differ in nothing that a digest names. With PYTHONPATH=tests:

    python tests/unit/exact_cases.py FOLDER NUMERICS STEPS KINDS RUN    the stages in this process: a line of JSON
    python tests/unit/exact_cases.py FOLDER NUMERICS STEPS              a table over instructions x threads x processes x batches

KINDS are separated by commas, RUN is a run block as JSON. Environment variables stand in for other processors (`processor`)."""

import hashlib
import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import world
from test_prefer import pair_set

from interplay.core.execution import Run
from interplay.data import corpus
from interplay.data.spec import CorpusSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.model.spec import Optimizer, Shape, TuneOptimizer
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from interplay.run import workers
from interplay.study.plan import Stage
from interplay.train.spec import PreferSpec, PretrainSpec, SftSpec

SHAPE = Shape(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=96
)
KINDS = ("pretrain", "sft", "prefer", "rl", "evaluate")
LEVELS = {"native": "", "avx2": "x86-64-v3", "baseline": "x86-64"}
REWARDS = """
def commas(problems, completions, verdicts):
    return [c.count(",") / max(len(c), 1) for c in completions]
"""
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
    world.model(folder, "a" * 12, shape=SHAPE)
    pair_set(folder, "b" * 12)
    train = world.problem_set(folder, "c" * 12, 200, split="train")
    roles = {"tokenizer": folder / "pretrain" / ("a" * 12), "data.0": train}
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=64), roles, folder / "corpus", Run())


def spec_of(kind: str, numerics: str, steps: int) -> Any:
    both: dict[str, Any] = {"dtype": "int8", "numerics": numerics}
    tune = TuneOptimizer(learning_rate=5e-3)
    if kind == "pretrain":
        return PretrainSpec(model=SHAPE, tokens=900 * steps, batch_tokens=1024, **both)
    if kind == "sft":
        return SftSpec(tokens=900 * steps, batch_tokens=1024, optimizer=Optimizer(name="adamw"), **both)
    if kind == "prefer":
        return PreferSpec(mix=[1.0], steps=steps, pairs_per_step=8, max_length=128, optimizer=tune, **both)
    if kind == "evaluate":
        return EvaluateSpec(num_samples=8, max_completion_length=24, **both)
    method = Method(
        paper="test",
        allocation=FixedAllocation(num_generations=4),
        loss=ClippedLoss(beta=0.1, num_iterations=2),
    )
    return RLSpec(
        method=method,
        reward=OwnReward(function="mine.py:commas", source=REWARDS),
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
    if kind in ("pretrain", "sft"):
        first = {"tokenizer": model} if kind == "pretrain" else {"init": model}
        return {"corpus": folder / "corpus", "validation": problems / ("c" * 12), **first}
    if kind == "evaluate":
        return {"model": model, "data": problems / ("c" * 12)}
    return {"init": model, "data.0": folder / "curate" / ("b" * 12) if kind == "prefer" else problems / ("c" * 12)}


def made(folder: Path, kind: str, numerics: str, steps: int, **run: Any) -> dict[str, Any]:
    """Hashes of weights, of the last save (weights and state of the optimiser) and of tables; with RL how far the trainer's
    log-probabilities were from the engine's."""
    out, how, spec = folder / f"out.{os.getpid()}" / kind, Run(save_minutes=0.0, **run), spec_of(kind, numerics, steps)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    inputs = inputs_of(kind, folder)
    if how.processes > 1:
        (out / "stage.json").write_text("{}")
        workers.run_workers(Stage.make(kind, spec, {}, how, kind).as_json(), inputs, out, how)
    else:
        workers.load_function(kind)(spec, inputs, out, how)
    return left(out)


def left(out: Path) -> dict[str, Any]:
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
    losses = [line["loss"] for line in lines if "loss" in line]
    return found | ({"difference": max(differences)} if differences else {}) | ({"losses": losses} if losses else {})


def in_child(folder: Path, numerics: str, steps: int, kinds: tuple[str, ...], name: str, **run: Any) -> dict[str, Any]:
    """The same of kinds in a process on another processor."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **processor(name, folder)}
    given = [str(folder), numerics, str(steps), ",".join(kinds), json.dumps(run)]
    done = subprocess.run([sys.executable, __file__, *given], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def table(folder: Path, numerics: str, steps: int) -> None:
    """What of each kind is the same over all runs, and how many kinds of bytes there are otherwise."""
    axes = {
        "processor": list(LEVELS),
        "threads": [1, 2],
        "processes": [1, 2],
        "micro_batch_tokens": [256, 8192],
        "engine_batch": [8, 256],
    }
    of_kind: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {kind: [] for kind in KINDS}
    for name, *values in itertools.product(*axes.values()):
        run = dict(zip(list(axes)[1:], values, strict=True))
        kinds = KINDS if run["engine_batch"] == 256 else ("rl", "evaluate")
        for kind, found in in_child(folder, numerics, steps, kinds, name, **run).items():
            of_kind[kind].append(({"processor": name, **run}, found))
            print(kind, name, *values, json.dumps(found)[:300], flush=True)
    for kind, runs in of_kind.items():
        for what in runs[0][1]:
            several = {json.dumps(found[what]) for _, found in runs}
            moved = [
                axis
                for axis in axes
                if any(
                    one[what] != other[what]
                    for (a, one), (b, other) in itertools.combinations(runs, 2)
                    if all((a[key] == b[key]) == (key != axis) for key in axes)
                )
            ]
            largest = f", at most {max(found[what] for _, found in runs):.3g}" if what == "difference" else ""
            print(
                f"{numerics} {kind} {what}: {len(several)} of {len(runs)} runs differ{largest}; moved by {', '.join(moved) or 'nothing'}"
            )


if __name__ == "__main__":
    place, kind_of, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if len(sys.argv) == 4:
        place.mkdir(parents=True, exist_ok=True)
        laid_out(place)
        table(place, kind_of, number)
    else:
        results = {kind: made(place, kind, kind_of, number, **json.loads(sys.argv[5])) for kind in sys.argv[4].split(",")}
        shutil.rmtree(place / f"out.{os.getpid()}")
        print(json.dumps(results))
