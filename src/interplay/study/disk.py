"""The bytes that a plan's stages will leave on disk: from finished stages of their kind, else models by their parameters and
problems by stated sizes (study/rates.py)."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interplay.schema.cost import Cost
from interplay.schema.kinds import TRAINERS, TUNERS
from interplay.schema.run import Run
from interplay.store import artifact
from interplay.study import rates

FLOAT = 4
"""Bytes of a weight."""
STATES = 3
"""Weights and two moments of the optimiser: what an RL run keeps of its state, in weights of its model."""


def of_stage(stage: Mapping[str, Any], cost: Cost, items: float, family: str, measured: Sequence[float]) -> float | None:
    """Bytes of a stage as planned; None where nothing tells. `items`: the problems that it holds, or completions that it samples;
    `measured`: bytes per item of finished stages of its kind and family."""
    kind, spec = stage["kind"], stage["spec"]
    if kind in (*TRAINERS, *TUNERS, "rl", "teach", "select"):
        kept = len(set(spec.get("checkpoints") or ()))
        states = STATES if kind == "rl" and Run(**stage["run"]).keep_state else 0
        return cost.parameters * FLOAT * (1 + kept + states) if cost.parameters else None
    if measured and items:
        return items * statistics.median(measured)
    return rates.size(stage, items, family)


def written(folder: Path) -> int:
    """Bytes that a finished stage left, by its record."""
    return sum(size for size, _ in artifact.record(folder)["files"].values())
