"""The critic: what foretells, at each token, the reward that is to come."""

from typing import Literal

from interplay.schema.base import Count, Model, Natural, NotNegative, Share


class ValueHead(Model):
    """A network apart from the policy, which begins with its weights, with a linear head on the state before each token (PPO,
    arXiv:1707.06347). Its rate follows the policy's schedule."""

    name: Literal["value_head"] = "value_head"
    learning_rate: NotNegative = 3e-4
    """Of its AdamW."""
    gamma: Share = 1.0
    """Discount of a token in what it is to foretell."""
    lam: Share = 0.95
    """It learns lambda-returns; 1: the rewards themselves (Monte Carlo)."""
    cliprange_value: NotNegative = 0.2
    """A value that has moved further than this in a step is not pulled on; 0: no limit."""
    num_iterations: Count = 1
    """Optimiser steps on each batch."""
    warmup_steps: Natural = 0
    """First steps of the run in which it alone learns."""
