"""Linear layers whose products take 8-bit operands on power-of-two scales and sum exactly, in plain PyTorch.

They define what the compiled kernels compute (to rounding in the operations between the products), and replace them without
a C compiler, for widths that are no multiples of 16, and on a GPU. Products of such integers are exact in float32 for
at most 1,040 summands, so longer sums are cut there, on any hardware; `torch._int_mm` saturates silently on some."""

from typing import Any

import torch
from torch import Tensor

LARGEST = 127
GRADIENT_ROWS = 256
"""Rows whose columns share a scale in the gradient of a weight."""
_EXACT = 1024
"""Summands: 127 * 127 * 1,040 is the largest such product below 2^24."""


def quantised(x: Tensor, dim: int, largest: float = LARGEST) -> tuple[Tensor, Tensor]:
    """Integers of at most `largest` in float32, and the power of two for each row along `dim` (size 1 there) that they are
    multiples of, the smallest above peak / largest."""
    peak = x.abs().amax(dim, keepdim=True).clamp_min(1e-30) / largest
    scale = torch.ldexp(torch.ones_like(peak), torch.frexp(peak).exponent)
    return torch.round(x / scale), scale


def int8_product(a: Tensor, b: Tensor) -> Tensor:
    """a (M, K) times b (K, N), each rounded along K: (M, N) float32."""
    (left, left_scale), (right, right_scale) = quantised(a, 1), quantised(b, 0)
    parts = [x @ y for x, y in zip(left.split(_EXACT, 1), right.split(_EXACT, 0), strict=True)]
    total = parts[0] if len(parts) == 1 else torch.stack(parts).double().sum(0).float()
    return total * (left_scale * right_scale)


def int12_product(a: Tensor, b: Tensor) -> Tensor:
    """The same with operands of up to 11 bits and a sign, fewer where the sum would exceed 32 bits."""
    largest = 2047.0
    while largest * largest * a.shape[1] >= 2**31:
        largest = (largest - 1) / 2
    (left, left_scale), (right, right_scale) = quantised(a, 1, largest), quantised(b, 0, largest)
    return (left.double() @ right.double()).float() * (left_scale * right_scale)


class _Int8Linear(torch.autograd.Function):
    """Output, input gradient and weight gradient by integer products; the rounding itself has a gradient of 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return int8_product(x, weight.T)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        of_weight = torch.zeros_like(weight)
        for g, part in zip(gradient.split(GRADIENT_ROWS), x.split(GRADIENT_ROWS), strict=True):
            of_weight += int8_product(g.T, part)
        return int8_product(gradient, weight), of_weight


def int8_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear` of x (..., K) and weight (N, K) with 8-bit operands. (..., N) float32."""
    out = _Int8Linear.apply(x.reshape(-1, x.shape[-1]), weight).unflatten(0, x.shape[:-1])
    return out if bias is None else out + bias
