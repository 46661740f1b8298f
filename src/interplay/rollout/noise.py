"""Sampling noise as a function of (seed, prompt key, sample, position) and of nothing else, so that a token does not depend on
the order of prompts, on who shares its batch or on where a run was resumed."""

import numpy as np
from numpy.typing import NDArray

WORD = (1 << 64) - 1


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, doi:10.1145/2660193.2660195): a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(seed: int, keys: list[int], samples: list[int], positions: int) -> NDArray[np.float64]:
    """Numbers in (0, 1), shape (rows, positions), for row r = sample `samples[r]` of the prompt `keys[r]`.

    Each part is absorbed by a full mixing round, so that swapping the values of two parts gives other numbers. 52 bits, centred
    in their cell, so that neither 0 nor 1 occurs."""
    step = np.uint64(0x9E3779B97F4A7C15)
    word = mix(np.array([seed & WORD], dtype=np.uint64) + step)
    for part in (keys, samples):
        word = mix((word ^ np.array([value & WORD for value in part], dtype=np.uint64)) + step)
    words = mix(word[:, None] ^ mix((np.arange(1, positions + 1, dtype=np.uint64) * step)[None]))
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
