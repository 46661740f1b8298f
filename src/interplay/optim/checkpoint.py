"""Resume state of a training stage: `resume/<step>.safetensors` (all tensors) and `resume/state.json`, which points to it.

The pointer is replaced only after the new tensors are on disk and the old tensors are deleted only after that, so a kill at any
moment, or a full disk, leaves the old state or the new one."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from interplay.store.artifact import read_json, write_atomic, write_json

POINTER = "state.json"


def save(resume: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Make (step, tensors, state) the state to go on from. `state` is JSON data."""
    weights = resume / f"{step}.safetensors"
    write_atomic(weights, to_bytes({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))
    try:
        write_json(resume / POINTER, {"step": step, "tensors": weights.name, "state": state})
    except OSError:
        weights.unlink()
        raise
    for old in resume.iterdir():
        if old.name not in (POINTER, weights.name):
            old.unlink()


def load(resume: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """The last (step, tensors, state) saved, tensors on the CPU; None when there is none."""
    if not (resume / POINTER).exists():
        return None
    pointer = read_json(resume / POINTER)
    return pointer["step"], load_file(resume / pointer["tensors"]), pointer["state"]


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose name begins with `prefix`, by the rest of it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def training_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """All that changes while a model trains: parameters, optimiser state with its step counts, and torch's CPU generator."""
    tensors = {f"model.{name}": parameter for name, parameter in model.named_parameters()}
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{index}.{key}": value for key, value in state.items()}
    return {**tensors, "generator": torch.get_rng_state()}


def restore_training(tensors: dict[str, Tensor], model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Put the tensors of `training_tensors` back into a model and optimisers of the same build."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
    for number, optimizer in enumerate(optimizers):
        whole = optimizer.state_dict()
        whole["state"] = {}
        for name, tensor in tensors.items():
            kind, *place = name.split(".")
            if kind == "optimizer" and int(place[0]) == number:
                whole["state"].setdefault(int(place[1]), {})[place[2]] = tensor
        optimizer.load_state_dict(whole)
    torch.set_rng_state(tensors["generator"])
