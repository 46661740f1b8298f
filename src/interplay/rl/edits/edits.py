"""Edits that choose or weigh tokens or rows by entropy, agreement or advantage, and the tables of edits before and after
advantages."""

import math
import re
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from interplay.rl import custom
from interplay.rl.batch import Batch, take
from interplay.rl.edits.rows import demonstrated, demonstrations, dynamic_sampling, replay, replayed
from interplay.rl.edits.spec import D3S, ConflictTokens, InformationMask, OwnEdit, TokenBudget, TopEntropy, UncertainTokens
from interplay.rl.losses.terms import first
from interplay.rl.step_context import StepContext

# Edits that choose or weigh tokens by entropy, by agreement, by what they say, or by a budget.


def token_budget(
    spec: TokenBudget, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext
) -> tuple[Batch, Tensor, Tensor]:
    """The rows (in their order) that come first in an order drawn by seed and step, until their tokens that bear loss reach the
    budget (C3PO)."""
    order = torch.from_numpy(now.random("token_budget").permutation(len(batch)))
    sizes = bears.sum(1)[order]
    enough = int((sizes.cumsum(0) - sizes < spec.tokens).sum())
    rows = order[:enough].sort().values
    return take(batch, rows), advantage[rows], bears[rows]


def top_entropy(
    spec: TopEntropy, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext
) -> tuple[Batch, Tensor, Tensor]:
    """Advantages of tokens below the quantile of entropy over those that bear loss become 0 (arXiv:2506.01939, eq. 5)."""
    if not bears.any():
        return batch, advantage, bears
    entropy = now.entropy(batch)
    least = torch.quantile(entropy[bears].double(), 1 - spec.top_entropy_quantile)
    return batch, advantage * (entropy.double() >= least), bears


def uncertain_tokens(
    spec: UncertainTokens, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext
) -> tuple[Batch, Tensor, Tensor]:
    """Only tokens that the sampling policy gave less than the threshold bear loss (SPO, arXiv:2505.23564)."""
    return batch, advantage, bears & (batch.logprobs.exp() < spec.threshold)


def information_mask(
    spec: InformationMask, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext
) -> tuple[Batch, Tensor, Tensor]:
    """Tokens that begin behind `begin` and up to `end`, that included, bear no loss (SSRL, arXiv:2508.10874)."""
    information = re.compile(f"(?<={re.escape(spec.begin)}).*?(?:{re.escape(spec.end)}|$)", re.DOTALL)
    bears = bears.clone()
    for row, text in enumerate(batch.completions):
        starts = now.offsets(batch.tokens[row, : int(batch.lengths[row])].tolist(), text)
        found = [match.span() for match in information.finditer(text)]
        inside = [place for place, start in enumerate(starts) if any(low <= start < high for low, high in found)]
        bears[row, inside] = False
    return batch, advantage, bears


def gtpo_conflict(
    spec: ConflictTokens, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext
) -> tuple[Batch, Tensor, Tensor]:
    """Advantages less the price of entropy, times `positive` or `negative` at conflict tokens (arXiv:2508.03772); rows above the
    entropy limit are dropped."""
    mean = advantage.sum(1) / batch.mask().sum(1).clamp(min=1)
    shared = conflicts(batch, mean)
    sign = torch.where(mean > 0, spec.positive, spec.negative)[:, None]
    if spec.entropy_limit is not None:
        uncertain = (now.entropy(batch) * batch.mask()).sum(1) / batch.mask().sum(1).clamp(min=1)
        advantage = (advantage - spec.entropy_price * uncertain[:, None]) * (advantage != 0)
        rows = (uncertain < spec.entropy_limit).nonzero()[:, 0]
    else:
        rows = torch.arange(len(batch))
    return take(batch, rows), torch.where(shared, advantage * sign, advantage)[rows], bears[rows]


