"""pass@k arithmetic: the chance that at least one of k samples passes, estimated without bias from n samples."""

from typing import overload

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@overload
def pass_at_k(n: int, c: int, k: int) -> float: ...
@overload
def pass_at_k(n: Counts | int, c: Counts, k: int) -> NDArray[np.float64]: ...
def pass_at_k(n: Counts | int, c: Counts | int, k: int) -> NDArray[np.float64] | float:
    """1 - C(n-c, k) / C(n, k) for c passes among n samples (Chen et al., arXiv:2107.03374, equation 1).

    n and c are counts or arrays of counts, broadcast together. Raises ValueError unless 0 <= c <= n and 1 <= k <= n everywhere.
    """
    samples, passes = np.broadcast_arrays(np.asarray(n, dtype=np.int64), np.asarray(c, dtype=np.int64))
    if k < 1 or np.any(passes < 0) or np.any(passes > samples) or np.any(samples < k):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n everywhere (k={k})")
    drawn = np.arange(k)
    # The chance that the next sample drawn fails, given that those before it failed; 0 once the failures are used up.
    fails = np.clip((samples - passes)[..., None] - drawn, 0, None) / (samples[..., None] - drawn)
    return 1.0 - np.prod(fails, axis=-1)
