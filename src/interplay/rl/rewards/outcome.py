"""Rewards that look at how it ended only."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards
from interplay.schema.reward import OutcomeReward, PayoffReward
from interplay.tasks.verdict import Verdict


def outcome(spec: OutcomeReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """1 when the answer is right."""
    return Rewards([float(v.answer) for v in verdicts], {})


def payoff(spec: PayoffReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """2 s - 1, s the score."""
    return Rewards([2 * float(v.score) - 1 for v in verdicts], {"outcome": [float(v.answer) for v in verdicts]})
