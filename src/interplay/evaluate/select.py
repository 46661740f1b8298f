"""The `select` stage: the best of the kept checkpoints of a stage, as a model."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from interplay.core import artifact, execution, metrics
from interplay.core.model import UserError, nearest_name
from interplay.evaluate.sampling import NATS
from interplay.evaluate.spec import ENTROPY, SelectSpec
from interplay.tasks.verdict import pass_at_k


def select_checkpoint(spec: SelectSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `choice.json` (every candidate's value and the chosen one) and `model/`, a copy. Roles: see SelectSpec.

    Raises UserError where no candidate has a value."""
    trained = inputs["init"]
    last = int(artifact.record(trained)["metrics"]["steps"])
    steps = [*spec.candidates, last]
    values = (
        values_by_samples(spec, inputs, len(steps)) if "evaluation.0.0" in inputs else values_by_metrics(spec, trained, steps)
    )
    chosen = best_candidate(values, spec.mode, spec.target)
    if chosen is None:
        raise UserError(f"select: by = {spec.by!r}: no candidate of {trained} has a value that is a number")
    model = trained / "model" if chosen == len(spec.candidates) else artifact.at_step(trained, steps[chosen]) / "model"
    (out / "model").mkdir(parents=True, exist_ok=True)
    for file in sorted(model.iterdir()):
        artifact.copy_atomic(file, out / "model" / file.name)
    rows = [{"step": step, "value": _finite(value)} for step, value in zip(steps, values, strict=True)]
    artifact.write_json(out / "choice.json", {"by": spec.by, "mode": spec.mode, "chosen": rows[chosen], "candidates": rows})
    return {**rows[chosen], "candidates": len(rows)}


def best_candidate(values: list[float], mode: str, target: float | None = None) -> int | None:
    """Index of the smallest value, the largest, or the one nearest to `target`, the first of equals; None where all are NaN.
    Infinite losses count as numbers."""
    rank = {"min": lambda value: value, "max": lambda value: -value, "nearest": lambda value: abs(value - (target or 0.0))}[mode]
    numbers = [(rank(value), place) for place, value in enumerate(values) if not math.isnan(value)]
    return min(numbers)[1] if numbers else None


def values_by_metrics(spec: SelectSpec, trained: Path, steps: list[int]) -> list[float]:
    """The value of the key in metrics.jsonl at each step; NaN where a step has none. Raises UserError when no line has the
    key."""
    lines = [line for line in metrics.read(trained) if spec.by in line]
    if not lines:
        known = sorted({key for line in metrics.read(trained) for key in line} - {"step"})
        raise UserError(f"select: by = {spec.by!r}: {trained / 'metrics.jsonl'} has no such key{nearest_name(spec.by, known)}")
    found = {line["step"]: float(line[spec.by]) for line in lines}
    return [found.get(step, math.nan) for step in steps]


def values_by_samples(spec: SelectSpec, inputs: dict[str, Path], candidates: int) -> list[float]:
    """Mean pass rate of each candidate over the problems of the band, or the entropy of its samples; the blocks of an evaluation
    count as one."""
    values = []
    for number in range(candidates):
        blocks = [path for role, path in sorted(inputs.items()) if role.startswith(f"evaluation.{number}.")]
        values.append(_entropy(spec, blocks) if spec.by == ENTROPY else _pass_rate(spec, blocks))
    return values


def _entropy(spec: SelectSpec, blocks: list[Path]) -> float:
    """Nats per token of the samples."""
    samples = _band_samples(spec, blocks, [NATS, "length"])
    return metrics.round_significant(samples[NATS].astype(float).sum() / samples["length"].sum())


def _pass_rate(spec: SelectSpec, blocks: list[Path]) -> float:
    column, k = spec.by.split("_pass@")
    grouped = _band_samples(spec, blocks, ["index", column]).groupby("index")[column]
    counts = zip(grouped.size().tolist(), grouped.sum().tolist(), strict=True)
    rates = [pass_at_k(int(n), int(passes), int(k)) for n, passes in counts]
    return metrics.round_significant(float(np.mean(rates)))


def _band_samples(spec: SelectSpec, blocks: list[Path], columns: list[str]) -> pd.DataFrame:
    """These columns of the samples of the spec's band. Raises UserError where it has none."""
    samples = pd.concat([pd.read_parquet(block / "samples.parquet", columns=["band", *columns]) for block in blocks])
    counted = samples[samples["band"] == spec.band] if spec.band else samples
    if not len(counted):
        bands = sorted(set(samples["band"]))
        raise UserError(f"select: band = {spec.band!r}: the evaluation has no problem of it{nearest_name(str(spec.band), bands)}")
    return counted


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
