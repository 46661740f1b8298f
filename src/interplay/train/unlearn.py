"""The `unlearn` stage: forget objectives, retain loss, and how their gradients are combined."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from interplay.core.execution import Run
from interplay.core.metrics import round_values
from interplay.core.model import UserError
from interplay.data import batches, corpus, sets, tokenizer
from interplay.data.batches import Batch
from interplay.data.corpus import Encoded
from interplay.model import device, folder, heads
from interplay.model.decoder import Decoder
from interplay.model.device import pick_device
from interplay.model.heads import Composed
from interplay.optim import distributed, optimizer
from interplay.train import loop
from interplay.train.loop import Job
from interplay.train.loss import target_logits, token_losses
from interplay.train.spec import UnlearnSpec

# What unlearning minimises, and how two gradients make one step.


class Said(NamedTuple):
    """Of n problems that are to be forgotten, each (n,) float32."""

    logp: Tensor
    """Log-probability of the gold solution in nats, its end included."""
    reference: Tensor
    """The same under the model at the start; 0 where the objective has no reference."""
    tokens: Tensor
    """Of the solution, its end included."""
    mean_tokens: float
    """Of all problems of the step: what turns sums into a mean over its tokens."""


def forget_objective(spec: UnlearnSpec, said: Said) -> Tensor:
    """What each problem adds to what is minimised, (n,); the retain loss stands beside it. Raises KeyError for uld, which trains
    another model."""
    return OBJECTIVES[spec.objective](spec, said)


def _ascent(spec: UnlearnSpec, said: Said) -> Tensor:
    """Minus the loss per token: its mean over problems is minus the mean over tokens. Has no lower bound."""
    return said.logp / said.mean_tokens


def _npo(spec: UnlearnSpec, said: Said) -> Tensor:
    """(2 / beta) log(1 + (policy / reference)^beta): arXiv:2404.05868, eq. 3."""
    return -2 / spec.beta * F.logsigmoid(-spec.beta * (said.logp - said.reference))


def _simnpo(spec: UnlearnSpec, said: Said) -> Tensor:
    """The mean log-probability per token in place of the ratio to a reference: arXiv:2410.07163, eq. 4."""
    return -2 / spec.beta * F.logsigmoid(-spec.beta * said.logp / said.tokens - spec.simnpo_gamma)


OBJECTIVES: dict[str, Callable[[UnlearnSpec, Said], Tensor]] = {
    "gradient_ascent": _ascent,
    "grad_diff": _ascent,
    "npo": _npo,
    "simnpo": _simnpo,
}
REFERRED = ("npo",)
"""Objectives with a reference."""


class Pair(NamedTuple):
    """Gradients over all parameters, joined: of the retain loss, and of what forgetting minimises, each (P,)."""

    retain: Tensor
    forget: Tensor


def blur(spec: UnlearnSpec, pair: Pair) -> Tensor:
    """The gradient (P,) of BLUR's step: g_r + (gamma - <g_r, g_f> / |g_f|^2) g_f. The retain loss falls as fast as it can without
    touching what forgetting minimises, and that falls as its own gradient has it (arXiv:2506.08164, algorithm 1)."""
    squared = pair.forget.dot(pair.forget)
    if squared == 0:
        return pair.retain
    return pair.retain + (spec.blur_gamma - pair.retain.dot(pair.forget) / squared) * pair.forget


def hamu(spec: UnlearnSpec, pair: Pair) -> Tensor:
    """The gradient (P,) of HAMU-Q's step: of all steps d no longer than that along -g_r which raise the forget loss by B at
    least, to first order, the one along which the retain loss falls most, or rises least (arXiv:2606.02119, theorem 4.2).

    With u the gradient of the forget loss (minus `pair.forget`) and B = hamu_gain |g_r| |u|: -g_r itself where it suffices, else
    B along u and the rest of the length against the part of g_r that is orthogonal to u."""
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


FORMULATIONS: dict[str, Callable[[UnlearnSpec, Pair], Tensor]] = {"blur": blur, "hamu": hamu}


def uniform_divergence(logits: Tensor) -> Tensor:
    """KL(uniform || model) in nats, (M,), of logits (M, V): what uld's assistant minimises on what is retained
    (arXiv:2406.08607, eq. 4)."""
    return -logits.log_softmax(-1).mean(-1) - math.log(logits.shape[-1])


# The `unlearn` stage: a model forgets the solutions of some problems and retains those of others.
#
# A step sees `problems_per_step` problems of either side, in orders drawn from the seed, in passes of `micro_batch_tokens`. Of
# uld it is an assistant that learns, what is to be forgotten and nothing of the rest, and the model stays as it is.


MEASURED = 256
"""Problems of either side that losses are measured over between steps."""


class Course(NamedTuple):
    """What is fixed before the first step."""

    spec: UnlearnSpec
    forget: Encoded
    retain: Encoded
    model: Decoder
    """What is trained; of uld the assistant."""
    base: Decoder | None
    """Frozen, as the stage found it: the reference of npo, and what uld's assistant is taken off; None where nobody asks."""
    pass_tokens: int
    dtype: torch.dtype
    device: torch.device


