"""Stages that run in several processes: small finished inputs, and the real runner."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import world
from conftest import BEHIND
from safetensors.torch import load_file

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.data import corpus, problems, tokenizer
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.model import folder
from interplay.model.spec import Shape, SourceSpec
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from interplay.run.workers import load_function
from interplay.study.plan import Stage
from interplay.tasks.op_dag.spec import OpDag
from interplay.train.spec import PretrainSpec

TASK = OpDag(modulus=5, operators="+", letters=10, distractors=(0, 1))
SHAPE = Shape(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48
)


REWARDS = """
def commas(problems, completions, verdicts, character=","):
    return [c.count(character) / max(len(c), 1) for c in completions]
"""
CLOSE = 5e-5
"""Most that a weight may differ by: Adam makes steps of full size of gradients that are little more than rounding."""
LM: dict[str, Any] = {"micro_batch_tokens": 128, "save_minutes": 0.0}
RL: dict[str, Any] = {"micro_batch_tokens": 400, "engine_batch": 32, "save_minutes": 0.0}


class Results:
    """A results folder with a tokenizer, two problem sets, a corpus and an untrained model, each as the runner leaves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokenizer = self._made("tokenizer", TokenizerSpec(task=TASK), {}, tokenizer.build_tokenizer)
        self.train, self.held_out = (self._set(split, size) for split, size in (("train", 120), ("validation", 16)))
        self.rl = self._set("rl", 40)
        roles = {"tokenizer": self.tokenizer, "data.0": self.train}
        self.corpus = self._made("corpus", CorpusSpec(mix=[1.0], sequence_length=64), roles, corpus.build_corpus)
        self.model = self._made("source", SourceSpec(sha256="0" * 64), {}, self._untrained)

    def _set(self, split: Any, size: int) -> str:
        bands: dict[str, dict[int, float]] = {"id": {2: 1.0}, "edge": {3: 1.0}}
        spec = ProblemsSpec(task=TASK, bands=bands, shares={"id": 0.5, "edge": 0.5}, size=size, split=split, unique=False)
        return self._made("problems", spec, {}, problems.generate_problems)

    def _untrained(self, spec: Any, inputs: Any, out: Path, how: Run) -> dict[str, Any]:
        tokenizer.build_tokenizer(TokenizerSpec(task=TASK), {}, out, how)
        decoder = folder.init_decoder(SHAPE, tokenizer.load(out).get_vocab_size(), 0)
        folder.save_decoder(decoder, out / "model", out / "tokenizer")
        return {}

    def _made(self, kind: str, spec: Model, deps: dict[str, str], function: Any) -> str:
        stage = Stage.make(kind, spec, deps, Run(), kind)
        out = artifact.folder(self.path, kind, stage.digest)
        inputs = {role: artifact.find(self.path, digest) for role, digest in deps.items()}
        out.mkdir(parents=True)
        metrics = function(spec, inputs, out, Run())
        artifact.write_json(out / "stage.json", stage.as_json())
        artifact.finish(out, stage.identity(), metrics)
        return stage.digest

    def ask(self, kind: str, spec: Model, deps: dict[str, str], **run: Any) -> Path:
        """The folder of a stage that shall run so; what is saved there stays."""
        stage = Stage.make(kind, spec, deps, Run(**run), kind)
        out = artifact.folder(self.path, kind, stage.digest)
        artifact.write_json(out / "stage.json", stage.as_json())
        return out

    def command(self, out: Path) -> list[str]:
        return [*BEHIND, sys.executable, "-m", "interplay.run.stage", "run", out.name, "--results", str(self.path)]

    def start(self, out: Path) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.command(out), env=environment(), stderr=subprocess.PIPE, text=True)

    def kill_after(self, out: Path, step: int) -> None:
        """Run the stage, and kill it without warning once it has saved that step."""
        process = self.start(out)
        while process.poll() is None and (artifact.last_save(out) or {"step": 0})["step"] < step:
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert not artifact.done(out)

    def make(self, out: Path) -> "subprocess.CompletedProcess[str]":
        """Run the stage to its end, whatever that is."""
        return subprocess.run(self.command(out), env=environment(), capture_output=True, text=True, timeout=300, check=False)

    def in_two(self, kind: str, spec: Model, **run: Any) -> Path:
        """The stage made by two processes under the runner."""
        out = self.ask(kind, spec, self.roles(kind), processes=2, **run)
        made = self.make(out)
        assert made.returncode == 0, made.stderr
        return out

    def in_one(self, kind: str, spec: Any, out: Path, **run: Any) -> Path:
        """The stage made by one process, this one."""
        inputs = {role: artifact.find(self.path, digest) for role, digest in self.roles(kind).items()}
        load_function(kind, spec)(spec, inputs, out, Run(**run))
        return out

    def roles(self, kind: str) -> dict[str, str]:
        if kind == "rl":
            return {"init": self.model, "data.0": self.rl}
        if kind == "evaluate":
            return {"model": self.model, "data": self.train}
        return {"corpus": self.corpus, "tokenizer": self.tokenizer, "validation": self.held_out}


def laid_out(path: Path) -> dict[str, Path]:
    """A corpus and its tokenizer."""
    base, data = world.model(path, "b" * 12), world.problem_set(path, "a" * 12, 60, split="train")
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=64), {"tokenizer": base, "data.0": data}, path / "corpus", Run())
    return {"corpus": path / "corpus", "tokenizer": base}


def pretrain(**changes: Any) -> PretrainSpec:
    return PretrainSpec(**{"model": SHAPE, "tokens": 12 * 480, "batch_tokens": 512, "dtype": "float32", **changes})


def rl_spec(seed: int = 0, **method: Any) -> RLSpec:
    seams = {"allocation": FixedAllocation(num_generations=4), "loss": ClippedLoss(beta=0.1, num_iterations=2), **method}
    return RLSpec(
        method=Method(paper="test", **seams),
        reward=OwnReward(function="mine.py:commas", source=REWARDS),
        mix=[1.0],
        steps=4,
        prompts_per_step=8,
        minibatches=2,
        max_completion_length=12,
        optimizer=TuneOptimizer(learning_rate=5e-3),
        keep_rollouts=5,
        seed=seed,
    )


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model/model.safetensors")


def furthest(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest difference of two models' weights."""
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def lines(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def check_equal(one: Path, two: Path) -> None:
    """Weights and metrics of two runs agree but for rounding, and tokens are the same."""
    assert furthest(weights(one), weights(two)) < CLOSE
    first, second = lines(one), lines(two)
    assert [line.keys() for line in first] == [line.keys() for line in second]
    for line, other in zip(first, second, strict=True):
        assert other == pytest.approx(line, rel=1e-4, abs=1e-4)
        assert other.get("tokens") == line.get("tokens")
