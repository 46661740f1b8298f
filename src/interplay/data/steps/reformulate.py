"""Steps that put questions into other formats (schema/steps/reformulate.py)."""

from interplay.data.steps.reform import How, Reformed, reform
from interplay.data.steps.step import Inputs, Made
from interplay.schema.steps import reformulate as schema
from interplay.tasks.reformulated.form import CHOICES, CLOZE, TRUE_FALSE
from interplay.tasks.row import Row

FORMAT = {count: format for format, count in CHOICES.items()}
"""By number of options."""
ANY = (0.0, 1.0)
"""Share of masked characters for formats that mask none."""


def choice(spec: schema.Choice, rows: list[Row], inputs: Inputs) -> Made:
    """Multiple choice with balanced keys."""
    return _all(reform(FORMAT[spec.options], rows, inputs, How(spec.name, spec.distractors, ANY, spec.attempts)))


def cloze(spec: schema.Cloze, rows: list[Row], inputs: Inputs) -> Made:
    """A mask over the answer."""
    return _all(reform(CLOZE, rows, inputs, How(spec.name, "", spec.masked, spec.attempts)))


def true_false(spec: schema.TrueFalse, rows: list[Row], inputs: Inputs) -> Made:
    """Statements, half of which hold."""
    return _all(reform(TRUE_FALSE, rows, inputs, How(spec.name, spec.distractors, ANY, spec.attempts)))


def ladder(spec: schema.Ladder, rows: list[Row], inputs: Inputs) -> Made:
    """Each question in each valid format: questions in their order, formats from easy to hard."""
    how = How(spec.name, spec.distractors, spec.masked, spec.attempts)
    made = {format: reform(format, rows, inputs, how) for format in spec.formats}
    kept = [reformed.rows[place] for place in range(len(rows)) for reformed in made.values() if place in reformed.rows]
    counts = {name: count for reformed in made.values() for name, count in reformed.counts.items()}
    return Made(kept, counts | {format: len(reformed.rows) for format, reformed in made.items()})


def _all(made: Reformed) -> Made:
    return Made([made.rows[place] for place in sorted(made.rows)], made.counts)
