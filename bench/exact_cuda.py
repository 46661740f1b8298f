"""What numerics: exact would take on a GPU: bytes of single operations there against those on the CPU.

    PYTHONPATH=src python bench/exact_cuda.py [--out FILE]   # takes nvcc and a C compiler; without a GPU the CPU against itself

First PyTorch's operations. Then the repository's own C functions of kernels/exact.c, and the fixed sums of the kernels written
for one thread each, compiled by nvcc without contraction; and with it, which must be seen.
"""

import argparse
import ctypes
import json
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interplay.kernels import exact, layers, library

SHAPE = 64, 48, 16
"""Width, vocabulary, size of a head."""
KERNELS = r"""
#include <math.h>
#include <stdint.h>
#define UNPACKED(...) __VA_ARGS__
#ifdef __CUDACC__
#define FMA __fmaf_rn
#define EACH(name, takes, given)                                                                                      \
    __device__ void name##_at(long i, UNPACKED takes);                                                                \
    __global__ void name##_all(long n, UNPACKED takes) {                                                              \
        const long i = blockIdx.x * 128L + threadIdx.x;                                                               \
        if (i < n) name##_at(i, UNPACKED given);                                                                      \
    }                                                                                                                 \
    extern "C" int name(long n, UNPACKED takes) {                                                                     \
        name##_all<<<(n + 127) / 128, 128>>>(n, UNPACKED given);                                                      \
        return (int)cudaDeviceSynchronize();                                                                          \
    }                                                                                                                 \
    __device__ void name##_at(long i, UNPACKED takes)
#else
#define FMA fmaf
#define __device__ static
#define EACH(name, takes, given)                                                                                      \
    static void name##_at(long i, UNPACKED takes);                                                                    \
    extern "C" int name(long n, UNPACKED takes) {                                                                     \
        for (long i = 0; i < n; i++) name##_at(i, UNPACKED given);                                                    \
        return 0;                                                                                                     \
    }                                                                                                                 \
    static void name##_at(long i, UNPACKED takes)
#endif
#define LANES 16
SOURCE

__device__ float exponential(float x) {
    x = fminf(88.0f, fmaxf(-87.0f, x));
    const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = FMA(n, 2.12194440e-4f, FMA(n, -0.693359375f, x));
    float y = 1.9875691500e-4f;
    y = FMA(y, r, 1.3981999507e-3f);
    y = FMA(y, r, 8.3334519073e-3f);
    y = FMA(y, r, 4.1665795894e-2f);
    y = FMA(y, r, 1.6666665459e-1f);
    y = FMA(y, r, 5.0000001201e-1f);
    y = FMA(y, r * r, r) + 1.0f;
    union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
    return y * power.value;
}

__device__ float lane_sum(float *s) {
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}

__device__ float dot(const float *a, long step, const float *b, long ld, long count) {
    float sum = 0.0f;
    for (long k = 0; k < count; k++) sum = FMA(a[k * step], b[k * ld], sum);
    return sum;
}

EACH(functions64, (int f, const double *x, double *out), (f, x, out)) { elementwise64(f, x + i, 1, out + i); }
EACH(functions32, (int f, const float *x, float *out), (f, x, out)) { elementwise(f, x + i, 1, out + i); }
EACH(adamw, (float *w, float *m, float *v, const float *g), (w, m, v, g)) {
    adamw_step(w + i, m + i, v + i, g + i, 1, 0.9f, 0.999f, 0.999f, 0.003f, 0.17f, 1e-8f);
}
EACH(sum_of_squares, (const float *x, long count, double *out), (x, count, out)) { squares(x, count, out); }
EACH(exponentials, (const float *x, float *out), (x, out)) { out[i] = exponential(x[i]); }
EACH(logps, (const float *hidden, const float *head, const int64_t *tokens, long width, long vocabulary, float *out),
     (hidden, head, tokens, width, vocabulary, out)) {
    float z[256], peak = -INFINITY;
    double total = 0.0;
    for (long v = 0; v < vocabulary; v++) {
        z[v] = dot(hidden + i * width, 1, head + v * width, 1, width) / 0.7f;
        peak = fmaxf(z[v], peak);
    }
    const float own = z[tokens[i]];
    for (long n = 0; n < vocabulary; n += LANES) {
        float s[LANES];
        for (long k = 0; k < LANES; k++) s[k] = n + k < vocabulary ? exponential(z[n + k] - peak) : 0.0f;
        total += lane_sum(s);
    }
    out[i] = (float)((double)(own - peak) - natural_log(total));
}
EACH(attend, (const float *q, const float *k, const float *v, long rows, long size, float *out), (q, k, v, rows, size, out)) {
    float scaled[64], weights[512], s[LANES] = {0}, peak = -INFINITY;
    const long padded = (i / LANES + 1) * LANES, own = i / 6 * 6 + 6 < rows ? i / 6 * 6 + 6 : rows;
    for (long d = 0; d < size; d++) scaled[d] = q[i * size + d] * (1.0f / sqrtf((float)size));
    for (long j = 0; j <= i; j++) peak = fmaxf(weights[j] = dot(scaled, 1, k + j * size, 1, size), peak);
    for (long j = 0; j < padded; j++) s[j % LANES] += weights[j] = j <= i ? exponential(weights[j] - peak) : 0.0f;
    for (long j = padded; j < own; j++) weights[j] = 0.0f;
    const float inverse = 1.0f / lane_sum(s);
    for (long d = 0; d < size; d++) out[i * size + d] = dot(weights, 1, v + d, size, own) * inverse;
}
"""


