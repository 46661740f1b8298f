"""What unlearning minimises, and how two gradients make one step."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.schema.unlearn import UnlearnSpec


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
