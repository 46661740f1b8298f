"""The step that spoils a share of the rows. What a row is judged by, its graph and answer, stays true."""

from collections.abc import Sequence

import numpy as np

from interplay.data.steps.step import Inputs, Made, changed
from interplay.schema.base import PermanentError
from interplay.schema.steps.spoil import Poison
from interplay.schema.verify import Verify
from interplay.tasks import op_dag
from interplay.tasks.answer import BOX
from interplay.tasks.multihop import spoil as documents
from interplay.tasks.op_dag import spoil as graphs
from interplay.tasks.op_dag.stream import Draw
from interplay.tasks.row import Row
from interplay.tasks.table import item, judge

FEW = 64
"""Rows from whose answers a wrong one is drawn."""
FEWER = 4
"""Rows from whose documents a foreign sentence is drawn."""


def poison(spec: Poison, rows: list[Row], inputs: Inputs) -> Made:
    """The rows in their order, round(ratio * rows) of them spoiled, with `poison:<kind>` among their transforms. Counts:
    poisoned, and rows that were drawn and cannot be. Raises PermanentError where too few can."""
    wanted, cannot = round(spec.ratio * len(rows)), 0
    spoiled: dict[int, Row] = {}
    donors = sorted(rows, key=lambda row: (row.origin, row.prompt))
    letters = graphs.letters([row.prompt for row in rows if row.family == "op_dag"])
    places = [float(_stream(inputs, row, "which").random()) for row in rows] if wanted else []
    for number in np.argsort(places, kind="stable").tolist():
        if len(spoiled) == wanted:
            break
        made = spoil(spec, rows[number], donors, letters, _stream(inputs, rows[number], "how"))
        cannot += made is None
        if made is not None:
            spoiled[number] = made
    if len(spoiled) < wanted:
        raise PermanentError(
            f"curate: step {inputs.number} (poison): ratio = {spec.ratio:g} asks for {wanted} rows with {spec.kind}; "
            f"{len(spoiled)} of {len(rows)} can have it"
        )
    return Made([spoiled.get(number, row) for number, row in enumerate(rows)], {"poisoned": wanted, "cannot": cannot})


def spoil(spec: Poison, row: Row, donors: Sequence[Row], letters: str, stream: np.random.Generator) -> Row | None:
    """The row with the kind of poison; None where it cannot have it. `donors`: rows whose answers and sentences may be used."""

    def draw() -> int:
        return int(stream.integers(2**32))

    true_first = spec.resolve == "first" or (spec.resolve == "none" and draw() % 2 == 0)
    made = (_graph if row.family == "op_dag" else _text)(spec, row, donors, letters, true_first, draw)
    column = "solution" if spec.kind == "answer" else "prompt"
    return None if made is None else changed(row, f"poison:{spec.kind}", **{column: made})


def _graph(spec: Poison, row: Row, donors: Sequence[Row], letters: str, true_first: bool, draw: Draw) -> str | None:
    """The new solution (answer) or prompt of an op_dag row."""
    problem = op_dag.loads(row.graph)
    if spec.kind == "answer":
        return graphs.wrong_answer(problem, row.solution, draw)
    if spec.kind == "conflict":
        return graphs.conflict(problem, row.prompt, true_first, draw)
    return graphs.irrelevant(problem, row.prompt, letters, draw)


def _text(spec: Poison, row: Row, donors: Sequence[Row], letters: str, true_first: bool, draw: Draw) -> str | None:
    """The new solution (answer) or prompt of a row of prose."""
    asked, some = item(row), [donors[draw() % len(donors)] for _ in range(FEW)]
    if spec.kind == "irrelevant":
        return documents.irrelevant(asked, row.prompt, _sentences(some[:FEWER]), draw) if asked else None
    others = _wrong(row, sorted({other.answer for other in some}))
    if spec.kind == "answer":
        return documents.wrong_answer(row.solution, asked.answers if asked else [row.answer], others, draw)
    return documents.conflict(asked, row.prompt, others, true_first, draw) if asked else None


def _wrong(row: Row, answers: Sequence[str]) -> list[str]:
    """Those of the answers that the row's own judge does not take for right, as it takes 1/2 beside 0.5 and every alias."""
    module, before = judge(row.family), row.solution.rpartition(BOX)[0]  # what stands before may be part of the format
    problem = module.loads(row.graph)
    return [answer for answer in answers if not module.verify(problem, f"{before}{BOX}{answer}}}", Verify()).answer]


def _sentences(rows: Sequence[Row]) -> list[str]:
    """Sentences of the documents of these rows, without repeats."""
    found = (item(row) for row in rows)
    texts = {one.strip() for asked in found if asked for paragraph in asked.paragraphs for one in paragraph.sentences}
    return sorted(text for text in texts if text.endswith("."))


def _stream(inputs: Inputs, row: Row, what: str) -> np.random.Generator:
    return inputs.random(what, row.origin, row.prompt)
