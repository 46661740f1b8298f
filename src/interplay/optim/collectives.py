"""Collectives over the processes of a stage (all_reduce, all_gather, barrier); with one process they do nothing."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from interplay.core import execution

BUCKET = 1 << 24
"""Numbers of gradients that travel at a time."""

T = TypeVar("T")


def shard_round_robin(items: Sequence[T]) -> Sequence[T]:
    """Those of the items that fall to this process: dealt like cards, since neighbours are alike."""
    return items[execution.rank() :: execution.world_size()]


def batch_limit(size: int, items: int) -> int:
    """How many of `items` things go through at once where at most `size` may: so few that every process has some."""
    return max(1, min(size, -(-items // execution.world_size()))) if execution.world_size() > 1 else size


def shard_pieces(cut: Callable[[int], list[T]], tokens: int, items: int) -> Sequence[T]:
    """This process's pieces of what `cut` (most tokens of a piece -> pieces) gives of `items` things: pieces of `tokens`, or of a
    half, a quarter and so on until there is one for every process."""
    pieces = cut(tokens)
    while len(pieces) < min(execution.world_size(), items) and tokens > 1:
        tokens //= 2
        pieces = cut(tokens)
    return shard_round_robin(pieces)


def all_reduce_sum(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if execution.world_size() > 1:
        dist.all_reduce(values)
    return values


def all_reduce_dict(values: dict[str, float]) -> dict[str, float]:
    """The sum of each value over the processes that know it."""
    if execution.world_size() == 1:
        return values
    sums: dict[str, float] = {}
    for one in all_gather_object(values):
        for name, value in one.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def all_reduce_max(values: dict[str, float]) -> dict[str, float]:
    """The greatest of each value over the processes that know it."""
    if execution.world_size() == 1:
        return values
    every = all_gather_object(values)
    return {name: max(one[name] for one in every if name in one) for name in dict.fromkeys(name for one in every for name in one)}


def all_reduce_values(*values: float) -> list[float]:
    """The sum of each value over all processes."""
    return list(all_reduce_dict({str(place): value for place, value in enumerate(values)}).values())


def all_gather_object(value: Any) -> list[Any]:
    """What each process says, JSON data, in their order; the same list in all of them."""
    if execution.world_size() == 1:
        return [value]
    own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [json.loads(bytes(data.tolist())) for data in all_gather_rows(own)]


def all_gather_rows(rows: Tensor) -> list[Tensor]:
    """The rows (n, ...) of each process, in their order; n may differ, the rest may not."""
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
    """Of two flags, the first where any process raises it, the second where the first process does."""
    if execution.world_size() == 1:
        return flags
    raised = all_reduce_sum(torch.tensor([flags[0], flags[1] and execution.is_first_rank()], dtype=torch.int32))
    return bool(raised[0]), bool(raised[1])


def barrier() -> None:
    """Wait until every process is here."""
    if execution.world_size() > 1:
        all_reduce_sum(torch.zeros(1))


def all_reduce_gradients(model: nn.Module) -> None:
    """Let every process have the sum of all gradients. A parameter that no process has a gradient of keeps none."""
    if execution.world_size() == 1:
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    known = all_reduce_sum(torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32)).tolist()
    for bucket in _buckets([p for p, some in zip(parameters, known, strict=True) if some]):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        for p, part in zip(bucket, all_reduce_sum(flat).split([p.numel() for p in bucket]), strict=True):
            p.grad = part.view_as(p)


def _buckets(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters in order, cut where a bucket would pass BUCKET numbers."""
    buckets: list[list[nn.Parameter]] = []
    size = BUCKET
    for p in parameters:
        if size + p.numel() > BUCKET:
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += p.numel()
    return buckets
