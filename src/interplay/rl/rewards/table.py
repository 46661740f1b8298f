"""The table of rewards, by the `name` of their spec."""

from collections.abc import Callable, Sequence

from interplay.rl import custom
from interplay.rl.rewards.citation import citation
from interplay.rl.rewards.outcome import formatted, outcome, payoff
from interplay.rl.rewards.process import process
from interplay.rl.rewards.reward import Rewards
from interplay.rl.rewards.steps import steps
from interplay.rl.rewards.subproblems import subproblem
from interplay.rl.rewards.text import text_match
from interplay.schema.custom import Custom
from interplay.schema.reward import Reward
from interplay.tasks.verdict import Verdict


def own(spec: Custom, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """The study's own function (`interplay.rl.custom`)."""
    return Rewards(custom.reward(spec, problems, completions, verdicts), {})


MEMBERS: dict[str, Callable[..., Rewards]] = {
    "outcome": outcome,
    "format": formatted,
    "payoff": payoff,
    "process": process,
    "subproblems": subproblem,
    "steps": steps,
    "text": text_match,
    "citation": citation,
    "custom": own,
}


def score(spec: Reward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, problems, completions, verdicts)
