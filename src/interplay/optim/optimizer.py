"""Which parameter is updated by which rule."""

from collections.abc import Iterable

import torch
from torch import Tensor

from interplay.optim import sharding
from interplay.optim.muon import Muon
from interplay.schema.model import Optimizer


def build(spec: Optimizer, named_parameters: Iterable[tuple[str, Tensor]]) -> list[torch.optim.Optimizer]:
    """The optimisers of a model whose parameters bear Hugging Face's names.

    adamw: all parameters. muon: Muon on the matrices of the layers, AdamW on the rest (embeddings, output head, norms, biases).
    Weight decay pulls on matrices only, never on norms and biases. Each group keeps its peak rate as `initial_lr`."""
    matrices: list[Tensor] = []
    tables: list[Tensor] = []
    vectors: list[Tensor] = []
    for name, parameter in named_parameters:
        inside = ".layers." in name and parameter.ndim == 2
        (matrices if inside else tables if parameter.ndim == 2 else vectors).append(parameter)
    if spec.name == "muon":
        muon = [Muon(matrices, spec.muon_learning_rate, spec.weight_decay, spec.muon_momentum)] if matrices else []
        return _remember_peak([*muon, _adamw(spec, tables, vectors)])
    return _remember_peak([_adamw(spec, matrices + tables, vectors)])


def _adamw(spec: Optimizer, decayed: list[Tensor], vectors: list[Tensor]) -> torch.optim.Optimizer:
    groups = [{"params": decayed, "weight_decay": spec.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    filled = [group for group in groups if group["params"]]
    return torch.optim.AdamW(filled, lr=spec.learning_rate, betas=(spec.adam_beta1, spec.adam_beta2), fused=True)


def _remember_peak(optimizers: list[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers


def set_lr(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set every group's rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor


def step(optimizers: list[torch.optim.Optimizer], parameters: list[Tensor], max_grad_norm: float) -> Tensor:
    """Clip the gradients to `max_grad_norm` (0: leave them), update, and clear them. Returns the norm before clipping."""
    norm = sharding.whole(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm or float("inf")))
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    # The fused AdamW writes without torch's counting it; engines see by that count whether weights changed.
    torch.autograd.graph.increment_version(parameters)
    return norm
