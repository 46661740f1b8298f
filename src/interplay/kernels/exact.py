"""Numerics: exact. Sums that do not depend on their order, and functions whose bytes do not depend on the processor.

A weight's gradient is the sum of the parts of blocks of rows. What a block is follows from the data alone (`unit_blocks`), never
from the micro-batch, the process or the thread that it falls to. Its part is rounded to a multiple of 2^-38, and such numbers are
added in float64 without rounding, as long as their sum stays below 2^14 (`Sums.reduced` raises where it might not)."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from interplay.core import random
from interplay.core.model import PermanentError
from interplay.kernels import library

BLOCK_ROWS = 256
"""Most rows of a block; kernels/layer.c."""
LARGEST_SUM = 2.0**14
LARGEST_PART = 2.0**13
GRID = 24576.0
"""Added to a smaller number of float64 and taken off again, it leaves a multiple of 2^-38; kernels/common.h."""
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
        self.further: dict[nn.Parameter, Tensor] = {}
        """Parameters behind the decoder, and their sums in float64."""

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
        for sums in (self.flat, *self.further.values()):
            add(sums)
        for parameter, gradient in [*self._of_parameters(model), *self.further.items()]:
            parameter.grad = gradient.float()
        for sums in (self.flat, self.largest, *self.further.values()):
            sums.zero_()
        self.blocks = self.rows = 0

    def add_rows(self, parameter: nn.Parameter, rows: Tensor) -> None:
        """Add parts (n, ...) float32 of the gradient of a parameter behind the decoder."""
        largest = rows.detach().abs().amax().double() if len(rows) else torch.zeros((), dtype=torch.float64)
        self.largest[1] = torch.maximum(self.largest[1], largest)
        self.rows += len(rows)
        into = self.further.setdefault(parameter, torch.zeros(parameter.shape, dtype=torch.float64))
        into += ((rows.double() + GRID) - GRID).sum(0).view(parameter.shape)

    def _of_parameters(self, model: Any) -> Iterator[tuple[nn.Parameter, Tensor]]:
        parts, model = self.parts, getattr(model, "decoder", model)
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


EXP, EXP_LESS_ONE, LOG_SIGMOID, SIGMOID, LOG, TANH, COSINE, LOG_REST = range(8)


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
    """Blocks of a pass from its first row on, wherever a sequence begins; of no rows one, whose part of a gradient is 0."""
    return Blocks(torch.tensor([*range(0, max(rows, 1), BLOCK_ROWS), rows]))


_OF_TYPE = {torch.float32: "elementwise", torch.float64: "elementwise64"}
"""Kernels, which read memory as numbers of these types."""


def _computed(function: int, x: Tensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    library.call(_OF_TYPE[x.dtype], function, x, x.numel(), out)
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
        return gradient * _SLOPES[ctx.function](x), None


_SLOPES: dict[int, Callable[[Tensor], Tensor]] = {
    EXP: lambda x: _computed(EXP, x),
    EXP_LESS_ONE: lambda x: _computed(EXP, x),
    LOG_SIGMOID: lambda x: _computed(SIGMOID, -x),
    SIGMOID: lambda x: _computed(SIGMOID, x) * _computed(SIGMOID, -x),
    LOG: lambda x: 1.0 / x,
    LOG_REST: lambda x: -1.0 / _computed(EXP_LESS_ONE, -x),
}


def _function(number: int) -> Callable[[Tensor], Tensor]:
    return lambda x: _Elementwise.apply(x, number)


exp, expm1, logsigmoid = map(_function, (EXP, EXP_LESS_ONE, LOG_SIGMOID))
"""Functions of float32, rounded from float64, and of float64."""


def in_order(x: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """The sum along a dimension, one after the other, in float64, rounded to the type of x."""
    if not x.shape[dim]:
        return x.sum(dim, keepdim=keepdim)
    last = x.cumsum(dim).narrow(dim, x.shape[dim] - 1, 1)
    return last if keepdim else last.squeeze(dim)


class _Wide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, width: int) -> Tensor:
        return x.expand(-1, width)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return in_order(gradient, 1, keepdim=True), None


class Functions(NamedTuple):
    """What losses, advantages and what is logged of them are computed with."""

    exact: bool
    exp: Callable[[Tensor], Tensor]
    expm1: Callable[[Tensor], Tensor]
    log: Callable[[Tensor], Tensor]
    log_rest: Callable[[Tensor], Tensor]
    """log(1 - exp(x)), x < 0."""
    cos: Callable[[Tensor], Tensor]
    tanh: Callable[[Tensor], Tensor]
    sigmoid: Callable[[Tensor], Tensor]
    logsigmoid: Callable[[Tensor], Tensor]
    summed: Callable[..., Tensor]
    """(x, dim=0, keepdim=False): the sum along a dimension."""

    def wide(self, x: Tensor, width: int) -> Tensor:
        """x (n, 1) for operations on (n, width), so that the backward pass sums in order."""
        return _Wide.apply(x, width) if self.exact else x

    def total(self, x: Tensor) -> Tensor:
        """The sum () over a part of a step: exact, the same however a step is cut (`total`)."""
        return torch.tensor(total(x), dtype=torch.float64) if self.exact else x.sum()

    def mean(self, x: Tensor) -> Tensor:
        """Of all values, ()."""
        return self.summed(x.flatten()) / x.numel() if self.exact else x.mean()

    def variance(self, x: Tensor) -> Tensor:
        """() Bessel-corrected, of more than one value."""
        return self.summed((x.flatten() - self.mean(x)) ** 2) / (x.numel() - 1) if self.exact else x.var()

    def softmax(self, x: Tensor) -> Tensor:
        """Of (n,)."""
        weights = self.exp(x - x.amax())
        return weights / self.summed(weights) if self.exact else torch.softmax(x, 0)

    def quantile(self, x: Tensor, share: float) -> float:
        """Of values (n,), linear between two of them."""
        if not self.exact:
            return float(torch.quantile(x, share))
        place = share * (len(x) - 1)
        low = x.sort().values[int(place) : int(place) + 2].tolist()
        return low[0] + (low[-1] - low[0]) * (place - int(place))

    def power(self, base: float, exponent: float) -> float:
        """base^exponent, base >= 0."""
        if not self.exact or base in (0.0, 1.0) or exponent in (0.0, 1.0):
            return float(base**exponent)
        return float(self.exp(exponent * self.log(torch.tensor(base, dtype=torch.float64))))


def _log_rest(x: Tensor) -> Tensor:
    return torch.where(x > -0.6931472, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


FAST = Functions(
    *(False, torch.exp, torch.expm1, torch.log, _log_rest, torch.cos, torch.tanh, torch.sigmoid),
    *(torch.nn.functional.logsigmoid, torch.sum),
)
"""Those of PyTorch."""
EXACT = Functions(
    *(True, exp, expm1, _function(LOG), _function(LOG_REST), _function(COSINE), _function(TANH), _function(SIGMOID)),
    *(logsigmoid, in_order),
)
"""Those of numerics: exact."""


def functions(numerics: str) -> Functions:
    """Those of a spec."""
    return EXACT if numerics == "exact" else FAST


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, blocks: Blocks | None) -> Tensor:
        ctx.given, ctx.blocks = (hidden.contiguous(), head), blocks
        found = hidden.new_empty(len(hidden), len(head) + -len(head) % library.LANES)
        library.call("logps_forward", *ctx.given, None, *hidden.shape, len(head), 1.0, found, None)
        return found[:, : len(head)]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (hidden, head), blocks = ctx.given, ctx.blocks
        padded = torch.nn.functional.pad(gradient, (0, -len(head) % library.LANES)).contiguous()
        dhidden, sizes = torch.empty_like(hidden), (*hidden.shape, len(head), 1.0)
        blocks.sums.blocks += len(blocks.first) - 1
        call = partial(library.call, "logps_backward", None, hidden, head, None, *sizes, padded)
        call(blocks.given(), dhidden, blocks.gradient(""))
        return dhidden, None, None


def log_softmax(hidden: Tensor, head: Tensor, temperature: float, blocks: Blocks | None) -> Tensor:
    """All log-probabilities (M, vocab) at hidden states (M, D), of the output matrix (vocab, D) of a small vocabulary, whose
    gradient goes to the sums of `blocks`."""
    z = _Logits.apply(hidden, head, blocks) / temperature
    z = z - z.detach().amax(1, keepdim=True)
    return z - EXACT.wide(EXACT.log(in_order(exp(z), 1, keepdim=True)), z.shape[1])


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


def root(x: Tensor) -> Tensor:
    """Square roots of x, on the CPU and without a gradient. Those of PyTorch are MKL's: neither rounded correctly nor the same on
    two processors."""
    return torch.as_tensor(np.sqrt(x.numpy()))


def power(base: float, exponent: int) -> float:
    """base^exponent by multiplications: C's pow is not the same in every library."""
    made = 1.0
    for bit in bin(exponent)[2:]:
        made *= made * base if bit == "1" else made
    return made
