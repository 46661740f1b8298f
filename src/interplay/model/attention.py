"""RMS norm, rotary positions and causal attention of the decoder: by blocks on a CPU, by fused kernels on a GPU, and by
`interplay.kernels` with integer operands."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from interplay.kernels import exact, library
from interplay.model.spec import Shape

Attend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, q and k (..., heads + kv heads, head_dim), v (..., kv heads, head_dim)) -> (..., heads * head_dim)."""

OverRuns = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`interplay.kernels.layers.attention`, or a function in its place."""

GPU_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels on a GPU, without cuDNN's, which PyTorch prefers on Hopper and Blackwell: for each new shape it builds a
plan, which takes tens of milliseconds, and batches bucketed by length have new shapes at nearly every step."""


def activations(dtype: torch.dtype) -> torch.dtype:
    """The dtype of activations where products run in `dtype`: 8-bit operands are rounded from float32, product by product."""
    return torch.float32 if dtype == torch.int8 else dtype


MOST_SCORES = 1 << 22
"""Attention scores that are held at a time by `blockwise_attention`."""


def rotary(shape: Shape, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines (..., 1, head_dim) of the rotary embedding (arXiv:2104.09864) at positions (...), in the dtype of
    activations."""
    steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=positions.device) / shape.head_dim
    angles = positions[..., None, None].float() / shape.rope_theta**steps
    cos, sin = angles.cos(), angles.sin()
    stored = activations(dtype)
    return torch.cat((cos, cos), -1).to(stored), torch.cat((-sin, sin), -1).to(stored)


def causal_attention(
    size: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
    over_runs: OverRuns | None = None,
    segments: Tensor | None = None,
) -> Attend:
    """Attention within `count` rows of `length` tokens, `size` = (count, length); the leading dimensions of its arguments may be
    flat. A token attends to the tokens before it that bear its own number in segments (count, length); None: to all before it.
    `over_runs`: what computes it with integer operands; None: PyTorch, in `dtype`."""
    count, length = size
    if over_runs is not None:
        return RunsAttend(over_runs, _runs(count, length, segments))
    blocks = visible_blocks(segments, length, device, dtype)

    def attend(_: int, qk: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.reshape(count, length, *part.shape[-2:]) for part in (*split_heads(qk, v), v))
        return attention(q, k, v, blocks).view(*qk.shape[:-2], -1)

    return attend


class RunsAttend:
    """Attention over runs (R, 4) of flattened rows. `blocks` of these rows are needed for a gradient with numerics: exact."""

    def __init__(self, over_runs: OverRuns, runs: Tensor, blocks: Tensor | None = None) -> None:
        self.over_runs, self.runs, self.blocks = over_runs, runs, blocks

    def __call__(self, _: int, qk: Tensor, v: Tensor) -> Tensor:
        """`Attend`, the same in every layer."""
        found = self.over_runs(qk.reshape(-1, *qk.shape[-2:]), v.reshape(-1, *v.shape[-2:]), self.runs)
        return found.view(*qk.shape[:-2], -1)


def attend_buckets(over_runs: OverRuns, buckets: Sequence[tuple[int, int]], blocks: Tensor | None = None) -> Attend:
    """Attention within each of the sequences of buckets (count, length), one bucket after the other; `blocks`: `RunsAttend`."""
    counts, widths = np.array(buckets, np.int32).T
    lengths = np.repeat(widths, counts)
    runs = np.zeros((len(lengths), 4), np.int32)
    runs[:, 0], runs[:, 1] = np.cumsum(lengths) - lengths, lengths
    return RunsAttend(over_runs, torch.from_numpy(runs), blocks)


def split_heads(qk: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of qk (..., heads + kv heads, head_dim), given values (..., kv heads, head_dim)."""
    shared = v.shape[-2]
    q, k = qk.split((qk.shape[-2] - shared, shared), -2)
    return q, k


def _runs(count: int, length: int, segments: Tensor | None) -> Tensor:
    """Runs of `OverRuns`, (R, 4) int32, of flattened rows."""
    starts = torch.arange(count, dtype=torch.int32) * length
    if segments is not None:
        starts = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True).flatten().nonzero()[:, 0].int().cpu()
    counts = torch.diff(starts, append=torch.tensor([count * length], dtype=torch.int32))
    return torch.stack((starts, counts, torch.zeros_like(starts), torch.zeros_like(starts)), 1).contiguous()


