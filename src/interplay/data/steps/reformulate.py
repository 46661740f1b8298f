"""Steps that put questions into other formats, with distractors (Cog-DRIFT, arXiv:2604.04767)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps import context_spec as context
from interplay.tasks import reformulated
from interplay.tasks.op_dag.dag import loads
from interplay.tasks.reformulated import CHOICES, CLOZE, HIDDEN, OPEN, TRUE_FALSE, Form, same_answer
from interplay.tasks.verdict import EXACT_ONLY, Row, normalise

# Distractors: plausible wrong answers.


MAX_GAP = 4
"""Largest gap between neighbours among near numbers."""
DRAWS = 40
"""Answers drawn from other rows, as a multiple of the wanted number, before the draw counts as failed."""


@dataclass(frozen=True)
class Source:
    """The source of wrong answers."""

    distractors: str
    """same_set or near."""
    answers: Sequence[str]
    """Answers of all rows, with repeats."""


def draw_distractors(source: Source, gold: str, modulus: int | None, count: int, rng: np.random.Generator) -> list[str]:
    """`count` wrong answers, pairwise distinct in meaning and distinct from the gold; fewer where not enough are found."""
    if source.distractors == "near":
        return _near_numbers(gold, modulus, count, rng)
    found: list[str] = []
    kind = _answer_kind(gold)
    for place in rng.integers(len(source.answers), size=DRAWS * count):
        answer = source.answers[place]
        if _answer_kind(answer) == kind and not any(same_answer(answer, other, modulus) for other in [gold, *found]):
            found.append(answer)
            if len(found) == count:
                break
    return found


def _answer_kind(answer: str) -> tuple[bool, bool]:
    """(whether an answer is a number, whether it is a yes or no). An answer of another kind than the gold is no distractor, since
    the question alone excludes it."""
    return reformulated.number_of(answer) is not None, normalise(answer) in EXACT_ONLY


def _near_numbers(gold: str, modulus: int | None, count: int, rng: np.random.Generator) -> list[str]:
    """With a modulus, other residues, uniformly; else whole numbers near the gold, at gaps that do not depend on the rank of the
    gold among the options, since its position would otherwise give it away."""
    value = reformulated.number_of(gold)
    if value is None or gold != str(value):  # `20.0` or `$20` would differ from plain numbers
        return []
    centre = int(value)
    if modulus:
        others = [residue for residue in range(modulus) if residue != centre % modulus]
        return [str(one) for one in rng.permutation(others)[:count]] if len(others) >= count else []
    if value.denominator != 1:
        return []
    places = np.concatenate([[0], np.cumsum(rng.integers(1, MAX_GAP + 1, size=count))]).tolist()
    ranks = [rank for rank, place in enumerate(places) if centre < 0 or centre >= place]
    first = centre - places[ranks[int(rng.integers(len(ranks)))]]
    return [str(first + place) for place in places if first + place != centre]


# One format for many questions: instances are drawn and redrawn until valid; keys and truth values are balanced over valid ones.


CLOSED = ("reformulated", "subproblems")
"""Families whose rows are not open questions."""


Step = context.Choice | context.Cloze | context.TrueFalse | context.Ladder


class Reformulated(NamedTuple):
    """Number of a given row -> the row in its format; and counts of the reasons why others have none."""

    rows: dict[int, Row]
    counts: dict[str, int]


Draw = Callable[[Row, np.random.Generator], Form | None]


def reformulate_rows(spec: Step, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Each question in each valid format of the step: questions in their order, formats from easy to hard. Counts: rows without
    an instance by reason, and of a ladder the instances of each format."""
    made = {format: rows_in_format(format, rows, inputs, spec) for format in _formats(spec)}
    kept = [reformed.rows[place] for place in range(len(rows)) for reformed in made.values() if place in reformed.rows]
    counts = {name: count for reformed in made.values() for name, count in reformed.counts.items()}
    if isinstance(spec, context.Ladder):
        counts |= {format: len(reformed.rows) for format, reformed in made.items()}
    return StepResult(kept, counts)


def _formats(spec: Step) -> Sequence[str]:
    match spec:
        case context.Ladder():
            return spec.formats
        case context.Choice():
            return [format for format, count in CHOICES.items() if count == spec.options]
    return [spec.name]


def rows_in_format(format: str, rows: Sequence[Row], inputs: StepInputs, spec: Step) -> Reformulated:
    """Every open question with a valid instance, in this format."""
    counts: Counter[str] = Counter()
    instances: dict[int, Form] = {}
    draw = _instance_drawer(format, rows, spec)
    for place, row in enumerate(rows):
        if row.family in CLOSED or not row.answer:
            counts["not_open"] += 1
        elif found := _first_valid(row, draw, inputs, spec, format):
            instances[place] = found
        else:
            counts[f"no_valid_{format}"] += 1
    order = sorted(instances, key=lambda place: int(inputs.random("balance", format, _draw_key(rows[place])).integers(1 << 62)))
    for rank, place in enumerate(order):
        instances[place] = _balance(instances[place], rank)
    return Reformulated(
        {place: _reformulated_row(rows[place], form, spec.name) for place, form in instances.items()}, dict(counts)
    )


