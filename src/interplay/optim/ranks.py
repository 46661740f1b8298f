"""What the processes of a stage say to each other. In a stage of one process nothing here does anything.

Work is dealt and sums are taken over all, so that what a step computes is the same, but for rounding, however many processes
share it. Every process must call each function that takes a sum at the same place of the program."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from interplay.store import worker

BUCKET = 1 << 24
"""Numbers of gradients that travel at a time."""

T = TypeVar("T")


def mine(items: Sequence[T]) -> Sequence[T]:
    """Those of the items that fall to this process: dealt like cards, since neighbours are alike."""
    return items[worker.rank() :: worker.count()]


def most(size: int, items: int) -> int:
    """How many of `items` things go through at once where at most `size` may: so few that every process has some."""
    return max(1, min(size, -(-items // worker.count()))) if worker.count() > 1 else size


def finer(cut: Callable[[int], list[T]], tokens: int, items: int) -> Sequence[T]:
    """This process's pieces of what `cut` (most tokens of a piece -> pieces) gives of `items` things: pieces of `tokens`, or of a
    half, a quarter and so on until there is one for every process."""
    pieces = cut(tokens)
    while len(pieces) < min(worker.count(), items) and tokens > 1:
        tokens //= 2
        pieces = cut(tokens)
    return mine(pieces)


def add_up(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if worker.count() > 1:
        dist.all_reduce(values)
    return values


def total(values: dict[str, float]) -> dict[str, float]:
    """The sum of each value over the processes that know it."""
    if worker.count() == 1:
        return values
    sums: dict[str, float] = {}
    for one in told(values):
        for name, value in one.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def largest(values: dict[str, float]) -> dict[str, float]:
    """The greatest of each value over the processes that know it."""
    if worker.count() == 1:
        return values
    every = told(values)
    return {name: max(one[name] for one in every if name in one) for name in dict.fromkeys(name for one in every for name in one)}


def sums(*values: float) -> list[float]:
    """The sum of each value over all processes."""
    return list(total({str(place): value for place, value in enumerate(values)}).values())


def told(value: Any) -> list[Any]:
    """What each process says, JSON data, in their order; the same list in all of them."""
    if worker.count() == 1:
        return [value]
    own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [json.loads(bytes(data.tolist())) for data in collected(own)]


def collected(rows: Tensor) -> list[Tensor]:
    """The rows (n, ...) of each process, in their order; n may differ, the rest may not."""
    if worker.count() == 1:
        return [rows]
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(worker.count())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    longest = max(int(n) for n in counts)
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[: len(rows)] = rows
    room = [torch.empty_like(padded) for _ in counts]
    if longest:
        dist.all_gather(room, padded)
    return [part[: int(n)] for part, n in zip(room, counts, strict=True)]


def agreed(flags: tuple[bool, bool]) -> tuple[bool, bool]:
    """Of two flags, the first where any process raises it, the second where the first process does."""
    if worker.count() == 1:
        return flags
    raised = add_up(torch.tensor([flags[0], flags[1] and worker.first()], dtype=torch.int32))
    return bool(raised[0]), bool(raised[1])


def meet() -> None:
    """Wait until every process is here."""
    if worker.count() > 1:
        add_up(torch.zeros(1))


def add_gradients(model: nn.Module) -> None:
    """Let every process have the sum of all gradients. A parameter that no process has a gradient of keeps none."""
    if worker.count() == 1:
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    known = add_up(torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32)).tolist()
    for bucket in _buckets([p for p, some in zip(parameters, known, strict=True) if some]):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        for p, part in zip(bucket, add_up(flat).split([p.numel() for p in bucket]), strict=True):
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