class Block(NamedTuple):
    """Queries first..last-1 see keys start..last-1, plus what `mask` (B or 1, 1, queries, keys or the last of them) adds to their
    scores."""

    first: int
    last: int
    start: int
    mask: Tensor


def visible_blocks(segments: Tensor | None, length: int, device: torch.device, dtype: torch.dtype) -> list[Block]:
    """Blocks of queries for attention, each with the keys that any of its queries may attend to.

    Long rows are cut into blocks of 64: of the T x T scores of packed problems, most are above the diagonal or between problems.
    On a GPU there is one block, since kernels are faster on one large product, and none where all is causal, since flash
    attention takes no mask."""
    if segments is None and device.type == "cuda":
        return []
    size = length if length <= 128 or device.type == "cuda" else 64
    place = torch.arange(length, device=device)
    if segments is None:
        begins = torch.zeros(1, length, dtype=torch.long, device=device)
    else:
        changes = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)
        begins = torch.where(changes, place, 0).cummax(1).values
    blocks = []
    for first in range(0, length, size):
        last = min(first + size, length)
        start = int(begins[:, first:last].min()) // 16 * 16
        # Without a gradient nothing is kept, and a causal mask, T x T / 2 numbers, would be most of the memory.
        keys = place[first if segments is None and not torch.is_grad_enabled() else start : last]
        hidden = (keys > place[first:last, None]) | (keys < begins[:, first:last, None])
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))
        blocks.append(Block(first, last, start, mask[:, None]))
    return blocks


def attention(q: Tensor, k: Tensor, v: Tensor, blocks: list[Block]) -> Tensor:
    """Attention of q (B, T, heads, head_dim) over k, v (B, T, kv heads, head_dim): (B, T, heads * head_dim).

    On a CPU, two explicit products around a softmax are 1.4 times as fast as the fused kernel for T up to 256 in bfloat16."""
    if q.is_cuda:
        return fused(q, k, v, blocks[0].mask if blocks else None)
    batch, length, heads, size = q.shape
    shared = k.shape[2]
    group = heads // shared
    # Queries that share a key head are further rows of one product, so keys and values are not repeated.
    queries = (q * size**-0.5).unflatten(2, (shared, group)).permute(0, 2, 3, 1, 4)
    keys = k.permute(0, 2, 3, 1).reshape(batch * shared, size, length)
    values = v.transpose(1, 2).reshape(batch * shared, length, size)
    mixed = []
    for block in blocks:
        rows, seen = block.last - block.first, block.last - block.start
        part = queries[:, :, :, block.first : block.last].reshape(batch * shared, group * rows, size)
        scores = torch.bmm(part, keys[:, :, block.start : block.last]).view(batch, heads, rows, seen)
        masked = block.mask.shape[-1]
        scores = scores + block.mask if masked == seen else scores
        if masked < seen:
            scores[..., -masked:] += block.mask
        weights = scores.softmax(-1).view(batch * shared, group * rows, seen)
        mixed.append(torch.bmm(weights, values[:, block.start : block.last]).view(batch, heads, rows, size))
    return torch.cat(mixed, 2).transpose(1, 2).flatten(-2)


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """The same by one fused kernel of PyTorch: without a mask, causal flash attention."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    with sdpa_kernel(GPU_ATTENTION):
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
    return mixed.transpose(1, 2).flatten(-2)


class FlashRuns:
    """Causal attention over runs by PyTorch's flash kernel for sequences of any lengths, on a GPU in 16 bits: nothing is padded,
    no scores are kept, and one launch a layer serves all runs. `OverRuns`; runs lie one after the other."""

    def __init__(self) -> None:
        self.runs: Tensor | None = None

    def __call__(self, qk: Tensor, v: Tensor, runs: Tensor) -> Tensor:
        """(N, heads * size)."""
        if self.runs is not runs:  # the same in every layer
            self.runs, (ends, seen, rows) = runs, key_rows(runs)
            self.most = int(ends.diff().max()), int(seen.diff().max())
            self.ends, self.seen = ends.to(qk.device), seen.to(qk.device)
            self.rows = rows.to(qk.device) if len(rows) > len(qk) else None
        q, k = split_heads(qk, v)
        k, v = (k, v) if self.rows is None else (k.index_select(0, self.rows), v.index_select(0, self.rows))
        size, room = q.shape[-1], -q.shape[-1] % 8
        q, k, v = (F.pad(part, (0, room)) if room else part for part in (q, k, v))
        mixed = _flash(q, k, v, self.ends, self.seen, *self.most, 0.0, True, False, scale=size**-0.5)[0]
        return mixed[..., :size].flatten(1)


_flash = torch.ops.aten._flash_attention_forward
"""What `torch.nn.attention.varlen` calls, whose own signature differs between the versions of PyTorch that are supported."""


def key_rows(runs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of runs (R, 4) that lie one after the other: where their queries end and where their keys do, (R + 1,) int32 each from 0
    on, and the row of each key: those of a run's prefix, then its own. Its last query sees the last of them."""
    start, count, prefix, before = runs.long().T
    ends = F.pad(count.cumsum(0), (1, 0))
    seen = F.pad((before + count).cumsum(0), (1, 0))
    place = torch.arange(int(seen[-1])) - seen[:-1].repeat_interleave(before + count)
    first, own, shared = (part.repeat_interleave(before + count) for part in (prefix, start - before, before))
    return ends.int(), seen.int(), place + torch.where(place < shared, first, own)


