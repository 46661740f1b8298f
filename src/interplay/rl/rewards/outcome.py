"""Rewards that look at how it ended only."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards
from interplay.schema.reward import FormatReward, OutcomeReward, PayoffReward
from interplay.tasks.verdict import Verdict


def outcome(spec: OutcomeReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """1 when the answer is right."""
    return Rewards([float(v.answer) for v in verdicts], {})


UNREADABLE = ("truncated", "parse", "format", "unboxed", "dumped")
"""Errors of completions whose form is wrong."""


def formatted(spec: FormatReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """(1 - weight) outcome + weight form."""
    right, form = [float(v.answer) for v in verdicts], [float(v.error not in UNREADABLE) for v in verdicts]
    paid = [(1 - spec.weight) * a + spec.weight * b for a, b in zip(right, form, strict=True)]
    return Rewards(paid, {"outcome": right, "form": form})


def payoff(spec: PayoffReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """2 s - 1, s the score."""
    return Rewards([2 * float(v.score) - 1 for v in verdicts], {"outcome": [float(v.answer) for v in verdicts]})