def source() -> str:
    """The kernels, with the functions of kernels/exact.c and the logarithm of common.h for a GPU."""
    folder = Path(library.__file__).parent
    common, own = (folder / "common.h").read_text(), (folder / "exact.c").read_text()
    logarithm = re.search(r"INLINE double natural_log.*?\n}\n", common, re.DOTALL)
    assert logarithm
    own = re.sub(
        r"// Cosines and signed sines.*?(?=// x \(count\) from a normal)",
        "",
        own.replace('#include "common.h"', ""),
        flags=re.DOTALL,
    )
    text = logarithm[0] + own
    return KERNELS.replace("SOURCE", re.sub(r"^(INLINE|static|(?=void ))", "__device__ ", text, flags=re.MULTILINE))


def compiled(folder: Path, device: str, contracted: bool) -> ctypes.CDLL:
    text, out = folder / "kernels.cu", folder / f"kernels{contracted}.so"
    text.write_text(source())
    if device == "cuda":
        flags = ["nvcc", "-O3", "-arch=native", f"--fmad={str(contracted).lower()}", "-Xcompiler", "-fPIC", "-shared"]
    else:
        contract = ["-march=native", "-ffp-contract=fast"] if contracted else ["-ffp-contract=off"]
        flags = ["g++", "-x", "c++", "-O3", *contract, "-fPIC", "-shared"]
    subprocess.run([*flags, str(text), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


def call(loaded: ctypes.CDLL, name: str, n: int, *given: Any) -> None:
    """Tensors are passed as addresses."""
    made = [ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else ctypes.c_long(x) for x in given]
    code = getattr(loaded, name)(ctypes.c_long(n), *made)
    assert code == 0, f"{name}: CUDA error {code}"


def drawn(*size: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (torch.randn(size, generator=torch.Generator().manual_seed(sum(size)), dtype=torch.float64) * scale).to(dtype)


def on_grid(*size: int) -> Tensor:
    return (drawn(*size, dtype=torch.float64) + exact.GRID) - exact.GRID


def int_mm(x: Tensor) -> Tensor:
    """Saturating operands, 128 summands to 8,192."""
    left, right = (torch.full(size, 127, dtype=torch.int8, device=x.device) for size in ((64, 8192), (8192, 64)))
    left[::2], right[:, ::3] = -127, -127
    return torch.cat([torch._int_mm(left[:, :k].contiguous(), right[:k].contiguous()).flatten() for k in (128, 1024, 8192)])


def int64_mm(x: Tensor) -> Tensor:
    """The same, of the CPU's integers of 64 bits."""
    left, right = torch.full((64, 8192), 127), torch.full((8192, 64), 127)
    left[::2], right[:, ::3] = -127, -127
    return torch.cat([(left[:, :k] @ right[:k]).flatten() for k in (128, 1024, 8192)]).int()


def blocks_mm(x: Tensor) -> Tensor:
    return torch.cat([library.int8_product(x[:, :k], x[:, :k].T.contiguous()) for k in (128, 1000, 4096)])


def ieee_root(x: Tensor) -> Tensor:
    return x.sqrt() if x.is_cuda else exact.root(x)


TORCH: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "add": (torch.add, (drawn(9999), drawn(9999, 1)[:, 0])),
    "multiply": (torch.mul, (drawn(9999), drawn(9999, 1)[:, 0])),
    "divide": (torch.div, (drawn(99999), drawn(99999, 1)[:, 0])),
    "divide, float64": (torch.div, (drawn(99999, dtype=torch.float64), drawn(99999, 1, dtype=torch.float64)[:, 0])),
    "sqrt": (torch.sqrt, (drawn(99999).abs(),)),
    "sqrt, float64": (torch.sqrt, (drawn(99999, dtype=torch.float64).abs(),)),
    "sqrt, against numpy's": (ieee_root, (drawn(99999).abs(),)),
    "sqrt of float64, against numpy's": (ieee_root, (drawn(99999, dtype=torch.float64).abs(),)),
    "round": (torch.round, (drawn(9999, scale=50),)),
    "subnormal numbers: multiply": (torch.mul, (drawn(9999, scale=1e-20), drawn(9999, 1, scale=1e-20)[:, 0])),
    "subnormal numbers: divide": (torch.div, (drawn(9999, scale=1e-30), drawn(9999, 1, scale=1e10)[:, 0])),
    "operands of 8 bits and their scales": (
        lambda x: torch.cat([p.flatten() for p in library.quantised(x, 1)]),
        (drawn(300, 77),),
    ),
    "int8 product, float32 in blocks of 1,024": (blocks_mm, (drawn(96, 4096),)),
    "int8 product, torch._int_mm": (int_mm, (torch.zeros(1),)),
    "product of 12 bits, float64": (library.int12_product, (drawn(96, 512), drawn(512, 80))),
    "parts on the grid of 2^-38": (lambda x: (x.double() + exact.GRID) - exact.GRID, (drawn(9999, scale=1e-3),)),
    "sum of parts on the grid": (lambda x: x.sum(0), (on_grid(999, 64),)),
    "index_add of parts on the grid": (
        lambda x: torch.zeros(7, 64, dtype=torch.float64, device=x.device).index_add_(
            0, torch.arange(999, device=x.device) % 7, x
        ),
        (on_grid(999, 64),),
    ),
    "stable argsort": (lambda x: torch.argsort(x, stable=True), (drawn(9999).round(decimals=1),)),
    "sum, float32": (torch.sum, (drawn(9999),)),
    "cumsum, float64 (a sum in order)": (lambda x: x.cumsum(0), (drawn(9999, dtype=torch.float64),)),
    "cumsum along rows, float32": (lambda x: x.cumsum(1), (drawn(99, 99),)),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y), (drawn(9999), drawn(9999, 1)[:, 0])),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.1), (drawn(9999), drawn(9999, 1)[:, 0])),
    "float32 product, 64 summands": (torch.mm, (drawn(96, 64), drawn(64, 96))),
    **{name: (getattr(torch, name), (drawn(99999),)) for name in ("exp", "expm1", "sigmoid", "tanh", "cos")},
    "exp, float64": (torch.exp, (drawn(99999, dtype=torch.float64),)),
    "log": (torch.log, (drawn(99999).abs(),)),
    "log, float64": (torch.log, (drawn(99999, dtype=torch.float64).abs(),)),
    "softmax": (lambda x: x.softmax(1), (drawn(99, 48),)),
    "rsqrt": (torch.rsqrt, (drawn(99999).abs(),)),
}


