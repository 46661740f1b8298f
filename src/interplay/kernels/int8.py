"""Linear layers whose products take 8-bit operands on power-of-two scales and sum exactly, and attention whose gradients do so
with more bits, in plain PyTorch.

They define what the compiled kernels compute (to rounding in the operations between the products), and replace them without
a C compiler, for widths that are no multiples of 16, and on a GPU. Products of such integers are exact in float32 for
at most 1,040 summands, so longer sums are cut there, on any hardware; `torch._int_mm` saturates silently on some."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

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


PAIR_TOP = 2047.0
QUERIES = 32


def _top(size: int) -> float:
    """The largest integer of an operand that is summed over `size` dimensions."""
    return 8191.0 if size <= 32 else 4095.0 if size <= 128 else PAIR_TOP


_Rounded = tuple[Tensor, Tensor]
"""Integers in float32 and their scales."""


def _times(left: _Rounded, right: _Rounded) -> Tensor:
    """Exact products (..., M, N) of rounded operands (..., M, K) and (..., K, N)."""
    return (left[0].double() @ right[0].double()).float() * (left[1] * right[1])


def _swapped(rounded: _Rounded) -> _Rounded:
    return rounded[0].mT, rounded[1].mT


# The output head over a large vocabulary, with operands of 11 bits and more: rows of hidden states and of the matrix; chunks of
# rows of the gradient and of columns of the matrix; columns of the gradient and of hidden states.


CHUNK = 512


def head(hidden: Tensor, weight: Tensor) -> Tensor:
    """`interplay.kernels.layers.head`: logits (M, vocab) of hidden states (M, D) and the output matrix (vocab, D)."""
    return _Head.apply(hidden, weight)


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        top = _top(weight.shape[1])
        return _times(quantised(hidden, 1, top), _swapped(quantised(weight, 1, top)))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight = ctx.saved_tensors
        dhidden = torch.zeros_like(hidden)
        for chunk, part in zip(gradient.split(CHUNK, 1), weight.split(CHUNK), strict=True):
            dhidden += _times(quantised(chunk, 1, PAIR_TOP), quantised(part, 0, PAIR_TOP))
        return dhidden, _times(_swapped(quantised(gradient, 0, PAIR_TOP)), quantised(hidden, 0, PAIR_TOP))


# Attention over runs (`interplay.kernels.layers.attention`). Its forward pass is float32, as in sampling. Products of the
# gradient take operands of 11 bits and a sign, or up to 13 where the sum over dimensions leaves room: rows of queries, keys,
# values and weights, and columns over blocks of QUERIES queries for the gradients of keys and values.


class _Run(NamedTuple):
    """A run with its heads first."""

    own: slice
    seen: Tensor
    """(prefix and rows,) int64: the rows of keys."""
    before: int
    queries: Tensor
    """(heads, rows, size), scaled."""
    keys: Tensor
    """(heads, prefix and rows, size)."""
    values: Tensor

    def visible(self, scores: Tensor, first: int) -> Tensor:
        """Scores (heads, rows, keys) of queries from `first` on, minus infinity for later keys."""
        places = torch.arange(len(self.seen), device=scores.device)
        last = self.before + first + torch.arange(scores.shape[1], device=scores.device)
        return scores.masked_fill(places > last[:, None], float("-inf"))


def _parts(qk: Tensor, v: Tensor, runs: Tensor) -> Iterator[_Run]:
    group = (qk.shape[1] - v.shape[1]) // v.shape[1]
    scale = 1.0 / torch.tensor(float(qk.shape[2])).sqrt()
    for first, count, prefix, before in runs.tolist():
        own = slice(first, first + count)
        seen = torch.cat((torch.arange(prefix, prefix + before), torch.arange(first, first + count))).to(qk.device)
        keys, values = (x[seen].transpose(0, 1).repeat_interleave(group, 0) for x in (qk[:, -v.shape[1] :], v))
        queries = qk[own, : -v.shape[1]].transpose(0, 1) * scale.to(qk.device)
        yield _Run(own, seen, before, queries, keys, values)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qk: Tensor, v: Tensor, runs: Tensor) -> Tensor:
        mixed = qk.new_empty(qk.shape[1] - v.shape[1], *qk.shape[::2])
        peaks = qk.new_empty(*mixed.shape[:2], 1)
        for run in _parts(qk, v, runs):
            scores = run.visible(run.queries @ run.keys.mT, 0)
            peaks[:, run.own] = scores.amax(-1, keepdim=True)
            weights = (scores - peaks[:, run.own]).exp()
            mixed[:, run.own] = weights @ run.values * (1.0 / weights.sum(-1, keepdim=True))
        ctx.save_for_backward(qk, v, runs, peaks)
        return mixed.transpose(0, 1).flatten(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        qk, v, runs, peaks = ctx.saved_tensors
        shared, size = v.shape[1:]
        given, dqk, dv = gradient.unflatten(1, (-1, size)).transpose(0, 1), torch.zeros_like(qk), torch.zeros_like(v)
        rounded, one = partial(quantised, dim=-1, largest=_top(size)), torch.ones((), device=qk.device)
        for run in _parts(qk, v, runs):
            keys, values, (mixed_keys, scale) = rounded(run.keys), rounded(run.values), quantised(run.keys, -1, PAIR_TOP)
            for first in range(0, run.queries.shape[1], QUERIES):
                queries = run.queries[:, first : first + QUERIES]
                rows = slice(run.own.start + first, run.own.start + first + queries.shape[1])
                dout = given[:, rows]
                scores = run.visible(_times(rounded(queries), _swapped(keys)), first)
                weights = (scores - peaks[:, rows]).exp()
                weights = weights * (1.0 / weights.sum(-1, keepdim=True))
                dweights = _times(rounded(dout), _swapped(values))
                dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True))
                for total, left, right in ((dqk[:, -shared:], dscores, queries), (dv, weights, dout)):
                    part = _times(quantised(left.mT, -1, PAIR_TOP), quantised(right, -2, PAIR_TOP))
                    total.index_add_(0, run.seen, part.unflatten(0, (shared, -1)).sum(1).transpose(0, 1))
                # The scales of keys go into the weights before these are rounded.
                mixture = _times(quantised(dscores * scale.mT, -1, PAIR_TOP), (mixed_keys, one))
                dqk[rows, :-shared] = (mixture * size**-0.5).transpose(0, 1)
        return dqk, dv, None


def attention(qk: Tensor, v: Tensor, runs: Tensor) -> Tensor:
    """Causal attention of queries and keys qk (N, heads + kv heads, size) and values v (N, kv heads, size) over runs (R, 4), as
    `interplay.kernels.layers.attention`: (N, heads * size) float32."""
    return _Attention.apply(qk, v, runs)
