"""The `unlearn` stage: forget objectives, retain loss, and how their gradients are combined."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from interplay.core import execution, metrics
from interplay.core.model import UserError
from interplay.data import batches, corpus, sets, tokenizer
from interplay.model import decoder, device, folder, heads
from interplay.optim import distributed
from interplay.train import lm, loop
from interplay.train.spec import UnlearnSpec

# Objectives, and combinations of the two gradients.


class ForgetLogps(NamedTuple):
    """Log-probabilities of n problems to forget, each (n,) float32."""

    logp: Tensor
    """Log-probability of the gold solution in nats, its end included."""
    reference: Tensor
    """The same under the initial model; 0 for objectives without a reference."""
    tokens: Tensor
    """Tokens of the solution, its end included."""
    mean_tokens: float
    """Mean over all problems of the step, which turns sums into a mean over its tokens."""


def forget_objective(spec: UnlearnSpec, logps: ForgetLogps) -> Tensor:
    """The forget term of the loss of each problem, (n,), to which the retain loss is added. Raises KeyError for uld, which trains
    another model."""
    return OBJECTIVES[spec.objective](spec, logps)


def _ascent(spec: UnlearnSpec, logps: ForgetLogps) -> Tensor:
    """Gradient ascent: minus the loss per token; unbounded below."""
    return logps.logp / logps.mean_tokens


def _npo(spec: UnlearnSpec, logps: ForgetLogps) -> Tensor:
    """(2 / beta) log(1 + (policy / reference)^beta): arXiv:2404.05868, eq. 3."""
    return -2 / spec.beta * F.logsigmoid(-spec.beta * (logps.logp - logps.reference))


def _simnpo(spec: UnlearnSpec, logps: ForgetLogps) -> Tensor:
    """The mean log-probability per token in place of the ratio to a reference: arXiv:2410.07163, eq. 4."""
    return -2 / spec.beta * F.logsigmoid(-spec.beta * logps.logp / logps.tokens - spec.simnpo_gamma)


OBJECTIVES: dict[str, Callable[[UnlearnSpec, ForgetLogps], Tensor]] = {
    "gradient_ascent": _ascent,
    "grad_diff": _ascent,
    "npo": _npo,
    "simnpo": _simnpo,
}
REFERRED = ("npo",)
"""Objectives with a reference."""


class Gradients(NamedTuple):
    """Flattened gradients of the retain loss and of the forget objective, each (P,)."""

    retain: Tensor
    forget: Tensor


def blur_gradient(spec: UnlearnSpec, pair: Gradients) -> Tensor:
    """The gradient (P,) of BLUR's step: g_r + (gamma - <g_r, g_f> / |g_f|^2) g_f. The retain loss is minimised in
    the subspace orthogonal to the forget gradient, to which the step adds gamma g_f (arXiv:2506.08164, algorithm 1)."""
    squared = pair.forget.dot(pair.forget)
    if squared == 0:
        return pair.retain
    return pair.retain + (spec.blur_gamma - pair.retain.dot(pair.forget) / squared) * pair.forget


def hamu_gradient(spec: UnlearnSpec, pair: Gradients) -> Tensor:
    """The gradient (P,) of HAMU-Q's step: of all steps d with |d| <= |g_r| that raise the forget loss by at least B, to
    first order, the one that minimises the retain loss (arXiv:2606.02119, theorem 4.2).

    With u the gradient of the forget loss (minus `pair.forget`) and B = hamu_gain |g_r| |u|: -g_r itself where it suffices, else
    B along u, and the remaining length along minus the part of g_r orthogonal to u."""
    rising = -pair.forget
    length, steepness = pair.retain.norm(), rising.norm()
    if length == 0 or steepness == 0:
        return pair.retain
    if -pair.retain.dot(rising) >= spec.hamu_gain * length * steepness:
        return pair.retain
    direction = rising / steepness
    across = pair.retain - pair.retain.dot(direction) * direction
    rest = (1 - spec.hamu_gain**2) ** 0.5 * length * across / across.norm().clamp(min=torch.finfo(across.dtype).tiny)
    return rest - spec.hamu_gain * length * direction


FORMULATIONS: dict[str, Callable[[UnlearnSpec, Gradients], Tensor]] = {"blur": blur_gradient, "hamu": hamu_gradient}


def uniform_divergence(logits: Tensor) -> Tensor:
    """KL(uniform || model) in nats, (M,), of logits (M, V): the loss of uld's assistant on retained problems
    (arXiv:2406.08607, eq. 4)."""
    return -logits.log_softmax(-1).mean(-1) - math.log(logits.shape[-1])


# The stage: a model is trained to forget the solutions of some problems and retain those of others.
#
# A step trains on `problems_per_step` problems of either side, in orders drawn from the seed, in micro-batches of
# `micro_batch_tokens`. With uld an assistant is trained on the problems to forget, and the model is unchanged.


EVALUATED = 256
"""Problems of either side over which losses are evaluated between steps."""


class Setup(NamedTuple):
    """Constants of a run."""

    spec: UnlearnSpec
    forget: corpus.Encoded
    retain: corpus.Encoded
    model: decoder.Decoder
    """The trained model; with uld the assistant."""
    base: decoder.Decoder | None
    """The initial model, frozen: the reference of npo, the base of uld; else None."""
    pass_tokens: int
    dtype: torch.dtype
    device: torch.device


def train_unlearning(spec: UnlearnSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Unlearn and write `metrics.jsonl`, `model/` and `checkpoints/<step>/`, with uld `base/`, `assistant/` and
    `composition.json` in place of `model/`; resumes from `out/resume` where there is one.

    Roles: see UnlearnSpec. Raises UserError where a problem is too long, PermanentError at the first loss or gradient that is not
    finite."""
    loop.seed_torch(how, spec.seed)
    setup = prepare(spec, inputs, how)
    files = tokenizer.tokenizer_folder(inputs["init"])
    before = held_out_losses(setup, lambda batch: lm.token_losses(setup.base or setup.model, batch, setup.dtype))
    job = loop.TrainingJob(
        spec,
        setup.model,
        spec.steps,
        step_gradient=lambda step: step_gradient(setup, step),
        save=lambda path: folder.save_decoder(setup.model, path, files),
        evaluate=lambda: held_out_losses(setup, lambda batch: final_token_losses(setup, batch)),
        eval_every=spec.eval_every,
    )
    result = loop.run_training(job, out, how)
    if spec.objective == "uld":
        heads.save_composed(composed_model(setup), out, files)
    else:
        folder.save_decoder(setup.model, out / "model", files)
    loop.write_throughput(out, result, setup.model, setup.dtype)
    parameters = sum(p.numel() for p in (setup.base or setup.model).parameters())
    losses = {**{f"{name}_before": value for name, value in before.items()}, **result.evaluated}
    return {"steps": spec.steps, "tokens": result.tokens, "parameters": parameters, **metrics.round_values(losses)}