def conflicts(batch: Batch, advantage: Tensor) -> Tensor:
    """(N,T) bool: tokens of completions with an advantage (N,) other than 0 that stand at the same place, counted from the
    start or from the end, in one of the other sign of their group, as long as every place before (after) it is such a token,
    too."""
    found = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    tokens = [row[:length] for row, length in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True)]
    for group in batch.groups.unique():
        here = (batch.groups == group).nonzero()[:, 0].tolist()
        sides = {sign: [i for i in here if float(advantage[i]) * sign > 0] for sign in (1, -1)}
        for sign, rows in sides.items():
            others = [tokens[i] for i in sides[-sign]]
            for i in rows:
                head = _run(tokens[i], others)
                tail = _run(tokens[i][::-1], [other[::-1] for other in others])
                found[i, :head] = True
                found[i, len(tokens[i]) - tail : len(tokens[i])] = True
    return found


def _run(tokens: list[int], others: list[list[int]]) -> int:
    """How many tokens from the start each stand at their place in one of the others."""
    for place, token in enumerate(tokens):
        if not any(place < len(other) and other[place] == token for other in others):
            return place
    return len(tokens) if others else 0


# Down-sampling of rows by the variance of their advantages and of tokens by |advantage| * entropy (D3S, arXiv:2509.22115).


def interpolate(ends: tuple[float, float], progress: float) -> float:
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


def d3s(spec: D3S, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> tuple[Batch, Tensor, Tensor]:
    """The rows kept, their advantages and which of their tokens bear loss, both (M,T). A row's advantage is the mean over its
    tokens; rows none of whose tokens bear loss are dropped before shares are taken."""
    rows = bears.any(1).nonzero()[:, 0]
    # Rows of equal advantage stand in the order of their places in their groups, so that no prompt gives all or none of its own.
    rows = rows[torch.argsort(_places(batch.groups)[rows], stable=True)]
    values = advantage[rows].double().sum(1) / batch.written()[rows].clamp(min=1)
    rows = (
        rows[kept_rows(spec, values, batch.groups[rows], interpolate(spec.samples, now.progress))].sort().values
        if len(rows)
        else rows
    )
    batch, advantage, bears = take(batch, rows), advantage[rows], bears[rows]
    share = interpolate(spec.tokens, now.progress)
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


# The tables of edits, by the `name` of their spec. An edit acts before advantages are known or after.
#
# Before: `(spec, batch, now) -> batch`: it may drop rows, and add rows with `now.draw(m)`.
#
# After: `(spec, batch, advantage, bears, now) -> (batch, advantage, bears)`: it may drop rows, change advantages (N,T) and say
# which tokens bear loss (N,T) bool; those that do not are in no mean of the loss either.


BEFORE: dict[str, Callable[..., Batch]] = {
    "dynamic_sampling": dynamic_sampling,
    "replay": replay,
    "demonstrations": demonstrations,
}
AFTER: dict[str, Callable[..., tuple[Batch, Tensor, Tensor]]] = {
    "d3s": d3s,
    "token_budget": token_budget,
    "top_entropy": top_entropy,
    "uncertain_tokens": uncertain_tokens,
    "information_mask": information_mask,
    "gtpo_conflict": gtpo_conflict,
    "replay": replayed,
    "demonstrations": demonstrated,
}


def edits_before_advantage(batch: Batch, now: StepContext) -> Batch:
    """The edits of the method that act on the batch as it was drawn, in order."""
    for spec in now.method.edits:
        if isinstance(spec, OwnEdit):
            batch = custom.own_edit(spec, batch, now) if custom.acts_before(spec) else batch
        elif spec.name in BEFORE:
            batch = BEFORE[spec.name](spec, batch, now)
    return batch


def edits_after_advantage(batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> tuple[Batch, Tensor, Tensor]:
    """The edits of the method that act on a batch with its advantages, in order."""
    for spec in now.method.edits:
        if isinstance(spec, OwnEdit):
            if not custom.acts_before(spec):
                batch, advantage, bears = custom.own_edit(spec, batch, advantage, bears, now)
        elif spec.name in AFTER:
            batch, advantage, bears = AFTER[spec.name](spec, batch, advantage, bears, now)
    return batch, advantage, bears
