"""Stages that run in several processes: small finished inputs, and the real runner."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from conftest import BEHIND
from safetensors.torch import load_file

from interplay.data import corpus, problems, tokenizer
from interplay.model import folder
from interplay.schema.base import Model
from interplay.schema.data import CorpusSpec, ProblemsSpec, SourceSpec, TokenizerSpec
from interplay.schema.model import Shape
from interplay.schema.op_dag import OpDag
from interplay.schema.run import Run
from interplay.store import artifact
from interplay.study.plan import Stage

TASK = OpDag(modulus=5, operators="+", letters=10, distractors=(0, 1))
SHAPE = Shape(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48
)


class Results:
    """A results folder with a tokenizer, two problem sets, a corpus and an untrained model, each as the runner leaves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokenizer = self._made("tokenizer", TokenizerSpec(task=TASK), {}, tokenizer.run)
        self.train, self.held_out = (self._set(split, size) for split, size in (("train", 120), ("validation", 16)))
        self.rl = self._set("rl", 40)
        roles = {"tokenizer": self.tokenizer, "data.0": self.train}
        self.corpus = self._made("corpus", CorpusSpec(mix=[1.0], sequence_length=64), roles, corpus.run)
        self.model = self._made("source", SourceSpec(sha256="0" * 64), {}, self._untrained)

    def _set(self, split: Any, size: int) -> str:
        bands: dict[str, dict[int, float]] = {"id": {2: 1.0}, "edge": {3: 1.0}}
        spec = ProblemsSpec(task=TASK, bands=bands, shares={"id": 0.5, "edge": 0.5}, size=size, split=split, unique=False)
        return self._made("problems", spec, {}, problems.run)

    def _untrained(self, spec: Any, inputs: Any, out: Path, how: Run) -> dict[str, Any]:
        tokenizer.run(TokenizerSpec(task=TASK), {}, out, how)
        decoder = folder.init(SHAPE, tokenizer.load(out).get_vocab_size(), 0)
        folder.save(decoder, out / "model", out / "tokenizer")
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
        return [*BEHIND, sys.executable, "-m", "interplay.stage", "run", out.name, "--results", str(self.path)]

    def start(self, out: Path) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.command(out), env=environment(), stderr=subprocess.PIPE, text=True)

    def make(self, out: Path) -> "subprocess.CompletedProcess[str]":
        """Run the stage to its end, whatever that is."""
        return subprocess.run(self.command(out), env=environment(), capture_output=True, text=True, timeout=300, check=False)


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