def prepare(spec: UnlearnSpec, inputs: dict[str, Path], how: execution.Run) -> Setup:
    """Problems and models. Raises UserError where a problem is too long or the assistant has too many layers."""
    at, dtype = device.pick_device(how), getattr(torch, spec.dtype)
    found = device.place_decoder(folder.load_decoder(inputs["init"] / "model"), how, blockwise=spec.blockwise)
    model, base = found, None
    if spec.objective == "uld":
        layers = found.shape.num_hidden_layers
        if spec.assistant_layers > layers:
            raise UserError(f"unlearn: assistant_layers = {spec.assistant_layers}: the model has {layers}; write at most that")
        model, base = heads.first_layers(found, spec.assistant_layers or max(1, layers // 2)).to(at), found
    elif spec.objective in REFERRED:
        base = device.place_decoder(folder.load_decoder(inputs["init"] / "model"), how, blockwise=spec.blockwise)
    return Setup(
        spec=spec,
        forget=load_problems(inputs, "forget", spec.forget_mix, spec),
        retain=load_problems(inputs, "retain", spec.retain_mix, spec),
        model=model,
        base=base.requires_grad_(False) if base else None,
        pass_tokens=how.micro_batch_tokens,
        dtype=dtype,
        device=at,
    )


def load_problems(inputs: dict[str, Path], side: str, mix: list[float], spec: UnlearnSpec) -> corpus.Encoded:
    """The problems of the roles `side.<i>` in these shares. Raises UserError where one has more tokens than max_length."""
    each = [corpus.encode_problems(inputs[f"{side}.{i}"], inputs["init"]) for i in range(len(mix))]
    chosen = sets.draw_shares([len(one.lengths) for one in each], mix, side, spec.seed)
    parts = [corpus.select_problems(one, places) for one, places in zip(each, chosen, strict=True)]
    problems = corpus.Encoded(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if (longest := int(problems.lengths.max())) > spec.max_length:
        raise UserError(
            f"unlearn: max_length = {spec.max_length}: the longest problem of {side} has {longest} tokens; raise it, or drop "
            "such problems with a step `length`"
        )
    return problems


def step_gradient(setup: Setup, step: int) -> dict[str, float]:
    """Accumulate the gradient of step `step` of 1..steps. Returns forget_loss and retain_loss, the cross-entropy per token of
    either side before the update (with uld the assistant's, and uniform_kl in place of the latter); loss, the objective;
    grad_cosine between both gradients, for formulations that combine them; tokens of this step."""
    spec = setup.spec
    forget, retain = (draw_problems(setup, problems, step) for problems in (setup.forget, setup.retain))

    def attempt(tokens: int) -> None:
        for batch, _ in local_batches(setup._replace(pass_tokens=tokens), forget)[-1:]:
            lm.token_losses(setup.model, batch, setup.dtype).sum().backward()

    with device.report_out_of_memory("micro_batch_tokens", setup.pass_tokens, attempt):
        if spec.objective == "uld":
            values = assistant_gradient(setup, forget, retain)
        elif spec.formulation == "weighted_sum":
            values = weighted_sum_gradient(setup, forget, retain)
        else:
            values = combined_gradient(setup, forget, retain)
    return {**values, "tokens": int(forget.lengths.sum() + retain.lengths.sum())}


def draw_problems(setup: Setup, problems: corpus.Encoded, step: int) -> corpus.Encoded:
    """The problems of a step."""
    size = setup.spec.problems_per_step
    places = batches.rows_between(len(problems.lengths), setup.spec.seed, (step - 1) * size, step * size)
    return corpus.select_problems(problems, places)


def weighted_sum_gradient(setup: Setup, forget: corpus.Encoded, retain: corpus.Encoded) -> dict[str, float]:
    """Accumulate the gradient of the forget objective plus retain_weight times the retain loss."""
    weight = 0.0 if setup.spec.objective == "gradient_ascent" else setup.spec.retain_weight
    with distributed.accumulate_gradient(setup.model):
        objective, forgotten = forget_gradient(setup, forget)
        kept = retain_gradient(setup, retain, weight)
    return {"loss": objective + weight * kept, "forget_loss": forgotten, "retain_loss": kept}


def combined_gradient(setup: Setup, forget: corpus.Encoded, retain: corpus.Encoded) -> dict[str, float]:
    """Set the model's gradient to the spec's formulation of both gradients."""
    with distributed.accumulate_gradient(setup.model):
        objective, forgotten = forget_gradient(setup, forget)
    forgetting = take_gradient(setup.model)
    with distributed.accumulate_gradient(setup.model):
        kept = retain_gradient(setup, retain, 1.0)
    pair = Gradients(take_gradient(setup.model), forgetting)
    set_gradient(setup.model, FORMULATIONS[setup.spec.formulation](setup.spec, pair))
    cosine = torch.nn.functional.cosine_similarity(*pair, dim=0).item()
    return {"loss": objective + kept, "forget_loss": forgotten, "retain_loss": kept, "grad_cosine": cosine}


def assistant_gradient(setup: Setup, forget: corpus.Encoded, retain: corpus.Encoded) -> dict[str, float]:
    """Accumulate the gradient of the loss of uld's assistant: cross-entropy on the problems to forget, and divergence from the
    uniform distribution on the others."""
    weight = setup.spec.retain_weight
    with distributed.accumulate_gradient(setup.model):
        forgotten = mean_over_tokens(setup, forget, lambda batch: lm.token_losses(setup.model, batch, setup.dtype))
        divergence = mean_over_tokens(
            setup, retain, lambda batch: uniform_divergence(lm.target_logits(setup.model, batch, setup.dtype)), weight
        )
    return {"loss": forgotten + weight * divergence, "forget_loss": forgotten, "uniform_kl": divergence}


def forget_gradient(setup: Setup, problems: corpus.Encoded) -> tuple[float, float]:
    """Accumulate the gradient of the forget objective (mean over problems); returns the objective and the loss per token."""
    count, objective, total, seen = len(problems.lengths), 0.0, 0.0, 0
    mean_tokens = float(np.mean(problems.lengths - np.maximum(problems.prompts, 1)))
    for batch, size in local_batches(setup, problems):
        logp, tokens = solution_logps(setup.model, batch, size, setup)
        reference = torch.zeros_like(logp)
        if setup.base is not None:
            with torch.no_grad():
                reference = solution_logps(setup.base, batch, size, setup)[0]
        of_problems = forget_objective(setup.spec, ForgetLogps(logp, reference, tokens, mean_tokens)).sum() / count
        of_problems.backward()
        objective += of_problems.item()
        total, seen = total - logp.detach().double().sum().item(), seen + len(batch.targets)
    objective, total, tokens_seen = distributed.all_reduce_values(objective, total, seen)
    return objective, total / tokens_seen


def retain_gradient(setup: Setup, problems: corpus.Encoded, weight: float) -> float:
    """Accumulate `weight` times the gradient of the loss per token; returns that loss."""
    return mean_over_tokens(setup, problems, lambda batch: lm.token_losses(setup.model, batch, setup.dtype), weight)


def mean_over_tokens(
    setup: Setup, problems: corpus.Encoded, values: Callable[[batches.Batch], Tensor], weight: float | None = 1.0
) -> float:
    """The mean of values (M,) over all tokens of solutions; accumulates `weight` times its gradient (None or 0: none)."""
    count = int((problems.lengths - np.maximum(problems.prompts, 1)).sum())
    total = 0.0
    for batch, _ in local_batches(setup, problems):
        with torch.set_grad_enabled(bool(weight)):
            part = values(batch).sum() / count
        if weight:
            (weight * part).backward()
        total += part.item()
    return distributed.all_reduce_values(total)[0]


def local_batches(setup: Setup, problems: corpus.Encoded) -> list[tuple[batches.Batch, int]]:
    """This process's part of the problems, as (batch, number of problems) of at most about `pass_tokens` tokens, sorted by
    length. The end of a solution bears loss, as in training."""
    order = np.argsort(problems.lengths, kind="stable")
    pass_of = (np.cumsum(problems.lengths[order]) - 1) // setup.pass_tokens
    found = []
    for number in distributed.shard_round_robin(np.unique(pass_of).tolist()):
        part = corpus.select_problems(problems, order[pass_of == number])
        within = corpus.index_ranges(np.zeros_like(part.lengths), part.lengths)
        bears = within >= np.repeat(np.maximum(part.prompts, 1), part.lengths)
        found.append(
            (batches.batch_of_sequences(batches.Sequences(part.tokens, part.lengths, bears), setup.device), len(part.lengths))
        )
    return found


def solution_logps(model: decoder.Decoder, batch: batches.Batch, size: int, setup: Setup) -> tuple[Tensor, Tensor]:
    """Log-probability in nats and tokens of the solution of each of the `size` problems of a batch, each (size,) float32."""
    of = torch.from_numpy(batch.sequence).to(setup.device)
    nothing = torch.zeros(size, device=setup.device)
    logp = -lm.token_losses(model, batch, setup.dtype)
    return nothing.index_add(0, of, logp), nothing.index_add(0, of, torch.ones_like(logp.detach()))


def take_gradient(model: nn.Module) -> Tensor:
    """The flattened gradient (P,) of all parameters, which are then cleared of it."""
    joined = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()])
    model.zero_grad(set_to_none=True)
    return joined


def set_gradient(model: nn.Module, gradient: Tensor) -> None:
    """Set the gradient of all parameters from a flattened one (P,), in the order of `take_gradient`."""
    parameters = list(model.parameters())
    for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter).clone()


