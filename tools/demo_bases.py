"""The bases of the study `demo`, data/demo/SEED, from the pre-training of `demo_full` at scale laptop:

    python -m tools.demo_bases            compare: what was pre-trained here, rounded, and what data/demo holds
    python -m tools.demo_bases --write    replace what data/demo holds, and made.json there; then `make locks`

A base is the model folder of a finished pre-training with its weights in bfloat16. Exit code 1 if any differs, or is not there.
Training gives the same bytes with the same libraries on the same kind of processor only: elsewhere the comparison shows by how
much the validation loss differs."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch

from interplay.core import artifact, metrics
from interplay.core.model import UserError
from interplay.model import folder
from interplay.study.expand import plan_study
from tools.coffee_bases import weight_difference

ROOT = Path(__file__).parents[1]
BASES = Path("data/demo")
MADE = "made.json"
STUDY, ARM = "demo_full", "base"


class Base(NamedTuple):
    """One replicate's pre-training."""

    seed: int
    digest: str
    artifact: Path


def bases(root: Path) -> list[Base]:
    """The pre-training of each seed, finished or not."""
    plan = plan_study(root / "configs", STUDY, "laptop")
    found = [(arm.seed, arm.path[0].digest) for arm in plan.report_spec().arms if arm.arm == ARM]
    return [Base(seed, digest, artifact.folder(root / "results", "pretrain", digest)) for seed, digest in found]


def round_model(model: Path, out: Path) -> None:
    """Write the model folder with its weights in bfloat16. The bytes are a function of the float32 weights."""
    out.mkdir(parents=True, exist_ok=True)
    folder.copy_files(model, out, (*folder.TOKENIZER_FILES, "generation_config.json"))
    artifact.write_json(out / "config.json", {**artifact.read_json(model / "config.json"), "dtype": "bfloat16"})
    tensors = safetensors.torch.load_file(model / "model.safetensors")
    folder.save_tensors({name: one.to(torch.bfloat16) for name, one in tensors.items()}, out / "model.safetensors")


def losses(base: Base) -> dict[str, float]:
    """Validation loss by band of a finished pre-training, in nats per token."""
    return artifact.record(base.artifact)["metrics"]["eval_loss"]


def describe(base: Base, shipped: Path) -> dict[str, Any]:
    """What made.json holds of one base."""
    return {"stage": base.digest, "sha256": artifact.model_checksum(shipped), "eval_loss": losses(base)}


def write(root: Path, made: list[Base]) -> None:
    """Replace the models in data/demo; those of other seeds go. The study reads the folders, so none is missing in between."""
    for base in made:
        round_model(base.artifact / "model", root / BASES / str(base.seed))
    for old in (root / BASES).glob("*/"):
        if old.name not in {str(base.seed) for base in made}:
            shutil.rmtree(old)
    entries = {str(base.seed): describe(base, root / BASES / str(base.seed)) for base in made}
    artifact.write_json(root / BASES / MADE, {"bases": entries, "environment": metrics.current_environment()})


def differences(root: Path, base: Base) -> str:
    """How a base that was made here differs from the one that data/demo holds; empty where their bytes agree."""
    shipped = root / BASES / str(base.seed)
    with tempfile.TemporaryDirectory(prefix="interplay-") as scratch:
        round_model(base.artifact / "model", Path(scratch))
        if artifact.model_checksum(Path(scratch)) == artifact.model_checksum(shipped):
            return ""
        weights = weight_difference(Path(scratch), shipped)
    known = artifact.read_json(root / BASES / MADE)["bases"][str(base.seed)]["eval_loss"]
    compared = "; ".join(f"{band} {loss:.4f} here, {known[band]:.4f} there" for band, loss in losses(base).items())
    return f"{weights}, validation loss on {compared}"


def main(root: Path = ROOT) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_bases", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace what data/demo holds")
    writing = parser.parse_args().write
    made = bases(root)
    if missing := [base.digest for base in made if not artifact.done(base.artifact)]:
        raise UserError(
            f"{', '.join(missing)}: not pre-trained here yet; run `snakemake all --config study={STUDY} scale=laptop`"
        )
    if writing:
        write(root, made)
    found = {base: differences(root, base) for base in made}
    for base, difference in found.items():
        print(f"{BASES}/{base.seed}: {difference or 'the same bytes'} (pre-training {base.digest})")
    if any(found.values()):
        here, there = metrics.current_environment(), artifact.read_json(root / BASES / MADE)["environment"]
        other = [f"{key} {there.get(key)} there, {here.get(key)} here" for key in there | here if there.get(key) != here.get(key)]
        print(f"made with: {'; '.join(other) or 'the same processor and libraries'}")
    return int(any(found.values()))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"tools.demo_bases: {error}")
