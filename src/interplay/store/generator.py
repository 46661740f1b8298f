"""NumPy's generators over keyed streams. Apart from `key`, since planning works out keys and imports no NumPy."""

import numpy as np

from interplay.store.random import key


def generator(*parts: int | str) -> np.random.Generator:
    """The stream of numbers for these labels."""
    return np.random.Generator(np.random.PCG64(key(*parts)))