def composed_model(setup: Setup) -> heads.Composed:
    """With uld, the base minus the assistant."""
    assert setup.base is not None
    return heads.Composed(setup.base, setup.model, setup.spec.logit_weight, setup.spec.top_logit_filter)


@torch.no_grad()
def held_out_losses(setup: Setup, values: Callable[[batches.Batch], Tensor]) -> dict[str, float]:
    """eval_forget_loss and eval_retain_loss: means of values (M,), cross-entropies of tokens, over the first EVALUATED problems
    of either side."""
    found = {}
    for side, problems in (("forget", setup.forget), ("retain", setup.retain)):
        some = corpus.select_problems(problems, np.arange(min(EVALUATED, len(problems.lengths))))
        found[f"eval_{side}_loss"] = mean_over_tokens(setup, some, values, None)
    return found


def final_token_losses(setup: Setup, batch: batches.Batch) -> Tensor:
    """Cross-entropies (M,) of the resulting model: with uld the composed model."""
    if setup.spec.objective != "uld":
        return lm.token_losses(setup.model, batch, setup.dtype)
    pair = composed_model(setup)
    logits = pair.logits(*(lm.target_logits(part, batch, setup.dtype) for part in (pair.base, pair.assistant)))
    return torch.nn.functional.cross_entropy(logits, batch.targets, reduction="none")
