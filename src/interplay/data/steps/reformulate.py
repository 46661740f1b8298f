"""Steps that put questions into other formats, with distractors (Cog-DRIFT, arXiv:2604.04767)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from interplay.data.steps import context_spec
from interplay.data.steps.step import Inputs, Made, changed
from interplay.tasks import reformulated
from interplay.tasks.op_dag.dag import loads
from interplay.tasks.reformulated import (
    CHOICES,
    CLOZE,
    HIDDEN,
    OPEN,
    TRUE_FALSE,
    Form,
    guess_chance,
    is_right,
    number_of,
    same_answer,
)
from interplay.tasks.verdict import EXACT_ONLY, Row, normalise

# Wrong answers that could be right: what makes a choice a choice.


WIDEST = 4
"""Largest gap between neighbours among near numbers."""
DRAWS = 40
"""Times the wanted number of answers that are drawn from other rows before the draw counts as failed."""


@dataclass(frozen=True)
class Source:
    """Where wrong answers come from."""

    kind: str
    """same_set or near."""
    answers: Sequence[str]
    """Answers of all rows, as often as they occur."""


def draw_distractor(source: Source, gold: str, modulus: int | None, count: int, rng: np.random.Generator) -> list[str]:
    """`count` wrong answers, no two of which mean the same, nor the gold; fewer where there are none."""
    if source.kind == "near":
        return _near(gold, modulus, count, rng)
    found: list[str] = []
    kind = _kind(gold)
    for place in rng.integers(len(source.answers), size=DRAWS * count):
        answer = source.answers[place]
        if _kind(answer) == kind and not any(same_answer(answer, other, modulus) for other in [gold, *found]):
            found.append(answer)
            if len(found) == count:
                break
    return found


def _kind(answer: str) -> tuple[bool, bool]:
    """Whether an answer is a number, and whether it is a yes or no: one of another kind than the gold is no option, for the
    question alone tells it from the gold."""
    return number_of(answer) is not None, normalise(answer) in EXACT_ONLY


def _near(gold: str, modulus: int | None, count: int, rng: np.random.Generator) -> list[str]:
    """Where there is a modulus other residues, each as likely; else whole numbers about the gold, at gaps that do not hang on
    which of the options it is: any closer choice would tell the gold by its place among the others."""
    value = number_of(gold)
    if value is None or gold != str(value):  # `20.0` or `$20` would stand out among plain numbers
        return []
    centre = int(value)
    if modulus:
        others = [residue for residue in range(modulus) if residue != centre % modulus]
        return [str(one) for one in rng.permutation(others)[:count]] if len(others) >= count else []
    if value.denominator != 1:
        return []
    places = np.concatenate([[0], np.cumsum(rng.integers(1, WIDEST + 1, size=count))]).tolist()
    ranks = [rank for rank, place in enumerate(places) if centre < 0 or centre >= place]
    first = centre - places[ranks[int(rng.integers(len(ranks)))]]
    return [str(first + place) for place in places if first + place != centre]


# One format for many questions: instances are drawn, checked, and drawn again; keys and truth are balanced over those that are
# valid.


CLOSED = ("reformulated", "subproblems")
"""Families whose rows are no open questions."""


class How(NamedTuple):
    """What the steps say about instances."""

    name: str
    """Of the step; enters the provenance and the keys of the draws."""
    distractors: str
    masked: tuple[float, float]
    attempts: int


class Reformed(NamedTuple):
    """Place among the given rows -> the row in its format; and why others have none."""

    rows: dict[int, Row]
    counts: dict[str, int]


Draw = Callable[[Row, np.random.Generator], Form | None]


def reform(format: str, rows: Sequence[Row], inputs: Inputs, how: How) -> Reformed:
    """Every row that is an open question with a valid instance, in this format."""
    counts: Counter[str] = Counter()
    instances: dict[int, Form] = {}
    draw = _draw(format, rows, how)
    for place, row in enumerate(rows):
        if row.family in CLOSED or not row.answer:
            counts["not_open"] += 1
        elif found := _first_valid(row, draw, inputs, how, format):
            instances[place] = found
        else:
            counts[f"no_valid_{format}"] += 1
    order = sorted(instances, key=lambda place: int(inputs.random("balance", format, _name(rows[place])).integers(1 << 62)))
    for rank, place in enumerate(order):
        instances[place] = _balanced(instances[place], rank)
    return Reformed({place: _row(rows[place], form, how.name) for place, form in instances.items()}, dict(counts))


def _draw(format: str, rows: Sequence[Row], how: How) -> Draw:
    """How one instance of a row is drawn. Of true_false the statement is a wrong one at first; the balance makes half of them
    right."""
    source = Source(how.distractors, [row.answer for row in rows if row.answer and row.family not in CLOSED])
    if format in CHOICES:
        return lambda row, rng: _with_options(row, format, source, CHOICES[format], rng)
    if format == TRUE_FALSE:
        return lambda row, rng: _with_options(row, format, source, 2, rng)
    if format == CLOZE:
        return lambda row, rng: _with_mask(row, how.masked, rng)
    return lambda row, rng: Form(OPEN, row.family, row.graph, row.answer)


def _first_valid(row: Row, draw: Draw, inputs: Inputs, how: How, format: str) -> Form | None:
    for attempt in range(how.attempts):
        form = draw(row, inputs.random(how.name, format, _name(row), attempt))
        if form and valid(form):
            return form
    return None


def _with_options(row: Row, format: str, source: Source, count: int, rng: np.random.Generator) -> Form:
    wrong = draw_distractor(source, row.answer, modulus_of(row), count - 1, rng)
    options = tuple(wrong[i] for i in rng.permutation(len(wrong)))
    return Form(format, row.family, row.graph, row.answer, (row.answer, *options), statement=options[0] if options else "")


def _with_mask(row: Row, masked: tuple[float, float], rng: np.random.Generator) -> Form | None:
    """A mask over letters and digits (of a number, digits); None where no number of them lies within the shares."""
    places = [place for place, character in enumerate(row.answer) if character.isalnum()]
    low, high = masked
    possible = [n for n in range(1, len(places)) if low <= n / len(places) <= high]
    if not possible or HIDDEN in row.answer:
        return None
    hidden = set(rng.permutation(places)[: possible[int(rng.integers(len(possible)))]].tolist())
    mask = "".join(HIDDEN if place in hidden else character for place, character in enumerate(row.answer))
    return Form(CLOZE, row.family, row.graph, row.answer, mask=mask)


def valid(form: Form) -> bool:
    """A choice has exactly its number of options, no two alike in meaning, one of them the gold, and no other is judged
    right; a statement is wrong where it should be; a mask hides part of the gold, shows the rest as it is, fits others, too."""
    if form.format in CHOICES or form.format == TRUE_FALSE:
        loaded = reformulated.loads(reformulated.dumps(form))
        modulus = loads(form.graph).modulus if form.family == "op_dag" else None
        pairs = [(a, b) for i, a in enumerate(form.options) for b in form.options[:i]]
        return (
            len(form.options) == CHOICES.get(form.format, 2)
            and not any(same_answer(a, b, modulus) for a, b in pairs)
            and [option for option in form.options if is_right(loaded, option)] == [form.gold]
        )
    if form.format == CLOZE:
        shown = [(a, b) for a, b in zip(form.mask, form.gold, strict=False) if a != HIDDEN]
        return (
            len(form.mask) == len(form.gold) != len(shown)
            and all(a == b for a, b in shown)
            and any(a.isalnum() for a, _ in shown)
            and guess_chance(form) < 1  # a mask that a single residue fits is the answer
        )
    return True


def modulus_of(row: Row) -> int | None:
    """Where two numbers are the same answer to a row when they leave the same rest."""
    return loads(row.graph).modulus if row.family == "op_dag" else None


def _balanced(form: Form, rank: int) -> Form:
    """The instance that is number `rank` in a random order: its key, or whether its statement holds, goes round."""
    if form.format in CHOICES:
        wrong = [option for option in form.options if option != form.gold]
        place = rank % len(form.options)
        return form._replace(options=(*wrong[:place], form.gold, *wrong[place:]), statement="")
    if form.format == TRUE_FALSE:
        return form._replace(options=(), statement=form.statement if rank % 2 else form.gold)
    return form


def _row(row: Row, form: Form, name: str) -> Row:
    if form.format == OPEN:
        return changed(row, name, mode=OPEN)
    prompt, solution, answer = reformulated.render(row, form)
    graph = reformulated.dumps(form)
    columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": graph}
    return changed(row, name, mode=form.format, family="reformulated", **columns)


def _name(row: Row) -> str:
    """What a row's draws are keyed by: its origin, and its prompt, since variants of one question share the origin."""
    return f"{row.origin}\x1e{row.prompt}"


