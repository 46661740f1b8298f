"""Estimated and measured peak memory of stages on this CPU: training, RL and evaluation of models from 0.8M to 135M parameters.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/memory.py                        # all sizes, float32
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/memory.py --sizes 0.8M --dtype int8

Each stage runs two steps by the runner, as a launch has it, from a random model, with a save after the first. Measured is the
peak of its process that the runner writes to telemetry.json; estimated what `interplay plan` shows. The last column compares
both without what a process takes before it holds a model."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from interplay.core import artifact, metrics
from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.data import corpus, problems, tokenizer
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds import memory, stages
from interplay.model import folder
from interplay.model.spec import Dtype, Memory, Shape, SourceSpec
from interplay.model.trainer_spec import TuneOptimizer
from interplay.results import state
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from interplay.study.plan import Stage
from interplay.tasks.op_dag.spec import OpDag
from interplay.train.spec import SftSpec

SIZES: dict[str, tuple[str, tuple[int, ...], int, int]] = {
    "0.8M": ("qwen3", (128, 4, 4, 4, 32, 384), 1024, 4096),
    "5M": ("llama", (256, 6, 8, 4, 32, 768), 2048, 4096),
    "25M": ("qwen3", (512, 8, 8, 4, 64, 1536), 2048, 2048),
    "135M": ("llama", (576, 30, 9, 3, 64, 1536), 49152, 1024),
}
"""Architecture, numbers of a shape, vocabulary and tokens of a step. A large vocabulary, so that few completions end early."""
NUMBERS = tuple(Shape.model_fields)[1:7]
REWARD = "def reward(problems, completions, verdicts):\n    return [len(one) % 7 / 7 for one in completions]\n"
TASK = OpDag(modulus=7, letters=26)


class Results:
    """A results folder with the stages that others start from, as the runner leaves them."""

    def __init__(self, path: Path, size: str) -> None:
        self.path, self.known = path, dict[str, dict[str, Any]]()
        self.tokenizer = self.made("tokenizer", TokenizerSpec(task=TASK), {}, tokenizer.build_tokenizer)
        spec = ProblemsSpec(task=TASK, bands={"id": {4: 0.5, 6: 0.5}}, shares={"id": 1.0}, size=2000, split="train")
        self.problems = self.made("problems", spec, {}, problems.generate_problems)
        packed = CorpusSpec(mix=[1.0], sequence_length=128, loss_on="all")
        self.corpus = self.made("corpus", packed, {"tokenizer": self.tokenizer, "data.0": self.problems}, corpus.build_corpus)
        self.size = size
        self.source = self.made("source", SourceSpec(sha256="0" * 64), {}, self._untrained)

    def _untrained(self, spec: Any, inputs: Any, out: Path, how: Run) -> dict[str, Any]:
        architecture, numbers, vocab, _ = SIZES[self.size]
        shape = Shape(architecture=architecture, **dict(zip(NUMBERS, numbers, strict=True)))
        tokenizer.build_tokenizer(TokenizerSpec(task=TASK), {}, out, how)
        decoder = folder.init_decoder(shape, vocab, 0)
        folder.save_decoder(decoder, out / "model", out / "tokenizer")
        return {"parameters": sum(parameter.numel() for parameter in decoder.parameters())}

    def made(self, kind: str, spec: Model, deps: dict[str, str], function: Any, how: Run | None = None) -> str:
        """A stage made in this process."""
        how = how or Run()
        stage = Stage.make(kind, spec, deps, how, kind)
        out = artifact.folder(self.path, kind, stage.digest)
        out.mkdir(parents=True)
        found = function(spec, {role: artifact.find(self.path, digest) for role, digest in deps.items()}, out, how)
        artifact.write_json(out / "stage.json", stage.as_json())
        artifact.finish(out, stage.identity(), found)
        self.known[stage.digest] = stage.as_json() | (state.source_size(self.path, stage.digest, {}) if kind == "source" else {})
        return stage.digest

    def measured(self, kind: str, spec: Model, deps: dict[str, str], **run: Any) -> tuple[str, Memory, float]:
        """Digest of a stage made by the runner, its estimated memory and the bytes of its peak."""
        stage = Stage.make(kind, spec, deps, Run(save_minutes=0.0, **run), kind)
        out = artifact.folder(self.path, kind, stage.digest)
        artifact.write_json(out / "stage.json", stage.as_json())
        command = [sys.executable, "-m", "interplay.run.stage", "run", stage.digest, "--results", str(self.path)]
        made = subprocess.run(command, env={**os.environ, "INTERPLAY_STORE": "0"}, capture_output=True, text=True, check=False)
        if made.returncode:
            raise SystemExit(made.stderr)
        self.known[stage.digest] = stage.as_json()
        estimated = stages.peak_memories(self.known)[stage.digest]
        assert estimated is not None
        return stage.digest, estimated, metrics.read_telemetry(out)["peak_memory_mb"] * 2**20


def main() -> None:
    """Print one line for each stage."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    options.add_argument("--kinds", nargs="+", default=["sft", "rl", "evaluate"])
    options.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "int8"])
    given = options.parse_args()
    print(f"{'size':6} {'stage':9} {'phase':8} {'estimated':>10} {'measured':>9} {'ratio':>6} {'without base':>13}  parts")
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as place:
            results = Results(Path(place), size)
            tuned = ""
            for kind in given.kinds:
                spec, deps, run = _stage(results, kind, tuned or results.source, size, given.dtype)
                digest, estimated, peak = results.measured(kind, spec, deps, **run)
                tuned = digest if kind == "sft" else tuned
                own = (estimated.host - memory.BASE) / max(peak - memory.BASE, 1)
                parts = ", ".join(f"{name} {number / 1e6:.0f}" for name, number in estimated.parts.items())
                print(
                    f"{size:6} {kind:9} {estimated.phase:8} {estimated.host / 1e6:8.0f}MB {peak / 1e6:7.0f}MB "
                    f"{estimated.host / peak:6.2f} {own:13.2f}  {parts}",
                    flush=True,
                )


def _stage(results: Results, kind: str, model: str, size: str, dtype: Dtype) -> tuple[Model, dict[str, str], dict[str, Any]]:
    tokens, cap = SIZES[size][3], 64
    slow = TuneOptimizer(learning_rate=1e-6)
    if kind == "sft":
        spec: Model = SftSpec(tokens=2 * tokens - 400, batch_tokens=tokens, dtype=dtype, optimizer=slow)
        return spec, {"init": model, "corpus": results.corpus}, {"micro_batch_tokens": tokens // 2}
    if kind == "evaluate":
        spec = EvaluateSpec(num_samples=8, max_completion_length=cap, dtype=dtype)
        few = ProblemsSpec(task=TASK, bands={"id": {4: 0.5, 6: 0.5}}, shares={"id": 1.0}, size=tokens // 256, split="test")
        held_out = results.made("problems", few, {}, problems.generate_problems)
        return spec, {"model": model, "data": held_out}, {"engine_batch": tokens // 32}
    method = Method(paper="bench", allocation=FixedAllocation(num_generations=8))
    paid = OwnReward(function="bench.py:reward", source=REWARD)
    few_prompts = tokens // 512
    rl = RLSpec(
        **{"method": method, "reward": paid, "mix": [1.0], "steps": 2, "prompts_per_step": few_prompts, "dtype": dtype},
        max_completion_length=cap,
        optimizer=slow,
    )
    return rl, {"init": model, "data.0": results.problems}, {"micro_batch_tokens": 8192, "engine_batch": tokens // 32}


if __name__ == "__main__":
    main()
