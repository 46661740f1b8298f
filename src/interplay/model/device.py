"""Device of a stage, its decoder or stack of decoders there, its speed (FLOP/s, utilisation), and the error of a pass that does
not fit into memory."""

import functools
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from interplay.core import execution, model
from interplay.kernels import exact, library
from interplay.model.decoder import EAGER, LARGE_VOCABULARY, STACKED, Decoder, compiled
from interplay.model.spec import Numerics


def pick_device(how: execution.Run) -> torch.device:
    """The GPU, by its number since the current GPU is per thread, where the stage has one and CUDA is available; else the CPU."""
    if how.gpus and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def place_decoder(decoder: Decoder, how: execution.Run, numerics: Numerics = "fast", blockwise: bool = False) -> Decoder:
    """The decoder on the device of the stage, configured by its run block. Raises UserError where that does not compute in these
    numerics."""
    if decoder.by_rows and how.stack > 1:
        raise model.UserError(f"run.stack = {how.stack}: transformers computes this model, alone; write 1")
    decoder.share_prompts = how.share_prompts and not decoder.by_rows
    decoder.blockwise, decoder.recompute = blockwise, how.gradient_checkpointing
    decoder.halves = compiled() if how.compile else EAGER
    placed = decoder.to(pick_device(how))
    return exact_decoder(placed) if numerics == "exact" else placed


def exact_decoder(decoder: Decoder) -> Decoder:
    """The decoder, whose passes in int8 are exact from here on. Raises UserError where that cannot be."""
    shape, refused = decoder.shape, "numerics = exact: {}; write numerics: fast"
    if decoder.by_rows:
        raise model.UserError(refused.format("transformers computes this model"))
    if decoder.vocab_size >= LARGE_VOCABULARY:
        raise model.UserError(refused.format(f"a vocabulary of {decoder.vocab_size} is too large, {LARGE_VOCABULARY} or more"))
    if decoder.head().device.type != "cpu":
        raise model.UserError(refused.format("its fixed sums have no kernels on a GPU (run.gpus: 0)"))
    widths = shape.hidden_size, shape.intermediate_size, shape.head_dim
    if not library.usable(widths, decoder.head().device):
        why = f"needs a C compiler and widths that are multiples of {library.LANES}, not {', '.join(map(str, widths))}"
        raise model.UserError(refused.format(why))
    widest = max(max(matrix.shape) for matrix in decoder.model.layers.parameters() if matrix.ndim == 2)
    if 2 * widest * 127**2 >= 2**31:
        raise model.UserError(refused.format(f"sums over {2 * widest} products of 8 bits exceed 32 bits"))
    if not torch.tensor(1e-40) * 1.0 > 0:
        why = "this process takes subnormal numbers for zero, as some libraries make it that are built with -ffast-math"
        raise model.UserError(refused.format(why))
    decoder.sums = exact.Sums(decoder)
    return decoder


def stacked(decoders: Sequence[Decoder]) -> Decoder:
    """The decoders, of one shape and on one device, as a stack: parameter p of replica r is p[r] of the stack. From here on the
    decoders' own parameters are views of it, so that training it trains them."""
    first = decoders[0]
    whole = Decoder(first.shape, first.vocab_size)
    whole.replicas, whole.halves = len(decoders), STACKED
    own = [dict(decoder.named_parameters()) for decoder in decoders]
    for name, parameter in whole.named_parameters():
        parameter.data = torch.stack([each[name].detach() for each in own])
        for replica, each in enumerate(own):
            each[name].data = parameter.data[replica]
    return whole


# Throughput and utilisation.


def matrix_parameters(model: Decoder) -> int:
    """Parameters that multiply each token: the matrices, less an input embedding that is not the output head as well."""
    looked_up = 0 if model.embedding() is model.head() else model.embedding().numel()
    return sum(p.numel() for p in model.parameters() if p.ndim == 2) - looked_up


def peak_flops(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations per second of the fastest of a few square matrix products: measured once per process and number
    of threads, and possibly less than the data sheet. On a CPU by the time for which the process computed, which other work on
    the machine changes little; of int8 the rate of float32, since torch's own product of int8 takes seconds there where the
    processor has no instruction for it."""
    dtype = torch.float32 if dtype == torch.int8 and device.type != "cuda" else dtype
    return _measured_flops(dtype, device, torch.get_num_threads())


@functools.cache
def _measured_flops(dtype: torch.dtype, device: torch.device, threads: int) -> float:
    on_gpu = device.type == "cuda"
    size, clock, threads = (8192, time.perf_counter, 1) if on_gpu else (512, time.process_time, threads)
    # Numbers without a pattern: a GPU multiplies ones faster. The process' own generator stays as it is.
    x = (30 * torch.randn(size, size, generator=torch.Generator().manual_seed(0)).to(device)).to(dtype)
    multiply = torch._int_mm if dtype == torch.int8 else torch.matmul
    times = list[float]()
    while len(times) < 5 and (on_gpu or sum(times) < MEASURING):
        start = clock()
        y = multiply(x, x)
        if on_gpu:
            torch.cuda.synchronize(device)
        times.append(clock() - start)
        del y
    return 2 * size**3 * threads / min(times)


MEASURING = 0.1
"""CPU seconds after which no further product is timed. In bfloat16 one takes long on a CPU without instructions for it."""


def stage_flops(dtype: torch.dtype, device: torch.device) -> float:
    """The same of all processes of a stage, with the cores that they borrowed on average."""
    cores = 1 + execution.mean_borrowed_cores() / torch.get_num_threads()
    return peak_flops(dtype, device) * execution.world_size() * cores


def model_flops_utilisation(parameters: int, tokens_per_second: float, peak: float) -> float:
    """Share of `peak` that 6 operations per parameter and token make up (arXiv:2204.02311, appendix B, without attention)."""
    return 6 * parameters * tokens_per_second / peak


# Out-of-memory errors: one line that names a size that fits.


ALLOCATION_ERRORS = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@contextmanager
def report_out_of_memory(key: str, size: int, attempt: Callable[[int], object]) -> Iterator[None]:
    """A context for passes of `size` (tokens or rows), which `key` of the run block sets. When memory does not suffice,
    `attempt(n)`, a pass of at most n, is tried with halves of `size` until one fits. Raises PermanentError that names that
    size."""
    try:
        yield
        return
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # frees the tensors of the pass
    fitting = _largest_fitting(size // 2, attempt)
    remedy = f"write {fitting}, which does" if fitting else "nor does the smallest; use a smaller model or shorter rows"
    raise model.PermanentError(f"run.{key}: a pass of {size} does not fit into memory; {remedy}")


def _largest_fitting(size: int, attempt: Callable[[int], object]) -> int:
    """The first of size, size / 2, ... that fits; 0: none does."""
    while size:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        try:
            attempt(size)
            return size
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)
        size //= 2
    return 0


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an allocation failed: PyTorch's on a GPU, which has its own class of errors, the driver's, cuBLAS's or the
    CPU's."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in ALLOCATION_ERRORS)
