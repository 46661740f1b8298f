"""Resume state of a training stage: `resume/<step>.safetensors` (all tensors) and `resume/state.json`, which points to it.

The pointer is replaced only after the new tensors are on disk and the old tensors are deleted only after that, so a kill at any
time, or a full disk, leaves the old state or the new one."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save as to_bytes
from torch import Tensor, nn

from interplay.core import artifact, execution
from interplay.optim import distributed

POINTER = "state.json"


def save_checkpoint(resume: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Save (step, tensors, state) as the state to resume from. `state` is JSON data. Collective; the first process writes."""
    name = f"{step}.safetensors"
    if execution.is_first_rank():
        kept = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        artifact.write_atomic(resume / name, to_bytes(kept))
        _write_pointer(resume, {"step": step, "tensors": name, "state": state}, name)
    distributed.barrier()


def _write_pointer(resume: Path, pointer: dict[str, Any], name: str) -> None:
    """Replace the pointer, then delete the tensors of older steps; on a full disk delete the new ones and raise."""
    try:
        artifact.write_json(resume / POINTER, pointer)
    except OSError:
        (resume / name).unlink(missing_ok=True)
        raise
    for old in resume.iterdir():
        if old.name not in (POINTER, name):
            old.unlink()


def load_checkpoint(resume: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """The last saved (step, tensors, state), on the CPU; None when there is none."""
    if not (resume / POINTER).exists():
        return None
    pointer = artifact.read_json(resume / POINTER)
    return pointer["step"], load_file(resume / pointer["tensors"]), pointer["state"]


SEGMENTS = "segments"
"""Folder of the states that stay, `segments/<step>/` each, and with `.json` the file of their checksums."""


def keep_segment(out: Path, step: int, how: execution.Run) -> None:
    """After a save to `out/resume` at a multiple of `segment_steps`: list its checksum, and keep all of resume/ with it, as links
    where the file system has them, since files there are replaced and never edited. Of several processes the first alone does."""
    if not how.segment_steps or step % how.segment_steps or not execution.is_first_rank():
        return
    before = [one for one in listed_segments(out) if one["step"] < step]
    if how.keep_segments:
        shutil.rmtree(out / SEGMENTS / str(step), ignore_errors=True)
        shutil.copytree(out / "resume", out / SEGMENTS / str(step), copy_function=_link)
    entry = {"step": step, "sha256": state_checksum(out / "resume")}
    artifact.write_json(out / f"{SEGMENTS}.json", {"states": [*before, entry]})


def _link(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def listed_segments(out: Path) -> list[dict[str, Any]]:
    """`step` and `sha256` of each listed training state of a stage, by step; [] where none is."""
    path = out / f"{SEGMENTS}.json"
    return list(artifact.read_json(path)["states"]) if path.exists() else []


def state_checksum(resume: Path) -> str:
    """sha256 of the training state in a folder: its step, its JSON data but for their numerics, and its tensors."""
    folder = resume if (resume / POINTER).exists() else resume / "state"
    pointer = artifact.read_json(folder / POINTER)
    state = {key: value for key, value in pointer["state"].items() if key != "numerics"}
    known = {"step": pointer["step"], "state": state, "tensors": [artifact.checksum(folder / pointer["tensors"])]}
    return hashlib.sha256(artifact.to_json(known)).hexdigest()


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name begins with `prefix`, by the rest of the name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def training_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The state of a training run: parameters, optimiser state with its step counts, and torch's CPU generator."""
    return {**model_tensors(model), **optimizer_tensors(optimizers), "generator": torch.get_rng_state()}


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters."""
    return {f"model.{name}": parameter for name, parameter in model.named_parameters()}


def optimizer_tensors(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The state of optimisers; step counts are ()."""
    return {
        f"optimizer.{number}.{index}.{key}": value
        for number, optimizer in enumerate(optimizers)
        for index, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
    }


def restore_training(tensors: dict[str, Tensor], model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Load the tensors of `training_tensors` into a model and optimisers of the same structure."""
    restore_model(tensors, model)
    restore_optimizers(tensors, optimizers)
    torch.set_rng_state(tensors["generator"])


def restore_model(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Load the parameters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])


def restore_optimizers(tensors: dict[str, Tensor], optimizers: list[torch.optim.Optimizer]) -> None:
    """Load the state of optimisers."""
    for number, optimizer in enumerate(optimizers):
        state = optimizer.state_dict()
        state["state"] = {}
        for name, tensor in with_prefix(tensors, f"optimizer.{number}.").items():
            index, key = name.split(".")
            state["state"].setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict(state)
