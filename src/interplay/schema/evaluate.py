"""Evaluation: the only place where a model runs over a problem set."""

from typing import Literal

from interplay.schema.base import Model
from interplay.schema.rl import Verify


class EvaluateSpec(Model):
    """Samples of one model over one problem set. Roles: `model` and `data`."""

    num_samples: int = 32
    """Completions per prompt (n of the unbiased pass@k)."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_completion_length: int = 256
    engine: Literal["native", "hf"] = "native"
    dtype: Literal["float32", "bfloat16"] = "float32"
    verify: Verify = Verify()
    seed: int = 0
