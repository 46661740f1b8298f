"""The entropic objective of TTT-Discover as an advantage: log mean exp(beta r) of a group goes by its best samples, where the
mean of rewards goes by all of them."""

import torch


def advantage(batch, now, beta=4.0):
    """(N, T): exp(beta r) of each row over the mean of its group, less 1, at every token: the weight of grad log pi in the
    gradient of log mean exp(beta r), centred."""
    weights = torch.exp(beta * batch.rewards.double())
    means = torch.stack([weights[batch.groups == group].mean() for group in batch.groups.tolist()])
    return (weights / means - 1).float()[:, None].expand(-1, batch.mask().shape[1])
