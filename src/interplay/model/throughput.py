"""Tokens per second, and what share of the machine's arithmetic they use."""

import time

import torch

from interplay.model.decoder import Decoder


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
