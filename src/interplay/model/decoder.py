"""One decoder for Llama, Qwen2 and Qwen3 shapes: packed training and cached decoding share one forward pass."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from interplay.kernels import exact, layers, library
from interplay.model import attention
from interplay.model.attention import Attend, OverRuns, RunsAttend, activations, rms_norm, rotary, rotate
from interplay.model.spec import Shape

# Parameters carry Hugging Face's names, so state dicts are interchangeable with transformers' classes. Layers are functions over
# `Weights`: matrices are fused (q, k and v; gate and up) and cast once per pass, since small models are bound by operators.


MOST_LOGITS = 1 << 24
"""Logits that are held at a time where they are made in pieces: of a large vocabulary those of few tokens."""
LARGE_VOCABULARY = 4096
"""Tokens from which on the output head takes a large part of a step."""


class LayerWeights(NamedTuple):
    """One layer's weights in the dtype of the forward pass; rows of fused matrices are in the order of their names."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    """(heads + kv heads, head_dim): Qwen3's norm weight of q for each head, then that of k."""
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    packed: layers.Packed | None
    """The matrices as 8-bit operands, where compiled kernels compute the layer."""


class Halves(NamedTuple):
    """The parts of a layer before and after attention, which are functions of single tokens."""

    before: Callable[..., tuple[Tensor, Tensor]]
    after: Callable[..., Tensor]


class Weights(NamedTuple):
    """All weights of a forward pass, cast and fused."""

    embedding: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Tensor
    halves: Halves
    sums: exact.Sums | None = None
    """Of gradients, with numerics: exact."""
    blockwise: bool = False
    recompute: bool = False

    def compiled(self) -> bool:
        """Whether the kernels of `interplay.kernels` compute the layers."""
        return self.halves is KERNELS

    def rotary(self, shape: Shape, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """`attention.rotary` in the arithmetic of these weights."""
        return exact.rotary(positions, shape.head_dim, shape.rope_theta) if self.sums else rotary(shape, positions, dtype)

    def attention(self, size: Sequence[int], segments: Tensor | None = None) -> Attend:
        """`causal_attention` in the arithmetic of these weights."""
        return attention.causal_attention(size, self.norm.device, self.norm.dtype, self.over_runs(), segments)

    def over_runs(self) -> OverRuns | None:
        """Attention over runs, where it is not over padded rows: with integer operands, by a GPU's kernel for them, or by
        blocks."""
        if self.compiled() or self.halves is INT8:
            return layers.attention if self.compiled() else library.plain_attention
        flash = self.norm.is_cuda and self.norm.dtype == torch.bfloat16 and self.embedding.ndim == 2
        flash = flash and torch.cuda.get_device_capability(self.norm.device) >= (8, 0)  # the kernel needs Ampere
        return attention.FlashRuns() if flash else attention.blockwise_attention if self.blockwise else None


class _Affine(nn.Module):
    """Holder of `weight` and optionally `bias`, uninitialised, since init and load fill every value."""

    bias: nn.Parameter

    def __init__(self, *size: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.register_parameter("bias", nn.Parameter(torch.empty(size[0])) if bias else None)


class _Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        bias = shape.architecture == "qwen2"
        self.q_proj = _Affine(queries, shape.hidden_size, bias=bias)
        self.k_proj = _Affine(keys, shape.hidden_size, bias=bias)
        self.v_proj = _Affine(keys, shape.hidden_size, bias=bias)
        self.o_proj = _Affine(shape.hidden_size, queries)
        if shape.architecture == "qwen3":
            self.q_norm, self.k_norm = _Affine(shape.head_dim), _Affine(shape.head_dim)


class _Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = _Affine(shape.intermediate_size, shape.hidden_size)
        self.up_proj = _Affine(shape.intermediate_size, shape.hidden_size)
        self.down_proj = _Affine(shape.hidden_size, shape.intermediate_size)


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn, self.mlp = _Attention(shape), _Mlp(shape)
        self.input_layernorm, self.post_attention_layernorm = _Affine(shape.hidden_size), _Affine(shape.hidden_size)


class _Model(nn.Module):
    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.embed_tokens = _Affine(vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = _Affine(shape.hidden_size)


class Decoder(nn.Module):
    """A causal language model. Parameters are float32 and empty until `folder.init_decoder` or `folder.load_decoder` fills
    them."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape, self.vocab_size = shape, vocab_size
        self.share_prompts = True
        """Whether `shared_prompts.predicting_states` passes equal prompts once."""
        self.halves = EAGER
        """The layer functions of passes with a gradient (eager or compiled)."""
        self.sums: exact.Sums | None = None
        """With numerics: exact, which passes in int8 then have: where the gradients of a step are added up."""
        self.blockwise = False
        """Whether memory of a pass is linear in its length: attention over runs by blocks, logits in pieces."""
        self.recompute = False
        """Whether a pass with a gradient keeps only the inputs of its layers, and the backward pass recomputes the rest."""
        self.replicas = 0
        """Of a stack (`stacked`): how many decoders it holds, each parameter (replicas, ...). 0: a single decoder."""
        self.model = _Model(shape, vocab_size)
        if not shape.tie_word_embeddings:
            self.lm_head = _Affine(vocab_size, shape.hidden_size)

    by_rows: ClassVar[bool] = False
    """Whether passes are by `hidden` alone, over rows padded on the right: of models that transformers computes."""

    def hidden(
        self, ids: Tensor, positions: Tensor, segments: Tensor | None = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Final hidden states (B, T, D) of ids (B, T) at positions (B, T) or (1, T), in the dtype of `activations`.

        A token attends to the tokens before it that bear its own number in segments (B, T); None: to all before it.
        Matrix products run in `dtype` on weights cast once; gradients reach the float32 parameters."""
        weights = self.weights(dtype)
        rope, attend = weights.rotary(self.shape, positions, dtype), weights.attention(ids.shape, segments)
        return forward(self.shape, weights, ids, rope, attend)

    def mlp_input(self, ids: Tensor, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Inputs of the last layer's MLP, (B, T, D), of ids (B, T) at positions (B, T) or (1, T)."""
        weights = self.weights(dtype)
        rope = weights.rotary(self.shape, positions, dtype)
        inputs: list[Tensor] = []
        forward(self.shape, weights, ids, rope, weights.attention(ids.shape), probe=inputs.append)
        return inputs[-1]

    def embedding(self) -> Tensor:
        """The table (vocab, D) that tokens are looked up in."""
        return self.model.embed_tokens.weight

    def head(self) -> Tensor:
        """The output matrix (vocab, D): the embedding itself where the two are tied."""
        return self.model.embed_tokens.weight if self.shape.tie_word_embeddings else self.lm_head.weight

    def logits(self, hidden: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Logits (..., vocab) in float32 of final hidden states (..., D); of a stack (replicas, N, vocab) of (replicas, N, D).

        With dtype int8 the products of a large vocabulary take integer operands, of states (M, D)."""
        head = self.head()
        if dtype == torch.int8 and self.vocab_size >= LARGE_VOCABULARY and head.dim() == 2:
            usable = library.usable((*hidden.shape[1:], self.vocab_size), hidden.device)
            return (layers.head if usable else library.plain_head)(hidden, head)
        return linear_of(head)(hidden, head.to(hidden.dtype)).float()

    def token_logps(
        self, hidden: Tensor, tokens: Tensor, dtype: torch.dtype, temperature: float = 1.0, blocks: Tensor | None = None
    ) -> Tensor:
        """The log-probability (M,) float32, in nats, of each token (M,) int64 given final hidden states (M, D) of `dtype`.
        `blocks` of these rows are needed for a gradient with numerics: exact."""
        head = self.head()
        small = dtype == torch.int8 and self.vocab_size < LARGE_VOCABULARY and head.dim() == 2
        if small and library.usable((hidden.shape[1],), hidden.device):
            place = "table" if self.shape.tie_word_embeddings else "head"
            into = exact.Blocks(blocks, self.sums, place) if self.sums and blocks is not None else None
            return layers.logps(hidden, head.detach() if self.sums else head, tokens, temperature, into)

        def piece(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
            return (F.log_softmax(self.logits(hidden, dtype) / temperature, dim=-1).gather(1, tokens[:, None])[:, 0],)

        return self.in_pieces(piece, hidden, tokens)[0] if self.blockwise else piece(hidden, tokens)[0]

    def in_pieces(self, piece: Callable[..., tuple[Tensor, ...]], *rows: Tensor) -> tuple[Tensor, ...]:
        """What `piece` makes of tensors (M, ...), each (M,), with MOST_LOGITS at a time. Of several pieces only the inputs
        are kept, and the backward pass recomputes them."""
        pieces = list(zip(*(one.split(max(1, MOST_LOGITS // self.vocab_size)) for one in rows), strict=True))
        if len(pieces) <= 1:
            return piece(*rows)
        made = [checkpoint(piece, *one, use_reentrant=False) for one in pieces]
        return tuple(torch.cat(parts) for parts in zip(*made, strict=True))

    def exact_logs(self, hidden: Tensor, temperature: float, blocks: Tensor | None) -> Tensor:
        """With numerics: exact, all log-probabilities (M, vocab) at final hidden states (M, D)."""
        into = None if blocks is None else exact.Blocks(blocks, self.sums, "table" if self.shape.tie_word_embeddings else "head")
        return exact.log_softmax(hidden, self.head().detach(), temperature, into)

    def weights(self, dtype: torch.dtype) -> Weights:
        """Fused weights for products in `dtype`, differentiable with respect to the parameters."""
        head, stored = self.head(), activations(dtype)
        halves = self.halves if torch.is_grad_enabled() else STACKED if self.replicas else EAGER
        if dtype == torch.int8:
            widths = self.shape.hidden_size, self.shape.intermediate_size, self.shape.head_dim
            halves = KERNELS if library.usable(widths, head.device) else INT8
        into = None if halves is not KERNELS else torch.is_grad_enabled()
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.sums is None):
            fused = [_fuse(cast(_Layer, layer), self.shape, stored, into) for layer in self.model.layers]
        head = head.to(stored)
        embedding = head if self.shape.tie_word_embeddings else self.model.embed_tokens.weight.to(stored)
        sums = self.sums if halves is KERNELS else None
        norm, again = _per_channel(self.model.norm.weight).to(stored), self.recompute and torch.is_grad_enabled()
        return Weights(embedding, fused, norm, head, halves, sums, self.blockwise, again)


def _per_channel(weight: Tensor) -> Tensor:
    """A norm's weight (D,), or of a stack (replicas, D) as (replicas, 1, D), which broadcasts to its states."""
    return weight if weight.ndim == 1 else weight.unsqueeze(-2)


def _fuse(layer: _Layer, shape: Shape, dtype: torch.dtype, packed: bool | None) -> LayerWeights:
    """The weights of a layer, with 8-bit operands unless `packed` is None: those of input gradients, too, where it is True."""
    heads = layer.self_attn
    projections = [heads.q_proj, heads.k_proj, heads.v_proj]
    bias = _per_channel(torch.cat([p.bias for p in projections], -1)).to(dtype) if shape.architecture == "qwen2" else None
    norm = None
    if shape.architecture == "qwen3":
        counts = (shape.num_attention_heads, shape.num_key_value_heads)
        each = [one.weight.unsqueeze(-2) for one in (heads.q_norm, heads.k_norm)]
        norm = torch.cat([one.expand(*one.shape[:-2], n, -1) for one, n in zip(each, counts, strict=True)], -2).to(dtype)
        norm = norm if norm.ndim == 2 else norm.unsqueeze(1)
    qkv = torch.cat([p.weight for p in projections], -2).to(dtype)
    gate_up = torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight], -2).to(dtype)
    out, down = heads.o_proj.weight.to(dtype), layer.mlp.down_proj.weight.to(dtype)
    return LayerWeights(
        attention_norm=_per_channel(layer.input_layernorm.weight).to(dtype),
        qkv=qkv,
        qkv_bias=bias,
        qk_norm=norm,
        out=out,
        mlp_norm=_per_channel(layer.post_attention_layernorm.weight).to(dtype),
        gate_up=gate_up,
        down=down,
        packed=None if packed is None else layers.pack((qkv, out, gate_up, down), packed),
    )


