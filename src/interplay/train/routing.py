"""A mixture of raters told by a few labelled pairs which of its heads to trust (MiCRo's second stage, arXiv:2505.24846)."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from interplay.tasks.row import Row


def routed(gate: Tensor, told: Tensor, shots: Sequence[Sequence[int]], eta: float) -> Tensor:
    """Logarithms (P, K) of the heads' weights for each pair after Hedge has seen the labelled pairs `shots` of its rater: from
    the gate's at its prompt, w_k <- w_k exp(-eta l_k) over their losses l_k = -log sigmoid(r_k(chosen) - r_k(rejected)),
    normalised. With eta 1 that is Bayes' rule. `gate` (P, K): logarithms of the gate's weights; `told` (P, K): -l_k of every
    pair."""
    seen = torch.stack([told[list(of_pair)].sum(0) for of_pair in shots])
    return (gate + eta * seen).log_softmax(-1)


def accuracies(rows: Sequence[Row], told: Tensor, weights: Tensor, name: str) -> dict[str, float]:
    """Share of pairs whose chosen completion is expected to win, under `name`, and under `name/<rater>` that of each rater."""
    right = ((weights + told).logsumexp(-1).exp() > 0.5).double()
    of_rater: dict[str, list[float]] = defaultdict(list)
    for row, one in zip(rows, right.tolist(), strict=True):
        of_rater[row.rater].append(one)
    each = {f"{name}/{rater}": sum(found) / len(found) for rater, found in sorted(of_rater.items()) if rater}
    return {name: float(right.mean()), **each}
