"""Down-sampling of rows by the variance of their advantages and of tokens by |advantage| * entropy (D3S, arXiv:2509.22115)."""

import math
from collections import Counter

import torch
from torch import Tensor

from interplay.rl.batch import Batch, take
from interplay.rl.losses.terms import first
from interplay.rl.now import Now
from interplay.schema.edit import D3S


def at(ends: tuple[float, float], progress: float) -> float:
    """A value that goes linearly from one end to the other."""
    return ends[0] + (ends[1] - ends[0]) * progress


def largest_variance(values: Tensor, count: int) -> Tensor:
    """Places (count,) of those among `values` (N,) whose variance no other `count` of them exceeds, smallest values first; equal
    values in the order given.

    They are the lowest few and the highest few: of values in order, exchanging an inner one for one further out never lowers the
    variance (PODS, arXiv:2504.13818). So count + 1 ways to split them are tried."""
    order = torch.argsort(values, stable=True)
    ordered = values[order].double() - values.double().mean()
    none, low = torch.zeros(1, dtype=torch.float64), torch.arange(count + 1)
    first = len(values) - count + low  # where the highest count - low begin
    sums, squares = (torch.cat((none, part.cumsum(0))) for part in (ordered, ordered**2))
    total, total_squares = (part[low] + part[-1] - part[first] for part in (sums, squares))
    lowest = int((total_squares - total**2 / max(count, 1)).argmax())
    return torch.cat((order[:lowest], order[len(order) - (count - lowest) :]))


def kept_rows(spec: D3S, values: Tensor, groups: Tensor, share: float) -> Tensor:
    """Rows (M,) int64 in rising order, a `share` of all (of each group's), rounded up. values, groups (N,)."""
    blocks = [torch.arange(len(values))]
    if spec.scope == "group":
        blocks = [(groups == group).nonzero()[:, 0] for group in groups.unique()]
    chosen = [block[largest_variance(values[block], math.ceil(share * len(block)))] for block in blocks]
    return torch.cat(chosen).sort().values


def kept_tokens(score: Tensor, bears: Tensor, share: float) -> Tensor:
    """(N,T) bool: the `share` of the tokens in `bears` (N,T) that have the largest scores (N,T), rounded up; earlier ones among
    equals."""
    return first(score, bears, math.ceil(share * int(bears.sum())))


def d3s(spec: D3S, batch: Batch, advantage: Tensor, bears: Tensor, now: Now) -> tuple[Batch, Tensor, Tensor]:
    """The rows kept, their advantages and which of their tokens bear loss, both (M,T). A row's advantage is the mean over its
    tokens; rows none of whose tokens bear loss are dropped before shares are taken."""
    rows = bears.any(1).nonzero()[:, 0]
    # Rows of equal advantage stand in the order of their places in their groups, so that no prompt gives all or none of its own.
    rows = rows[torch.argsort(_places(batch.groups)[rows], stable=True)]
    values = advantage[rows].double().sum(1) / batch.written()[rows].clamp(min=1)
    rows = rows[kept_rows(spec, values, batch.groups[rows], at(spec.samples, now.progress))].sort().values if len(rows) else rows
    batch, advantage, bears = take(batch, rows), advantage[rows], bears[rows]
    share = at(spec.tokens, now.progress)
    if share < 1 and len(rows):
        bears = kept_tokens(advantage.abs() * now.entropy(batch), bears, share)
    return batch, advantage, bears


def _places(groups: Tensor) -> Tensor:
    """(N,) number of each row within its group."""
    seen: Counter[int] = Counter()
    places = []
    for group in groups.tolist():
        places.append(seen[group])
        seen[group] += 1
    return torch.tensor(places, dtype=torch.int64)
