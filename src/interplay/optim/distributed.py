"""Processes of one stage: collectives (all_reduce, all_gather, barrier). With one process they do nothing."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from interplay.core import execution

BUCKET = 1 << 24
"""Elements of one all-reduce of gradients."""

T = TypeVar("T")


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


@contextmanager
def accumulate_gradient(model: nn.Module) -> Iterator[None]:
    """Inside the context each process accumulates the gradient of its own passes, of any number. After it the parameters have the
    sum over all processes, with numerics: exact that of the model's `sums`."""
    yield
    if sums := getattr(model, "sums", None):
        sums.reduced(model, all_reduce_sum)
    else:
        all_reduce_gradients(model)
