"""Prompts in the order of the angles between their token states (GAIN-RL, arXiv:2506.02281)."""

from typing import Literal

from pydantic import model_validator

from interplay.schema.base import Count, Model, NotNegative, Positive


class GainRlSampler(Model):
    """Rank prompts by how alike the initial policy's states of their tokens point, and draw around a rank mu that moves on as
    rewards rise: p is proportional to exp(-((rank - mu) / sigma)^2 / 2). After each step mu grows by
    step * (tanh(alpha * (reward - beta)) + tanh(alpha * angle)), held between `least` and `most`; reward and angle are means over
    the step's prompts."""

    name: Literal["gain_rl"] = "gain_rl"
    weight: NotNegative = 8.0
    """Weight of the mean cosine between question and fixed prefix against that within the question."""
    mu: NotNegative = 0.0
    """Rank to begin with; 0 has the highest score."""
    sigma: Positive = 1000.0
    """Spread in ranks."""
    step: NotNegative = 500.0
    """Ranks that either part of a move may cover."""
    alpha: Positive = 2.0
    """Steepness of both parts."""
    beta: float = 0.5
    """Mean reward, on a scale of 0 to 1, at which the first part changes sign."""
    least: NotNegative = 0.0
    """Smallest move."""
    most: NotNegative = 1000.0
    """Largest move."""
    reference: Count | None = None
    """Number of prompts that sigma, step, least and most are meant for: they are multiplied by the number there are over it; null
    takes them as they stand."""
    lag: Literal["old", "new"] = "new"
    """Whether a step draws around the mu before the last move (old) or after it (new); the released code does either."""

    @model_validator(mode="after")
    def _ordered(self) -> "GainRlSampler":
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) must not exceed most ({self.most})")
        return self
