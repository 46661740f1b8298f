"""A target difficulty that moves with the reward (AdaRFT, arXiv:2504.05520)."""

from typing import Literal

from interplay.schema.base import Model, NotNegative, Positive


class AdaRftSampler(Model):
    """The prompts whose difficulty, on a scale of 0 to 100, is nearest to a target T. After each step T grows by
    eta * tanh(alpha * (reward - beta)), held within 0..100; reward is the mean over the step's prompts. A prompt comes again when
    all have come (whether the paper repeats them sooner was not found)."""

    name: Literal["ada_rft"] = "ada_rft"
    by: Literal["op", "pass_rate"] = "op"
    """op: 0 for the lowest `op` among the prompts, 100 for the highest; pass_rate: 100 times the failure rate of the samples
    under `offline`, as published."""
    target: NotNegative = 0.0
    """T at the first step."""
    eta: Positive = 50.0
    """Longest move of T."""
    alpha: Positive = 2.0
    """Steepness around beta."""
    beta: float = 0.5
    """Mean reward at which T stays."""
