"""The bases of scale coffee, data/bases/pretrain/DIGEST, from which its studies start in place of a pre-training:

    python -m tools.coffee_bases            pre-train them again and compare with what data/bases holds
    python -m tools.coffee_bases --write    the same, and replace what data/bases holds, and made.json there

Each is the whole artifact (record, weights, curve) of the stage `base` of the study `coffee` at one seed. Exit code 1 if any
differs. Training gives the same bytes with the same libraries on the same kind of processor only: elsewhere the comparison shows
by how much weights and validation loss differ."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import safetensors.torch

from interplay.core import artifact, metrics
from interplay.core.model import UserError
from interplay.results.payloads import SHIPPED
from interplay.run.stage import run_stage
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

ROOT = Path(__file__).parents[1]
STUDY, SCALE = "coffee", "coffee"
MADE = "made.json"
DECISIVE = ("cpu", "python", "torch", "numpy")
"""What the bytes of a base depend on, in addition to its digest."""


def bases(plan: Plan) -> list[str]:
    """Digests of the pre-trainings of a plan."""
    return [digest for digest, stage in plan.stages.items() if stage.kind == "pretrain"]


def make(plan: Plan, digest: str, results: Path) -> Path:
    """Run a stage and all that it depends on, as a job does; its folder."""
    for one in artifact.closure([digest], lambda each: plan.stages[each].deps.values()):
        out = artifact.folder(results, plan.stages[one].kind, one)
        artifact.write_json(out / "stage.json", plan.stages[one].as_json())
        run_stage(out)
    return out


def ship(made: Path, shipped: Path) -> None:
    """Copy a finished artifact: its record and the files that this lists."""
    for name in (*artifact.record(made)["files"], "record.json"):
        (shipped / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made / name, shipped / name)


def difference(made: Path, shipped: Path) -> str:
    """How a base that was made here differs from the one that comes with the project; empty where records and bytes agree."""
    here, there = artifact.record(made), artifact.record(shipped)
    artifact.check(shipped)
    # Fields that a spec gained since are no difference: the folder's name is its digest.
    if {**here, "spec": None} == {**there, "spec": None}:
        return ""
    losses = here["metrics"]["eval_loss"], there["metrics"]["eval_loss"]
    compared = f"validation loss {losses[0]} here, {losses[1]} there"
    return f"{weight_difference(made / 'model', shipped / 'model')}, {compared}"


def weight_difference(made: Path, shipped: Path) -> str:
    """How the weights of two model folders differ."""
    one, other = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (made, shipped))
    if {name: tensor.shape for name, tensor in one.items()} != {name: tensor.shape for name, tensor in other.items()}:
        return "another shape"
    return f"weights differ by up to {max((one[n].float() - other[n].float()).abs().max().item() for n in one):.3g}"


def same_machine(environment: dict[str, Any]) -> bool:
    """Whether bases made here must have the bytes of those made in this environment."""
    here = metrics.current_environment()
    return all(here.get(key) == environment[key] for key in DECISIVE)


def main(root: Path = ROOT) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.coffee_bases", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace what data/bases holds")
    writing = parser.parse_args().write
    plan = plan_study(root / "configs", STUDY, SCALE)
    kept = root / SHIPPED / "pretrain"
    if writing:
        shutil.rmtree(kept, ignore_errors=True)
    different = False
    with tempfile.TemporaryDirectory(prefix="interplay-") as scratch:
        for digest in bases(plan):
            made = make(plan, digest, Path(scratch))
            if writing:
                ship(made, kept / digest)
            elif not artifact.done(kept / digest):
                raise UserError(f"{kept / digest}: not there; `python -m tools.coffee_bases --write` makes it")
            found = difference(made, kept / digest)
            different |= bool(found)
            print(f"{digest}: {found or 'the same bytes'} ({plan.stages[digest].label})")
    if writing:
        artifact.write_json(root / SHIPPED / MADE, metrics.current_environment())
    elif different:
        kind = "the same" if same_machine(artifact.read_json(root / SHIPPED / MADE)) else "another"
        print(f"made with {kind} processor and libraries ({SHIPPED / MADE})")
    return int(different)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"tools.coffee_bases: {error}")
