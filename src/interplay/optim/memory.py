"""What is said of a pass that does not fit into memory: one line with the size that does."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from interplay.schema.base import PermanentError

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