def blockwise_attention(qk: Tensor, v: Tensor, runs: Tensor) -> Tensor:
    """Causal attention over runs, as `interplay.kernels.layers.attention`: (N, heads * size). Memory is linear in N: scores are
    made by blocks of queries, and again in the backward pass from their logsumexp (arXiv:2112.05682, arXiv:2205.14135)."""
    return _Blockwise.apply(*split_heads(qk, v), v, runs.tolist())


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, runs: list[list[int]]) -> Tensor:
        mixed, logsums = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
        for rows, parts in _query_blocks(runs, q.shape[1]):
            scores = _scores(q[rows], k, parts)
            logsums[rows] = scores.logsumexp(-1).T
            weights = scores.sub_(logsums[rows].T[..., None]).exp_().to(v.dtype)
            pieces = weights.split([part.stop - part.start for part in parts], -1)
            mixed[rows] = sum(_mixed(piece, v[part]) for piece, part in zip(pieces, parts, strict=True))
        ctx.save_for_backward(q, k, v, mixed, logsums)
        ctx.runs = runs
        return mixed.flatten(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mixed, logsums = ctx.saved_tensors
        gradient, scale = gradient.view_as(mixed), q.shape[-1] ** -0.5
        # Of a prompt's keys and values the gradient is a sum over many blocks.
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k, dtype=torch.float32), torch.zeros_like(v, dtype=torch.float32)
        delta = (gradient.float() * mixed.float()).sum(-1)
        for rows, parts in _query_blocks(ctx.runs, q.shape[1]):
            weights = _scores(q[rows], k, parts).sub_(logsums[rows].T[..., None]).exp_()
            widths = [part.stop - part.start for part in parts]
            dq_rows = torch.zeros_like(q[rows], dtype=torch.float32)
            for piece, part in zip(weights.split(widths, -1), parts, strict=True):
                dv[part] += _mixed_by_group(piece.to(v.dtype).mT, gradient[rows], v.shape[1])
                dscores = _products(gradient[rows], v[part]).float().sub_(delta[rows].T[..., None])
                dscores = dscores.mul_(piece).mul_(scale).to(q.dtype)
                dq_rows += _mixed(dscores, k[part])
                dk[part] += _mixed_by_group(dscores.mT, q[rows], k.shape[1])
            dq[rows] = dq_rows.to(dq.dtype)
        return dq, dk.to(k.dtype), dv.to(v.dtype), None


