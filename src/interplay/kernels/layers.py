"""The parts of a decoder layer as functions of PyTorch over the compiled kernels, with gradients.

The functions are those of `interplay.model.decoder` and take the same arguments; their weights carry `Packed` operands."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interplay.kernels.exact import Blocks, Sums, fixed_blocks
from interplay.kernels.library import LANES, Attention, Heads, Mlp, Rope, call


class Packed(NamedTuple):
    """The matrices of a layer as 8-bit operands: uint8 buffers, in C's layout."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


def pack(matrices: Sequence[Tensor], gradient: bool) -> Packed:
    """Operands of qkv, out, gate_up and down, (rows, columns) float32 each; with `gradient` those of input gradients, too."""
    return Packed(*(_pack(matrix.detach(), gradient) for matrix in matrices))


def _pack(matrix: Tensor, gradient: bool) -> Tensor:
    rows, columns = matrix.shape
    size = rows * columns + 8 * rows + (rows * columns + 8 * columns if gradient else 0)
    buffer = torch.empty(size, dtype=torch.uint8)
    call("pack_matrix", matrix.contiguous(), rows, columns, gradient, buffer)
    return buffer


RECOMPUTED = 192
"""Width of a layer up to which its gates, and its heads before their norm, are computed again for the gradient: memory takes
longer than so short a product."""


# -- before attention --------------------------------------------------------------------------------------------------