def run(spec: UnlearnSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Unlearn and write `metrics.jsonl`, `model/` and `checkpoints/<step>/`, of uld `base/`, `assistant/` and `composition.json`
    in place of `model/`; goes on from `out/resume` where there is one.

    Roles: see UnlearnSpec. Raises UserError where a problem is too long, PermanentError at the first loss or gradient that is not
    finite."""
    torch.set_num_threads(how.threads)
    torch.manual_seed(spec.seed)  # nothing here draws from torch's own stream, but it is saved, and starts at random otherwise
    course = plan(spec, inputs, how)
    files = tokenizer.tokenizer_folder(inputs["init"])
    before = losses(course, lambda batch: token_losses(course.base or course.model, batch, course.dtype))
    job = Job(
        model=course.model,
        optimizers=optimizer.build_optimizers(spec.optimizer, course.model.named_parameters()),
        steps=spec.steps,
        schedule=spec.schedule,
        max_grad_norm=spec.optimizer.max_grad_norm,
        learn=lambda step: learn(course, step),
        save=lambda path: folder.save_decoder(course.model, path, files),
        checkpoints=spec.checkpoints,
        measure=lambda: losses(course, lambda batch: used(course, batch)),
        eval_every=spec.eval_every,
    )
    ended = loop.train(job, out, how)
    if spec.objective == "uld":
        heads.save_composed(whole(course), out, files)
    else:
        folder.save_decoder(course.model, out / "model", files)
    loop.tell_pace(out, ended, course.model, course.dtype)
    parameters = sum(p.numel() for p in (course.base or course.model).parameters())
    told = {**{f"{name}_before": value for name, value in before.items()}, **ended.measured}
    return {"steps": spec.steps, "tokens": ended.tokens, "parameters": parameters, **round_values(told)}


def plan(spec: UnlearnSpec, inputs: dict[str, Path], how: Run) -> Course:
    """Problems and models."""
    at, dtype = pick_device(how), getattr(torch, spec.dtype)
    found = folder.load_decoder(inputs["init"] / "model").to(at)
    model, base = found, None
    if spec.objective == "uld":
        most = found.shape.num_hidden_layers
        if spec.assistant_layers > most:
            raise UserError(f"unlearn: assistant_layers = {spec.assistant_layers}: the model has {most}")
        model, base = heads.first_layers(found, spec.assistant_layers or max(1, most // 2)).to(at), found
    elif spec.objective in REFERRED:
        base = folder.load_decoder(inputs["init"] / "model").to(at)
    return Course(
        spec=spec,
        forget=load(inputs, "forget", spec.forget_mix, spec),
        retain=load(inputs, "retain", spec.retain_mix, spec),
        model=model,
        base=base.requires_grad_(False) if base else None,
        pass_tokens=how.micro_batch_tokens,
        dtype=dtype,
        device=at,
    )


def load(inputs: dict[str, Path], side: str, mix: list[float], spec: UnlearnSpec) -> Encoded:
    """The problems of the roles `side.<i>` in these shares. Raises UserError where one has more tokens than max_length."""
    each = [corpus.encode_problems(inputs[f"{side}.{i}"], inputs["init"]) for i in range(len(mix))]
    chosen = sets.draw_shares([len(one.lengths) for one in each], mix, side, spec.seed)
    parts = [corpus.select_problems(one, places) for one, places in zip(each, chosen, strict=True)]
    problems = Encoded(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if (longest := int(problems.lengths.max())) > spec.max_length:
        raise UserError(
            f"unlearn: max_length = {spec.max_length}: the longest problem of {side} has {longest} tokens; raise it, or leave "
            "such problems out with a step `length`"
        )
    return problems


def learn(course: Course, step: int) -> dict[str, float]:
    """The gradient of step `step` of 1..steps. Returns forget_loss and retain_loss, the cross-entropy per token of either side
    before the update (of uld the assistant's, and uniform_kl in place of the latter); loss, what is minimised; grad_cosine
    between the retain gradient and that of what forgetting minimises, where a formulation weighs them; tokens of this step."""
    spec = course.spec
    forget, retain = (drawn(course, problems, step) for problems in (course.forget, course.retain))

    def attempt(tokens: int) -> None:
        for batch, _ in passes(course._replace(pass_tokens=tokens), forget)[-1:]:
            token_losses(course.model, batch, course.dtype).sum().backward()

    with device.report_out_of_memory("micro_batch_tokens", course.pass_tokens, attempt):
        if spec.objective == "uld":
            values = assist(course, forget, retain)
        elif spec.formulation == "weighted_sum":
            values = weigh(course, forget, retain)
        else:
            values = reconcile(course, forget, retain)
    return {**values, "tokens": int(forget.lengths.sum() + retain.lengths.sum())}


def drawn(course: Course, problems: Encoded, step: int) -> Encoded:
    """The problems of a step."""
    size = course.spec.problems_per_step
    places = batches.rows_between(len(problems.lengths), course.spec.seed, (step - 1) * size, step * size)
    return corpus.select_problems(problems, places)


def weigh(course: Course, forget: Encoded, retain: Encoded) -> dict[str, float]:
    """Add up the gradient of what forgetting minimises plus retain_weight times the retain loss."""
    weight = 0.0 if course.spec.objective == "gradient_ascent" else course.spec.retain_weight
    with distributed.accumulate_gradient(course.model):
        objective, forgotten = forget_gradient(course, forget)
        kept = retain_gradient(course, retain, weight)
    return {"loss": objective + weight * kept, "forget_loss": forgotten, "retain_loss": kept}


def reconcile(course: Course, forget: Encoded, retain: Encoded) -> dict[str, float]:
    """Put the gradient of the spec's formulation on the model."""
    with distributed.accumulate_gradient(course.model):
        objective, forgotten = forget_gradient(course, forget)
    pulling = taken(course.model)
    with distributed.accumulate_gradient(course.model):
        kept = retain_gradient(course, retain, 1.0)
    pair = Pair(taken(course.model), pulling)
    put(course.model, FORMULATIONS[course.spec.formulation](course.spec, pair))
    cosine = torch.nn.functional.cosine_similarity(*pair, dim=0).item()
    return {"loss": objective + kept, "forget_loss": forgotten, "retain_loss": kept, "grad_cosine": cosine}


def assist(course: Course, forget: Encoded, retain: Encoded) -> dict[str, float]:
    """Add up the gradient of what uld's assistant minimises: its loss on what is to be forgotten, and its distance from knowing
    nothing on the rest."""
    weight = course.spec.retain_weight
    with distributed.accumulate_gradient(course.model):
        forgotten = mean_over_tokens(course, forget, lambda batch: token_losses(course.model, batch, course.dtype))
        knowing = mean_over_tokens(
            course, retain, lambda batch: uniform_divergence(target_logits(course.model, batch, course.dtype)), weight
        )
    return {"loss": forgotten + weight * knowing, "forget_loss": forgotten, "uniform_kl": knowing}


def forget_gradient(course: Course, problems: Encoded) -> tuple[float, float]:
    """Add the gradient of what forgetting minimises, the mean over the problems, to the model's; return it, and the loss per
    token."""
    count, objective, total, seen = len(problems.lengths), 0.0, 0.0, 0
    mean_tokens = float(np.mean(problems.lengths - np.maximum(problems.prompts, 1)))
    for batch, size in passes(course, problems):
        logp, tokens = sums(course.model, batch, size, course)
        reference = torch.zeros_like(logp)
        if course.base is not None:
            with torch.no_grad():
                reference = sums(course.base, batch, size, course)[0]
        of_problems = forget_objective(course.spec, Said(logp, reference, tokens, mean_tokens)).sum() / count
        of_problems.backward()
        objective += of_problems.item()
        total, seen = total - logp.detach().double().sum().item(), seen + len(batch.targets)
    objective, total, tokens_seen = distributed.all_reduce_values(objective, total, seen)
    return objective, total / tokens_seen


def retain_gradient(course: Course, problems: Encoded, weight: float) -> float:
    """Add `weight` times the gradient of the loss per token to the model's; return that loss."""
    return mean_over_tokens(course, problems, lambda batch: token_losses(course.model, batch, course.dtype), weight)


def mean_over_tokens(course: Course, problems: Encoded, values: Callable[[Batch], Tensor], weight: float | None = 1.0) -> float:
    """The mean of values (M,) over all tokens of solutions; `weight` times its gradient is added to the model's, with None or 0
    none."""
    count = int((problems.lengths - np.maximum(problems.prompts, 1)).sum())
    total = 0.0
    for batch, _ in passes(course, problems):
        with torch.set_grad_enabled(bool(weight)):
            part = values(batch).sum() / count
        if weight:
            (weight * part).backward()
        total += part.item()
    return distributed.all_reduce_values(total)[0]


def passes(course: Course, problems: Encoded) -> list[tuple[Batch, int]]:
    """This process's share of the problems as batches of at most about `pass_tokens` tokens, those of similar length together,
    and the problems in each. The end of a solution bears loss, as in training."""
    order = np.argsort(problems.lengths, kind="stable")
    pass_of = (np.cumsum(problems.lengths[order]) - 1) // course.pass_tokens
    found = []
    for number in distributed.shard_round_robin(np.unique(pass_of).tolist()):
        part = corpus.select_problems(problems, order[pass_of == number])
        within = corpus.index_ranges(np.zeros_like(part.lengths), part.lengths)
        bears = within >= np.repeat(np.maximum(part.prompts, 1), part.lengths)
        found.append((batches.batch_of_sequences(part.tokens, part.lengths, bears, course.device), len(part.lengths)))
    return found


def sums(model: Decoder, batch: Batch, size: int, course: Course) -> tuple[Tensor, Tensor]:
    """Log-probability in nats and tokens of the solution of each of the `size` problems of a batch, each (size,) float32."""
    of = torch.from_numpy(batch.sequence).to(course.device)
    nothing = torch.zeros(size, device=course.device)
    logp = -token_losses(model, batch, course.dtype)
    return nothing.index_add(0, of, logp), nothing.index_add(0, of, torch.ones_like(logp.detach()))


def taken(model: nn.Module) -> Tensor:
    """The gradient over all parameters, joined (P,), which the model then no longer has."""
    joined = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()])
    model.zero_grad(set_to_none=True)
    return joined


