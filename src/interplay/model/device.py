"""Where a stage computes, how fast (FLOPs, utilisation), and the error of a pass that does not fit into memory."""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from interplay.core.execution import Run
from interplay.core.model import PermanentError
from interplay.model.decoder import EAGER, Decoder, compiled

# Where a stage computes.


def pick_device(how: Run) -> torch.device:
    """The GPU of a stage that was given one and finds it there, by its number, since threads differ in which is theirs; else the
    CPU."""
    if how.gpus and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def placed(decoder: Decoder, how: Run) -> Decoder:
    """The decoder where the stage computes, passing as its run block says."""
    decoder.share_prompts = how.share_prompts
    decoder.halves = compiled() if how.compile else EAGER
    return decoder.to(pick_device(how))


# Tokens per second, and what share of the machine's arithmetic they use.


def matrix_parameters(model: Decoder) -> int:
    """Parameters that multiply each token: the matrices, less an input embedding that is not the output head as well."""
    looked_up = 0 if model.shape.tie_word_embeddings else model.model.embed_tokens.weight.numel()
    return sum(p.numel() for p in model.parameters() if p.ndim == 2) - looked_up


def peak_flops(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations per second of the fastest of a few square matrix products: what this device gives here and now,
    which may be less than its data sheet."""
    size, tries = (8192, 5) if device.type == "cuda" else (1024, 5)
    x = torch.ones(size, size, dtype=dtype, device=device)
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        y = x @ x
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
        del y
    return 2 * size**3 / min(times)


def model_flops_utilisation(parameters: int, tokens_per_second: float, peak: float) -> float:
    """Share of `peak` that 6 operations per parameter and token make up (arXiv:2204.02311, appendix B, without attention)."""
    return 6 * parameters * tokens_per_second / peak


# What is said of a pass that does not fit into memory: one line with the size that does.


REFUSALS = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@contextmanager
def enough(key: str, size: int, attempt: Callable[[int], object]) -> Iterator[None]:
    """Within it passes of `size` (tokens, or rows) are made, which the key of the run block sets. Where memory does not suffice,
    `attempt(n)`, a pass of at most n, is tried with halves of `size` until one fits. Raises PermanentError that names it."""
    try:
        yield
        return
    except RuntimeError as error:
        if not full(error):
            raise
        traceback.clear_frames(error.__traceback__)  # what the pass had made so far
    fitting = _fitting(size // 2, attempt)
    said = f"write {fitting}, which does" if fitting else "nor does the smallest; take a smaller model or shorter rows"
    raise PermanentError(f"run.{key}: a pass of {size} does not fit into memory; {said}")


def _fitting(size: int, attempt: Callable[[int], object]) -> int:
    """The first of size, size / 2, ... that fits; 0: none does."""
    while size:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        try:
            attempt(size)
            return size
        except RuntimeError as error:
            if not full(error):
                raise
            traceback.clear_frames(error.__traceback__)
        size //= 2
    return 0


def full(error: RuntimeError) -> bool:
    """Whether an allocator refused: PyTorch's on a GPU, the driver's or cuBLAS's, or that of a CPU. The first alone has a class
    of errors."""
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(words in said for words in REFUSALS)
