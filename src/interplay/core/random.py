"""Random streams keyed by what they are for, so that nothing depends on the order in which work is done."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def stream_key(*parts: int | str) -> int:
    """A 64-bit seed from any labels: equal labels give equal streams on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*parts: int | str) -> "np.random.Generator":
    """NumPy's stream of numbers for these labels. NumPy is imported here, since planning computes keys and imports no NumPy."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(stream_key(*parts)))
