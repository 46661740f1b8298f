"""Training and evaluation in one process and in two that share the machine: tokens per second, and the ratio.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/devices.py            # two idle cores
    PYTHONPATH=src python bench/devices.py --gpus                       # two GPUs

Trains a fresh model of 0.8M parameters on a corpus that it makes, by the stage runner's own workers, in one process and in two,
then evaluates it in one and in two; each figure is the telemetry of the run, without start-up.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from interplay.core.artifact import read_json, write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.data import corpus, problems, tokenizer
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.model.spec import Shape
from interplay.run import workers
from interplay.tasks.op_dag.spec import OpDag
from interplay.train.spec import PretrainSpec

SHAPE = Shape(
    hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=384
)
WAYS: dict[str, dict[str, Any]] = {
    "1 process": {"processes": 1},
    "2 processes": {"processes": 2},
}


def inputs(folder: Path) -> dict[str, Path]:
    task = OpDag(modulus=5, distractors=(0, 1))
    tokenizer.build_tokenizer(TokenizerSpec(task=task), {}, folder / "tokenizer", Run())
    spec = ProblemsSpec(task=task, bands={"id": {4: 1.0}}, shares={"id": 1.0}, size=4000, split="train")
    problems.generate_problems(spec, {}, folder / "train", Run())
    roles = {"tokenizer": folder / "tokenizer", "data.0": folder / "train"}
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=256), roles, folder / "corpus", Run())
    tested = spec.model_copy(update={"size": 200, "split": "test"})
    problems.generate_problems(tested, {}, folder / "test", Run())
    write_json(folder / "test/stage.json", {"kind": "problems", "digest": "test", "spec": canonical(tested), "deps": {}})
    return {"corpus": folder / "corpus", "tokenizer": folder / "tokenizer"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--gpus", action="store_true", help="a GPU for each process")
    options = parser.parse_args()
    spec = PretrainSpec(model=SHAPE, tokens=options.tokens, batch_tokens=16384)
    evaluation = EvaluateSpec(num_samples=64, max_completion_length=96, dtype="float32")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        roles = inputs(folder)

        def measured(kind: str, spec: Model, given: dict[str, Path], way: str) -> dict[str, Any]:
            run = WAYS[way]
            how = Run(**run, gpus=run["processes"] if options.gpus else 0, micro_batch_tokens=8192)
            stage = {"kind": kind, "spec": spec.model_dump(), "run": how.stated()}
            workers.run_workers(stage, given, folder / kind / way, how)
            return read_json(folder / kind / way / "telemetry.json")

        print_rates("training", {way: measured("pretrain", spec, roles, way)["tokens_per_second"] for way in WAYS})
        given = {"model": folder / "pretrain" / "1 process", "data": folder / "test"}
        rate, ways = "completion_tokens_per_second", list(WAYS)[:2]
        print_rates("evaluation", {way: measured("evaluate", evaluation, given, way)[rate] for way in ways})


def print_rates(what: str, rates: dict[str, float]) -> None:
    for way, rate in rates.items():
        print(f"{what:10}  {way:13} {rate:10,.0f} tok/s   {rate / rates['1 process']:5.2f} x", flush=True)


if __name__ == "__main__":
    main()
