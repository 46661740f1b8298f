"""Policy losses: what they read, how tokens are weighed, the terms they share, and the losses by the `name` of their spec."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interplay.core import extension
from interplay.kernels import exact
from interplay.rl import custom, loss_spec as specs
from interplay.rl.batch import FullBatch, MicroBatch
from interplay.rl.policy import kl_estimate, weighted_sum
from interplay.rollout.request import scale_of, token_uncertainty

# Terms: what a loss reads, weights of tokens, ratios and estimates of divergences.


def sequence_mean(values: Tensor, mask: Tensor, by: exact.Functions) -> Tensor:
    """(n,1) mean of (n,T) values over each row's tokens; 0 for a row without any."""
    return by.summed(values * mask, 1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def log_ratios(loss: specs.PolicyLoss, seen: MicroBatch) -> Tensor:
    """log(pi / pi_old) by the level of the loss: `token`, (n,T), 0 outside the mask; `sequence`, (n,1), its mean over the
    sequence (GSPO, arXiv:2507.18071, eq. 7); `product`, (n,1), its sum; `sequence_token`, (n,T), that mean with the gradient of
    each token's own log-probability (GSPO-token, eq. 14); `turn`, (n,T), its mean over the turn of the token."""
    difference = (seen.logp - seen.old_logp) * seen.mask
    if not isinstance(loss, specs.RatioLoss) or loss.importance_sampling_level == "token":
        return difference
    if loss.importance_sampling_level == "turn":
        turns = seen.prepared[TURNS]
        empty = torch.zeros(len(turns), int(turns.max()) + 1, dtype=difference.dtype)
        tokens = empty.scatter_add(1, turns, seen.mask.to(empty.dtype)).clamp(min=1)
        return (empty.scatter_add(1, turns, difference) / tokens).gather(1, turns) * seen.mask
    if loss.importance_sampling_level == "product":
        return seen.by.wide(seen.by.summed(difference, 1, keepdim=True), difference.shape[1])
    mean = seen.by.wide(sequence_mean(difference, seen.mask, seen.by), difference.shape[1])
    return mean if loss.importance_sampling_level == "sequence" else mean.detach() + (seen.logp - seen.logp.detach())


def first(score: Tensor, among: Tensor, count: int) -> Tensor:
    """(N,T) bool: the `count` places of `among` (N,T) bool with the largest scores (N,T); all where there are no more, earlier
    ones among equals."""
    places = among.flatten().nonzero()[:, 0]
    best = torch.argsort(score.flatten()[places], descending=True, stable=True)[:count]
    return torch.zeros(among.numel(), dtype=torch.bool).index_fill_(0, places[best], True).view(among.shape)


def bounds(epsilon: float, epsilon_high: float | None) -> tuple[float, float]:
    """Lower and upper clip; one number stands for both."""
    return epsilon, epsilon if epsilon_high is None else epsilon_high


def clip(ratio: Tensor, advantage: Tensor, low: Any, high: Any, delta: float | None = None) -> tuple[Tensor, Tensor]:
    """-min(ratio A, clip(ratio, 1 - low, 1 + high) A) of each token (PPO, arXiv:1707.06347, eq. 7), its first ratio capped at
    `delta`, which matters where A is negative; and which tokens the clip leaves without a gradient, bool. Both bounds are
    numbers, or both tensors (n,T)."""
    capped = ratio if delta is None else ratio.clamp(max=delta)
    outside = ((ratio < 1 - low) & (advantage < 0)) | ((ratio > 1 + high) & (advantage > 0))
    return -torch.minimum(capped * advantage, torch.clamp(ratio, 1 - low, 1 + high) * advantage), outside


def truncated_weight(cap: float, seen: MicroBatch) -> Tensor:
    """(n,T) min(pi_old / pi_engine, cap) of each token, without a gradient: truncated importance sampling, which makes up for an
    engine whose probabilities are not those of training (https://fengyao.notion.site/off-policy-rl). 1 where both agree."""
    if seen.sampled is None:
        return torch.ones_like(seen.old_logp)
    return seen.by.exp((seen.old_logp.detach() - seen.sampled) * seen.mask).clamp(max=cap)


def corrected(spec: specs.CorrectedLoss, per_token: Tensor, seen: MicroBatch) -> Tensor:
    """The loss of each token (n,T) weighed for the engine, where one ratio is of a whole row by the geometric mean of its
    weights; 0 in rows that are too far off policy."""
    if spec.off_policy_mask_threshold is not None:
        sampled = seen.old_logp if seen.sampled is None else seen.sampled
        gap = sequence_mean(sampled - seen.logp.detach(), seen.mask, seen.by)
        per_token = per_token * ((seen.advantage >= 0) | (gap <= spec.off_policy_mask_threshold))
    if spec.vllm_importance_sampling_clip_max is not None:
        weight = truncated_weight(spec.vllm_importance_sampling_clip_max, seen)
        if isinstance(spec, specs.GeoMeanLoss):
            weight = seen.by.exp(sequence_mean(seen.by.log(weight), seen.mask, seen.by))
        per_token = per_token * weight
    return per_token


# The clipped surrogate and the loss types that TRL has for it.


def clipped(spec: specs.ClippedLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate (PPO, arXiv:1707.06347, eq. 7; DAPO, arXiv:2503.14476, eq. 8; CISPO, arXiv:2506.13585, eq. 4).
    `clip_fraction` counts the tokens whose gradient the clip removes."""
    ratio, advantage = seen.by.exp(log_ratios(spec, seen)), seen.advantage
    low, high = bounds(spec.epsilon, spec.epsilon_high)
    if spec.loss_type == "cispo":
        least = None if spec.cispo_epsilon_low is None else 1 - spec.cispo_epsilon_low
        per_token = -ratio.clamp(least, high).detach() * advantage * seen.logp
        outside = (ratio > high) & (advantage > 0)
    else:
        per_token, outside = clip(ratio, advantage, low, high, spec.delta)
    return per_token, {"clip_fraction": (outside * seen.mask).sum()}


# Losses that hold back the tokens whose log-probability and advantage covary most: those through which entropy falls (the
# entropy mechanism, arXiv:2505.22617).


def covariance(whole: FullBatch) -> Tensor:
    """(N,T) (log pi - mean) (A - mean), means over the tokens of the mask (eq. 11 of the paper)."""
    logp, advantage = whole.logp[whole.mask], whole.advantage[whole.mask]
    return (whole.logp - whole.by.mean(logp)) * (whole.advantage - whole.by.mean(advantage))


def share_of(mask: Tensor, share: float) -> int:
    """That share of the tokens of the mask, one at least unless it is 0."""
    return max(1, int(share * int(mask.sum()))) if share else 0


def clip_cov_tokens(spec: specs.ClipCovLoss, whole: FullBatch) -> dict[str, Tensor]:
    """`held`: tokens that lose their gradient, drawn among those within bounds that the clip has not taken already."""
    cov = covariance(whole)
    ratio = whole.by.exp(log_ratios(spec, MicroBatch(whole.logp, whole.old_logp, whole.advantage, whole.mask, by=whole.by)))
    _, outside = clip(ratio, whole.advantage, *bounds(spec.epsilon, spec.epsilon_high))
    within = whole.mask & ~outside & (cov > spec.clip_cov_lb) & (cov < spec.clip_cov_ub)
    return {"held": first(whole.noise, within, share_of(whole.mask, spec.clip_cov_ratio))}


def clip_cov(spec: specs.ClipCovLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate, 0 for the tokens that are held back (Clip-Cov, eq. 12)."""
    per_token, outside = clip(seen.by.exp(log_ratios(spec, seen)), seen.advantage, *bounds(spec.epsilon, spec.epsilon_high))
    held = seen.prepared["held"]
    return per_token * ~held, {"clip_fraction": ((outside | held) * seen.mask).sum()}


def kl_cov_tokens(spec: specs.KlCovLoss, whole: FullBatch) -> dict[str, Tensor]:
    """`held`: the tokens that covary most."""
    return {"held": first(covariance(whole), whole.mask, share_of(whole.mask, spec.kl_cov_ratio))}


def kl_cov(spec: specs.KlCovLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """-ratio A, plus a cost of |log ratio| for the tokens that are held back (KL-Cov, eq. 14; its release)."""
    difference = log_ratios(spec, seen)
    return -seen.by.exp(difference) * seen.advantage + spec.ppo_kl_coef * difference.abs() * seen.prepared["held"], {}


# Steps are regressed on what they gain (Direct Advantage Policy Optimization, arXiv:2412.18279).


STEPS = "steps"
"""Name among what is prepared: (n,T) int64, the number of the step of its row that a token belongs to."""


def direct_advantage(spec: specs.DirectAdvantageLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """(direct_beta (log pi - log pi_ref) - A)^2 of each step, log-probabilities summed over its tokens in the mask and A their
    mean advantage, shared out evenly among them. `step_error` sums over tokens what their step is off."""
    assert seen.reference is not None
    steps = seen.prepared[STEPS]
    empty = torch.zeros(len(steps), int(steps.max()) + 1, dtype=seen.logp.dtype)

    def total(values: Tensor) -> Tensor:
        return empty.scatter_add(1, steps, values * seen.mask)

    tokens = total(torch.ones_like(seen.logp)).clamp(min=1)
    error = (spec.direct_beta * total(seen.logp - seen.reference) - total(seen.advantage) / tokens) ** 2
    off = error.detach().gather(1, steps) * seen.mask
    return (error / tokens).gather(1, steps) * seen.mask, {"step_error": seen.by.total(off)}


# DisCO: scores of right completions above those of wrong ones (arXiv:2505.12366).


TAU = {"logL": 10.0, "Lratio": 1.0}
"""Released temperatures."""


def score(spec: specs.DiscoLoss, logp: Tensor, old_logp: Tensor, mask: Tensor, by: exact.Functions = exact.FAST) -> Tensor:
    """(n,1) score of each completion: mean log-probability of its tokens, or mean ratio."""
    return sequence_mean(logp if spec.score == "logL" else by.exp(logp - old_logp), mask, by)


def disco_weights(spec: specs.DiscoLoss, whole: FullBatch) -> dict[str, Tensor]:
    """What the gradient of the objective is made of: `row` (N,T), the weight of the row's score, and `kl` (N,T), that of a
    token's log-probability.

    The objective of a prompt is mean_+ [s+ - tau log mean_- exp(s- / tau)]. Its gradient is that of mean_+ s+ - sum_- p s-, p
    being the softmax of s- / tau over the wrong ones; in the basic form p is even. The mean is over all prompts: those with one
    kind only have no gradient and count. The constraint 0.5 beta [KL - delta]_+^2 has the gradient beta [KL - delta]_+ grad KL,
    KL = mean over the tokens of log pi_old - log pi."""
    scores = score(spec, whole.logp, whole.old_logp, whole.mask, whole.by)[:, 0].double()
    row = torch.zeros(len(scores), dtype=torch.float64)
    prompts = whole.groups.unique()
    for group in prompts:
        here = whole.groups == group
        good, bad = (here & whole.right).nonzero()[:, 0], (here & ~whole.right).nonzero()[:, 0]
        if len(good) and len(bad):
            row[good] = 1 / len(good)
            row[bad] = -1 / len(bad) if spec.basic else -whole.by.softmax(scores[bad] / (spec.tau or TAU[spec.score]))
    tokens = whole.mask.sum().clamp(min=1)
    divergence = float(whole.by.total((whole.old_logp - whole.logp) * whole.mask) / tokens)
    hinge = spec.disco_beta * max(divergence - spec.delta, 0.0)
    # The update gives a token the weight 1 / (rows * tokens of its row): what must weigh otherwise is multiplied back.
    of_row = whole.mask.sum(1, keepdim=True).clamp(min=1) * len(scores)
    return {
        "row": (row * len(scores) / len(prompts))[:, None].float().expand_as(whole.logp),
        "kl": (hinge * of_row / tokens).float().expand_as(whole.logp),
    }


def disco(spec: specs.DiscoLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Of each token what the gradients of its row's score and of the constraint are."""
    value = seen.logp if spec.score == "logL" else seen.by.exp(seen.logp - seen.old_logp)
    return -seen.prepared["row"] * value + seen.prepared["kl"] * (seen.old_logp - seen.logp), {}


# Distillation of what the policy says once it has read feedback (DistIL, arXiv:2606.05152); divergences: rl.policy.


def distil(spec: specs.DistilLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The divergence of each token, and `mix_rlvr` times the clipped surrogate."""
    assert seen.divergence is not None
    sums = {"divergence": (seen.divergence.detach() * seen.mask).sum()}
    if not spec.mix_rlvr:
        return seen.divergence, {**sums, "clip_fraction": torch.zeros(())}
    paid, outside = clip(seen.by.exp(log_ratios(spec, seen)), seen.advantage, *bounds(spec.epsilon, spec.epsilon_high))
    return seen.divergence + spec.mix_rlvr * paid, {**sums, "clip_fraction": (outside * seen.mask).sum()}


# Losses that weigh a token or a sequence by a smooth function of its ratio, and one that clips in logarithms.


def sapo(spec: specs.SapoLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """-(4 / tau) sigmoid(tau (ratio - 1)) A, with a tau for each sign of A; an advantage of 0 takes the negative one (SAPO,
    arXiv:2511.20347). At ratio 1 its gradient is that of ratio * A."""
    ratio = seen.by.exp(log_ratios(spec, seen))
    tau = torch.where(seen.advantage > 0, spec.sapo_temperature_pos, spec.sapo_temperature_neg)
    return -seen.by.sigmoid(tau * (ratio - 1)) * (4 / tau) * seen.advantage, {}


LEAST_WEIGHT = -18.420680743952367  # log 1e-8


def vespo(spec: specs.VespoLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """-phi(w) A log pi, phi(w) = e^lambda w^k e^(-lambda w) without a gradient, w the product of the sequence's ratios (VESPO,
    arXiv:2602.10693). Logarithms are held to [-20, 20] a token and [log 1e-8, 20] a sequence, as in its release. `phi` sums the
    weights."""
    with torch.no_grad():
        log_w = seen.by.summed((seen.logp - seen.old_logp).clamp(-20, 20) * seen.mask, 1, keepdim=True).clamp(LEAST_WEIGHT, 20)
        risen = seen.advantage >= 0
        k = torch.where(risen, spec.vespo_k_pos, spec.vespo_k_neg)
        decay = torch.where(risen, spec.vespo_lambda_pos, spec.vespo_lambda_neg)
        phi = seen.by.exp(decay + k * log_w - decay * seen.by.exp(log_w))
    return -phi * seen.advantage * seen.logp, {"phi": seen.by.total(phi * seen.mask)}


def gpg(spec: specs.GpgLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """-A log pi (GPG, arXiv:2504.02546)."""
    return -seen.advantage * seen.logp, {}


def dppo(spec: specs.DppoLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """-A sg(min(ratio, cap)) log pi, 0 where the divergence of (p, 1 - p) from (p_old, 1 - p_old) is above its bound and the
    advantage drives p on (DPPO, arXiv:2602.04879, binary forms)."""
    low, high = bounds(spec.epsilon, spec.epsilon_high)
    bound, risen = torch.where(seen.advantage > 0, high, low), seen.advantage > 0
    with torch.no_grad():
        p, before = seen.by.exp(seen.logp), seen.by.exp(seen.old_logp)
        far = (p - before).abs()
        if spec.divergence == "kl":
            rest = seen.by.log((1 - before + 1e-8) / (1 - p + 1e-8))
            far = before * (seen.old_logp - seen.logp) + (1 - before) * rest
        held = (far > bound) & torch.where(risen, p > before, p < before)
        weight = seen.by.exp(log_ratios(spec, seen)).clamp(max=spec.ratio_cap) * ~held
    return -weight * seen.advantage * seen.logp, {"clip_fraction": (held * seen.mask).sum()}


def dro(spec: specs.DroLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """-(A log pi - dro_beta / 2 (log pi - log pi_old)^2)."""
    return spec.dro_beta / 2 * log_ratios(spec, seen) ** 2 - seen.advantage * seen.logp, {}


def geo_mean(spec: specs.GeoMeanLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """-A exp(mean_t min over sign of A of (log ratio_t, its clip)) for each row, A the mean of its tokens' (GMPO,
    arXiv:2507.20673): a token's log ratio is cut only on the side to which its advantage pulls."""
    low, high = bounds(spec.epsilon, spec.epsilon_high)
    difference = (seen.logp - seen.old_logp) * seen.mask
    sign = seen.advantage.sign()
    cut = sign * torch.minimum(sign * difference, sign * difference.clamp(-low, high))
    ratio, advantage = seen.by.exp(sequence_mean(cut, seen.mask, seen.by)), sequence_mean(seen.advantage, seen.mask, seen.by)
    return seen.by.wide(-ratio * advantage, cut.shape[1]).expand_as(cut), {
        "clip_fraction": ((cut != difference) & seen.mask).sum()
    }


# Clip bounds and advantages that follow a token's entropy (HAPO, heterogeneous tokens).


def heterogeneity(spec: specs.HapoTokenLoss, whole: FullBatch) -> dict[str, Tensor]:
    """`h` (N,T) in [-1, 1]: how uncertain each token is relative to the others of the mask; 0 outside."""
    entropy, by = whole.entropy, whole.by
    scale = scale_of(entropy[whole.mask], spec.entropy_pivot, by)
    return {"h": torch.zeros_like(entropy) if scale is None else token_uncertainty(entropy, scale, by) * whole.mask}


def hapo_token(spec: specs.HapoTokenLoss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate with the lower bound epsilon (1 - h) where h < 0 and the upper one epsilon_high (1 + h) where h > 0;
    and the advantage times (1 + h) where h > 0 and the ratio has left half of these bounds, or h <= 0 and it has not."""
    ratio, h = seen.by.exp(log_ratios(spec, seen)), seen.prepared["h"]
    low, high = spec.epsilon * (1 - h.clamp(max=0)), spec.epsilon_high * (1 + h.clamp(min=0))
    left = (ratio <= 1 - low / 2) | (ratio >= 1 + high / 2)
    advantage = seen.advantage * torch.where(left == (h > 0), 1 + h, torch.ones(()))
    per_token, outside = clip(ratio, advantage, low, high)
    return per_token, {"clip_fraction": (outside * seen.mask).sum()}


# The table of policy losses, by the `name` of their spec. Weights over tokens, the KL term and the entropy bonus are the same for
# all of them.


class Member(NamedTuple):
    """A loss."""

    loss: Callable[..., tuple[Tensor, dict[str, Tensor]]]
    """`(spec, MicroBatch) -> (loss of each token (n,T), sums)`; sums are scalars over the tokens of the mask, logged as means."""
    sums: tuple[str, ...] = ()
    """Names of the sums."""
    prepare: Callable[..., dict[str, Tensor]] | None = None
    """`(spec, FullBatch) -> (N,T) tensors by name`: what the loss reads of the whole optimiser step, at the price of a forward
    pass; they come back as `MicroBatch.prepared`."""
    every_row: bool = False
    """Whether rows without an advantage have a gradient, too."""


def _own_loss(spec: extension.Extension, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """(n, T), the loss of each token, and no sums. Raises UserError when it has another shape."""
    return custom.checked_tensor(spec, extension.call(spec, seen), tuple(seen.logp.shape), seen.logp.dtype), {}


FIRST_TURN = "first_turn"
"""Name among what is prepared: (N,T) float, 1 for the tokens of an episode's first turn; there where the loss asks for it."""
TURNS = "turns"
"""Name among what is prepared: (n,T) int64, the number of the turn that a token belongs to, 0 of what was read."""
CLIPS = ("clip_fraction",)
MEMBERS: dict[str, Member] = {
    "clipped": Member(clipped, CLIPS),
    "sapo": Member(sapo),
    "vespo": Member(vespo, ("phi",)),
    "geo_mean": Member(geo_mean, CLIPS),
    "gpg": Member(gpg),
    "dppo": Member(dppo, CLIPS),
    "dro": Member(dro, every_row=True),
    "clip_cov": Member(clip_cov, CLIPS, clip_cov_tokens),
    "kl_cov": Member(kl_cov, (), kl_cov_tokens, every_row=True),
    "disco": Member(disco, (), disco_weights, every_row=True),
    "hapo_token": Member(hapo_token, CLIPS, heterogeneity),
    "distil": Member(distil, ("divergence", *CLIPS)),
    "direct_advantage": Member(direct_advantage, ("step_error",)),
    "custom": Member(_own_loss, every_row=True),
}


def token_losses(spec: specs.Loss, seen: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each token (n,T) by the member that `spec` names, weighed for the engine where the spec asks, with `beta` times
    the estimate of the KL divergence from the reference where there is one, or sum_i w_i KL_i of several (arXiv:2502.01203); and
    its sums, `kl` among them."""
    per_token, sums = MEMBERS[spec.name].loss(spec, seen)
    if isinstance(spec, specs.CorrectedLoss):
        per_token = corrected(spec, per_token, seen)
    if seen.reference is None:
        return per_token, sums
    each = seen.references or ((1.0, seen.reference),)
    kl = weighted_sum([(w, kl_estimate(spec.kl_estimator, other - seen.logp, seen.by)) for w, other in each])
    if spec.use_bias_correction_kl:
        kl = kl * seen.by.exp(log_ratios(spec, seen))
    beta = spec.beta + spec.first_turn_beta * seen.prepared[FIRST_TURN] if spec.first_turn_beta else spec.beta
    return per_token + beta * kl, {**sums, "kl": seen.by.total(kl.detach() * seen.mask)}


def prepare_loss(spec: specs.Loss, whole: FullBatch) -> dict[str, Tensor]:
    """What the member reads off a whole optimiser step, (N,T) each; nothing for most."""
    prepare = MEMBERS[spec.name].prepare
    return prepare(spec, whole) if prepare else {}
