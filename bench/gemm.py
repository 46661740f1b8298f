"""The GEMM floor of the benches: the time that the matrix products of a piece of work take alone, each shape measured now.

Counted are the products of the linear layers and of the output head; attention, norms, the optimiser and all else count as
nothing, so no program reaches a share of 100 %. The speeds are those of PyTorch: torch.mm in float32 and bfloat16 and
torch._int_mm on 8-bit integers, with a 32-bit result, in CPU time and on the threads of the caller. (On AMD processors, MKL's
float32 products use AVX2 alone, so that floor is that of the library and not of the processor.)"""

import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import torch

from interplay.model.spec import Shape

Product = tuple[int, int, int]
"""(M, K, N) of a matrix (M, K) times a matrix (K, N)."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}
OWN = "interplay"
TRIES, LEAST_SECONDS = 8, 2e-3


def machine() -> str:
    """Threads, versions and instructions, for the head of a table."""
    kind = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return f"{torch.get_num_threads()} thread of {os.cpu_count()} cores, CPU time; torch {torch.__version__}, {kind}"


def quiet() -> None:
    """No warnings and progress bars of peers."""
    from transformers.utils import logging

    warnings.filterwarnings("ignore")
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def cpu_seconds(once: Callable[[], object], repeats: int = 1) -> float:
    """CPU seconds of one call, the mean of `repeats`."""
    start = time.process_time()
    for _ in range(repeats):
        once()
    return (time.process_time() - start) / repeats


@cache
def product_seconds(product: Product, dtype: str) -> float:
    """CPU seconds of one product: the fastest of TRIES, each long enough for the clock."""
    m, k, n = product
    left, right = torch.ones(m, k).to(DTYPES[dtype]), torch.ones(k, n).to(DTYPES[dtype])
    multiply = torch._int_mm if dtype == "int8" else torch.mm

    def once() -> torch.Tensor:
        return multiply(left, right)

    once()
    repeats = 1 + int(LEAST_SECONDS / max(cpu_seconds(once), 1e-6))
    return min(cpu_seconds(once, repeats) for _ in range(TRIES))


def forward_products(shape: Shape, vocab: int, tokens: int, predicted: int) -> list[Product]:
    """Products of a forward pass over `tokens`, of which the head reads `predicted`."""
    heads = (shape.num_attention_heads + 2 * shape.num_key_value_heads) * shape.head_dim
    layer = [
        (tokens, shape.hidden_size, heads),
        (tokens, shape.num_attention_heads * shape.head_dim, shape.hidden_size),
        (tokens, shape.hidden_size, 2 * shape.intermediate_size),
        (tokens, shape.intermediate_size, shape.hidden_size),
    ]
    return layer * shape.num_hidden_layers + [(predicted, shape.hidden_size, vocab)]


def training_products(shape: Shape, vocab: int, tokens: int, predicted: int) -> list[Product]:
    """The same, and for each the gradients of its input and of its weight."""
    forward = forward_products(shape, vocab, tokens, predicted)
    return [one for m, k, n in forward for one in ((m, k, n), (m, n, k), (n, m, k))]


def floor_seconds(products: Iterable[Product], dtype: str) -> float:
    """CPU seconds of all of them."""
    return sum(product_seconds(product, dtype) for product in products)


def gemm_speed(products: list[Product], dtype: str) -> float:
    """Operations per second of all of them."""
    return sum(2 * m * k * n for m, k, n in products) / floor_seconds(products, dtype)


def print_floors(products: list[Product], tokens: int) -> dict[str, float]:
    """Tokens per CPU second of the products of `tokens` tokens alone, by dtype; prints them with the machine."""
    floors = {dtype: tokens / floor_seconds(products, dtype) for dtype in DTYPES}
    print(f"  {machine()}")
    speeds = ", ".join(f"{dtype} {gemm_speed(products, dtype) / 1e9:.0f} ({floors[dtype]:,.0f} tok/s)" for dtype in DTYPES)
    print(f"  GEMM floor, GFLOP/s: {speeds}", flush=True)
    return floors


def in_turns(
    contestants: Mapping[str, Callable[[], float]],
    rounds: int,
    keep: int = 0,
    own: str = OWN,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Tokens per second of each contestant in its best of `rounds` rounds, in which all take turns, after one that is not
    counted. A contestant does its work once and returns its tokens; the clock counts CPU time unless another is given.

    With `keep`, that many peers, the fastest of the first round, and all contestants whose names start with `own` go on. The
    others get the figure of that round, and their names say so."""

    def rate(once: Callable[[], float]) -> float:
        start = clock()
        tokens = once()
        return tokens / (clock() - start)

    rates = {name: rate(once) for name, once in contestants.items()}
    peers = sorted((name for name in rates if not name.startswith(own)), key=lambda name: -rates[name])
    going = [name for name in contestants if name not in peers[keep or len(peers) :]]
    best = dict.fromkeys(going, 0.0)
    for _ in range(rounds):
        for name in going:
            best[name] = max(best[name], rate(contestants[name]))
    return best | {f"{name} (first round)": rates[name] for name in rates if name not in best}


def report(rates: dict[str, float], floors: dict[str, float], own: str = OWN) -> dict[str, dict[str, float]]:
    """Print and return, for each contestant, its rate, its ratio to the fastest peer and its share of the GEMM floor.

    `floors` has the tokens per CPU second of the products alone, by dtype; a contestant's is the one that its name has, and its
    name starts with `own` where it is this project's."""
    best = max((rate for name, rate in rates.items() if not name.startswith(own)), default=float("nan"))
    found = {}
    width = max(map(len, rates))
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        dtype = next(dtype for dtype in floors if dtype in name)
        found[name] = {"rate": rate, "ratio": rate / best, "share": rate / floors[dtype]}
        share = f"{found[name]['share']:6.1%} of the {dtype} GEMM floor"
        print(f"  {name:{width}} {rate:9,.0f} tok/s {rate / best:6.2f} of the best peer {share}", flush=True)
    return found