def _instance_drawer(format: str, rows: Sequence[Row], spec: Step) -> Draw:
    """The function that draws one instance of a row. Statements of true_false are wrong at first; balancing makes half of them
    right."""
    if format == OPEN:
        return lambda row, rng: Form(OPEN, row.family, row.graph, row.answer)
    if isinstance(spec, context.Cloze | context.Ladder) and format == CLOZE:
        return lambda row, rng: _with_mask(row, spec.masked, rng)
    answers = [row.answer for row in rows if row.answer and row.family not in CLOSED]
    source = Source("" if isinstance(spec, context.Cloze) else spec.distractors, answers)
    return lambda row, rng: _with_options(row, format, source, CHOICES.get(format, 2), rng)


def _first_valid(row: Row, draw: Draw, inputs: StepInputs, spec: Step, format: str) -> Form | None:
    for attempt in range(spec.attempts):
        form = draw(row, inputs.random(spec.name, format, _draw_key(row), attempt))
        if form and is_valid(form):
            return form
    return None


def _with_options(row: Row, format: str, source: Source, count: int, rng: np.random.Generator) -> Form:
    wrong = draw_distractors(source, row.answer, modulus_of(row), count - 1, rng)
    options = tuple(wrong[i] for i in rng.permutation(len(wrong)))
    return Form(format, row.family, row.graph, row.answer, (row.answer, *options), statement=options[0] if options else "")


def _with_mask(row: Row, masked: tuple[float, float], rng: np.random.Generator) -> Form | None:
    """A mask over letters and digits (of a number, digits); None where no number of them is within the shares."""
    places = [place for place, character in enumerate(row.answer) if character.isalnum()]
    low, high = masked
    possible = [n for n in range(1, len(places)) if low <= n / len(places) <= high]
    if not possible or HIDDEN in row.answer:
        return None
    hidden = set(rng.permutation(places)[: possible[int(rng.integers(len(possible)))]].tolist())
    mask = "".join(HIDDEN if place in hidden else character for place, character in enumerate(row.answer))
    return Form(CLOZE, row.family, row.graph, row.answer, mask=mask)


def is_valid(form: Form) -> bool:
    """Whether an instance is valid: a choice has exactly its number of options, pairwise distinct in meaning, of which only the
    gold is judged right; a wrong statement is wrong; a mask hides part of the gold, shows the rest, and fits other answers
    too."""
    if form.format in CHOICES or form.format == TRUE_FALSE:
        loaded = reformulated.loads(reformulated.dumps(form))
        modulus = loads(form.graph).modulus if form.family == "op_dag" else None
        pairs = [(a, b) for i, a in enumerate(form.options) for b in form.options[:i]]
        return (
            len(form.options) == CHOICES.get(form.format, 2)
            and not any(same_answer(a, b, modulus) for a, b in pairs)
            and [option for option in form.options if reformulated.is_right(loaded, option)] == [form.gold]
        )
    if form.format == CLOZE:
        shown = [(a, b) for a, b in zip(form.mask, form.gold, strict=False) if a != HIDDEN]
        return (
            len(form.mask) == len(form.gold) != len(shown)
            and all(a == b for a, b in shown)
            and any(a.isalnum() for a, _ in shown)
            and reformulated.guess_chance(form) < 1  # a mask that fits a single residue is the answer
        )
    return True


def modulus_of(row: Row) -> int | None:
    """The modulus up to which two numbers are the same answer to a row; None: none."""
    return loads(row.graph).modulus if row.family == "op_dag" else None


def _balance(form: Form, rank: int) -> Form:
    """The instance of number `rank` in a random order, with its key or truth value assigned in rotation."""
    if form.format in CHOICES:
        wrong = [option for option in form.options if option != form.gold]
        place = rank % len(form.options)
        return form._replace(options=(*wrong[:place], form.gold, *wrong[place:]), statement="")
    if form.format == TRUE_FALSE:
        return form._replace(options=(), statement=form.statement if rank % 2 else form.gold)
    return form


def _reformulated_row(row: Row, form: Form, name: str) -> Row:
    if form.format == OPEN:
        return transform_row(row, name, mode=OPEN)
    prompt, solution, answer = reformulated.render(row, form)
    graph = reformulated.dumps(form)
    columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": graph}
    return transform_row(row, name, mode=form.format, family="reformulated", **columns)


def _draw_key(row: Row) -> str:
    """Key of a row's random streams: its origin and its prompt, since variants of one question share the origin."""
    return f"{row.origin}\x1e{row.prompt}"
