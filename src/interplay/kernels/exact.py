"""Numerics: exact. Sums that do not depend on their order, and functions whose bytes do not depend on the processor.

A weight's gradient is the sum of the parts of blocks of rows. What a block is follows from the data alone (`unit_blocks`), never
from the micro-batch, the process or the thread that it falls to. Its part is rounded to a multiple of 2^-38, and such numbers are
added in float64 without rounding, as long as their sum stays below 2^14 (`Sums.reduced` raises where it might not)."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from interplay.core import random
from interplay.core.model import PermanentError
from interplay.kernels import library

BLOCK_ROWS = 256
"""Most rows of a block; kernels/layer.c."""
LARGEST_SUM = 2.0**14
LARGEST_PART = 2.0**13
STEP = 2.0**-32
"""Logged sums are of multiples of it."""


class Sums:
    """The gradient of each weight of a decoder over the passes of a step."""

    def __init__(self, model: Any) -> None:
        self.shapes = _shapes(model)
        self.largest = torch.zeros(2, dtype=torch.float64)
        """Of the parts of blocks, and of those of rows of the embedding, in this process."""
        self.blocks = self.rows = 0
        """How many of each were added."""

    @cached_property
    def flat(self) -> Tensor:
        """All sums, (P,) float64."""
        return torch.zeros(sum(map(math.prod, self.shapes.values())), dtype=torch.float64)

    @cached_property
    def parts(self) -> dict[str, Tensor]:
        """Those of each weight."""
        parts = self.flat.split(list(map(math.prod, self.shapes.values())))
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def reduced(self, model: nn.Module, add: Callable[[Tensor], Tensor]) -> None:
        """Set the gradients of the model to the sums over all processes, which `add` makes in place, and start again from 0.
        Raises PermanentError where a sum may have been rounded."""
        of_blocks, of_rows = self.largest.tolist()
        bound = self.blocks * of_blocks + self.rows * of_rows if max(of_blocks, of_rows) < LARGEST_PART else math.inf
        (bound,) = add(torch.tensor([bound], dtype=torch.float64)).tolist()
        if not bound < LARGEST_SUM:
            raise PermanentError(
                f"numerics: exact: sums of gradients may reach {bound:.3g} and are exact below {LARGEST_SUM:g}; lower the "
                "learning rate, or write numerics: fast"
            )
        add(self.flat)
        for parameter, gradient in self._of_parameters(model):
            parameter.grad = gradient.float()
        self.flat.zero_(), self.largest.zero_()
        self.blocks = self.rows = 0

    def _of_parameters(self, model: Any) -> Iterator[tuple[nn.Parameter, Tensor]]:
        parts = self.parts
        yield model.model.embed_tokens.weight, parts["table"]
        yield model.model.norm.weight, parts["norm"]
        if not model.shape.tie_word_embeddings:
            yield model.lm_head.weight, parts["head"]
        for number, layer in enumerate(model.model.layers):
            heads, mlp, place = layer.self_attn, layer.mlp, f"{number}."
            own = {name.removeprefix(place): part for name, part in parts.items() if name.startswith(place)}
            projections = heads.q_proj, heads.k_proj, heads.v_proj
            sizes = [len(p.weight) for p in projections]
            yield from zip((p.weight for p in projections), own["qkv"].split(sizes), strict=True)
            if "bias" in own:
                yield from zip((p.bias for p in projections), own["bias"].split(sizes), strict=True)
            if "qk_norm" in own:
                shared = model.shape.num_key_value_heads
                queries, keys = own["qk_norm"].split((len(own["qk_norm"]) - shared, shared))
                yield heads.q_norm.weight, queries.sum(0)
                yield heads.k_norm.weight, keys.sum(0)
            yield from zip((mlp.gate_proj.weight, mlp.up_proj.weight), own["gate_up"].chunk(2), strict=True)
            vectors = layer.input_layernorm, heads.o_proj, layer.post_attention_layernorm, mlp.down_proj
            for part, name in zip(vectors, ("norm", "out", "mlp_norm", "down"), strict=True):
                yield part.weight, own[name]


def _shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Of each matrix and vector as kernels see it: those of a layer behind its number."""
    shape, width, size = model.shape, model.shape.hidden_size, model.shape.head_dim
    rotated = shape.num_attention_heads + shape.num_key_value_heads
    columns = (rotated + shape.num_key_value_heads) * size
    layer = {
        "norm": (width,),
        "qkv": (columns, width),
        **({"bias": (columns,)} if shape.architecture == "qwen2" else {}),
        **({"qk_norm": (rotated, size)} if shape.architecture == "qwen3" else {}),
        "out": (width, shape.num_attention_heads * size),
        "mlp_norm": (width,),
        "gate_up": (2 * shape.intermediate_size, width),
        "down": (width, shape.intermediate_size),
    }
    ends = {"table": (model.vocab_size, width), "norm": (width,)}
    ends |= {} if shape.tie_word_embeddings else {"head": (model.vocab_size, width)}
    return ends | {f"{number}.{name}": own for number in range(shape.num_hidden_layers) for name, own in layer.items()}


