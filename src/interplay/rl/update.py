"""One step's optimiser steps: `num_iterations` passes over the batch, each in `minibatches` parts, each part in micro-batches."""

from typing import NamedTuple

import torch
from torch import Tensor

from interplay.core import random
from interplay.kernels import exact
from interplay.model import device, heads
from interplay.model.decoder import Decoder
from interplay.model.trainer_spec import AGGREGATED
from interplay.optim import distributed, optimizer
from interplay.rl import loss_spec, losses, policy as forward
from interplay.rl.batch import Batch, first_turns, has_teacher, numbered_turns
from interplay.rl.policy import DIVERGENCES, Scores, compared, entropies, k3, likelihoods, micro_batches, scores, shard_rows
from interplay.rl.spec import RLSpec

DIFFERENCE, LARGEST, RATIO = (
    "sampling/sampling_logp_difference/mean",
    "sampling/sampling_logp_difference/max",
    "sampling/importance_sampling_ratio/max",
)
"""Over the tokens that were trained on and sampled in this step, before the first update: mean and largest
|log pi - log pi_engine|, and largest pi / pi_engine. About 1e-6 where both compute the same; more is another arithmetic, or
weights that the engine was not given."""


class Learner(NamedTuple):
    """What is trained and how."""

    spec: RLSpec
    policy: Decoder
    references: tuple[tuple[float, Decoder], ...]
    """The frozen models that the KL terms of the loss and of the reward refer to, each with its weight; the weights sum to 1."""
    optimizers: list[torch.optim.Optimizer]
    micro_batch_tokens: int
    lagged: heads.Lagged | None = None
    """The copy in whose nucleus the policy acts; None: it acts freely."""

    def reference_logps(self, batch: Batch, rows: Tensor) -> list[tuple[float, Tensor]]:
        """For each reference its weight and the (n,T) log-probabilities of the tokens of `rows` (n,)."""
        return [(weight, _scores(self, decoder, batch, rows)) for weight, decoder in self.references]


class Part(NamedTuple):
    """What one optimiser step learns from. Arrays over all N rows of the batch."""

    all_rows: Tensor
    """(K,) int64: rows of this part."""
    rows: Tensor
    """(M,) int64: those that can move the policy."""
    advantage: Tensor
    """(N,T)."""
    mask: Tensor
    """(N,T) bool: tokens that bear loss."""
    weights: Tensor
    """(N,T): 0 outside this part."""
    tokens: int
    """Tokens of this part that bear loss."""


def bearing(loss: loss_spec.PolicyLoss, batch: Batch) -> Tensor:
    """(N,T) bool: the tokens that bear loss unless an edit says otherwise."""
    return batch.mask() & ~batch.truncated[:, None] if loss.mask_truncated_completions else batch.mask()


def entropy_of(learner: Learner, batch: Batch) -> Tensor:
    """(N,T) entropy of the policy at each token of a batch."""
    spec = learner.spec
    dtype = getattr(torch, spec.dtype)
    return entropies(learner.policy, batch, spec.temperature, dtype, learner.micro_batch_tokens, learner.lagged)


def collisions_of(learner: Learner, batch: Batch) -> Tensor:
    """(N,T) sum of the squared probabilities of the policy at each token of a batch."""
    spec = learner.spec
    dtype = getattr(torch, spec.dtype)
    return forward.collisions(learner.policy, batch, spec.temperature, dtype, learner.micro_batch_tokens, learner.lagged)


def reference_of(learner: Learner, batch: Batch) -> Tensor:
    """(N,T) log-probabilities of the tokens of a batch under the reference, the weighted mean of several; 0 past a completion."""
    found = torch.zeros(batch.tokens.shape)
    with torch.no_grad():
        for rows in shard_rows(learner.policy, batch, torch.arange(len(batch)), learner.micro_batch_tokens):
            found[rows] = forward.weighted_sum(learner.reference_logps(batch, rows))
    return distributed.all_reduce_sum(found)


def likelihood_of(learner: Learner, contexts: list[list[int]], texts: list[list[int]]) -> list[float]:
    """Mean log-probability of each text behind its context."""
    return likelihoods(learner.policy, contexts, texts, getattr(torch, learner.spec.dtype), learner.micro_batch_tokens)