def before_attention(
    x: Tensor,
    norm: Tensor,
    qkv: Tensor,
    bias: Tensor | None,
    qk_norm: Tensor | None,
    packed: Tensor,
    rope: tuple[Tensor, Tensor],
    rotated: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Queries with keys (..., rotated, head_dim) and values (..., the rest, head_dim) of the input x (..., D) of a layer.

    `qkv` (heads * head_dim, D) is what the gradient reaches, `packed` what is computed with; qk_norm is (rotated, head_dim); rope
    (..., 1, head_dim) broadcasts to x."""
    return _Before.apply(x, norm, qkv, bias, qk_norm, packed, *rope, rotated, eps, torch.is_grad_enabled())


class _Before(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        norm: Tensor,
        qkv: Tensor,
        bias: Tensor | None,
        qk_norm: Tensor | None,
        packed: Tensor,
        cos: Tensor,
        sin: Tensor,
        rotated: int,
        eps: float,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        x, size = x.contiguous(), cos.shape[-1]
        rows, total = x.numel() // x.shape[-1], len(qkv) // size
        heads = Heads(rows, x.shape[-1], rotated, total - rotated, size, eps)
        rope = _rope(x, cos, sin)
        inverse = x.new_empty(rows)
        raw = x.new_empty(rows, len(qkv)) if keep and qk_norm is not None and heads.width > RECOMPUTED else None
        qk, v = x.new_empty(*x.shape[:-1], rotated, size), x.new_empty(*x.shape[:-1], total - rotated, size)
        call("before_forward", heads, rope, x, norm, packed, bias, qk_norm, inverse, raw, qk, v)
        if keep:
            ctx.save_for_backward(x, norm, bias, qk_norm, packed, cos, sin, inverse, raw)
            ctx.heads, ctx.columns = heads, len(qkv)
            ctx.blocks = getattr(ctx, "blocks", None)
        return qk, v

    @staticmethod
    def backward(ctx: Any, dqk: Tensor, dv: Tensor, residual: Tensor | None = None) -> tuple[Any, ...]:
        x, norm, bias, qk_norm, packed, cos, sin, inverse, raw = ctx.saved_tensors
        blocks = ctx.blocks or fixed_blocks(ctx.heads.rows)
        dx, dnorm = torch.empty_like(x), blocks.gradient("norm", *norm.shape)
        dqkv = blocks.gradient("qkv", ctx.columns, x.shape[-1])
        dbias = None if bias is None else blocks.gradient("bias", *bias.shape)
        dqk_norm = None if qk_norm is None else blocks.gradient("qk_norm", *qk_norm.shape)
        given = (x, norm, packed, bias, qk_norm, inverse, raw, dqk.contiguous(), dv.contiguous(), residual)
        call("before_backward", ctx.heads, _rope(x, cos, sin), *given, blocks.given(), dx, dnorm, dqkv, dbias, dqk_norm)
        return dx, *blocks.found(dnorm, dqkv, dbias, dqk_norm), *(None,) * 6


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Rope:
    """Where the row of x (..., D) finds its cosines and sines, which broadcast to it without a copy."""
    shape = (*x.shape[:-1], cos.shape[-1])
    cos, sin = cos.squeeze(-2).expand(shape), sin.squeeze(-2).expand(shape)
    strides = cos.stride()
    if len(shape) == 2:
        return Rope(cos.data_ptr(), sin.data_ptr(), shape[0], 0, strides[0])
    return Rope(cos.data_ptr(), sin.data_ptr(), shape[-2], strides[-3], strides[-2])


# -- after attention ---------------------------------------------------------------------------------------------------


def after_attention(
    x: Tensor, mixed: Tensor, norm: Tensor, out: Tensor, gate_up: Tensor, down: Tensor, packed: Packed, eps: float
) -> Tensor:
    """The output (..., D) of a layer given its input and its attention output (..., heads * head_dim)."""
    return _After.apply(x, mixed, norm, out, gate_up, down, *packed[1:], eps, torch.is_grad_enabled())


class _After(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mixed: Tensor,
        norm: Tensor,
        out: Tensor,
        gate_up: Tensor,
        down: Tensor,
        packed_out: Tensor,
        packed_gate_up: Tensor,
        packed_down: Tensor,
        eps: float,
        keep: bool,
    ) -> Tensor:
        x, mixed = x.contiguous(), mixed.contiguous()
        width, hidden = down.shape
        rows = x.numel() // width
        sizes = Mlp(rows, width, mixed.shape[-1], hidden, eps)
        gates = x.new_empty(rows, 2 * hidden) if keep and width > RECOMPUTED else None
        kept = (x.new_empty(rows), torch.empty_like(x), gates) if keep else (None,) * 3
        y, packed = torch.empty_like(x), (packed_out, packed_gate_up, packed_down)
        call("after_forward", sizes, x, mixed, norm, *packed, *kept, y)
        if keep:
            ctx.save_for_backward(mixed, norm, *packed, *kept)
            ctx.sizes = sizes
            ctx.blocks = getattr(ctx, "blocks", None)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        mixed, norm, *packed, inverse, middle, gates = ctx.saved_tensors
        width, hidden, blocks = ctx.sizes.width, ctx.sizes.hidden, ctx.blocks or fixed_blocks(ctx.sizes.rows)
        dx, dmixed = torch.empty_like(middle), torch.empty_like(mixed)
        made = (
            blocks.gradient("mlp_norm", width),
            blocks.gradient("out", width, mixed.shape[-1]),
            blocks.gradient("gate_up", 2 * hidden, width),
            blocks.gradient("down", width, hidden),
        )
        given = (dy.contiguous(), mixed, norm, *packed, inverse, middle, gates)
        call("after_backward", ctx.sizes, *given, blocks.given(), dx, dmixed, *made)
        return dx, dmixed, *blocks.found(*made), *(None,) * 5


# -- attention ---------------------------------------------------------------------------------------------------------


def attention(qk: Tensor, v: Tensor, runs: Tensor) -> Tensor:
    """Causal attention of N rows with queries and keys qk (N, heads + kv heads, size) and values v (N, kv heads, size):
    (N, heads * size) float32.

    `runs` (R, 4) int32: first row and number of rows of a run, and those of a prefix, all of which it sees before its own (0, 0:
    none). Every row is in one run."""
    return _Attention.apply(qk, v, runs, torch.is_grad_enabled())


def attention_over(qk: Tensor, k: Tensor, v: Tensor, runs: Tensor) -> Tensor:
    """The same, without a gradient, of N queries over keys k and values v (M, kv heads, size): first those of the N rows,
    then those of prefixes."""
    return _attended(qk.contiguous(), k, v, runs)[0]


def _attended(qk: Tensor, k: Tensor, v: Tensor, runs: Tensor) -> tuple[Tensor, Tensor, Attention]:
    (rows, rotated, size), shared = qk.shape, v.shape[1]
    heads = rotated - shared
    sizes = Attention(len(runs), heads, shared, size, rotated * size, k.stride(0), v.stride(0))
    mixed, peaks = qk.new_empty(rows, heads * size), qk.new_empty(rows, heads)
    call("attention_forward", sizes, runs, qk, k, v, mixed, peaks)
    return mixed, peaks, sizes


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qk: Tensor, v: Tensor, runs: Tensor, keep: bool) -> Tensor:
        qk, v = qk.contiguous(), v.contiguous()
        mixed, peaks, ctx.sizes = _attended(qk, qk[:, -v.shape[1] :], v, runs)
        if keep:
            ctx.save_for_backward(qk, v, runs, peaks)
        return mixed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        qk, v, runs, peaks = ctx.saved_tensors
        heads, dqk, dv = ctx.sizes.heads, torch.empty_like(qk), torch.empty_like(v)
        given = (qk, qk[:, heads:], v, peaks, gradient.contiguous())
        call("attention_backward", ctx.sizes, runs, *given, dqk, dqk[:, heads:], dv)
        return dqk, dv, None, None


# -- all layers --------------------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """What a pass over all layers is given in addition to its weights."""

    ids: Tensor
    """(...) int64."""
    packed: list[Packed]
    rope: tuple[Tensor, Tensor]
    runs: Tensor
    wanted: Tensor | None
    """(M,): places in the flattened ids whose states are wanted; None: all are."""
    rotated: int
    eps: float
    blocks: Tensor | None = None
    """(B + 1,) int64, of all ids; with `sums`."""
    sums: Sums | None = None
    """Of the gradients of all weights, which then reach no other tensor."""
    recompute: bool = False
    """Whether layers keep only their inputs, and the backward pass recomputes the rest."""


def all_layers(table: Tensor, weights: Sequence[Sequence[Tensor | None]], given: Pass) -> Tensor:
    """The output of the last layer, (..., D) or (M, D), by one function with a gradient: autograd's own work is a tenth of a step
    of a small model. `table` (vocab, D) is the embedding; the weights of a layer are those of `before_attention` (norm, qkv,
    bias, qk_norm) and `after_attention` (out, norm, gate_up, down)."""
    flat = [weight for layer in weights for weight in layer]
    return _AllLayers.apply(given, torch.is_grad_enabled(), table, *flat)


class _Kept:
    """What a part of a layer keeps for its gradient."""

    saved_tensors: tuple[Tensor | None, ...] = ()
    blocks: Blocks | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors


class _AllLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Pass, keep: bool, table: Tensor, *weights: Any) -> Tensor:
        ctx.given, ctx.parts, ctx.vocab, ctx.weights = given, [], len(table), weights if given.recompute else ()
        x = torch.embedding(table, given.ids)
        for number in range(len(given.packed)):
            before = x
            x, parts = _one_layer(given, weights, number, x, keep and not given.recompute)
            if keep:
                ctx.parts.append(before if given.recompute else parts)
        return x

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor | None, ...]:
        ids, wanted, sums, found = ctx.given.ids, ctx.given.wanted, ctx.given.sums, list[Tensor | None]()
        assert ctx.parts, "a second backward pass"
        blocks = _layer_blocks(ctx.given) if sums else ()
        while ctx.parts:
            kept = ctx.parts.pop()
            if ctx.weights:
                kept = _one_layer(ctx.given, ctx.weights, len(ctx.parts), kept, True)[1]
            first, second, third = kept
            if blocks:
                first.blocks, third.blocks = blocks[len(ctx.parts)]
            dx, dmixed, dnorm, dout, dgate_up, ddown, *_ = _After.backward(third, dx)
            if wanted is not None and not found:
                parts, put = (dx, dmixed), Tensor.index_add_ if sums is None else Tensor.index_copy_
                dx, dmixed = (put(x.new_zeros(ids.numel(), x.shape[-1]), 0, wanted, x) for x in parts)
            dqk, dv, *_ = _Attention.backward(second, dmixed.flatten(0, -2))
            dx, *before = _Before.backward(first, dqk, dv, dx)
            found = [*before[:4], dout, dnorm, dgate_up, ddown, *found]
        dtable = dx.new_empty(ctx.vocab, dx.shape[-1]) if sums is None else sums.parts["table"]
        largest = None if sums is None else sums.largest[1:]
        call("embedding_backward", dx, ids.contiguous(), ids.numel(), dx.shape[-1], ctx.vocab, largest, dtable)
        return None, None, None if sums else dtable, *found


def _one_layer(
    given: Pass, weights: Sequence[Any], number: int, x: Tensor, keep: bool
) -> tuple[Tensor, tuple[_Kept, _Kept, _Kept]]:
    """The output of a layer, and what its parts keep."""
    packed, rope, (norm, qkv, bias, qk_norm, *rest) = given.packed[number], given.rope, weights[8 * number : 8 * number + 8]
    parts = first, second, third = _Kept(), _Kept(), _Kept()
    qk, v = _Before.forward(first, x, norm, qkv, bias, qk_norm, packed.qkv, *rope, given.rotated, given.eps, keep)
    mixed = _Attention.forward(second, qk.flatten(0, -3), v.flatten(0, -3), given.runs, keep).view(*x.shape[:-1], -1)
    if given.wanted is not None and number == len(given.packed) - 1:
        x, mixed = (part.flatten(0, -2).index_select(0, given.wanted) for part in (x, mixed))
    out, norm, gate_up, down = rest
    return _After.forward(third, x, mixed, norm, out, gate_up, down, *packed[1:], given.eps, keep), parts


def _layer_blocks(given: Pass) -> list[tuple[Blocks, Blocks]]:
    """Of each layer the sums that the gradients of its parts before and after attention go to."""
    assert given.blocks is not None
    assert given.sums is not None
    last = given.blocks if given.wanted is None else torch.searchsorted(given.wanted, given.blocks)
    given.sums.blocks += len(given.blocks) - 1
    given.sums.rows += given.ids.numel()
    each = [Blocks(given.blocks, given.sums, f"{number}.") for number in range(len(given.packed))]
    return [*((one, one) for one in each[:-1]), (each[-1], each[-1]._replace(first=last))]


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
