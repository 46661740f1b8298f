"""DisCO: scores of right completions above those of wrong ones (arXiv:2505.12366)."""

import torch
from torch import Tensor

from interplay.rl.losses.terms import Seen, Whole, sequence_mean
from interplay.schema.loss import DiscoLoss

TAU = {"logL": 10.0, "Lratio": 1.0}
"""Released temperatures."""


def score(spec: DiscoLoss, logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """(n,1) score of each completion: mean log-probability of its tokens, or mean ratio."""
    return sequence_mean(logp if spec.score == "logL" else (logp - old_logp).exp(), mask)


def disco_weights(spec: DiscoLoss, whole: Whole) -> dict[str, Tensor]:
    """What the gradient of the objective is made of: `row` (N,T), the weight of the row's score, and `kl` (N,T), that of a
    token's log-probability.

    The objective of a prompt is mean_+ [s+ - tau log mean_- exp(s- / tau)]. Its gradient is that of mean_+ s+ - sum_- p s-, p
    being the softmax of s- / tau over the wrong ones; in the basic form p is even. Prompts count alike, those with one kind only
    do not count. The constraint 0.5 beta [KL - delta]_+^2 has the gradient beta [KL - delta]_+ grad KL, KL = mean over the tokens
    of log pi_old - log pi."""
    scores = score(spec, whole.logp, whole.old_logp, whole.mask)[:, 0].double()
    right = whole.rewards > 0
    row = torch.zeros(len(scores), dtype=torch.float64)
    both = 0
    for group in whole.groups.unique():
        here = whole.groups == group
        good, bad = (here & right).nonzero()[:, 0], (here & ~right).nonzero()[:, 0]
        if len(good) and len(bad):
            both += 1
            row[good] = 1 / len(good)
            row[bad] = -1 / len(bad) if spec.basic else -torch.softmax(scores[bad] / (spec.tau or TAU[spec.score]), 0)
    tokens = whole.mask.sum().clamp(min=1)
    divergence = float(((whole.old_logp - whole.logp) * whole.mask).sum() / tokens)
    hinge = spec.disco_beta * max(divergence - spec.delta, 0.0)
    # The update gives a token the weight 1 / (rows * tokens of its row): what must weigh otherwise is multiplied back.
    of_row = whole.mask.sum(1, keepdim=True).clamp(min=1) * len(scores)
    return {
        "row": (row * len(scores) / max(both, 1))[:, None].float().expand_as(whole.logp),
        "kl": (hinge * of_row / tokens).float().expand_as(whole.logp),
    }


def disco(spec: DiscoLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """Of each token what the gradients of its row's score and of the constraint are."""
    value = seen.logp if spec.score == "logL" else (seen.logp - seen.old_logp).exp()
    return -seen.prepared["row"] * value + seen.prepared["kl"] * (seen.old_logp - seen.logp), {}
