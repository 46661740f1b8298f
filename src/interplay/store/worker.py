"""Which of a stage's processes this is. A stage runs in one unless its `run` block says more; of several, each is a worker and
the first alone writes (`artifact.write_atomic` and what is made with it, `metrics.jsonl`, progress)."""

import sys
from dataclasses import dataclass

TOLD = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables by which whoever starts the processes tells each its place, torchrun's."""

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
"""Variables by which gloo and NCCL listen where this machine alone hears them."""


@dataclass
class _Place:
    rank: int = 0
    count: int = 1


_PLACE = _Place()


def take(rank: int, count: int) -> None:
    """From here on this process is worker `rank` of 0..count-1."""
    _PLACE.rank, _PLACE.count = rank, count


def rank() -> int:
    """Number of this process among those of the stage, from 0."""
    return _PLACE.rank


def count() -> int:
    """How many processes work on the stage."""
    return _PLACE.count


def first() -> bool:
    """Whether this process is the one that writes."""
    return _PLACE.rank == 0
