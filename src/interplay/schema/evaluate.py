"""Evaluation: the only place where a model runs over a problem set."""

from typing import Annotated, Literal

from interplay.schema.base import Count, Model, Natural, NotNegative, Share, Since
from interplay.schema.rl import Verify


class EvaluateSpec(Model):
    """Samples of one model over one problem set. Roles: `model` and `data`."""

    num_samples: Count = 32
    """Completions per prompt (n of the unbiased pass@k). Where a study asks for more than 32, the planner makes blocks
    of 32, a stage each, which the report reads as one, so that more samples repeat none."""
    first_sample: Annotated[int, Since(0)] = 0
    """Number of the first completion; the planner sets it for the blocks after the first."""
    temperature: NotNegative = 1.0
    top_p: Share = 1.0
    top_k: Natural = 0
    max_completion_length: Count = 256
    engine: Literal["native", "hf"] = "native"
    dtype: Literal["float32", "bfloat16"] = "float32"
    verify: Verify = Verify()
    seed: Natural = 0
