"""Small finished artifacts for tests of stages: problem sets and a model with its tokenizer, laid out as the runner lays them
out."""

from pathlib import Path

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.data import problems, tokenizer
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.model import folder
from interplay.model.spec import Numerics, Shape
from interplay.tasks.op_dag.spec import OpDag

TASK = OpDag(modulus=5, operators="+", letters=10, distractors=(0, 1))
SHAPE = Shape(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48
)


def problem_set(results: Path, digest: str, size: int, seed: int = 0, split: str = "rl") -> Path:
    """`results/problems/<digest>` with `size` problems of 2 or 3 operations."""
    spec = ProblemsSpec(
        task=TASK, bands={"easy": {2: 0.5, 3: 0.5}}, shares={"easy": 1.0}, size=size, seed=seed, split=split, unique=False
    )
    out = results / "problems" / digest
    problems.generate_problems(spec, {}, out, Run())
    write_json(out / "stage.json", {"kind": "problems", "digest": digest, "spec": canonical(spec), "deps": {}})
    return out


def model(results: Path, digest: str, seed: int = 0, shape: Shape = SHAPE, numerics: Numerics = "fast") -> Path:
    """`results/pretrain/<digest>` with an untrained model that knows the task's characters."""
    out = results / "pretrain" / digest
    tokenizer.build_tokenizer(TokenizerSpec(task=TASK), {}, out, Run())
    decoder = folder.init_decoder(shape, tokenizer.load(out).get_vocab_size(), seed, numerics)
    folder.save_decoder(decoder, out / "model", out / "tokenizer")
    return out
