"""Resume state of a training stage: `resume/<step>.safetensors` (all tensors) and `resume/state.json`, which points to it.

Where weights lie in slices (optim.sharding), each process writes its own, `<step>.<rank>of<count>.safetensors`; the first file
also holds what is whole. Any number of processes, or one, reads them back: slices joined in order are the tensor.

The pointer is replaced only after the new tensors are on disk and the old tensors are deleted only after that, so a kill at any
moment, or a full disk, leaves the old state or the new one."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from interplay.core import execution
from interplay.core.artifact import read_json, write_atomic, write_json
from interplay.optim import collectives, sharding

POINTER = "state.json"


def save(resume: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Make (step, tensors, state) the state to go on from. `state` is JSON data. All processes of a stage come here together."""
    count = execution.world_size() if any(sharding.is_slice(tensor) for tensor in tensors.values()) else 1
    names = [f"{step}.{rank}of{count}.safetensors" for rank in range(count)] if count > 1 else [f"{step}.safetensors"]
    if execution.rank() < count:
        _write(resume / names[execution.rank()], tensors)
    collectives.barrier()
    if execution.is_first_rank():
        _point(resume, {"step": step, "tensors": names if count > 1 else names[0], "state": state}, names)
    collectives.barrier()


def _write(file: Path, tensors: dict[str, Tensor]) -> None:
    """What of the tensors this process has to keep."""
    kept = {name: tensor for name, tensor in tensors.items() if execution.is_first_rank() or sharding.is_slice(tensor)}
    data = to_bytes({name: sharding.slice_of(tensor).detach().cpu().contiguous() for name, tensor in kept.items()})
    write_atomic(file, data, every_worker=True)


def _point(resume: Path, pointer: dict[str, Any], names: list[str]) -> None:
    try:
        write_json(resume / POINTER, pointer)
    except OSError:
        for name in names:
            (resume / name).unlink(missing_ok=True)
        raise
    for old in resume.iterdir():
        if old.name not in (POINTER, *names):
            old.unlink()


def load(resume: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """The last (step, tensors, state) saved, whole tensors on the CPU; None when there is none."""
    if not (resume / POINTER).exists():
        return None
    pointer = read_json(resume / POINTER)
    names = pointer["tensors"]
    if isinstance(names, str):
        return pointer["step"], load_file(resume / names), pointer["state"]
    parts = [load_file(resume / name) for name in names]
    whole = {name: torch.cat([part[name] for part in parts]) if name in parts[1] else value for name, value in parts[0].items()}
    return pointer["step"], whole, pointer["state"]


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose name begins with `prefix`, by the rest of it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def training_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """All that changes while a model trains: parameters, optimiser state with its step counts, and torch's CPU generator."""
    sharding.cut(model)
    tensors = {f"model.{name}": parameter for name, parameter in model.named_parameters()}
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{index}.{key}": value for key, value in state.items()}
    return {**tensors, "generator": torch.get_rng_state()}


def restore_training(tensors: dict[str, Tensor], model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Put the tensors of `training_tensors` back into a model and optimisers of the same build."""
    sharding.cut(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(sharding.like(parameter, tensors[f"model.{name}"]))
    for number, optimizer in enumerate(optimizers):
        whole = optimizer.state_dict()
        whole["state"] = {}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for name, tensor in tensors.items():
            kind, *place = name.split(".")
            if kind == "optimizer" and int(place[0]) == number:
                index = int(place[1])
                whole["state"].setdefault(index, {})[place[2]] = sharding.like(parameters[index], tensor)
        optimizer.load_state_dict(whole)
    torch.set_rng_state(tensors["generator"])