def update(learner: Learner, batch: Batch, advantage: Tensor, step: int, bears: Tensor | None = None) -> dict[str, float]:
    """Train on `batch` with `advantage` (N,T), on the tokens that `bears` (N,T) bool marks; None: all that `bearing` does.
    Returns the step's values: means over optimiser steps (loss, grad_norm), means over the tokens trained on (what the loss sums,
    kl_old, and kl when there is a reference), how far the engine's log-probabilities were from those of training (DIFFERENCE,
    LARGEST, RATIO), the number of optimizer_steps, and the trained_tokens that bore loss, once a batch.

    A part in which no advantage differs from 0, and of which no teacher speaks, makes no optimiser step: Adam would blow the
    rounding noise of its gradient up to steps of full size. Raises PermanentError when a loss or a gradient norm is not
    finite."""
    spec = learner.spec
    bears = bearing(spec.method.loss, batch) if bears is None else bears
    parts = [part for part in _parts(spec, batch, advantage, bears) if _moves(spec.method.loss, batch, part)]
    steps_per_batch = spec.updates_per_step()
    old = _old_logprobs(learner, batch, parts) if steps_per_batch > 1 and parts else None
    summed = (*losses.MEMBERS[spec.method.loss.name].sums, "kl_old", *(("kl",) if spec.method.loss.refers() else ()), DIFFERENCE)
    totals = dict.fromkeys(("loss", "grad_norm", "optimizer_steps", "tokens", *summed, LARGEST, RATIO), 0.0)
    for _ in range(spec.method.loss.num_iterations):
        for part in parts:
            sums = _backward(learner, batch, part, old, _prepared(learner, batch, part, old, step))
            norm = float(
                optimizer.apply_gradients(learner.optimizers, list(learner.policy.parameters()), spec.optimizer.max_grad_norm)
            )
            optimizer.check_finite(step, spec.steps, sums["loss"], norm)
            for name, value in {**sums, "grad_norm": norm, "optimizer_steps": 1.0}.items():
                totals[name] = max(totals[name], value) if name in (LARGEST, RATIO) else totals[name] + value
    return {**_means(totals), "trained_tokens": float(bears.sum())}


def _parts(spec: RLSpec, batch: Batch, advantage: Tensor, mask: Tensor) -> list[Part]:
    """The batch in `minibatches` parts of whole groups, in the order drawn.

    Without a KL or entropy term a row without advantage has the constant loss 0: it counts, but its forward pass is left out."""
    loss = spec.method.loss
    every = loss.refers() or loss.entropy_coef or losses.MEMBERS[loss.name].every_row
    matters = (mask if every else (advantage != 0) & mask).any(1)
    if isinstance(loss, loss_spec.DistilLoss):
        matters = (has_teacher(batch) & mask.any(1)) | (matters & bool(every or loss.mix_rlvr))
    _, member = torch.unique(batch.groups, return_inverse=True)
    groups = len(batch.groups.unique())
    parts = []
    for number in range(spec.minibatches):
        here = member * spec.minibatches // max(groups, 1) == number
        weights = torch.zeros(mask.shape)
        weights[here] = _weights(spec, mask[here], int(mask.sum()))
        all_rows, rows = here.nonzero()[:, 0], (here & matters).nonzero()[:, 0]
        parts.append(Part(all_rows, rows, advantage, mask, weights, int(mask[here].sum())))
    return parts


def _moves(loss: loss_spec.PolicyLoss, batch: Batch, part: Part) -> bool:
    """Whether the policy would learn anything from a part."""
    if isinstance(loss, loss_spec.DistilLoss):
        paid = bool(loss.mix_rlvr) and bool(part.advantage[part.rows].any())
        return paid or bool((has_teacher(batch)[part.rows] & part.mask[part.rows].any(1)).any())
    return bool(part.advantage[part.rows].any())


# Aggregation: how the tokens of an optimiser step are weighed, for every loss.


def token_weights(loss_type: str, mask: Tensor, batch_tokens: int, minibatches: int, max_completion_length: int) -> Tensor:
    """Weight (N,T) float32 of each token's loss within one optimiser step: TRL's loss types and verl's loss_agg_mode, as choices
    of a weight.

    Weights are fixed for a whole optimiser step before it is cut into micro-batches, so the gradient does not depend on how it
    is cut, but for rounding. `mask` (N,T) bool marks the step's tokens that bear loss; `batch_tokens` counts those of the whole
    batch of rollouts, which is shared by `minibatches` steps. As in TRL a row whose mask is empty still counts as a row."""
    active, loss_type = mask.float(), AGGREGATED.get(loss_type, loss_type)
    if loss_type == "grpo":
        return active / (active.sum(1, keepdim=True).clamp(min=1) * len(mask))
    if loss_type == "bnpo":
        return active / active.sum().clamp(min=1)
    if loss_type == "luspo":
        return active / len(mask)
    if loss_type == "dr_grpo":
        return active / (len(mask) * max_completion_length)
    return active / (max(batch_tokens, 1) / minibatches)


