"""One step's optimiser steps: `num_iterations` passes over the batch, each in `minibatches` parts, each part in micro-batches."""

import math
from typing import Any

import torch
from torch import Tensor

from interplay.optim import optimizer as optim
from interplay.rl.batch import Batch
from interplay.rl.loss import k3, policy_loss, token_weights
from interplay.rl.policy import micro_batches, scores
from interplay.schema.base import PermanentError
from interplay.schema.rl import RLSpec
from interplay.schema.run import Run

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def update(
    spec: RLSpec,
    how: Run,
    policy: Any,
    reference: Any | None,
    optimizers: list[torch.optim.Optimizer],
    batch: Batch,
    advantage: Tensor,
    step: int,
) -> dict[str, float]:
    """Train `policy` on `batch` with `advantage` (N,T). Returns the step's values: means over optimiser steps (loss, grad_norm) or
    over the tokens trained on (the rest).

    A part without any advantage makes no optimiser step: Adam would scale the rounding noise of its gradient up to full steps.
    Raises PermanentError when a loss or gradient norm is not finite."""
    loss_spec = spec.method.loss
    mask = _loss_mask(loss_spec.mask_truncated_completions, batch)
    parts = [part[_matters(spec, advantage[part], mask[part])] for part in _parts(batch, spec.minibatches)]
    old = _old_logprobs(spec, how, policy, batch, torch.cat(parts)) if loss_spec.num_iterations * spec.minibatches > 1 else None
    totals = {"loss": 0.0, "grad_norm": 0.0, "optimizer_steps": 0.0, "clip_fraction": 0.0, "kl_old": 0.0, "kl": 0.0, "tokens": 0.0}
    for _ in range(loss_spec.num_iterations):
        for whole, part in zip(_parts(batch, spec.minibatches), parts, strict=True):
            if not advantage[part].any():
                continue
            weights = torch.zeros(mask.shape)
            weights[whole] = token_weights(loss_spec, mask[whole], int(mask.sum()), spec.minibatches, spec.max_completion_length)
            sums = _backward(spec, how, policy, reference, batch, part, advantage, mask, weights, int(mask[whole].sum()), old)
            norm = float(_finite_step(spec, policy, optimizers, sums["loss"], step))
            for name, value in {**sums, "grad_norm": norm, "optimizer_steps": 1.0}.items():
                totals[name] += value
    return _means(totals, reference is not None)


def _parts(batch: Batch, minibatches: int) -> list[Tensor]:
    """Rows of each minibatch: whole groups, in the order drawn."""
    _, member = torch.unique(batch.groups, return_inverse=True)
    groups = int(member.max()) + 1 if len(batch) else 0
    return [(member * minibatches // max(groups, 1) == part).nonzero()[:, 0] for part in range(minibatches)]


def _loss_mask(mask_truncated: bool, batch: Batch) -> Tensor:
    mask = batch.mask()
    return mask & ~batch.truncated[:, None] if mask_truncated else mask


def _matters(spec: RLSpec, advantage: Tensor, mask: Tensor) -> Tensor:
    """Rows of a part that can contribute to its gradient: without KL or entropy term, those with an advantage (exactly: the loss of
    the others is a constant 0, so leaving their forward pass out changes nothing but the time)."""
    loss = spec.method.loss
    return mask.any(1) if loss.beta or loss.entropy_coef else ((advantage != 0) & mask).any(1)


def _old_logprobs(spec: RLSpec, how: Run, policy: Any, batch: Batch, rows: Tensor) -> Tensor:
    """(N,T) log-probabilities before the first update, by the forward pass that trains, so that the first ratio is one."""
    old = torch.zeros(batch.tokens.shape)
    with torch.no_grad():
        for piece in micro_batches(batch, rows, how.micro_batch_tokens):
            old[piece] = scores(policy, batch, piece, spec.temperature, DTYPES[spec.dtype]).logp
    return old


def _backward(
    spec: RLSpec,
    how: Run,
    policy: Any,
    reference: Any | None,
    batch: Batch,
    rows: Tensor,
    advantage: Tensor,
    mask: Tensor,
    weights: Tensor,
    part_tokens: int,
    old: Tensor | None,
) -> dict[str, float]:
    """Accumulate the gradient of one optimiser step over micro-batches; returns the loss and sums over the tokens trained on."""
    loss_spec, dtype = spec.method.loss, DTYPES[spec.dtype]
    sums: dict[str, float] = {"loss": 0.0, "tokens": 0.0, "kl_old": 0.0}
    for piece in micro_batches(batch, rows, how.micro_batch_tokens):
        logp, entropy = scores(policy, batch, piece, spec.temperature, dtype, with_entropy=loss_spec.entropy_coef != 0)
        old_logp = logp.detach() if old is None else old[piece]
        reference_logp = None
        if reference is not None:
            with torch.no_grad():
                reference_logp = scores(reference, batch, piece, spec.temperature, dtype).logp
        active = mask[piece]
        loss, extra = policy_loss(loss_spec, logp, old_logp, reference_logp, advantage[piece], active, weights[piece])
        if entropy is not None:
            loss = loss - loss_spec.entropy_coef * (entropy * active).sum() / max(part_tokens, 1)
        loss.backward()
        extra["kl_old"] = (k3(logp.detach() - batch.logprobs[piece]) * active).sum()
        extra |= {"loss": loss.detach(), "tokens": active.sum()}
        for name, value in extra.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def _finite_step(spec: RLSpec, policy: Any, optimizers: list[torch.optim.Optimizer], loss: float, step: int) -> Tensor:
    """One optimiser step; the norm of its gradient before clipping."""
    if not math.isfinite(loss):
        raise PermanentError(f"rl: step {step}: the loss is {loss}; lower optimizer.learning_rate or check the reward")
    norm = optim.step(optimizers, list(policy.parameters()), spec.optimizer.max_grad_norm)
    if not math.isfinite(float(norm)):
        raise PermanentError(f"rl: step {step}: the gradient norm is {float(norm)}; lower optimizer.learning_rate or check the reward")
    return norm


def _means(totals: dict[str, float], with_reference: bool) -> dict[str, float]:
    steps, tokens = max(totals["optimizer_steps"], 1.0), max(totals["tokens"], 1.0)
    means = {name: totals[name] / steps for name in ("loss", "grad_norm")}
    means |= {name: totals[name] / tokens for name in ("clip_fraction", "kl_old")}
    return means | ({"kl": totals["kl"] / tokens} if with_reference else {}) | {"optimizer_steps": totals["optimizer_steps"]}
