"""What a reward model minimises on pairs."""

import torch.nn.functional as F
from torch import Tensor

from interplay.schema.reward_model import RewardModelSpec


def log_chance(chosen: Tensor, rejected: Tensor, weights: Tensor, margin: Tensor) -> Tensor:
    """log P (n,) that the chosen completions win: log sum_k w_k sigmoid(r_k(chosen) - r_k(rejected) - margin), of rewards (n, K),
    logarithms of weights (n, K) and margins (n,). With one head that of Bradley and Terry (arXiv:2203.02155, eq. 1); with more
    the mixture of MiCRo (arXiv:2505.24846), whose weights the prompt decides."""
    return (weights + F.logsigmoid(chosen - rejected - margin[:, None])).logsumexp(-1)


def losses(spec: RewardModelSpec, chosen: Tensor, rejected: Tensor, weights: Tensor, margin: Tensor) -> Tensor:
    """The loss of each pair, (n,); see `log_chance`."""
    centred = spec.center_rewards_coefficient * (chosen + rejected).square().mean(-1)
    return centred - log_chance(chosen, rejected, weights, margin)


def reward(rewards: Tensor, weights: Tensor) -> Tensor:
    """The reward (n,) by which completions of one prompt are ranked: the heads' (n, K), weighed."""
    return (weights.exp() * rewards).sum(-1)
