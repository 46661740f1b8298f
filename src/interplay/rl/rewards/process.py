"""Rewards that read the steps (arXiv:2512.07783, section 6)."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards
from interplay.schema.reward import ProcessReward
from interplay.tasks.verdict import Verdict


def released_steps(verdict: Verdict) -> float:
    """R_pv as the authors' released code has it (arXiv:2512.07783): a node is charged for a wrong value and again for wrong
    parents, extra nodes cost (at most all there are to earn), and so does a wrong answer."""
    charged = verdict.value_mismatches + verdict.dependency_mismatches + verdict.missing + min(verdict.extra, verdict.nodes)
    return max(0.0, 1.0 - (charged + (not verdict.answer)) / verdict.nodes)


def process(spec: ProcessReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """The four forms of schema.reward.ProcessReward."""
    right = [float(v.answer) for v in verdicts]
    if spec.form == "strict":
        return Rewards([float(v.strict) for v in verdicts], {"outcome": right, "steps": [float(v.score) for v in verdicts]})
    steps = [float(v.score) if spec.form == "blend" else released_steps(v) for v in verdicts]
    blend = [spec.alpha * a + (1 - spec.alpha) * s for a, s in zip(right, steps, strict=True)]
    if spec.form == "blend_released":
        blend = [a * b for a, b in zip(right, blend, strict=True)]
    return Rewards(steps if spec.form == "dense" else blend, {"outcome": right, "steps": steps})