def _weights(spec: RLSpec, mask: Tensor, batch_tokens: int) -> Tensor:
    loss = spec.method.loss
    if isinstance(loss, loss_spec.RatioLoss) and loss.loss_denominator:
        return mask.float() / loss.loss_denominator
    return token_weights(loss.loss_agg_mode or loss.loss_type, mask, batch_tokens, spec.minibatches, spec.max_completion_length)


def _old_logprobs(learner: Learner, batch: Batch, parts: list[Part]) -> Tensor:
    """(N,T) log-probabilities before the first update, from the pass and the micro-batches that train, so that the first ratio
    is 1."""
    old = torch.zeros(batch.tokens.shape)
    simple = losses.MEMBERS[learner.spec.method.loss.name].prepare is None
    with torch.no_grad():
        for part in parts:
            for rows in shard_rows(learner.policy, batch, part.rows if simple else part.all_rows, learner.micro_batch_tokens):
                old[rows] = _scores(learner, learner.policy, batch, rows)
    return distributed.all_reduce_sum(old)


def _scores(learner: Learner, decoder: Decoder, batch: Batch, rows: Tensor) -> Tensor:
    spec = learner.spec
    return scores(decoder, batch, rows, spec.temperature, getattr(torch, spec.dtype), lagged=learner.lagged).logp


def _prepared(learner: Learner, batch: Batch, part: Part, old: Tensor | None, step: int) -> dict[str, Tensor]:
    """What the loss must know of a whole optimiser step, under the policy before it: (N,T) each, 0 outside the part."""
    spec, room = learner.spec.method.loss, torch.zeros(batch.tokens.shape)
    read: dict[str, Tensor] = {losses.FIRST_TURN: first_turns(batch).float()} if spec.first_turn_beta else {}
    if isinstance(spec, loss_spec.RatioLoss) and spec.importance_sampling_level == "turn":
        read[losses.TURNS] = numbered_turns(batch)
    if isinstance(spec, loss_spec.DirectAdvantageLoss) and batch.steps is not None:
        read = {losses.STEPS: batch.steps}
    if losses.MEMBERS[spec.name].prepare is None:
        return read
    logp, entropy = room.clone(), room.clone()
    with torch.no_grad():
        for rows in shard_rows(learner.policy, batch, part.all_rows, learner.micro_batch_tokens):
            dtype = getattr(torch, learner.spec.dtype)
            found = scores(learner.policy, batch, rows, learner.spec.temperature, dtype, True, learner.lagged)
            logp[rows], entropy[rows] = found.logp, found.entropy if found.entropy is not None else 0.0
    logp, entropy, here = distributed.all_reduce_sum(logp), distributed.all_reduce_sum(entropy), part.all_rows
    whole = losses.FullBatch(
        logp=logp[here],
        old_logp=_behaviour(batch, here, (logp if old is None else old)[here]),
        entropy=entropy[here],
        advantage=part.advantage[here],
        mask=part.mask[here],
        groups=batch.groups[here],
        right=batch.right[here],
        noise=torch.from_numpy(random.generator(learner.spec.seed, "loss", step).random(tuple(batch.tokens.shape)))[here],
        by=exact.functions(learner.spec.numerics),
    )
    found_whole = losses.prepare_loss(spec, whole)
    made = {name: torch.zeros(room.shape, dtype=value.dtype).index_copy_(0, here, value) for name, value in found_whole.items()}
    return {**made, **read}