def ours(loaded: ctypes.CDLL, device: str) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, what the C kernels give, and what those of the GPU give."""
    width, vocabulary, size = SHAPE
    x, names = drawn(20_000, scale=3), ("exp", "exp - 1", "log-sigmoid", "sigmoid", "log", "tanh", "cos", "log(1 - exp)")
    for number, name in enumerate(names):
        for operands, kernel in ((x, "functions32"), (x.double() / 3, "functions64")):
            some = operands.abs() if name == "log" else -operands.abs() if number == exact.LOG_REST else operands
            given, out = some.to(device), torch.empty_like(some, device=device)
            call(loaded, kernel, len(x), ctypes.c_int(number).value, given, out)
            yield f"{name}, {str(some.dtype)[6:]}", exact._computed(number, some), out
    state = [drawn(5000), drawn(5000, 1)[:, 0] * 1e-3, drawn(5000, 2)[:, 0].square() * 1e-6, drawn(5000, 3)[:, 0] * 1e-3]
    there, state = [one.to(device, copy=True).contiguous() for one in state], [one.clone().contiguous() for one in state]
    library.call("adamw_step", *state, 5000, 0.9, 0.999, 0.999, 0.003, 0.17, 1e-8)
    call(loaded, "adamw", 5000, *there)
    yield "AdamW: weights and state", torch.cat(state[:3]), torch.cat(there[:3])
    mine, theirs = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64, device=device)
    library.call("squares", state[0], 5000, mine)
    call(loaded, "sum_of_squares", 1, state[0].to(device), 5000, theirs)
    yield "norm of a gradient", mine, theirs
    hidden, head = drawn(400, width), drawn(vocabulary, width)
    tokens = torch.arange(400) % vocabulary
    found = torch.empty(400, device=device)
    call(loaded, "logps", 400, hidden.to(device), head.to(device), tokens.to(device), width, vocabulary, found)
    yield "log-probabilities", layers.logps(hidden, head, tokens, 0.7), found
    qk, v, runs = drawn(200, 2, size), drawn(200, 1, size), torch.tensor([[0, 200, 0, 0]], dtype=torch.int32)
    q, k = (qk[:, i].contiguous().to(device) for i in range(2))
    found = torch.empty(200, size, device=device)
    call(loaded, "attend", 200, q, k, v.to(device), 200, size, found)
    yield "attention, forward", layers.attention(qk, v, runs), found


def said(name: str, mine: Tensor, theirs: Tensor) -> dict[str, Any]:
    theirs = theirs.cpu()
    assert mine.dtype == theirs.dtype, (name, mine.dtype, theirs.dtype)
    other = (mine != theirs) & ~(mine.isnan() & theirs.isnan())
    largest = float((mine.double() - theirs.double()).abs().nan_to_num().max())
    found = {"operation": name, "numbers": mine.numel(), "other": int(other.sum()), "largest_difference": largest}
    print(
        f"{name:45} {'equal' if not found['other'] else 'OTHER'} {found['other']:7} of {mine.numel():7}   {largest:.2g}",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    found: dict[str, Any] = {"gpu": gpu, "torch": torch.__version__, "processor": platform.processor(), "parts": {}}
    print(f"PyTorch {torch.__version__}, {gpu or 'the CPU with itself'}")
    part = found["parts"]["torch"] = []
    for name, (function, given) in TORCH.items():
        with torch.no_grad():
            expected = int64_mm(given[0]) if function is int_mm else function(*given)
            part.append(said(name, expected, function(*(x.to(device) for x in given))))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for contracted in (False, True):
            print(f"kernels {'with' if contracted else 'without'} contraction to fused operations")
            loaded = compiled(Path(folder), device, contracted)
            found["parts"][f"kernels, contracted: {contracted}"] = [said(*one) for one in ours(loaded, device)]
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
