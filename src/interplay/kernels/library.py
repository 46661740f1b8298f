"""The kernels, C files in this folder (`core.extension.load_library`); and in plain PyTorch what they compute, which runs where
there is no C compiler."""

import ctypes
import platform
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interplay.core import execution, extension
from interplay.core.model import UserError

FLAGS = [
    "-std=gnu11",
    "-O3",
    *(["-march=native", "-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else ["-mcpu=native"]),
    "-ffp-contract=off",  # with the next two: IEEE operations in the order of the source, on every processor
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
]
LANES = 16
"""Every width that a kernel sees is a multiple of this."""

_POINTER, _LONG = ctypes.c_void_p, ctypes.c_long
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Options of `mallopt`."""


class Heads(ctypes.Structure):
    """Sizes of the part of a layer before attention; C's struct of that name."""

    _fields_ = [*((name, _LONG) for name in ("rows", "width", "rotated", "values", "size")), ("eps", ctypes.c_float)]


class Rope(ctypes.Structure):
    """Where the cosines and sines of a row lie; C's struct of that name."""

    _fields_ = [("cos", _POINTER), ("sin", _POINTER), *((name, _LONG) for name in ("inner", "outer_stride", "inner_stride"))]


class Mlp(ctypes.Structure):
    """Sizes of the part of a layer after attention; C's struct of that name."""

    _fields_ = [*((name, _LONG) for name in ("rows", "width", "mixed", "hidden")), ("eps", ctypes.c_float)]


class Attention(ctypes.Structure):
    """Sizes and strides of attention; C's struct of that name."""

    _fields_ = [(name, _LONG) for name in ("runs", "heads", "shared", "size", "q_stride", "k_stride", "v_stride")]


class DecodeLayer(ctypes.Structure):
    """Addresses of a layer's weights, and of the keys and values of prompts; C's struct of that name."""

    _fields_ = [
        (name, _POINTER)
        for name in (
            *("attention_norm", "qkv", "bias", "qk_norm", "out", "mlp_norm", "gate_up", "down"),
            *("prompt_keys", "prompt_values"),
        )
    ]


class Completions(ctypes.Structure):
    """Sizes, weights, inputs, outputs and state of samples under way; C's struct of that name."""

    _fields_ = [
        *((name, _LONG) for name in ("layers", "width", "hidden", "heads", "shared", "size", "vocab")),
        *((name, _LONG) for name in ("prompt", "length", "samples", "capacity", "slots", "eos", "top_k", "places")),
        *((name, ctypes.c_float) for name in ("eps", "temperature", "top_p")),
        ("layer", ctypes.POINTER(DecodeLayer)),
        *((name, _POINTER) for name in ("embedding", "norm", "head", "cos", "sin", "first", "lengths", "prompts", "requests")),
        *(
            (name, _POINTER)
            for name in ("noise", "history", "past", "own", "tokens", "logprobs", "sample", "steps", "waiting", "made")
        ),
    ]


class Blocks(ctypes.Structure):
    """Blocks of rows and how their parts of a gradient are added; C's struct of that name."""

    _fields_ = [("count", _LONG), ("first", _POINTER), ("largest", _POINTER)]


class Iteration(ctypes.Structure):
    """Sizes and coefficients of Muon's iteration; C's struct of that name."""

    _fields_ = [
        *((name, _LONG) for name in ("count", "rows", "columns", "iterations")),
        *((name, ctypes.c_float) for name in ("a", "b", "c", "smallest")),
    ]


class Stepped(ctypes.Structure):
    """A matrix that Muon steps; C's struct of that name."""

    _fields_ = [
        *((name, _POINTER) for name in ("weight", "momentum", "gradient")),
        ("rows", _LONG),
        ("columns", _LONG),
        ("factor", ctypes.c_float),
    ]


ARGUMENTS = {
    "pack_matrix": [_POINTER, _LONG, _LONG, ctypes.c_int, _POINTER],
    "before_forward": [ctypes.POINTER(Heads), ctypes.POINTER(Rope), *[_POINTER] * 9],
    "before_backward": [ctypes.POINTER(Heads), ctypes.POINTER(Rope), *[_POINTER] * 10, ctypes.POINTER(Blocks), *[_POINTER] * 5],
    "after_forward": [ctypes.POINTER(Mlp), *[_POINTER] * 10],
    "after_backward": [ctypes.POINTER(Mlp), *[_POINTER] * 9, ctypes.POINTER(Blocks), *[_POINTER] * 6],
    "norm_forward": [*[_POINTER] * 2, _LONG, _LONG, ctypes.c_float, *[_POINTER] * 2],
    "norm_backward": [*[_POINTER] * 4, _LONG, ctypes.POINTER(Blocks), *[_POINTER] * 2],
    "attention_forward": [ctypes.POINTER(Attention), *[_POINTER] * 6],
    "head_product": [_POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER],
    "complete": [ctypes.POINTER(Completions), _LONG, _LONG],
    "orthogonalise": [ctypes.POINTER(Iteration), _POINTER],
    "muon_step": [ctypes.POINTER(Iteration), ctypes.POINTER(Stepped), *[ctypes.c_float] * 3],
    "logps_forward": [*[_POINTER] * 3, *[_LONG] * 3, ctypes.c_float, _POINTER, _POINTER],
    "logps_backward": [*[_POINTER] * 4, *[_LONG] * 3, ctypes.c_float, _POINTER, ctypes.POINTER(Blocks), *[_POINTER] * 2],
    "head_forward": [_POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER],
    "head_backward": [*[_POINTER] * 3, _LONG, _LONG, _LONG, _POINTER, _POINTER],
    "embedding_backward": [_POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER, _POINTER],
    "attention_backward": [ctypes.POINTER(Attention), *[_POINTER] * 9],
    "elementwise": [ctypes.c_int, _POINTER, _LONG, _POINTER],
    "elementwise64": [ctypes.c_int, _POINTER, _LONG, _POINTER],
    "rotary": [_POINTER, _LONG, _LONG, ctypes.c_double, _POINTER, _POINTER],
    "normals": [_POINTER, _LONG, ctypes.c_float, _POINTER],
    "squares": [_POINTER, _LONG, _POINTER],
    "adamw_step": [*[_POINTER] * 4, _LONG, *[ctypes.c_float] * 6],
}


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels. None, with one line in the log, where there is no C compiler or it fails."""
    folder, shares_threads = Path(__file__).parent, _torch_openmp() is not None
    loaded = extension.load_library(ctypes.CDLL, folder, [*FLAGS, "-fopenmp"], "they take one thread") if shares_threads else None
    if loaded is None:  # clang has another OpenMP than PyTorch on Linux, and none on macOS
        shares_threads = False
        loaded = extension.load_library(ctypes.CDLL, folder, FLAGS, "int8 products run in PyTorch, several times slower")
    if loaded is None:
        return None
    for name, arguments in ARGUMENTS.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, None
    _keep_memory()
    if shares_threads:
        execution.want_cores()
    return loaded


def _keep_memory() -> None:
    """Have glibc keep what is freed: each step takes the memory of the step before, and filling pages that were given back with
    zeros takes a twentieth of a step of a small model."""
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        for option, value in ((_TRIM_THRESHOLD, 1 << 30), (_MMAP_THRESHOLD, 1 << 25)):
            set_option(option, value)


def call(name: str, *arguments: Any) -> None:
    """Call a kernel of a library that is there; tensors are passed as addresses, structures by reference.

    It uses borrowed cores, too. PyTorch's operations do not: products and sums of theirs differ with the number of threads."""
    loaded, borrowed = library(), execution.borrowed_cores()
    if loaded is None:
        raise UserError("numerics: exact needs a C compiler (CC, cc, gcc, clang or the package ziglang); write numerics: fast")
    openmp = _torch_openmp() if borrowed else None
    if openmp is None:
        getattr(loaded, name)(*map(_argument, arguments))
        return
    own = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(own + borrowed)
    try:
        getattr(loaded, name)(*map(_argument, arguments))
    finally:
        openmp.omp_set_num_threads(own)


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    return ctypes.byref(value) if isinstance(value, ctypes.Structure) else value


def usable(widths: Iterable[int], device: torch.device) -> bool:
    """Whether the kernels can compute there on matrices of these widths."""
    return device.type == "cpu" and all(width % LANES == 0 for width in widths) and library() is not None


@cache
def _torch_openmp() -> ctypes.CDLL | None:
    """The OpenMP library of PyTorch, where that is GCC's; it is visible to libraries that are loaded later."""
    for path in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return None


# Linear layers whose products take 8-bit operands on power-of-two scales and sum exactly, and attention whose gradients do so
# with more bits, in plain PyTorch. They define what the compiled kernels compute (to rounding in the operations between the
# products), and replace them without a C compiler, for widths that are no multiples of 16, and on a GPU. Products of such
# integers are exact in float32 for at most 1,040 summands, so longer sums are cut there, on any hardware; `torch._int_mm`
# saturates silently on some.


LARGEST = 127
GRADIENT_ROWS = 256
"""Rows whose columns share a scale in the gradient of a weight."""
_EXACT = 1024
"""Summands: 127 * 127 * 1,040 is the largest such product below 2^24."""


def quantised(x: Tensor, dim: int, largest: float = LARGEST) -> tuple[Tensor, Tensor]:
    """Integers of at most `largest` in float32, and the power of two for each row along `dim` (size 1 there) that they are
    multiples of, the smallest above peak / largest."""
    peak = x.abs().amax(dim, keepdim=True) if x.shape[dim] else x.sum(dim, keepdim=True)
    peak = peak.clamp_min(1e-30) / largest
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


def plain_head(hidden: Tensor, weight: Tensor) -> Tensor:
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


def plain_attention(qk: Tensor, v: Tensor, runs: Tensor) -> Tensor:
    """Causal attention of queries and keys qk (N, heads + kv heads, size) and values v (N, kv heads, size) over runs (R, 4), as
    `interplay.kernels.layers.attention`: (N, heads * size) float32."""
    return _Attention.apply(qk, v, runs)
