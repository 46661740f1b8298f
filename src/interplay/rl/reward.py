"""Reward seam: `(spec, problems, completions, verdicts) -> Rewards`. All lists hold N entries, one per completion."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from interplay.rl import custom
from interplay.schema.custom import Custom
from interplay.schema.reward import OutcomeReward, ProcessReward, Reward
from interplay.tasks.verdict import Verdict


class Rewards(NamedTuple):
    """`sequence`: N floats, what the policy is trained on; `parts`: what they were made of, N floats each, for the record."""

    sequence: list[float]
    parts: dict[str, list[float]]


def outcome(spec: OutcomeReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """1 when the answer is right."""
    return Rewards([float(v.answer) for v in verdicts], {})


def released_steps(verdict: Verdict) -> float:
    """R_pv as the authors' released code has it (arXiv:2512.07783): a node is charged for a wrong value and again for wrong
    parents, extra nodes cost (at most all there are to earn), and so does a wrong answer."""
    charged = verdict.value_mismatches + verdict.dependency_mismatches + verdict.missing + min(verdict.extra, verdict.nodes)
    return max(0.0, 1.0 - (charged + (not verdict.answer)) / verdict.nodes)


def process(spec: ProcessReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """The four forms of schema.rl.ProcessReward."""
    right = [float(v.answer) for v in verdicts]
    if spec.form == "strict":
        return Rewards([float(v.strict) for v in verdicts], {"outcome": right, "steps": [float(v.score) for v in verdicts]})
    steps = [float(v.score) if spec.form == "blend" else released_steps(v) for v in verdicts]
    blend = [spec.alpha * a + (1 - spec.alpha) * s for a, s in zip(right, steps, strict=True)]
    if spec.form == "blend_released":
        blend = [a * b for a, b in zip(right, blend, strict=True)]
    return Rewards(steps if spec.form == "dense" else blend, {"outcome": right, "steps": steps})


def own(spec: Custom, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """The study's own function (`interplay.rl.custom`)."""
    return Rewards(custom.reward(spec, problems, completions, verdicts), {})


MEMBERS: dict[str, Callable[..., Rewards]] = {"outcome": outcome, "process": process, "custom": own}


def score(spec: Reward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, problems, completions, verdicts)
