"""The reward that looks at the answer only."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards
from interplay.schema.reward import OutcomeReward
from interplay.tasks.verdict import Verdict


def outcome(spec: OutcomeReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """1 when the answer is right."""
    return Rewards([float(v.answer) for v in verdicts], {})
