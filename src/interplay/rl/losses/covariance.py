"""Losses that hold back the tokens whose log-probability and advantage covary most: those through which entropy falls (the
entropy mechanism, arXiv:2505.22617)."""

from torch import Tensor

from interplay.rl.losses.terms import Seen, Whole, bounds, clip, first, log_ratios
from interplay.schema.loss import ClipCovLoss, KlCovLoss


def covariance(whole: Whole) -> Tensor:
    """(N,T) (log pi - mean) (A - mean), means over the tokens of the mask (eq. 11 of the paper)."""
    logp, advantage = whole.logp[whole.mask], whole.advantage[whole.mask]
    return (whole.logp - logp.mean()) * (whole.advantage - advantage.mean())


def share_of(mask: Tensor, share: float) -> int:
    """That share of the tokens of the mask, one at least unless it is 0."""
    return max(1, int(share * int(mask.sum()))) if share else 0


def clip_cov_tokens(spec: ClipCovLoss, whole: Whole) -> dict[str, Tensor]:
    """`held`: tokens that lose their gradient, drawn among those within bounds that the clip has not taken already."""
    cov = covariance(whole)
    ratio = log_ratios(spec, Seen(whole.logp, whole.old_logp, whole.advantage, whole.mask)).exp()
    _, outside = clip(ratio, whole.advantage, *bounds(spec.epsilon, spec.epsilon_high))
    within = whole.mask & ~outside & (cov > spec.clip_cov_lb) & (cov < spec.clip_cov_ub)
    return {"held": first(whole.noise, within, share_of(whole.mask, spec.clip_cov_ratio))}


def clip_cov(spec: ClipCovLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate, 0 for the tokens that are held back (Clip-Cov, eq. 12)."""
    per_token, outside = clip(log_ratios(spec, seen).exp(), seen.advantage, *bounds(spec.epsilon, spec.epsilon_high))
    held = seen.prepared["held"]
    return per_token * ~held, {"clip_fraction": ((outside | held) * seen.mask).sum()}


def kl_cov_tokens(spec: KlCovLoss, whole: Whole) -> dict[str, Tensor]:
    """`held`: the tokens that covary most."""
    return {"held": first(covariance(whole), whole.mask, share_of(whole.mask, spec.kl_cov_ratio))}


def kl_cov(spec: KlCovLoss, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
    """-ratio A, plus a cost of |log ratio| for the tokens that are held back (KL-Cov, eq. 14; its release)."""
    difference = log_ratios(spec, seen)
    return -difference.exp() * seen.advantage + spec.ppo_kl_coef * difference.abs() * seen.prepared["held"], {}
