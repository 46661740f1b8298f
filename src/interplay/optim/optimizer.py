"""Optimisers (AdamW, Muon) by parameter, and the learning-rate schedule as a factor on the peak."""

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from interplay.core.model import PermanentError, cosine
from interplay.kernels import exact, library
from interplay.model.spec import Dtype, Numerics
from interplay.model.trainer_spec import Optimizer, Schedule

# Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon/): steps along the orthogonal matrix nearest to the momentum.
#
# The same equations as `torch.optim.Muon` with its defaults (nesterov, 5 Newton-Schulz steps, learning rate scaled by
# sqrt(max(1, rows / columns))). The iteration runs in bfloat16 on a GPU, as there, and in float32 on a CPU, where bfloat16
# needs instructions that many lack and is thirty times slower without. That class iterates over matrices one by one, which for a
# model of 64 to 128 channels costs as much as forward and backward together; here matrices of equal shape are iterated as one
# batch: 5 times faster at 64 channels and twice at 128, on one CPU thread. Tests compare the trajectories of both.


A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of the quintic iteration, as in torch.optim.Muon."""
ITERATIONS = 5
SMALLEST_NORM = 1e-7


def orthogonalise(matrices: Tensor, arithmetic: torch.dtype) -> Tensor:
    """Newton-Schulz iteration on (N, m, n) with m <= n: X <- aX + (bG + cGG)X with G = XX^T. (N, m, n) of dtype `arithmetic`.
    int8 stands for integer operands, here of 11 bits, and a float32 result (`interplay.kernels`)."""
    if arithmetic == torch.int8:
        return _orthogonalise_integers(matrices)
    x = matrices.to(arithmetic)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        gram = torch.bmm(x, x.mT)
        update = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        x = torch.baddbmm(x, update, x, beta=A)
    return x


def _orthogonalise_integers(matrices: Tensor) -> Tensor:
    if library.usable(matrices.shape[1:], matrices.device):
        x = matrices.clone(memory_format=torch.contiguous_format)
        library.call("orthogonalise", library.Iteration(*x.shape, ITERATIONS, A, B, C, SMALLEST_NORM), x)
        return x
    x = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        grams = [library.int12_product(one, one.mT) for one in x]
        updates = [B * gram + C * library.int12_product(gram, gram) for gram in grams]
        x = torch.stack([A * one + library.int12_product(update, one) for update, one in zip(updates, x, strict=True)])
    return x


def orthogonalise_all(matrices: list[Tensor], arithmetic: torch.dtype | None = None) -> list[Tensor]:
    """`orthogonalise` over matrices (..., m, n), stacked by shape; a tall matrix is worked on as its transpose. Same order.
    `arithmetic`: None for bfloat16 on a GPU and float32 elsewhere."""
    arithmetic = arithmetic or (torch.bfloat16 if matrices[0].is_cuda else torch.float32)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    wide = [matrix.mT if matrix.size(-2) > matrix.size(-1) else matrix for matrix in matrices]
    for index, matrix in enumerate(wide):
        groups[tuple(matrix.shape)].append(index)
    result: list[Tensor] = list(matrices)
    for shape, indices in groups.items():
        done = orthogonalise(torch.stack([wide[i] for i in indices]).view(-1, *shape[-2:]), arithmetic)
        for index, one in zip(indices, done.view(-1, *shape).unbind(), strict=True):
            result[index] = one.mT if matrices[index].size(-2) > matrices[index].size(-1) else one
    return result


class _Eager(torch.optim.Optimizer):
    """Methods of torch without the wrappers that exclude them from `torch.compile`. These import torch._dynamo at their first
    call, which takes longer than torch itself, and no optimiser is compiled here."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class Muon(_Eager):
    """Muon over matrices. State per parameter: `momentum_buffer`, as in torch.optim.Muon."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        arithmetic: torch.dtype | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self.arithmetic = arithmetic

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient; closures are not used."""
        for group in self.param_groups:
            self._step_group(group)

    def _step_group(self, group: dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        for p in params:
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        if self.arithmetic == torch.int8 and all(map(_in_kernel, params)):
            self._step_in_kernel(group, params)
            return
        grads = [p.grad for p in params]
        buffers = [self.state[p]["momentum_buffer"] for p in params]
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        looked_ahead = list(torch._foreach_lerp(grads, buffers, group["momentum"]))
        updates = orthogonalise_all(looked_ahead, self.arithmetic)
        scaled = [_rate(p, group["lr"]) for p in params]
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        for p, update, factor in zip(params, updates, scaled, strict=True):
            p.add_(update, alpha=factor)

    def _step_in_kernel(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """The same by one call, in which a matrix does not leave the processor's cache."""
        each = [
            library.Stepped(
                *(part.data_ptr() for part in (p, self.state[p]["momentum_buffer"], p.grad) if part is not None),
                *p.shape,
                _rate(p, group["lr"]),
            )
            for p in params
        ]
        iteration = library.Iteration(len(params), 0, 0, ITERATIONS, A, B, C, SMALLEST_NORM)
        rates = group["momentum"], 1 - group["momentum"], 1 - group["lr"] * group["weight_decay"]
        library.call("muon_step", iteration, (library.Stepped * len(each))(*each), *rates)


def _rate(matrix: Tensor, rate: float) -> float:
    """What the update of a matrix (..., m, n) is multiplied by."""
    return -rate * math.sqrt(max(1.0, matrix.size(-2) / matrix.size(-1)))


def _in_kernel(matrix: Tensor) -> bool:
    """Whether `muon_step` takes a matrix: a whole one, of sizes that kernels take."""
    plain = all(type(part) in (Tensor, torch.nn.Parameter) for part in (matrix, matrix.grad))
    whole = matrix.grad is not None and matrix.is_contiguous() and matrix.grad.is_contiguous()
    return plain and whole and matrix.ndim == 2 and library.usable(matrix.shape, matrix.device)


class AdamW(_Eager, torch.optim.AdamW):
    """torch's AdamW."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class ExactAdamW(AdamW):
    """The same by operations whose bytes do not depend on the processor; with numerics: exact."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient; closures are not used."""
        for group in self.param_groups:
            (beta1, beta2), rate, eps = group["betas"], group["lr"], group["eps"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state |= {"step": torch.zeros(()), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                state["step"] += 1
                steps = int(state["step"])
                biases = 1 - exact.power(beta1, steps), math.sqrt(1 - exact.power(beta2, steps))
                numbers = beta1, beta2, 1 - rate * group["weight_decay"], rate / biases[0], biases[1], eps
                arrays = p, state["exp_avg"], state["exp_avg_sq"], p.grad.contiguous()
                library.call("adamw_step", *arrays, p.numel(), *numbers)


# Parameter groups.


def build_optimizers(
    spec: Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]],
    dtype: Dtype = "float32",
    stacked: bool = False,
    numerics: Numerics = "fast",
) -> list[torch.optim.Optimizer]:
    """The optimisers of a model whose parameters bear Hugging Face's names, of those that are trained.

    adamw: all parameters. muon: Muon on the matrices of the layers, AdamW on the rest (embeddings, output head, norms, biases).
    Weight decay pulls on matrices only, never on norms and biases. Each group keeps its peak rate as `initial_lr`. With `dtype`
    int8 the products of Muon's iteration take integer operands, too. `stacked` parameters are (replicas, ...), one each."""
    matrices: list[Tensor] = []
    tables: list[Tensor] = []
    vectors: list[Tensor] = []
    for name, parameter in named_parameters:
        if not parameter.requires_grad:
            continue
        is_matrix = parameter.ndim == 2 + stacked
        inside = ".layers." in name and is_matrix
        (matrices if inside else tables if is_matrix else vectors).append(parameter)
    if spec.name == "muon":
        arithmetic = torch.int8 if dtype == "int8" else None
        muon = [Muon(matrices, spec.muon_learning_rate, spec.weight_decay, spec.muon_momentum, arithmetic)] if matrices else []
        rest = [_adamw(spec, tables, vectors, numerics)] if tables or vectors else []  # adapters are matrices alone
        return _store_peak([*muon, *rest])
    return _store_peak([_adamw(spec, matrices + tables, vectors, numerics)])


def _adamw(spec: Optimizer, decayed: list[Tensor], vectors: list[Tensor], numerics: Numerics) -> torch.optim.Optimizer:
    groups = [{"params": decayed, "weight_decay": spec.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    filled = [group for group in groups if group["params"]]
    kind = ExactAdamW if numerics == "exact" else AdamW
    return kind(filled, lr=spec.learning_rate, betas=(spec.adam_beta1, spec.adam_beta2), fused=True)


def _store_peak(optimizers: list[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers


def set_lr(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set the learning rate of every group to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor


def apply_gradients(optimizers: list[torch.optim.Optimizer], parameters: list[Tensor], max_grad_norm: float) -> Tensor:
    """Clip the gradients to `max_grad_norm` (0: no clipping), update the parameters and clear the gradients. Returns the gradient
    norm () before clipping."""
    if any(isinstance(one, ExactAdamW) for one in optimizers):
        norm = _clip_exactly(parameters, max_grad_norm or math.inf)
    else:
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm or float("inf"))
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    # The fused AdamW does not increment the version counters by which engines detect changed weights.
    torch.autograd.graph.increment_version(parameters)
    return norm


def _clip_exactly(parameters: list[Tensor], limit: float) -> Tensor:
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = exact.norm(gradients)
    factor = min(limit / (norm + 1e-6), 1.0)
    for gradient in gradients if factor < 1 else ():
        gradient.mul_(factor)
    return torch.tensor(norm)


# Learning-rate schedule.


def check_finite(step: int, steps: int, loss: float, norm: float) -> None:
    """Raises PermanentError where the loss or the gradient's norm of a step is not finite."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise PermanentError(f"step {step} of {steps}: loss {loss}, gradient norm {norm}; lower the learning rate")


def lr_factor(spec: Schedule, step: int, steps: int) -> float:
    """Factor on the peak learning rate at `step` of 1..steps: linear warm-up to 1, constant, then decay to `min_ratio` at the
    last step.

    The warm-up takes round(warmup_ratio * steps) steps, and its last has factor 1; the decay takes round(decay_ratio * steps),
    at most the steps after the warm-up."""
    warmup = round(spec.warmup_ratio * steps)
    if step <= warmup:
        return step / warmup
    decay = min(round(spec.decay_ratio * steps), steps - warmup)
    passed = step - (steps - decay)
    if spec.name == "constant" or passed <= 0:
        return 1.0
    left = 1 - passed / decay
    shape = left if spec.name == "linear" else (1 - cosine(math.pi * left)) / 2
    return spec.min_ratio + (1 - spec.min_ratio) * shape
