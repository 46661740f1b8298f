"""What one step works on: N completions in groups, with their verdicts and rewards, as arrays over rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from interplay.tasks.op_dag import Verdict


@dataclass(frozen=True)
class Batch:
    """N rows; T is the length of the longest completion."""

    row: Tensor
    """(N,) int64: number of the row among all that the step drew, whatever edits dropped since."""
    ids: Tensor
    """(N,) int64: prompt, as a row of the problem sets joined in the order of their roles."""
    groups: Tensor
    """(N,) int64: rows with one number were drawn from one prompt and are compared with each other."""
    prompts: list[list[int]]
    """N token lists: what the completions are credited to."""
    tokens: Tensor
    """(N,T) int64: completions with their end token, padded."""
    lengths: Tensor
    """(N,) int64: tokens of each completion."""
    logprobs: Tensor
    """(N,T) float32: of each token under the policy that sampled it."""
    truncated: Tensor
    """(N,) bool: the length limit cut it."""
    completions: list[str]
    """N texts."""
    verdicts: list[Verdict]
    """N judgements."""
    rewards: Tensor
    """(N,) float64."""
    parts: dict[str, Tensor]
    """What the rewards were made of, each (N,) float64."""

    def __len__(self) -> int:
        return len(self.row)

    def mask(self) -> Tensor:
        """(N,T) bool: the places that hold a token of a completion."""
        return torch.arange(self.tokens.shape[1]) < self.lengths[:, None]

    def answer_rate(self) -> float:
        """Share of completions whose answer is right."""
        return sum(v.answer for v in self.verdicts) / max(len(self), 1)

    def strict_rate(self) -> float:
        """Share of completions with every step and the answer right."""
        return sum(v.strict for v in self.verdicts) / max(len(self), 1)


def take(batch: Batch, rows: Tensor) -> Batch:
    """The given rows (M,) int64, in that order."""
    chosen = rows.tolist()
    return replace(
        batch,
        **{name: getattr(batch, name)[rows] for name in ("row", "ids", "groups", "tokens", "lengths", "logprobs", "truncated", "rewards")},
        **{name: [getattr(batch, name)[i] for i in chosen] for name in ("prompts", "completions", "verdicts")},
        parts={name: values[rows] for name, values in batch.parts.items()},
    )


def join(batches: Sequence[Batch], pad_token: int) -> Batch:
    """All rows one after another; groups of different batches stay different."""
    longest = max(batch.tokens.shape[1] for batch in batches)
    room = [longest - batch.tokens.shape[1] for batch in batches]
    starts = torch.tensor([0] + [int(batch.groups.max()) + 1 if len(batch) else 0 for batch in batches[:-1]]).cumsum(0)
    return Batch(
        groups=torch.cat([batch.groups + start for batch, start in zip(batches, starts, strict=True)]),
        tokens=torch.cat([pad(batch.tokens, (0, r), value=pad_token) for batch, r in zip(batches, room, strict=True)]),
        logprobs=torch.cat([pad(batch.logprobs, (0, r)) for batch, r in zip(batches, room, strict=True)]),
        **{name: torch.cat([getattr(b, name) for b in batches]) for name in ("row", "ids", "lengths", "truncated", "rewards")},
        **{name: [x for b in batches for x in getattr(b, name)] for name in ("prompts", "completions", "verdicts")},
        parts={name: torch.cat([b.parts[name] for b in batches]) for name in batches[0].parts},
    )
