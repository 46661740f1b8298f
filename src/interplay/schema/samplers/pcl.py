"""Prompt curriculum learning: prompts whose expected reward is near a threshold (PCL, arXiv:2510.01135)."""

from typing import Annotated, Literal

from pydantic import Field

from interplay.schema.base import Count, Model, Positive, Share


class ModelValue(Model):
    """V(x) of a language model with a linear head on the last token of the prompt, which starts as the policy and learns beside
    it, as published."""

    name: Literal["model"] = "model"
    learning_rate: Positive = 3e-4
    """Rate of its own AdamW, which makes one step for each step of the run."""


class BetaValue(Model):
    """V(x) = a / (a + b) of a Beta distribution per prompt, which sees no prompt but those that it remembers: a stand-in that
    costs nothing."""

    name: Literal["beta"] = "beta"
    rho: Share = 0.9
    """Factor on a and b at each further group of the prompt: what it was taught long ago counts less."""


class PclSampler(Model):
    """Look at several candidates for each prompt that is drawn and take those whose expected reward V(x) is nearest to `tau`,
    then teach V the rewards of the step. No rollout is spent on the choice, and V lags the policy by one step."""

    name: Literal["pcl"] = "pcl"
    candidates: Count = 4
    """Candidates per prompt that is drawn, k of the paper; they come by the mix, each prompt once per epoch."""
    tau: float = 0.5
    """Expected reward that is sought."""
    value: Annotated[ModelValue | BetaValue, Field(discriminator="name")] = ModelValue()
    """What foretells a prompt's reward."""
