"""Reward models: what a pair of completions says about how good either is."""

from typing import Literal

from interplay.schema.base import Count, Natural, NotNegative
from interplay.schema.mix import Mix
from interplay.schema.tune import TuneSpec


class RewardModelSpec(TuneSpec):
    """A reward model after Bradley and Terry: a model with a head that reads the state at the end of a completion. Roles: `init`
    (a model), `data.<i>` and `validation` (problem sets that hold pairs), and where the stage names an evaluation under
    `samples`, `samples.<b>` (its blocks) and `prompts` (its problems), among whose samples the best by reward are picked."""

    heads: Count = 1
    """Heads, each a rater with a taste of its own; the prompt says how much each counts. 1: one taste for all; more: the mixture
    of MiCRo's first stage (arXiv:2505.24846), for pairs whose raters disagree."""
    margin: Literal["none", "score"] = "none"
    """By how much the chosen reward should exceed the other. none: any; score: by as much as the verifier's scores of both differ
    (Llama 2, arXiv:2307.09288, eq. 2)."""
    center_rewards_coefficient: NotNegative = 0.0
    """Weight of the squared sum of a pair's rewards, which keeps them around 0 (TRL's name; arXiv:2312.09244, eq. 2)."""
    mix: Mix
    """Share of each `data.<i>` role among the pairs; sums to 1."""
    pairs_per_step: Count = 32
    """Pairs per optimiser step."""
    eval_every: Natural = 0
    """Steps between measures on the held-out pairs; 0: only at the end and at the kept checkpoints."""

    @property
    def rows_per_step(self) -> int:
        """Two completions a pair."""
        return 2 * self.pairs_per_step
