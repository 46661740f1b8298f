"""Training in one process and in two that share the machine: tokens per second, and the ratio.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/devices.py            # two cores that nobody else uses
    PYTHONPATH=src python bench/devices.py --gpus                       # two GPUs

Trains a fresh model of 0.8M parameters on a corpus that it makes, by the stage runner's own workers, in one process and in two,
replicated and in slices; each figure is the telemetry of the run, without start-up.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from interplay import workers
from interplay.data import corpus, problems, tokenizer
from interplay.schema.data import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.schema.model import Shape
from interplay.schema.op_dag import OpDag
from interplay.schema.run import Run
from interplay.schema.train import PretrainSpec
from interplay.store.artifact import read_json

SHAPE = Shape(
    hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=384
)
WAYS: dict[str, dict[str, Any]] = {
    "1 process": {"processes": 1},
    "2, replicated": {"processes": 2},
    "2, in slices": {"processes": 2, "sharding": "fsdp2"},
}


def inputs(folder: Path) -> dict[str, Path]:
    task = OpDag(modulus=5, distractors=(0, 1))
    tokenizer.run(TokenizerSpec(task=task), {}, folder / "tokenizer", Run())
    spec = ProblemsSpec(task=task, bands={"id": {4: 1.0}}, shares={"id": 1.0}, size=4000, split="train")
    problems.run(spec, {}, folder / "train", Run())
    roles = {"tokenizer": folder / "tokenizer", "data.0": folder / "train"}
    corpus.run(CorpusSpec(mix=[1.0], sequence_length=256), roles, folder / "corpus", Run())
    return {"corpus": folder / "corpus", "tokenizer": folder / "tokenizer"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--gpus", action="store_true", help="a GPU for each process")
    options = parser.parse_args()
    spec = PretrainSpec(model=SHAPE, tokens=options.tokens, batch_tokens=16384)
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        roles = inputs(folder)
        for way, run in WAYS.items():
            how = Run(**run, gpus=run["processes"] if options.gpus else 0, micro_batch_tokens=8192)
            stage = {"kind": "pretrain", "spec": spec.model_dump(), "run": how.stated()}
            workers.run(stage, roles, folder / way, how)
            told = read_json(folder / way / "telemetry.json")
            rates[way] = told["tokens_per_second"]
            ratio = rates[way] / rates["1 process"]
            print(f"{way:15} {rates[way]:10,.0f} tok/s   {ratio:5.2f} x   mfu {told['mfu']:.3f}")


if __name__ == "__main__":
    main()