def _backward(learner: Learner, batch: Batch, part: Part, old: Tensor | None, known: dict[str, Tensor]) -> dict[str, float]:
    """Accumulate the gradient of one optimiser step; returns its loss and sums over the tokens trained on.

    Without `old` log-probabilities the policy is the one that sampled: the ratio is 1 and its gradient that of the
    log-probability. `known` is what `_prepared` found."""
    sums: dict[str, float] = {}
    peaks: dict[str, float] = {}

    def attempt(tokens: int) -> None:
        _pass(learner, batch, part, micro_batches(learner.policy, batch, part.rows, tokens)[0], old, known)

    with (
        distributed.accumulate_gradient(learner.policy),
        device.report_out_of_memory("micro_batch_tokens", learner.micro_batch_tokens, attempt),
    ):
        for rows in shard_rows(learner.policy, batch, part.rows, learner.micro_batch_tokens):
            added, largest = _pass(learner, batch, part, rows, old, known)
            for name, value in added.items():
                sums[name] = sums.get(name, 0.0) + float(value)
            for name, value in largest.items():
                peaks[name] = max(peaks.get(name, 0.0), float(value))
    return distributed.all_reduce_dict(sums) | distributed.all_reduce_max(peaks)


def _pass(
    learner: Learner, batch: Batch, part: Part, rows: Tensor, old: Tensor | None, known: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The same of some rows of the part: sums, and what is greatest among their tokens."""
    spec = learner.spec.method.loss
    mask, weights = part.mask[rows], part.weights[rows]
    logp, entropy, divergence = _learning(learner, batch, rows)
    before = logp.detach() if old is None else old[rows]
    old_logp = _behaviour(batch, rows, before)
    now = mask & batch.sampled_now()[rows, None]
    now = now if batch.observed is None else now & ~batch.observed[rows]
    sampled = torch.where(now, batch.logprobs[rows], old_logp)
    with torch.no_grad():
        others = learner.reference_logps(batch, rows) if spec.refers() else []
        reference = forward.weighted_sum(others) if others else None
    by, advantage = exact.functions(learner.spec.numerics), part.advantage[rows]
    read = _rows(known, rows)
    seen = losses.MicroBatch(logp, old_logp, advantage, mask, reference, read, divergence, sampled, by, others)
    per_token, values = losses.token_losses(spec, seen)
    weighted = per_token * weights
    loss = by.total(weighted)
    if entropy is not None:
        share = entropy * weights if spec.loss_agg_mode else entropy * mask / part.tokens if by.exact else None
        bonus = (entropy * mask).sum() / part.tokens if share is None else by.total(share)
        loss = loss - spec.entropy_coef * bonus
        weighted = weighted - spec.entropy_coef * share if share is not None and by.exact else weighted
    if by.exact:
        weighted.backward(torch.ones_like(weighted))
    else:
        loss.backward()
    values["kl_old"] = by.total(k3(logp.detach() - batch.logprobs[rows], by) * now)
    mismatch = torch.where(now, before - batch.logprobs[rows], 0.0)
    values |= {"loss": loss.detach(), "tokens": mask.sum(), DIFFERENCE: by.total(mismatch.abs())}
    return values, {LARGEST: mismatch.abs().max(), RATIO: by.exp(mismatch.max())}


def _learning(learner: Learner, batch: Batch, rows: Tensor) -> Scores:
    """What the policy says, with its gradient, and how far that is from its teacher where the loss has one."""
    spec = learner.spec
    loss, temperature, dtype = spec.method.loss, spec.temperature, getattr(torch, spec.dtype)
    entropy = loss.entropy_coef != 0
    if isinstance(loss, loss_spec.DistilLoss):
        divergence = DIVERGENCES[loss.divergence]
        return compared(learner.policy, batch, rows, temperature, dtype, divergence, learner.micro_batch_tokens, entropy)
    return scores(learner.policy, batch, rows, temperature, dtype, entropy, learner.lagged)


def _rows(known: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    return {name: value[rows] for name, value in known.items()}


def _behaviour(batch: Batch, rows: Tensor, old: Tensor) -> Tensor:
    """(n,T) log-probabilities that ratios refer to: `old`, but for rows off policy those of what made them."""
    if batch.off_policy is None:
        return old
    foreign = batch.off_policy[rows, None] if batch.observed is None else batch.off_policy[rows, None] & ~batch.observed[rows]
    return torch.where(foreign, batch.logprobs[rows], old)


def _means(totals: dict[str, float]) -> dict[str, float]:
    """The loss and the norm as means over optimiser steps, what was summed over tokens as means over those trained on, and what
    is the largest of all as it is."""
    counted = {"optimizer_steps": totals.pop("optimizer_steps")}
    steps, tokens = max(counted["optimizer_steps"], 1.0), max(totals.pop("tokens"), 1.0)
    largest = {name: totals.pop(name) for name in (LARGEST, RATIO)}
    means = {name: total / (steps if name in ("loss", "grad_norm") else tokens) for name, total in totals.items()}
    return means | largest | counted