# Steps that put questions into other formats (data/steps/context_spec.py).


FORMAT = {count: format for format, count in CHOICES.items()}
"""By number of options."""
ANY = (0.0, 1.0)
"""Share of masked characters for formats that mask none."""


def choice(spec: context_spec.Choice, rows: list[Row], inputs: Inputs) -> Made:
    """Multiple choice with balanced keys."""
    return _all(reform(FORMAT[spec.options], rows, inputs, How(spec.name, spec.distractors, ANY, spec.attempts)))


def cloze(spec: context_spec.Cloze, rows: list[Row], inputs: Inputs) -> Made:
    """A mask over the answer."""
    return _all(reform(CLOZE, rows, inputs, How(spec.name, "", spec.masked, spec.attempts)))


def true_false(spec: context_spec.TrueFalse, rows: list[Row], inputs: Inputs) -> Made:
    """Statements, half of which hold."""
    return _all(reform(TRUE_FALSE, rows, inputs, How(spec.name, spec.distractors, ANY, spec.attempts)))


def ladder(spec: context_spec.Ladder, rows: list[Row], inputs: Inputs) -> Made:
    """Each question in each valid format: questions in their order, formats from easy to hard."""
    how = How(spec.name, spec.distractors, spec.masked, spec.attempts)
    made = {format: reform(format, rows, inputs, how) for format in spec.formats}
    kept = [reformed.rows[place] for place in range(len(rows)) for reformed in made.values() if place in reformed.rows]
    counts = {name: count for reformed in made.values() for name, count in reformed.counts.items()}
    return Made(kept, counts | {format: len(reformed.rows) for format, reformed in made.items()})


def _all(made: Reformed) -> Made:
    return Made([made.rows[place] for place in sorted(made.rows)], made.counts)
