"""The `curate` stage: mix the rows of problem sets, then do each step to them. Every row keeps its origin and the names of the
steps that changed it, and the record says how many rows each step was given, left, and dropped for which reason."""

from pathlib import Path
from typing import Any

from interplay.data import sets
from interplay.data.steps.step import Inputs
from interplay.data.steps.table import STEPS
from interplay.schema.base import PermanentError
from interplay.schema.curate import CurateSpec
from interplay.schema.mix import largest_remainder
from interplay.schema.run import Run
from interplay.store.generator import generator
from interplay.store.random import key
from interplay.tasks.row import Row


def run(spec: CurateSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet`. Raises PermanentError when no row is left."""
    rows = mix([sets.rows(inputs[f"data.{i}"], i) for i in range(len(spec.mix))], spec)
    mixed, done = len(rows), []
    for number, step in enumerate(spec.steps):
        made = STEPS[step.name](step, rows, Inputs(number, inputs, key("curate", spec.seed, number, step.name)))
        done.append({"step": step.name, "given": len(rows), "left": len(made.rows), **made.counts})
        rows = made.rows
        if not rows:
            raise PermanentError(f"curate: step {number} ({step.name}) leaves none of {done[-1]['given']} rows: {made.counts}")
    sets.write(sets.of_rows(rows), out)
    return {"mixed": mixed, "size": len(rows), "steps": done}


def mix(each: list[list[Row]], spec: CurateSpec) -> list[Row]:
    """Rows of the sets in their shares, no row twice, in an order drawn from the seed. Counts by largest remainder. Raises
    PermanentError when a set has fewer rows than its share of `size`."""
    most = min(len(rows) / share for rows, share in zip(each, spec.mix, strict=True) if share > 0)
    counts = largest_remainder(spec.mix, spec.size or int(most + 1e-9))
    taken: list[Row] = []
    for number, (rows, count) in enumerate(zip(each, counts, strict=True)):
        if count > len(rows):
            raise PermanentError(f"curate: size = {spec.size}: data.{number} has {len(rows)} rows and should give {count}")
        order = generator("curate", spec.seed, "mix", number).permutation(len(rows))
        taken += [rows[i] for i in order[:count]]
    order = generator("curate", spec.seed, "order").permutation(len(taken))
    return [taken[i] for i in order]
