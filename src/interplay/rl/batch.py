"""What one step works on: N completions in groups, with their verdicts and rewards, as arrays over rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from interplay.rl.spans import Span
from interplay.tasks.verdict import Verdict


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
    spans: list[list[Span]] | None = None
    """For each row its parts that have rewards of their own, in tokens; None where the reward judges whole completions."""

    def __len__(self) -> int:
        return len(self.row)

    def mask(self) -> Tensor:
        """(N,T) bool: the places that hold a token of a completion."""
        return torch.arange(self.tokens.shape[1]) < self.lengths[:, None]


def take(batch: Batch, rows: Tensor) -> Batch:
    """The given rows (M,) int64, in that order."""
    chosen = rows.tolist()
    return Batch(
        row=batch.row[rows],
        ids=batch.ids[rows],
        groups=batch.groups[rows],
        prompts=[batch.prompts[i] for i in chosen],
        tokens=batch.tokens[rows],
        lengths=batch.lengths[rows],
        logprobs=batch.logprobs[rows],
        truncated=batch.truncated[rows],
        completions=[batch.completions[i] for i in chosen],
        verdicts=[batch.verdicts[i] for i in chosen],
        rewards=batch.rewards[rows],
        parts={name: values[rows] for name, values in batch.parts.items()},
        spans=None if batch.spans is None else [batch.spans[i] for i in chosen],
    )


def join(batches: Sequence[Batch], pad_token: int) -> Batch:
    """All rows one after another; groups of different batches stay different."""
    longest = max(batch.tokens.shape[1] for batch in batches)
    room = [longest - batch.tokens.shape[1] for batch in batches]
    starts = torch.tensor([0] + [int(batch.groups.max()) + 1 if len(batch) else 0 for batch in batches[:-1]]).cumsum(0)
    return Batch(
        row=torch.cat([batch.row for batch in batches]),
        ids=torch.cat([batch.ids for batch in batches]),
        groups=torch.cat([batch.groups + start for batch, start in zip(batches, starts, strict=True)]),
        prompts=[prompt for batch in batches for prompt in batch.prompts],
        tokens=torch.cat([pad(batch.tokens, (0, r), value=pad_token) for batch, r in zip(batches, room, strict=True)]),
        lengths=torch.cat([batch.lengths for batch in batches]),
        logprobs=torch.cat([pad(batch.logprobs, (0, r)) for batch, r in zip(batches, room, strict=True)]),
        truncated=torch.cat([batch.truncated for batch in batches]),
        completions=[completion for batch in batches for completion in batch.completions],
        verdicts=[verdict for batch in batches for verdict in batch.verdicts],
        rewards=torch.cat([batch.rewards for batch in batches]),
        parts={name: torch.cat([batch.parts[name] for batch in batches]) for name in batches[0].parts},
        spans=None if batches[0].spans is None else [row for batch in batches for row in batch.spans or []],
    )
