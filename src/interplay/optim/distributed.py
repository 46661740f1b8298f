"""Processes of one stage: collectives (all_reduce, all_gather, barrier), and weights sharded by FSDP2. With one process both do
nothing.

FSDP2 (`torch.distributed.fsdp.fully_shard`) applies to a decoder whose layers are functions over its parameters. Between steps
each process holds a shard of every parameter, of its gradient and of its optimiser state (DTensors, sharded along the first
dimension). For the passes of a step the parameters are gathered once, layer by layer; the gradients of all passes accumulate
locally and are then reduced and sharded at once. FSDP's hooks would gather within a module's `forward`, where a process with
fewer passes than the others would leave them waiting. With replicated weights the same functions all-reduce plain gradients. One
process does not import FSDP, which takes most of a second."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from interplay.core import execution

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

BUCKET = 1 << 24
"""Elements of one all-reduce of gradients."""

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


def shard_round_robin(items: Sequence[T]) -> Sequence[T]:
    """The items of this rank, interleaved for load balance, since neighbouring items have similar sizes."""
    return items[execution.rank() :: execution.world_size()]


def batch_limit(size: int, items: int) -> int:
    """The batch size for `items` items, at most `size`, such that every process has a batch."""
    return max(1, min(size, -(-items // execution.world_size()))) if execution.world_size() > 1 else size


def shard_micro_batches(cut: Callable[[int], list[T]], tokens: int, items: int) -> Sequence[T]:
    """The micro-batches of this rank. `cut` maps a token limit to micro-batches over `items` items; the limit is `tokens`, halved
    until there is a micro-batch for every process."""
    found = cut(tokens)
    while len(found) < min(execution.world_size(), items) and tokens > 1:
        tokens //= 2
        found = cut(tokens)
    return shard_round_robin(found)


def all_reduce_sum(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if execution.world_size() > 1:
        dist.all_reduce(values)
    return values


def all_reduce_dict(values: dict[str, float]) -> dict[str, float]:
    """The sum of each value over the processes that have it."""
    if execution.world_size() == 1:
        return values
    sums: dict[str, float] = {}
    for one in all_gather_object(values):
        for name, value in one.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def all_reduce_max(values: dict[str, float]) -> dict[str, float]:
    """The maximum of each value over the processes that have it."""
    every = all_gather_object(values)
    return {name: max(one[name] for one in every if name in one) for name in dict.fromkeys(name for one in every for name in one)}


def all_reduce_values(*values: float) -> list[float]:
    """The sum of each value over all processes."""
    return list(all_reduce_dict({str(place): value for place, value in enumerate(values)}).values())


def all_gather_object(value: Any) -> list[Any]:
    """The value (JSON data) of each process, by rank."""
    if execution.world_size() == 1:
        return [value]
    own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [json.loads(bytes(data.tolist())) for data in all_gather_rows(own)]


def all_gather_rows(rows: Tensor) -> list[Tensor]:
    """The rows (n, ...) of each process, by rank; only n may differ."""
    if execution.world_size() == 1:
        return [rows]
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(execution.world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    longest = max(int(n) for n in counts)
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[: len(rows)] = rows
    room = [torch.empty_like(padded) for _ in counts]
    if longest:
        dist.all_gather(room, padded)
    return [part[: int(n)] for part, n in zip(room, counts, strict=True)]


def all_reduce_flags(flags: tuple[bool, bool]) -> tuple[bool, bool]:
    """(whether any process sets the first flag, whether rank 0 sets the second)."""
    if execution.world_size() == 1:
        return flags
    raised = all_reduce_sum(torch.tensor([flags[0], flags[1] and execution.is_first_rank()], dtype=torch.int32))
    return bool(raised[0]), bool(raised[1])


def barrier() -> None:
    """Wait for all processes."""
    if execution.world_size() > 1:
        all_reduce_sum(torch.zeros(1))


def all_reduce_gradients(model: nn.Module) -> None:
    """All-reduce (sum) the gradients, skipping parameters without a gradient on any process."""
    if execution.world_size() == 1:
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    known = all_reduce_sum(torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32)).tolist()
    for bucket in _buckets([p for p, some in zip(parameters, known, strict=True) if some]):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        for p, part in zip(bucket, all_reduce_sum(flat).split([p.numel() for p in bucket]), strict=True):
            p.grad = part.view_as(p)


def _buckets(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters in order, in buckets of at most BUCKET elements."""
    buckets: list[list[nn.Parameter]] = []
    size = BUCKET
    for p in parameters:
        if size + p.numel() > BUCKET:
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += p.numel()
    return buckets


# Sharded weights.


def shard_model(model: M, how: execution.Run) -> M:
    """The model, sharded in place where the run block says so. Optimisers are built afterwards."""
    if how.sharding == "none" or execution.world_size() == 1:
        return model
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (execution.world_size(),))
    layers: list[nn.Module] = [layer for module in model.modules() if isinstance(module, nn.ModuleList) for layer in module]
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    for part in _fsdp_modules(model):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return model


def gather_parameters(model: nn.Module) -> None:
    """All-gather the parameters, until the next `accumulate_gradient` ends or they are resharded. Collective; the passes that
    follow need no communication."""
    for part in _fsdp_modules(model):
        part.unshard()


def reshard_parameters(model: nn.Module) -> None:
    """Free gathered parameters; each process keeps its shards."""
    for part in _fsdp_modules(model):
        part.reshard()


@contextmanager
def accumulate_gradient(model: nn.Module) -> Iterator[None]:
    """Inside the context each process accumulates the gradient of its own passes, of any number. After it the parameters have the
    sum over all processes, sharded where they are sharded; with numerics: exact that of the model's `sums`."""
    gather_parameters(model)
    _set_gradient_sync(model, False)
    yield
    if sums := getattr(model, "sums", None):
        sums.reduced(model, all_reduce_sum)
        return
    if not _fsdp_modules(model):
        all_reduce_gradients(model)
        return
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    _set_gradient_sync(model, True)
    model().backward()  # adds nothing; its hooks reduce-scatter the accumulated gradients


def _set_gradient_sync(model: nn.Module, last: bool) -> None:
    for part in _fsdp_modules(model):
        part.set_requires_gradient_sync(last)
        part.set_reshard_after_backward(last)


def _fsdp_modules(model: nn.Module) -> "list[FSDPModule]":
    """The units that FSDP gathers and reshards."""
    if execution.world_size() == 1:
        return []
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def is_dtensor(tensor: Any) -> bool:
    """Whether a tensor is sharded (a DTensor)."""
    if execution.world_size() == 1:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """The shard of a tensor in this process, or all of a plain tensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor, in every process."""
    return tensor.full_tensor() if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]


def shard_like(other: Tensor, tensor: Tensor) -> Tensor:
    """A tensor that every process has, sharded like `other`; unchanged where that is plain or of another shape."""
    if not is_dtensor(other) or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    there: Any = other
    return distribute_tensor(tensor.to(other.device), there.device_mesh, there.placements, src_data_rank=None)


def full_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of the model with full tensors. Collective."""
    reshard_parameters(model)
    return {name: full_tensor(tensor) for name, tensor in model.state_dict().items()}
