"""What datasets are worth to the teacher, what each proposal is credited with, and which student goes on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from interplay.rl.advantages.baselines import left_out


def grounded(before: int, after: Sequence[int], asked: int) -> Tensor:
    """(g,) float64: the pass rate of each dataset's student less that of the one that all started from, over `asked` completions
    of hard problems; `before` and `after` count passes."""
    return (torch.tensor(after, dtype=torch.float64) - before) / asked


def intrinsic(rates: Sequence[float], dataset: Sequence[int], datasets: int) -> Tensor:
    """(g,) float64: the mean of p (1 - p) over the valid proposals of each dataset, 0 where there is none; `rates` are their p,
    `dataset` says whose each is."""
    p, member = torch.tensor(rates, dtype=torch.float64), torch.tensor(dataset, dtype=torch.int64)
    empty = torch.zeros(datasets, dtype=torch.float64)
    sums = empty.index_add(0, member, p * (1 - p))
    return sums / empty.index_add(0, member, torch.ones_like(p)).clamp(min=1)


def credited(rewards: Tensor, invalid: Tensor, penalty: float) -> Tensor:
    """(g * n,) float64: the advantage of each proposal, dataset by dataset. Of `rewards` (g,): the dataset's less the mean of the
    other datasets' (RLOO, arXiv:2402.14740, eq. 7), shared by all of its proposals; and of the `penalty` for being `invalid`
    (g * n,) bool: its own less the mean of the other proposals'."""
    shared = _compared(rewards).repeat_interleave(len(invalid) // len(rewards))
    return shared + _compared(-penalty * invalid.double())


def promoted(rewards: Tensor, trained: Sequence[bool], threshold: float) -> int | None:
    """The dataset whose student goes on: the best of those that a student was trained on, the first of equals, if its reward is
    `threshold` at least; None: the student stays as it was."""
    able = [k for k, was in enumerate(trained) if was]
    best = max(able, key=lambda k: (float(rewards[k]), -k), default=None)
    return best if best is not None and float(rewards[best]) >= threshold else None


def _compared(values: Tensor) -> Tensor:
    """Each value less the mean of the others."""
    return left_out(values, torch.zeros(len(values), dtype=torch.int64), torch.ones(len(values), dtype=torch.bool))
