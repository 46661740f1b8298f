"""Reward models: what a pair of completions says about how good either is."""

from typing import Annotated, Literal

from interplay.schema.base import Count, Model, Natural, NotNegative, Positive, Since
from interplay.schema.mix import Mix
from interplay.schema.tune import TuneSpec


class Routing(Model):
    """Which heads to trust is told by a few labelled pairs of a rater (MiCRo's second stage, arXiv:2505.24846): the weights start
    from the gate's at the prompt and are updated by Hedge, w_k <- w_k exp(-eta l_k), l_k the logistic loss of head k on a pair.
    (That a rater's pairs are drawn for each held-out pair anew, and eta, are inferred.)"""

    pairs: Count = 4
    """Labelled pairs of the same rater, asking something else, for each held-out pair; of the validation set itself."""
    eta: Positive = 1.0
    """Rate of the update; 1 is Bayes' rule."""


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
    routing: Annotated[Routing | None, Since(None)] = None
    """Also measure, at the end, the accuracy on held-out pairs with the heads weighed for their raters, `eval_routed_accuracy`,
    and what that adds, `eval_routing_gain`; needs pairs with raters (the step rated_pairs). null: not."""
    eval_every: Natural = 0
    """Steps between measures on the held-out pairs; 0: only at the end and at the kept checkpoints."""

    @property
    def rows_per_step(self) -> int:
        """Two completions a pair."""
        return 2 * self.pairs_per_step
