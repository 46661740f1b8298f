"""Advantages of the turns of an episode."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from interplay.rl.advantages.group import EPSILON, standardised
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.rl.spans import Span
from interplay.schema.advantage import GainAdvantage, TurnAdvantage


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """R_t = sum over k >= t of gamma^(k - t) r_k."""
    found: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        found.append(total)
    return found[::-1]


def turn_returns(spec: TurnAdvantage, batch: Batch, now: Now) -> Tensor:
    """(R_t - mean R_t) / sd R_t over the turns t of the rows of a group; tokens of a turn get its advantage. Raises ValueError
    where episodes have one turn."""
    spans = of_turns(batch)
    values = [returns([span.value for span in row], spec.gamma) for row in spans]
    return placed(batch, compared(batch, values, spec.normalise == "per_position", spec.scale_rewards == "group"))


def of_turns(batch: Batch) -> list[list[Span]]:
    """The spans of each row's turns. Raises ValueError where episodes have one turn."""
    if batch.turns is None or batch.spans is None:
        raise ValueError("an advantage of turns needs an episode that has several")
    return batch.spans


def compared(batch: Batch, values: Sequence[Sequence[float]], by_number: bool, scaled: bool) -> list[list[float]]:
    """A value for each turn of each row, less the mean and (if `scaled`) over the standard deviation of those of its group, or of
    its group and number. Rows that do not count are compared with those that do."""
    each = [(row, number) for row, of_row in enumerate(values) for number in range(len(of_row))]
    if not each:
        return [[] for _ in values]
    flat = torch.tensor([values[row][number] for row, number in each], dtype=torch.float64)
    rows = torch.tensor([row for row, _ in each])
    most = max(number for _, number in each) + 1
    member = batch.groups[rows] * most + torch.tensor([number if by_number else 0 for _, number in each])
    centred, deviation = standardised(flat, member, batch.counted()[rows])
    found = iter((centred / (deviation + EPSILON) if scaled else centred).tolist())
    return [[next(found) for _ in of_row] for of_row in values]


def placed(batch: Batch, values: Sequence[Sequence[float]]) -> Tensor:
    """A value for each turn as (N,T) float32: that of every token of the turn, 0 elsewhere."""
    found = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    for row, (spans, of_row) in enumerate(zip(of_turns(batch), values, strict=True)):
        for span, value in zip(spans, of_row, strict=True):
            found[row, span.start : span.end] = value
    return (found * batch.mask()).float()


def igpo(spec: GainAdvantage, batch: Batch, now: Now) -> Tensor:
    """R_t = sum over k >= t of gamma^(k - t) z_k: z_k for all turns but the last is s_k - s_(k-1) standardised over all such
    gains of the group, s_k being the mean log-probability of the gold answer behind all that stands before turn k + 1; for the
    last it is the outcome, standardised over the group (IGPO, arXiv:2510.14967). Raises ValueError where episodes have one
    turn."""
    spans = of_turns(batch)
    gains = compared(batch, information(spec, batch, now), by_number=False, scaled=True)
    outcomes = compared(batch, [[span.value for span in row[-1:]] for row in spans], by_number=False, scaled=True)
    each = [[*gain, *outcome] for gain, outcome in zip(gains, outcomes, strict=True)]
    return placed(batch, [returns(values, spec.gamma) for values in each])


def information(spec: GainAdvantage, batch: Batch, now: Now) -> list[list[float]]:
    """For each row what each turn but the last adds to the likelihood of the gold answer, with what was read after it."""
    contexts: list[list[int]] = []
    texts: list[list[int]] = []
    counts = []
    for row, spans in enumerate(of_turns(batch)):
        answer = now.encode(spec.template.replace("{answer}", now.rows[int(batch.ids[row])].answer))
        written = batch.tokens[row].tolist()
        starts = [span.start for span in spans] if len(spans) > 1 else []
        contexts += [[*batch.prompts[row], *written[:start]] for start in starts]
        texts += [answer] * len(starts)
        counts.append(len(starts))
    known = iter(now.likelihood(contexts, texts) if contexts else [])
    each = [[next(known) for _ in range(count)] for count in counts]
    if spec.space == "prob":
        each = [[math.exp(value) for value in row] for row in each]
    return [[after - before for before, after in pairwise(row)] for row in each]
