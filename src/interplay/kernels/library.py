"""The kernels, C files in this folder (`core.extension.load_library`).

Without a C compiler there is no library, and the layers run in PyTorch (`interplay.kernels.int8`)."""

import ctypes
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from interplay.core import execution, extension

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
        *((name, _LONG) for name in ("prompt", "length", "samples", "capacity", "slots", "eos", "top_k")),
        *((name, ctypes.c_float) for name in ("eps", "temperature", "top_p")),
        ("layer", ctypes.POINTER(DecodeLayer)),
        *((name, _POINTER) for name in ("embedding", "norm", "head", "cos", "sin", "first", "lengths", "prompts", "noise")),
        *((name, _POINTER) for name in ("own", "tokens", "logprobs", "sample", "steps", "waiting")),
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
    assert loaded is not None
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
