"""What follows the layers of a decoder, over the compiled kernels, with gradients: its last norm, the output head, and
log-probabilities."""

from typing import Any

import torch
from torch import Tensor

from interplay.kernels import exact
from interplay.kernels.exact import Blocks
from interplay.kernels.library import LANES, call

# -- behind the layers -------------------------------------------------------------------------------------------------


def norm(x: Tensor, weight: Tensor, eps: float, blocks: Blocks) -> Tensor:
    """x (M, D) over its root mean square, times weight (D,), whose gradient goes to sums."""
    return _Norm.apply(x, weight, eps, blocks)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, blocks: Blocks) -> Tensor:
        x = x.contiguous()
        out, inverse = torch.empty_like(x), x.new_empty(x.numel() // x.shape[-1])
        call("norm_forward", x, weight, len(inverse), x.shape[-1], eps, inverse, out)
        ctx.save_for_backward(x, weight, inverse)
        ctx.blocks = blocks
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse = ctx.saved_tensors
        dx, blocks = torch.empty_like(x), ctx.blocks
        dweight = blocks.gradient("norm", *weight.shape)
        call("norm_backward", gradient.contiguous(), x, inverse, weight, x.shape[-1], blocks.given(), dx, dweight)
        return dx, *blocks.found(dweight), None, None


def rows_of(x: Tensor, places: Tensor) -> Tensor:
    """Rows (N, D) of x (M, D), some more than once: their gradients are added in order."""
    return _Rows.apply(x, places)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.places, ctx.shape = places, x.shape
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows, width = ctx.shape
        dx = gradient.new_empty(rows, width)
        call("embedding_backward", gradient.contiguous(), ctx.places, len(ctx.places), width, rows, None, dx)
        return dx, None


# -- output head -------------------------------------------------------------------------------------------------------


def head(hidden: Tensor, weight: Tensor) -> Tensor:
    """Logits (M, vocab) float32 of hidden states (M, D) and the output matrix (vocab, D), with operands of 11 bits and more."""
    return _Head.apply(hidden, weight)


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        hidden, weight = hidden.contiguous(), weight.contiguous()
        ctx.save_for_backward(hidden, weight)
        logits = hidden.new_empty(len(hidden), len(weight))
        call("head_forward", hidden, weight, *hidden.shape, len(weight), logits)
        return logits

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight = ctx.saved_tensors
        dhidden, dweight = torch.empty_like(hidden), torch.empty_like(weight)
        call("head_backward", gradient.contiguous(), hidden, weight, *hidden.shape, len(weight), dhidden, dweight)
        return dhidden, dweight


def logps(hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float, blocks: Blocks | None = None) -> Tensor:
    """The log-probability (M,) of each token (M,) int64 in nats, from hidden states (M, D) and the output matrix (vocab, D) of a
    small vocabulary, whose logits are divided by `temperature`. With `blocks` the matrix' gradient goes to sums."""
    return _Logps.apply(hidden, weight, tokens, temperature, torch.is_grad_enabled(), blocks)


class _Logps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float, keep: bool, blocks: Blocks | None
    ) -> Tensor:
        hidden, weight, tokens = hidden.contiguous(), weight.contiguous(), tokens.contiguous()
        kept = hidden.new_empty(len(hidden), len(weight) + -len(weight) % LANES) if keep else None
        found, sizes = hidden.new_empty(len(hidden)), (*hidden.shape, len(weight), temperature)
        call("logps_forward", hidden, weight, tokens, *sizes, kept, found)
        ctx.save_for_backward(hidden, weight, tokens)
        ctx.sizes, ctx.kept, ctx.blocks = sizes, kept, blocks
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, tokens = ctx.saved_tensors
        dhidden, blocks = torch.empty_like(hidden), ctx.blocks
        kept, ctx.kept = ctx.kept, None  # overwritten
        assert kept is not None, "a second backward pass"
        given = (gradient.contiguous(), hidden, weight, tokens, *ctx.sizes, kept)
        if blocks is None:
            dweight = torch.empty_like(weight)
            call("logps_backward", *given, None, dhidden, dweight)
            return dhidden, dweight, *(None,) * 4
        blocks.sums.blocks += len(blocks.first) - 1
        call("logps_backward", *given, blocks.given(), dhidden, blocks.gradient(""))
        return dhidden, *(None,) * 5


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, blocks: Blocks | None) -> Tensor:
        ctx.given, ctx.blocks = (hidden.contiguous(), head), blocks
        found = hidden.new_empty(len(hidden), len(head) + -len(head) % LANES)
        call("logps_forward", *ctx.given, None, *hidden.shape, len(head), 1.0, found, None)
        return found[:, : len(head)]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (hidden, head), blocks = ctx.given, ctx.blocks
        padded = torch.nn.functional.pad(gradient, (0, -len(head) % LANES)).contiguous()
        dhidden, sizes = torch.empty_like(hidden), (*hidden.shape, len(head), 1.0)
        blocks.sums.blocks += len(blocks.first) - 1
        call("logps_backward", None, hidden, head, None, *sizes, padded, blocks.given(), dhidden, blocks.gradient(""))
        return dhidden, None, None


def log_softmax(hidden: Tensor, head: Tensor, temperature: float, blocks: Blocks | None) -> Tensor:
    """All log-probabilities (M, vocab) at hidden states (M, D), of the output matrix (vocab, D) of a small vocabulary, whose
    gradient goes to the sums of `blocks`."""
    z = _Logits.apply(hidden, head, blocks) / temperature
    z = z - z.detach().amax(1, keepdim=True)
    return z - exact.EXACT.wide(exact.EXACT.log(exact.in_order(exact.exp(z), 1, keepdim=True)), z.shape[1])
