"""One format for many questions: instances are drawn, checked, and drawn again; keys and truth are balanced over those that are
valid."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from interplay.data.steps import distractors
from interplay.data.steps.distractors import Source
from interplay.data.steps.step import Inputs, changed
from interplay.tasks import reformulated
from interplay.tasks.op_dag.graph import loads
from interplay.tasks.reformulated.chance import guess
from interplay.tasks.reformulated.equal import same
from interplay.tasks.reformulated.form import CHOICES, CLOZE, HIDDEN, OPEN, TRUE_FALSE, Form
from interplay.tasks.reformulated.verify import right
from interplay.tasks.row import Row

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
    wrong = distractors.draw(source, row.answer, modulus_of(row), count - 1, rng)
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
            and not any(same(a, b, modulus) for a, b in pairs)
            and [option for option in form.options if right(loaded, option)] == [form.gold]
        )
    if form.format == CLOZE:
        shown = [(a, b) for a, b in zip(form.mask, form.gold, strict=False) if a != HIDDEN]
        return (
            len(form.mask) == len(form.gold) != len(shown)
            and all(a == b for a, b in shown)
            and any(a.isalnum() for a, _ in shown)
            and guess(form) < 1  # a mask that a single residue fits is the answer
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
