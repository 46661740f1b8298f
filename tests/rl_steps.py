"""What RL did in a finished study: optimiser steps and weights of every RL stage; and the arms at smoke that may do without."""

import hashlib
import json
from pathlib import Path

from interplay.core import artifact
from interplay.study.plan import Plan, Stage

NO_STEPS: dict[tuple[str, str], str] = {
    (
        "interplay/modes",
        "strict",
    ): "50,000 tokens of prose teach no solution with every step right; the other arms are paid by answer"
}
"""(study, arm) -> why RL of this arm takes no optimiser step at smoke. An arm that steps may not be listed here."""

EQUAL_WEIGHTS: dict[tuple[str, str, str], str] = {
    ("methods/zero_variance", "grpo", "r3"): "R3 replays earlier right answers to a prompt; no prompt is drawn twice",
    ("methods/length_sign", "tokens", "hapo"): "HAPO compares with earlier right answers to a prompt; no prompt is drawn twice",
}
"""(study, arm, arm) -> why these two end with equal weights at smoke."""


def optimizer_steps(results: Path, stage: Stage) -> int:
    """All that the run made, over its rollout steps."""
    lines = (artifact.folder(results, stage.kind, stage.digest) / "metrics.jsonl").read_text().splitlines()
    return int(sum(json.loads(line)["optimizer_steps"] for line in lines))


def weights(results: Path, reference: str) -> str:
    """Checksum of the weights of a finished model or of one of its checkpoints."""
    digest, step = artifact.split_ref(reference)
    model = artifact.at_step(artifact.find(results, digest), step) / "model/model.safetensors"
    return hashlib.sha256(model.read_bytes()).hexdigest()


def rl_stages(plan: Plan) -> list[Stage]:
    return [stage for stage in plan.stages.values() if stage.kind == "rl"]


def arm(stage: Stage) -> str:
    """The arm that the stage is named after; others may share it."""
    return stage.label.split("/")[0]


def check(study: str, plan: Plan, results: Path) -> None:
    """Each RL stage took optimiser steps and ended with weights that are not those it began with, nor those of another RL stage,
    unless the tables above say so."""
    by_weights: dict[str, str] = {}
    for stage in rl_stages(plan):
        steps, end = optimizer_steps(results, stage), weights(results, stage.digest)
        moved = end != weights(results, stage.deps["init"])
        still = (study, arm(stage)) in NO_STEPS
        assert (steps == 0 and not moved) if still else (steps > 0 and moved), (
            f"{study}: {stage.label}: {steps} steps, moved: {moved}"
        )
        if not still:
            other = by_weights.setdefault(end, arm(stage))
            equal = other == arm(stage) or (study, other, arm(stage)) in EQUAL_WEIGHTS
            assert equal, f"{study}: {other} and {arm(stage)} end with equal weights"
