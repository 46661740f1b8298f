"""Advantages of segments, from the rewards of further completions of what stands before and behind them."""

from bisect import bisect_right

import torch
from torch import Tensor

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import SegmentAdvantage


def by_segments(spec: SegmentAdvantage, batch: Batch, now: Now) -> Tensor:
    """V(end) - V(start) for each token of a segment, V the mean reward of `samples` completions of the prompt and all that stands
    before, and at the end of the row its reward (SPO-chain, arXiv:2505.23564)."""
    starts = borders(spec, batch, now)
    places = [(row, start) for row, of_row in enumerate(starts) for start in of_row]
    worth = dict(zip(places, now.continued(batch, places, spec.samples).tolist(), strict=True))
    found = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    for row, of_row in enumerate(starts):
        end, length = float(batch.rewards[row]), int(batch.lengths[row])
        for start, stop in zip(of_row, [*of_row[1:], length], strict=True):
            later = end if stop == length else worth[row, stop]
            found[row, start:stop] = later - worth[row, start]
    return (found * batch.mask()).float()


def borders(spec: SegmentAdvantage, batch: Batch, now: Now) -> list[list[int]]:
    """For each row where its segments begin."""
    if spec.separator is None:
        return [cuts(row, spec.threshold, spec.cutpoint_interval) for row in _probabilities(batch)]
    rows = [row[:length] for row, length in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True)]
    return [ends(now.offsets(row, text), text, spec.separator) for row, text in zip(rows, batch.completions, strict=True)]


def numbered(spec: SegmentAdvantage, batch: Batch, now: Now) -> Tensor:
    """(N,T) int64: the number of the segment that each token belongs to."""
    found = torch.zeros(batch.tokens.shape, dtype=torch.int64)
    for row, starts in enumerate(borders(spec, batch, now)):
        found[row, starts[1:]] = 1
    return found.cumsum(1)


def ends(offsets: list[int], text: str, separator: str) -> list[int]:
    """Where the steps of a text begin: at the first token, and behind each token in which a separator ends. `offsets`: first
    character of each token."""
    starts, place = {0}, text.find(separator)
    while place >= 0:
        starts.add(bisect_right(offsets, place + len(separator) - 1))
        place = text.find(separator, place + len(separator))
    return sorted(start for start in starts if start < max(len(offsets), 1))


def cuts(probabilities: list[float], threshold: float, interval: int) -> list[int]:
    """Where segments begin: at the first token, and at each token behind it before which `interval` cut-points have passed since
    the last, that is, tokens less probable than the threshold; such a token is one itself."""
    starts, passed = [0], 0
    for place, probability in enumerate(probabilities):
        if probability < threshold:
            if passed == interval:
                starts.append(place)
                passed = 0
            passed += 1
    return starts


def _probabilities(batch: Batch) -> list[list[float]]:
    rows = zip(batch.logprobs.exp().tolist(), batch.lengths.tolist(), strict=True)
    return [row[:length] for row, length in rows]