def put(model: nn.Module, gradient: Tensor) -> None:
    """Give the parameters the gradient (P,) of `taken`'s order."""
    parameters = list(model.parameters())
    for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter).clone()


def whole(course: Course) -> Composed:
    """Of uld, the model without what the assistant knows."""
    assert course.base is not None
    return Composed(course.base, course.model, course.spec.logit_weight, course.spec.top_logit_filter)


@torch.no_grad()
def losses(course: Course, values: Callable[[Batch], Tensor]) -> dict[str, float]:
    """eval_forget_loss and eval_retain_loss: means of values (M,), cross-entropies of tokens, over the first MEASURED problems
    of either side."""
    found = {}
    for side, problems in (("forget", course.forget), ("retain", course.retain)):
        some = corpus.select_problems(problems, np.arange(min(MEASURED, len(problems.lengths))))
        found[f"eval_{side}_loss"] = mean_over_tokens(course, some, values, None)
    return found


def used(course: Course, batch: Batch) -> Tensor:
    """Cross-entropies (M,) of the model as the stage leaves it: of uld the whole."""
    if course.spec.objective != "uld":
        return token_losses(course.model, batch, course.dtype)
    pair = whole(course)
    logits = pair.logits(*(target_logits(part, batch, course.dtype) for part in (pair.base, pair.assistant)))
    return torch.nn.functional.cross_entropy(logits, batch.targets, reduction="none")
