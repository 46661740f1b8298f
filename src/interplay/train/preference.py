"""Losses of preference optimisation and of reward models, given log-probabilities of pairs."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.train.spec import REFERENCE_FREE, PreferSpec, RewardModelSpec

# What a reward model minimises on pairs.


def log_chance(chosen: Tensor, rejected: Tensor, weights: Tensor, margin: Tensor) -> Tensor:
    """log P (n,) that the chosen completions win: log sum_k w_k sigmoid(r_k(chosen) - r_k(rejected) - margin), of rewards (n, K),
    logarithms of weights (n, K) and margins (n,). With one head that of Bradley and Terry (arXiv:2203.02155, eq. 1); with more
    the mixture of MiCRo (arXiv:2505.24846), whose weights the prompt decides."""
    return (weights + F.logsigmoid(chosen - rejected - margin[:, None])).logsumexp(-1)


def bradley_terry_losses(spec: RewardModelSpec, chosen: Tensor, rejected: Tensor, weights: Tensor, margin: Tensor) -> Tensor:
    """The loss of each pair, (n,); see `log_chance`."""
    centred = spec.center_rewards_coefficient * (chosen + rejected).square().mean(-1)
    return centred - log_chance(chosen, rejected, weights, margin)


def bradley_terry_reward(rewards: Tensor, weights: Tensor) -> Tensor:
    """The reward (n,) by which completions of one prompt are ranked: the heads' (n, K), weighed."""
    return (weights.exp() * rewards).sum(-1)


# The losses of preference optimisation: what one says of a pair, given log-probabilities. Formulas are TRL's, which gives each
# its paper; where TRL has several trainers, `simpo` and `cpo` are those of its CPOTrainer and `orpo` its ORPOTrainer's.


class Logps(NamedTuple):
    """Of n pairs: log-probabilities in nats, summed over the tokens of a completion, each (n,) float32."""

    chosen: Tensor
    rejected: Tensor
    ref_chosen: Tensor
    """Under the reference; 0 where the loss has none."""
    ref_rejected: Tensor
    chosen_tokens: Tensor
    """(n,) tokens of the chosen completions, end included."""
    rejected_tokens: Tensor
    mean_tokens: float
    """Of the chosen completions of the whole step: what turns sums into a mean over its tokens."""
    kl: Tensor
    """() float32: kto's estimate of the divergence from the reference, at least 0; 0 for other losses."""

    def ratios(self) -> tuple[Tensor, Tensor]:
        """log(policy / reference) (n,) of the chosen and the rejected completions."""
        return self.chosen - self.ref_chosen, self.rejected - self.ref_rejected

    def means(self) -> tuple[Tensor, Tensor]:
        """Log-probability per token (n,) of the chosen and the rejected completions."""
        return self.chosen / self.chosen_tokens, self.rejected / self.rejected_tokens


def losses(spec: PreferSpec, logps: Logps) -> Tensor:
    """The loss of each pair, (n,)."""
    loss = LOSSES[spec.loss_type](spec, logps)
    return loss + spec.rpo_alpha * _likelihood(logps) if spec.rpo_alpha else loss


def rewards(spec: PreferSpec, logps: Logps) -> tuple[Tensor, Tensor]:
    """The implicit rewards (n,) of the chosen and the rejected completions, in beta times nats: log ratios to the reference, or
    what stands for them in losses without one."""
    if spec.loss_type not in REFERENCE_FREE:
        chosen, rejected = logps.ratios()
    elif spec.loss_type == "cpo":
        chosen, rejected = logps.chosen, logps.rejected
    else:
        chosen, rejected = logps.means()
    return spec.beta * chosen, spec.beta * rejected


def _likelihood(logps: Logps) -> Tensor:
    """-log p of the chosen completions (n,), whose mean over the pairs of a step is the mean over their tokens."""
    return -logps.chosen / logps.mean_tokens


def _smoothed(margin: Tensor, smoothing: float) -> Tensor:
    """-log sigmoid of a margin (n,), where a share of the labels is taken to be wrong."""
    return -(1 - smoothing) * F.logsigmoid(margin) - smoothing * F.logsigmoid(-margin)


def _margin(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.ratios()
    return spec.beta * (chosen - rejected)


def _sigmoid(spec: PreferSpec, logps: Logps) -> Tensor:
    return _smoothed(_margin(spec, logps), spec.label_smoothing)


def _hinge(spec: PreferSpec, logps: Logps) -> Tensor:
    return F.relu(1 - _margin(spec, logps))


def _ipo(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.ratios()
    return (chosen / logps.chosen_tokens - rejected / logps.rejected_tokens - 1 / (2 * spec.beta)) ** 2


def _robust(spec: PreferSpec, logps: Logps) -> Tensor:
    margin, wrong = _margin(spec, logps), spec.label_smoothing
    return (-(1 - wrong) * F.logsigmoid(margin) + wrong * F.logsigmoid(-margin)) / (1 - 2 * wrong)


def _sppo_hard(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.ratios()
    return (chosen - 0.5 / spec.beta) ** 2 + (rejected + 0.5 / spec.beta) ** 2


def _nca_pair(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = rewards(spec, logps)
    return -F.logsigmoid(chosen) - 0.5 * F.logsigmoid(-chosen) - 0.5 * F.logsigmoid(-rejected)


def _apo_zero(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = rewards(spec, logps)
    return 1 - torch.sigmoid(chosen) + torch.sigmoid(rejected)


def _apo_down(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = rewards(spec, logps)
    return torch.sigmoid(chosen) + 1 - torch.sigmoid(chosen - rejected)


def _kto(spec: PreferSpec, logps: Logps) -> Tensor:
    """Both halves are judged on their own; their mean over the 2 n completions is the mean of this over the pairs."""
    chosen, rejected = logps.ratios()
    good = spec.desirable_weight * (1 - torch.sigmoid(spec.beta * (chosen - logps.kl)))
    bad = spec.undesirable_weight * (1 - torch.sigmoid(spec.beta * (logps.kl - rejected)))
    return (good + bad) / 2


def _simpo(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.means()
    return _smoothed(spec.beta * (chosen - rejected) - spec.simpo_gamma, spec.label_smoothing)


def _cpo(spec: PreferSpec, logps: Logps) -> Tensor:
    margin = spec.beta * (logps.chosen - logps.rejected)
    return _smoothed(margin, spec.label_smoothing) + spec.cpo_alpha * _likelihood(logps)


def _orpo(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.means()
    log_odds = chosen - rejected - (_log1mexp(chosen) - _log1mexp(rejected))
    return _likelihood(logps) - spec.beta * F.logsigmoid(log_odds)


def _log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) of x < 0, (n,). A completion that is certain to the last bit counts as one bit short of it: its odds
    would be infinite."""
    x = x.clamp(max=-torch.finfo(x.dtype).eps)
    return torch.where(x > -0.6931472, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


LOSSES: dict[str, Callable[[PreferSpec, Logps], Tensor]] = {
    "sigmoid": _sigmoid,
    "hinge": _hinge,
    "ipo": _ipo,
    "robust": _robust,
    "sppo_hard": _sppo_hard,
    "nca_pair": _nca_pair,
    "apo_zero": _apo_zero,
    "apo_down": _apo_down,
    "kto": _kto,
    "simpo": _simpo,
    "cpo": _cpo,
    "orpo": _orpo,
}
