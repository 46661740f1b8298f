"""Advantage seam: `(spec, rewards (N,), groups (N,), mask (N,T), spans) -> (N,T) float32`, zero where the mask is.

Every member gives one value per token, so that methods which credit spans or turns fit the same place."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from interplay.rl.spans import Span
from interplay.schema.advantage import Advantage, GroupAdvantage, SpanAdvantage

EPSILON = 1e-4
"""Added to a standard deviation before dividing, as TRL does."""
Spans = Sequence[Sequence[Span]] | None
"""For each of N rows its spans, in tokens; None where the reward judges whole completions only."""


def group(spec: GroupAdvantage, rewards: Tensor, groups: Tensor, mask: Tensor, spans: Spans = None) -> Tensor:
    """Reward less its group's mean, over a standard deviation (GRPO, arXiv:2402.03300, eq. 3; "batch": arXiv:2508.08221;
    "none": arXiv:2503.20783)."""
    rewards = rewards.double()
    centred, deviation = standardised(rewards, groups)
    if spec.scale_rewards == "group":
        centred = centred / (deviation + EPSILON)
    elif spec.scale_rewards == "batch":
        centred = centred / ((rewards.std() if len(rewards) > 1 else 0.0) + EPSILON)
    return (centred[:, None] * mask).float()


def standardised(values: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """(M,) float64 values less their group's mean, and their group's standard deviation, Bessel-corrected as in TRL.

    Equal values of a group get exactly zero: in floating point their mean may miss them by a rounding error, which the division
    by EPSILON would blow up."""
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    mean = torch.zeros(len(size), dtype=torch.float64).index_add_(0, member, values) / size
    centred = values - mean[member]
    low = torch.full_like(mean, torch.inf).scatter_reduce_(0, member, values, "amin")
    high = torch.full_like(mean, -torch.inf).scatter_reduce_(0, member, values, "amax")
    centred = torch.where((low == high)[member], 0.0, centred)
    variance = torch.zeros_like(mean).index_add_(0, member, centred**2) / (size - 1).clamp(min=1)
    return centred, variance.sqrt()[member]


def by_spans(spec: SpanAdvantage, rewards: Tensor, groups: Tensor, mask: Tensor, spans: Spans = None) -> Tensor:
    """A^(j) = (r^(j) - mean r^(j)) / sd r^(j) over the spans at position j of a group, malformed rows included (SCRL,
    arXiv:2605.22074), or over all spans of a group; 0 outside all spans. Raises ValueError without spans."""
    if spans is None:
        raise ValueError("the advantage `spans` needs a reward that judges spans")
    each = [(row, span) for row, of_row in enumerate(spans) for span in of_row]
    found = torch.zeros(mask.shape, dtype=torch.float64)
    if not each:
        return found.float()
    values = torch.tensor([span.value for _, span in each], dtype=torch.float64)
    most = max(span.position for _, span in each) + 1
    places = [span.position if spec.normalise == "per_position" else 0 for _, span in each]
    member = groups[[row for row, _ in each]] * most + torch.tensor(places)
    centred, deviation = standardised(values, member)
    for (row, span), advantage in zip(each, (centred / (deviation + EPSILON)).tolist(), strict=True):
        found[row, span.start : span.end] = advantage
    return (found * mask).float()


MEMBERS: dict[str, Callable[..., Tensor]] = {"group": group, "spans": by_spans}


def advantages(spec: Advantage, rewards: Tensor, groups: Tensor, mask: Tensor, spans: Spans = None) -> Tensor:
    """The member that `spec` names, applied to all rows of a step."""
    return MEMBERS[spec.name](spec, rewards, groups, mask, spans)
