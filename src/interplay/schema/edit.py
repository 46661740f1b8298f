"""Members of the edit seam: what is done to a batch before it is trained on."""

from typing import Literal

from interplay.schema.base import Count, Model


class DynamicSampling(Model):
    """Drop groups whose rewards are all equal and draw fresh prompts in their place (DAPO, arXiv:2503.14476)."""

    name: Literal["dynamic_sampling"] = "dynamic_sampling"
    max_num_gen_batches: Count = 3
    """Rounds of generation per step at most; 1 only drops."""


Edit = DynamicSampling
