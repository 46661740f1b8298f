"""The step that writes solutions of several units (schema/steps/decompose.py)."""

from collections import Counter

import numpy as np

from interplay.data.steps.decompose import forward, goal_first
from interplay.data.steps.step import Inputs, Made, changed
from interplay.schema.op_dag import OpDag
from interplay.schema.steps.decompose import Units
from interplay.tasks.op_dag.graph import Problem
from interplay.tasks.op_dag.render import render
from interplay.tasks.op_dag.spoil import slip, wrong_answer
from interplay.tasks.row import Row


def units(spec: Units, rows: list[Row], inputs: Inputs) -> Made:
    """The rows in their order, their solutions in units. Counts: rows by number of units (units_1, ...), and of the attempts
    before the last those that err (wrong) and those that are right (redundant). Rows of other families, and of reverse problems,
    whose values are no plain numbers, are dropped and counted."""
    kept, counts = [], Counter[str]()
    for row in rows:
        problem = forward(row, counts)
        if problem is None:
            continue
        stream = inputs.random("units", row.origin, row.prompt)
        number = 1 + int(stream.choice(len(spec.shares), p=spec.shares))
        errs = [bool(stream.random() < spec.wrong) for _ in range(number - 1)]
        texts = [_wrong(problem, row, stream) if wrong else row.solution for wrong in errs]
        counts.update({f"units_{number}": 1, "wrong": sum(errs), "redundant": len(errs) - sum(errs)})
        kept.append(changed(row, spec.name, solution=spec.separator.join([*texts, row.solution])))
    return Made(kept, dict(+counts))


def _wrong(problem: Problem, row: Row, stream: np.random.Generator) -> str:
    """An attempt that errs in one operation; where there is none to err in, one that names another answer in the end."""

    def draw() -> int:
        return int(stream.integers(2**32))

    seen = slip(problem, draw)
    if seen is None:
        return wrong_answer(problem, row.solution, draw)
    return render(seen, OpDag(trace="goal_first" if goal_first(row) else "leaf_first")).solution