def _query_blocks(runs: list[list[int]], heads: int) -> Iterator[tuple[slice, list[slice]]]:
    """Rows of queries, and the rows of keys that they see: those of the prefix, where there is one, and, the last of them
    hidden from some, of their own run."""
    for start, count, prefix, before in runs:
        size = max(16, MOST_SCORES // (heads * (before + count)))
        for first in range(start, start + count, size):
            rows = slice(first, min(first + size, start + count))
            own = slice(start, rows.stop)
            yield rows, [slice(prefix, prefix + before), own] if before else [own]


def _scores(q: Tensor, k: Tensor, parts: list[slice]) -> Tensor:
    """Scaled scores (heads, rows, keys) float32 of the last rows of the last part; of that, later keys are hidden."""
    scores = torch.cat([_products(q, k[part]) for part in parts], -1).float().mul_(q.shape[-1] ** -0.5)
    later = torch.ones(len(q), len(q), dtype=torch.bool, device=q.device).triu_(1)
    scores[..., -len(q) :].masked_fill_(later, -math.inf)
    return scores


def _products(q: Tensor, k: Tensor) -> Tensor:
    """(heads, rows, keys): of queries (rows, heads, size) and keys (keys, kv heads, size)."""
    (rows, heads, size), (keys, shared, _) = q.shape, k.shape
    found = torch.bmm(q.view(rows, shared, -1, size).permute(1, 2, 0, 3).reshape(shared, -1, size), k.permute(1, 2, 0))
    return found.view(heads, rows, keys)


def _mixed(weights: Tensor, values: Tensor) -> Tensor:
    """(rows, heads, size): weights (heads, rows, keys) of values (keys, kv heads, size)."""
    (heads, rows, keys), (_, shared, size) = weights.shape, values.shape
    found = torch.bmm(weights.reshape(shared, -1, keys), values.transpose(0, 1))
    return found.view(heads, rows, size).transpose(0, 1)


def _mixed_by_group(weights: Tensor, values: Tensor, shared: int) -> Tensor:
    """(rows, kv heads, size): weights (heads, rows, keys) of values (keys, heads, size), summed over the heads that share a key;
    `shared`: kv heads."""
    _, rows, keys = weights.shape
    grouped = weights.view(shared, -1, rows, keys).transpose(1, 2).reshape(shared, rows, -1)
    return torch.bmm(grouped, values.permute(1, 0, 2).reshape(shared, -1, values.shape[-1])).transpose(0, 1)


# RMS norm and rotary embedding with custom gradients: autograd's many small products cost a fifth of a CPU step.


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x (..., D) over its root mean square, times weight (D,) or any shape that broadcasts (arXiv:1910.07467)."""
    plain = x.is_cuda or torch.compiler.is_compiling()
    return F.rms_norm(x, x.shape[-1:], None, eps) * weight if plain else _RmsNorm.apply(x, weight, eps)


def summed_norm(x: Tensor, weight: Tensor, eps: float, blocks: exact.Blocks) -> Tensor:
    """x (M, D) over its root mean square, times weight (D,), whose gradient goes to sums."""
    return _SummedNorm.apply(x, weight, eps, blocks)


class _SummedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, blocks: exact.Blocks) -> Tensor:
        x = x.contiguous()
        out, inverse = torch.empty_like(x), x.new_empty(x.numel() // x.shape[-1])
        library.call("norm_forward", x, weight, len(inverse), x.shape[-1], eps, inverse, out)
        ctx.save_for_backward(x, weight, inverse)
        ctx.blocks = blocks
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse = ctx.saved_tensors
        dx, blocks = torch.empty_like(x), ctx.blocks
        dweight = blocks.gradient("norm", *weight.shape)
        library.call("norm_backward", gradient.contiguous(), x, inverse, weight, x.shape[-1], blocks.given(), dx, dweight)
        return dx, *blocks.found(dweight), None, None


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
