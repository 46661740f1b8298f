"""Advantages of parts of completions."""

import torch
from torch import Tensor

from interplay.rl.advantages.group import EPSILON, standardised
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import SpanAdvantage


def by_spans(spec: SpanAdvantage, batch: Batch, now: Now) -> Tensor:
    """A^(j) = (r^(j) - mean r^(j)) / sd r^(j) over the spans at position j of a group, malformed rows included (SCRL,
    arXiv:2605.22074), or over all spans of a group; 0 outside all spans. With credit for what follows, A_t is the sum of A^(j)
    over the spans that end behind t (arXiv:2402.03300, section 4.1.3). Raises ValueError without spans."""
    if batch.spans is None:
        raise ValueError("the advantage `spans` needs a reward that judges spans")
    each = [(row, span) for row, of_row in enumerate(batch.spans) for span in of_row]
    found = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    if not each:
        return found.float()
    values = torch.tensor([span.value for _, span in each], dtype=torch.float64)
    most = max(span.position for _, span in each) + 1
    places = [span.position if spec.normalise == "per_position" else 0 for _, span in each]
    member = batch.groups[[row for row, _ in each]] * most + torch.tensor(places)
    centred, deviation = standardised(values, member)
    for (row, span), advantage in zip(each, (centred / (deviation + EPSILON)).tolist(), strict=True):
        if spec.credit == "following":
            found[row, : span.end] += advantage
        else:
            found[row, span.start : span.end] = advantage
    return (found * batch.mask()).float()
