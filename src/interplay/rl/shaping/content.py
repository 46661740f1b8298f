"""Terms that look at what completions say: loops, auxiliary devices, uncertainty."""

import torch
from torch import Tensor

from interplay.rl.advantages.group import means
from interplay.rl.batch import Batch, take
from interplay.rl.now import Now
from interplay.schema.shaping import ContrastShaping, GapShaping, RankShaping, RepetitionShaping


def loop_share(tokens: list[int]) -> float:
    """Share of a completion from the start of the loop that it ends in: a phrase whose exact copies, two or more, tile its end.
    Of several such phrases the one that covers most counts; 0 where there is none."""
    n, best = len(tokens), 0
    for length in range(1, n // 2 + 1):
        phrase, start = tokens[n - length :], n - length
        while start >= length and tokens[start - length : start] == phrase:
            start -= length
        if n - start >= 2 * length:
            best = max(best, n - start)
    return best / n if n else 0.0


def repetition(spec: RepetitionShaping, batch: Batch, now: Now) -> Tensor:
    """-weight times the share, or -weight for a truncated completion that loops (CAMPO, arXiv:2507.14683)."""
    written = [tokens[mine].tolist() for tokens, mine in zip(batch.tokens, batch.mask(), strict=True)]
    share = torch.tensor([loop_share(tokens) for tokens in written], dtype=torch.float64)
    return -spec.weight * (share if spec.mode == "share" else ((share > 0) & batch.truncated).double())


def gcpo(spec: ContrastShaping, batch: Batch, now: Now) -> Tensor:
    """bonus times the sign of (mean reward with the device - mean reward without) of the group, for completions that have it; 0
    within the margin and where a group has one kind only (GCPO, arXiv:2506.07160). Plus `length` l / limit."""
    uses = torch.tensor([spec.marker in text for text in batch.completions], dtype=torch.bool)
    difference = means(batch.rewards, batch.groups, uses) - means(batch.rewards, batch.groups, ~uses)
    share = means(uses, batch.groups)
    clear = (share > 0) & (share < 1) & (difference.abs() > spec.margin)
    term = torch.where(uses & clear, spec.bonus * difference.sign(), 0.0)
    return term + spec.length * batch.written().double() / now.max_completion_length


def gap(spec: GapShaping, batch: Batch, now: Now) -> Tensor:
    """-r(y_ref), the reward of the attempt that the prompt shows; 0 where it shows none (PIT, arXiv:2310.00898)."""
    return torch.zeros(len(batch), dtype=torch.float64) if batch.shown is None else -batch.shown.nan_to_num(0.0)


def entropy_rank(spec: RankShaping, batch: Batch, now: Now) -> Tensor:
    """Among the truncated completions of a group whose every reward is 0 or less: `most` (1 - k / (K - 1)), k the place by how
    many of them a completion exceeds both in mean entropy and in the mean of its highest (R3, arXiv:2601.19620); equals share
    their mean place."""
    found = torch.zeros(len(batch), dtype=torch.float64)
    failed = means(batch.rewards > 0, batch.groups) == 0
    rows = (failed & batch.truncated).nonzero()[:, 0]
    if not len(rows):
        return found
    entropy = now.entropy(take(batch, rows)).double()
    of_rows = [values[mine] for values, mine in zip(entropy, batch.mask()[rows], strict=True)]
    whole = torch.stack([values.mean() for values in of_rows])
    peak = torch.stack([values.topk(max(1, int(spec.peak * len(values)))).values.mean() for values in of_rows])
    groups = batch.groups[rows]
    for group in groups.unique():
        here = (groups == group).nonzero()[:, 0]
        if len(here) > 1:
            beats = (whole[here, None] > whole[here]) & (peak[here, None] > peak[here])
            score = beats.sum(1)
            place = (score[None] > score[:, None]).sum(1) + ((score[None] == score[:, None]).sum(1) - 1) / 2
            found[rows[here]] = spec.most * (1 - place / (len(here) - 1)).double()
    return found
