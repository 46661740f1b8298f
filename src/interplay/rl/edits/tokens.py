"""Edits that choose or weigh tokens by entropy, by agreement, by what they say, or by a budget."""

import re

import torch
from torch import Tensor

from interplay.rl.batch import Batch, take
from interplay.rl.now import Now
from interplay.schema.edit import ConflictTokens, InformationMask, TokenBudget, TopEntropy, UncertainTokens


def token_budget(spec: TokenBudget, batch: Batch, advantage: Tensor, bears: Tensor, now: Now) -> tuple[Batch, Tensor, Tensor]:
    """The rows (in their order) that come first in an order drawn by seed and step, until their tokens that bear loss reach the
    budget (C3PO)."""
    order = torch.from_numpy(now.random("token_budget").permutation(len(batch)))
    sizes = bears.sum(1)[order]
    enough = int((sizes.cumsum(0) - sizes < spec.tokens).sum())
    rows = order[:enough].sort().values
    return take(batch, rows), advantage[rows], bears[rows]


def top_entropy(spec: TopEntropy, batch: Batch, advantage: Tensor, bears: Tensor, now: Now) -> tuple[Batch, Tensor, Tensor]:
    """Advantages of tokens below the quantile of entropy over those that bear loss become 0 (arXiv:2506.01939, eq. 5)."""
    if not bears.any():
        return batch, advantage, bears
    entropy = now.entropy(batch)
    least = torch.quantile(entropy[bears].double(), 1 - spec.top_entropy_quantile)
    return batch, advantage * (entropy.double() >= least), bears


def uncertain_tokens(
    spec: UncertainTokens, batch: Batch, advantage: Tensor, bears: Tensor, now: Now
) -> tuple[Batch, Tensor, Tensor]:
    """Only tokens that the sampling policy gave less than the threshold bear loss (SPO, arXiv:2505.23564)."""
    return batch, advantage, bears & (batch.logprobs.exp() < spec.threshold)


def information_mask(
    spec: InformationMask, batch: Batch, advantage: Tensor, bears: Tensor, now: Now
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


def gtpo_conflict(spec: ConflictTokens, batch: Batch, advantage: Tensor, bears: Tensor, now: Now) -> tuple[Batch, Tensor, Tensor]:
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