def unit_blocks(rows: Sequence[int]) -> Tensor:
    """Where blocks begin, and their end, (B + 1,) int64, of units of so many rows each: the fewest of about equal size."""
    starts, first = [], 0
    for size in rows:
        count = -(-size // BLOCK_ROWS)
        starts += [first + size * number // count for number in range(count)]
        first += size
    return torch.tensor([*starts, first], dtype=torch.int64)


# Functions that PyTorch computes by instructions of the processor.


EXP, EXP_LESS_ONE, LOG_SIGMOID, SIGMOID = range(4)


class Blocks(NamedTuple):
    """Blocks of rows whose parts of a gradient are made each by itself (kernels/common.h), and where these are added up."""

    first: Tensor
    """(B + 1,) int64: where each begins, and their end."""
    sums: Sums | None = None
    """None: blocks are added in their order, in float32, and the pass has a gradient of its own."""
    place: str = ""
    """Of a layer among the sums."""

    def gradient(self, name: str, *shape: int) -> Tensor:
        """Where the gradient of a weight of this shape goes."""
        return torch.empty(shape) if self.sums is None else self.sums.parts[self.place + name]

    def largest(self) -> Tensor | None:
        """Of sums the largest part so far."""
        return self.sums.largest if self.sums else None

    def given(self) -> library.Blocks:
        """As kernels take them."""
        largest = self.largest()
        return library.Blocks(len(self.first) - 1, self.first.data_ptr(), None if largest is None else largest.data_ptr())

    def found(self, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """What autograd is given of these: nothing where they are sums."""
        return gradients if self.sums is None else (None,) * len(gradients)


def fixed_blocks(rows: int) -> Blocks:
    """Blocks of a pass from its first row on, wherever a sequence begins."""
    return Blocks(torch.tensor([*range(0, rows, BLOCK_ROWS), rows]))


def _computed(function: int, x: Tensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    library.call("elementwise", function, x, x.numel(), out)
    return out


class _Elementwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, function: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.function = function
        return _computed(function, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        by = _computed(SIGMOID, -x) if ctx.function == LOG_SIGMOID else _computed(EXP, x)
        return gradient * by, None


def exp(x: Tensor) -> Tensor:
    """exp of float32, rounded from float64."""
    return _Elementwise.apply(x, EXP)


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1."""
    return _Elementwise.apply(x, EXP_LESS_ONE)


def logsigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x)))."""
    return _Elementwise.apply(x, LOG_SIGMOID)


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x, ctx.shape = x.contiguous(), x.shape
        out = x.new_empty(len(x))
        library.call("row_sums", x, *x.shape, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient[:, None].expand(ctx.shape)


def row_sums(x: Tensor) -> Tensor:
    """The sum (n,) of each row of x (n, T) float32, in order, in float64."""
    return _RowSums.apply(x)


def total(x: Tensor) -> float:
    """The sum of all elements of x, each rounded to a multiple of 2^-32: the same in any order, also of such sums, while they
    stay below 2^20."""
    return torch.round(x.detach().double() / STEP).sum().item() * STEP


def rotary(positions: Tensor, size: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines (..., 1, size) at positions (...), as `interplay.model.attention.rotary`."""
    cos, sin = (torch.empty(*positions.shape, 1, size) for _ in range(2))
    library.call("rotary", positions.long().contiguous(), positions.numel(), size // 2, base, cos, sin)
    return cos, sin


def fill_normal(parameter: Tensor, scale: float, *key: Any) -> None:
    """Fill with numbers from a normal distribution around 0, a function of the key."""
    uniform = torch.from_numpy(random.generator(*key).random((2, parameter.numel())))
    library.call("normals", uniform, parameter.numel(), scale, parameter)


def norm(gradients: Sequence[Tensor]) -> float:
    """The root of the sum of all squares."""
    found = torch.zeros(1, dtype=torch.float64)
    for gradient in gradients:
        library.call("squares", gradient.contiguous(), gradient.numel(), found)
    return math.sqrt(found.item())


def power(base: float, exponent: int) -> float:
    """base^exponent by multiplications: C's pow is not the same in every library."""
    made = 1.0
    for bit in bin(exponent)[2:]:
        made *= made * base if bit == "1" else made
    return made


def cosine(x: float) -> float:
    """Of 0 to pi, within 1e-15, by its series: C's is not the same in every library."""
    rest = 0.0
    for k in range(32, 0, -2):
        rest = -x * x / (k * (k - 1)) * (1.0 + rest)
    return 1.0 + rest
