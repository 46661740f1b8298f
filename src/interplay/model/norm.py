"""RMS norm and rotary embedding with gradients of their own: autograd's many small products cost a fifth of a CPU step."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x (..., D) over its root mean square, times weight (D,) or any shape that broadcasts (arXiv:1910.07467)."""
    plain = x.is_cuda or torch.compiler.is_compiling()
    return F.rms_norm(x, x.shape[-1:], None, eps) * weight if plain else _RmsNorm.apply(x, weight, eps)


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate head vectors (..., heads, head_dim) in Hugging Face's layout: dimension i is paired with i + head_dim / 2."""
    return _Rotate.apply(x, *rope)


def _normalised(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x over its root mean square, and the inverse of that (..., 1), which is computed in float32 at least."""
    dtype = torch.float32 if x.dtype == torch.bfloat16 else x.dtype
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
    inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
    return x * inverse, inverse


class _RmsNorm(torch.autograd.Function):
    """n = x r, r the inverse root mean square, h = weight * gradient: dx = r (h - n mean(h n)), dweight = sum(gradient n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        n, inverse = _normalised(x, eps)
        ctx.save_for_backward(n, inverse, weight)
        return n * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        n, inverse, weight = ctx.saved_tensors
        both = gradient * n
        dweight = both.sum_to_size(weight.shape)
        mean = (both * weight).mean(-1, keepdim=True)
        return torch.addcmul(gradient * weight, n, mean, value=-1).mul_(inverse), dweight, None


class _Rotate(torch.autograd.Function):
    """cos * x + sin * swapped(x), the sines signed; the gradient is rotated the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(x * cos, _swapped(x), sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return torch.addcmul(gradient * cos, _swapped(gradient), sin, value=-1), None, None


def _swapped(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((second, first), -1)
