"""The `curate` stage: mix the rows of problem sets, then apply each step. The table of steps by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from interplay.core.execution import Run
from interplay.core.model import PermanentError
from interplay.core.random import generator, stream_key
from interplay.core.references import largest_remainder
from interplay.data import sets
from interplay.data.steps.chain import citation, keychain, long_context, needle
from interplay.data.steps.conflict import conflict_pairs, poison
from interplay.data.steps.decompose import atoms, intervention, parts, units
from interplay.data.steps.measured import difficulty, pass_rate, preference_pairs, rated_pairs, rejection_sampling
from interplay.data.steps.own import chat_template, own
from interplay.data.steps.reformulate import choice, cloze, ladder, true_false
from interplay.data.steps.sift import contamination, deduplicate, label_rows, length, take
from interplay.data.steps.spec import CurateSpec
from interplay.data.steps.step import Inputs, Made
from interplay.tasks.verdict import Row

# The table of curation steps, by the `name` of their spec.


STEPS: dict[str, Callable[[Any, list[Row], Inputs], Made]] = {
    "take": take,
    "pass_rate": pass_rate,
    "length": length,
    "deduplicate": deduplicate,
    "contamination": contamination,
    "label": label_rows,
    "difficulty": difficulty,
    "poison": poison,
    "custom": own,
    "keychain": keychain,
    "needle": needle,
    "long_context": long_context,
    "citation": citation,
    "chat_template": chat_template,
    "choice": choice,
    "cloze": cloze,
    "true_false": true_false,
    "ladder": ladder,
    "subproblems": parts,
    "intervention": intervention,
    "rejection_sampling": rejection_sampling,
    "preference_pairs": preference_pairs,
    "rated_pairs": rated_pairs,
    "conflict_pairs": conflict_pairs,
    "atoms": atoms,
    "units": units,
}


# The `curate` stage: mix the rows of problem sets, then do each step to them. Every row keeps its origin and the names of the
# steps that changed it, and the record says how many rows each step was given, left, and dropped for which reason.


def run(spec: CurateSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet`. Raises PermanentError when no row is left."""
    rows = mix([sets.rows(inputs[f"data.{i}"], i) for i in range(len(spec.mix))], spec)
    mixed, done = len(rows), []
    for number, step in enumerate(spec.steps):
        made = STEPS[step.name](step, rows, Inputs(number, inputs, stream_key("curate", spec.seed, number, step.name)))
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
