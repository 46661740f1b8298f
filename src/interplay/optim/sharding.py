"""Weights in slices: FSDP2 (`torch.distributed.fsdp.fully_shard`) for a decoder whose layers are functions over its parameters.

Between steps each process holds a slice of every parameter, of its gradient and of its optimiser state (DTensors, cut along the
first dimension). For the passes of a step the parameters are gathered once, layer by layer; the gradients of all passes add up
where the pass runs and are then summed and cut in one go. FSDP's hooks would gather within a module's `forward`, where a process
with fewer passes than the others would leave them waiting. In a stage of replicated weights the same functions sum plain
gradients, and in a stage of one process they do nothing: nor do they import FSDP, which takes most of a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from interplay.core import execution
from interplay.core.execution import Run
from interplay.optim import collectives

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


M = TypeVar("M", bound=nn.Module)


def placed(model: M, how: Run) -> M:
    """The model as the run block says: whole, or cut in place into slices. Its optimisers are built behind this."""
    if how.sharding == "none" or execution.world_size() == 1:
        return model
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (execution.world_size(),))
    layers: list[nn.Module] = [layer for module in model.modules() if isinstance(module, nn.ModuleList) for layer in module]
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    for part in _parts(model):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return model


def sliced(model: nn.Module) -> bool:
    """Whether the model lies in slices."""
    return bool(_parts(model))


def gather(model: nn.Module) -> None:
    """Let every process see the whole of the present weights, until the next `gradient` ends or they are cut again. All processes
    come here together; none waits for another in the passes that follow."""
    for part in _parts(model):
        part.unshard()


def cut(model: nn.Module) -> None:
    """Leave each process with its slices."""
    for part in _parts(model):
        part.reshard()


@contextmanager
def gradient(model: nn.Module) -> Iterator[None]:
    """Within it a process adds up the gradient of its own passes, however many these are. Behind it the parameters have the sum
    over all processes, in slices where they lie in slices."""
    gather(model)
    _sum_at_end(model, False)
    yield
    if not sliced(model):
        collectives.all_reduce_gradients(model)
        return
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    _sum_at_end(model, True)
    model().backward()  # adds nothing; at its end FSDP sums and cuts what the passes left


def _sum_at_end(model: nn.Module, last: bool) -> None:
    for part in _parts(model):
        part.set_requires_gradient_sync(last)
        part.set_reshard_after_backward(last)


def _parts(model: nn.Module) -> "list[FSDPModule]":
    """What FSDP gathers and cuts at a time."""
    if execution.world_size() == 1:
        return []
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def is_slice(tensor: Any) -> bool:
    """Whether a tensor lies in slices (a DTensor)."""
    if execution.world_size() == 1:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def slice_of(tensor: Tensor) -> Tensor:
    """What of a tensor lies in this process: its slice, or all of one that is whole."""
    return tensor.to_local() if is_slice(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor, in every process."""
    return tensor.full_tensor() if is_slice(tensor) else tensor  # type: ignore[attr-defined]


def like(other: Tensor, tensor: Tensor) -> Tensor:
    """A tensor that every process has, cut as `other` is; as it is where that is whole or of another shape."""
    if not is_slice(other) or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    there: Any = other
    return distribute_tensor(tensor.to(other.device), there.device_mesh, there.placements, src_data_rank=None)


def state(model: nn.Module) -> dict[str, Tensor]:
    """The model's state dict with whole tensors. All processes come here together."""
    cut(model)
    return {name: whole(tensor) for name, tensor in model.state_dict().items()}