Linear = Callable[..., Tensor]
"""`torch.nn.functional.linear`, or a function in its place."""


def batched_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear` of each replica's x (replicas, ..., K) by its own weight (replicas, N, K) and bias (replicas, 1, N), in one
    product: (replicas, ..., N)."""
    flat, by = x.flatten(1, -2), weight.mT
    made = torch.bmm(flat, by) if bias is None else torch.baddbmm(bias, flat, by)
    return made.unflatten(1, x.shape[1:-1])


def linear_of(weight: Tensor) -> Linear:
    """The product for a matrix: that of a stack for (replicas, N, K)."""
    return F.linear if weight.ndim == 2 else batched_linear


def _before(
    layer: LayerWeights, x: Tensor, cos: Tensor, sin: Tensor, head_dim: int, rotated: int, eps: float, linear: Linear = F.linear
) -> tuple[Tensor, Tensor]:
    """Queries with keys, normalised and rotated, and values, (..., heads, head_dim) each, of the input (..., D) of a layer."""
    h = rms_norm(x, layer.attention_norm, eps)
    heads = linear(h, layer.qkv, layer.qkv_bias).unflatten(-1, (-1, head_dim))
    qk, v = heads[..., :rotated, :], heads[..., rotated:, :]
    if layer.qk_norm is not None:
        qk = rms_norm(qk, layer.qk_norm, eps)
    return rotate(qk, (cos, sin)), v


def _after(layer: LayerWeights, x: Tensor, mixed: Tensor, eps: float, linear: Linear = F.linear) -> Tensor:
    """The output (..., D) of a layer given its input and its attention output."""
    x = x + linear(mixed, layer.out)
    gate, up = linear(rms_norm(x, layer.mlp_norm, eps), layer.gate_up).chunk(2, -1)
    return x + linear(F.silu(gate) * up, layer.down)


def _before_in_kernels(
    layer: LayerWeights, x: Tensor, cos: Tensor, sin: Tensor, head_dim: int, rotated: int, eps: float
) -> tuple[Tensor, Tensor]:
    assert layer.packed is not None
    given = (layer.attention_norm, layer.qkv, layer.qkv_bias, layer.qk_norm, layer.packed.qkv)
    return layers.before_attention(x, *given, (cos, sin), rotated, eps)


def _after_in_kernels(layer: LayerWeights, x: Tensor, mixed: Tensor, eps: float) -> Tensor:
    assert layer.packed is not None
    return layers.after_attention(x, mixed, layer.mlp_norm, layer.out, layer.gate_up, layer.down, layer.packed, eps)


EAGER = Halves(_before, _after)
KERNELS = Halves(_before_in_kernels, _after_in_kernels)
STACKED = Halves(partial(_before, linear=batched_linear), partial(_after, linear=batched_linear))
INT8 = Halves(partial(_before, linear=library.int8_linear), partial(_after, linear=library.int8_linear))


@cache
def compiled() -> Halves:
    """The same by `torch.compile`, with a dynamic number of tokens. Attention, whose shapes depend on sequence lengths, is not
    compiled."""
    return Halves(torch.compile(_before, dynamic=True), torch.compile(_after, dynamic=True))


def forward(
    shape: Shape,
    weights: Weights,
    ids: Tensor,
    rope: tuple[Tensor, Tensor],
    attend: Attend,
    wanted: Tensor | None = None,
    probe: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Final hidden states (..., D) of ids (...). `attend` applies attention and keeps keys and values.

    With `wanted` (M,), indices into ids (N,), only their states (M, D) are returned, and the last layer's MLP skips the others.
    Of a stack ids are (replicas, N), and `wanted` (replicas, M) are indices into all of them, flattened.
    `probe` receives the input (..., D) of each layer's MLP."""
    rotated = shape.num_attention_heads + shape.num_key_value_heads
    assert not (weights.sums and torch.is_grad_enabled()) or getattr(attend, "blocks", None) is not None, "a pass without blocks"
    if weights.compiled() and isinstance(attend, RunsAttend) and probe is None:
        packed = [layer.packed for layer in weights.layers if layer.packed]
        where = rope, attend.runs, wanted, rotated, shape.rms_norm_eps, attend.blocks
        given = layers.Pass(ids, packed, *where, weights.sums, weights.recompute)
        x = layers.all_layers(weights.embedding, [layer[:-1] for layer in weights.layers], given)
        return _normed(x, weights, shape.rms_norm_eps, attend.blocks, wanted)
    x = _embedded(ids, weights.embedding)

    def one_layer(index: int, x: Tensor) -> Tensor:
        layer = weights.layers[index]
        qk, v = weights.halves.before(layer, x, *rope, shape.head_dim, rotated, shape.rms_norm_eps)
        mixed = attend(index, qk, v)
        if wanted is not None and index == len(weights.layers) - 1:
            x, mixed = (part.flatten(0, -2).index_select(0, wanted.flatten()).view(*wanted.shape, -1) for part in (x, mixed))
        if probe is not None:
            probe(rms_norm(x + F.linear(mixed, layer.out), layer.mlp_norm, shape.rms_norm_eps))
        return weights.halves.after(layer, x, mixed, shape.rms_norm_eps)

    for index in range(len(weights.layers)):
        x = checkpoint(one_layer, index, x, use_reentrant=False) if weights.recompute else one_layer(index, x)
    return _normed(x, weights, shape.rms_norm_eps)


def _normed(x: Tensor, weights: Weights, eps: float, blocks: Tensor | None = None, wanted: Tensor | None = None) -> Tensor:
    """The norm behind the last layer, of rows `wanted` (M,) of those that `blocks` divide."""
    if weights.sums is None:
        return rms_norm(x, weights.norm, eps)
    some = blocks if wanted is None or blocks is None else torch.searchsorted(wanted, blocks)
    empty = torch.zeros(1, dtype=torch.int64)  # without a gradient
    return attention.summed_norm(x, weights.norm.detach(), eps, exact.Blocks(empty if some is None else some, weights.sums))


def _embedded(ids: Tensor, table: Tensor) -> Tensor:
    """Rows (..., D) of a table (vocab, D), or of the table of each replica, (replicas, vocab, D)."""
    if table.ndim == 2:
        return F.embedding(ids, table)
    starts = torch.arange(len(table), device=ids.device) * table.shape[1]
    return F.embedding(ids + starts.view(-1, *[1] * (ids.ndim - 1)), table.flatten(0, 1))
