"""Steps that ask or solve a problem in another way: questions in other formats, with distractors (Cog-DRIFT, arXiv:2604.04767),
and split solutions of op_dag: subproblems, interventions, atoms, units."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from interplay.core import random
from interplay.core.random import integers_of
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.spec import split_of
from interplay.data.steps import context_spec as context
from interplay.tasks import reformulated
from interplay.tasks.op_dag import dag, terse, terse_variants
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.reformulated import CHOICES, CLOZE, HIDDEN, OPEN, TRUE_FALSE, Form, same_answer
from interplay.tasks.verdict import EXACT_ONLY, UNFINISHED, Row, normalise

# Distractors: plausible wrong answers.


MAX_GAP = 4
"""Largest gap between neighbours among near numbers."""
DRAWS = 40
"""Answers drawn from other rows, as a multiple of the wanted number, before the draw counts as failed."""


def draw_distractors(
    source: str, answers: Sequence[str], gold: str, modulus: int | None, count: int, rng: np.random.Generator
) -> list[str]:
    """`count` wrong answers, pairwise distinct in meaning and distinct from the gold; fewer where not enough are found. `source`:
    same_set or near; `answers`: of all rows, with repeats."""
    if source == "near":
        return _near_numbers(gold, modulus, count, rng)
    found: list[str] = []
    seen: set[str] = set()
    kind = _answer_kind(gold)
    for place in rng.integers(len(answers), size=DRAWS * count):
        answer = answers[place]
        if answer in seen:  # taken, or refused for what is taken still
            continue
        seen.add(answer)
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


def reformulate_rows(spec: Step, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Each question in each valid format of the step: questions in their order, formats from easy to hard. Counts: rows without
    an instance by reason, and of a ladder the instances of each format."""
    made = {format: rows_in_format(format, rows, inputs, spec) for format in _formats(spec)}
    kept = [of_format[place] for place in range(len(rows)) for of_format, _ in made.values() if place in of_format]
    counts = {name: count for _, missing in made.values() for name, count in missing.items()}
    if isinstance(spec, context.Ladder):
        counts |= {format: len(of_format) for format, (of_format, _) in made.items()}
    return StepResult(kept, counts)


def _formats(spec: Step) -> Sequence[str]:
    match spec:
        case context.Ladder():
            return spec.formats
        case context.Choice():
            return [format for format, count in CHOICES.items() if count == spec.options]
    return [spec.name]


def rows_in_format(format: str, rows: Sequence[Row], inputs: StepInputs, spec: Step) -> tuple[dict[int, Row], dict[str, int]]:
    """Every open question with a valid instance, in this format, by the number of its row; and counts of the reasons why others
    have none."""
    counts: Counter[str] = Counter()
    instances: dict[int, Form] = {}
    answers = [row.answer for row in rows if row.answer and row.family not in CLOSED]
    for place, row in enumerate(rows):
        if row.family in CLOSED or not row.answer:
            counts["not_open"] += 1
        elif found := _first_valid(row, answers, inputs, spec, format):
            instances[place] = found
        else:
            counts[f"no_valid_{format}"] += 1
    return _balanced_rows(rows, instances, spec.name, lambda row: inputs.random("balance", format, _draw_key(row))), dict(counts)


def _balanced_rows(
    rows: Sequence[Row], instances: dict[int, Form], name: str, stream: Callable[[Row], np.random.Generator]
) -> dict[int, Row]:
    """The rows of valid instances, their keys in rotation in a random order."""
    order = sorted(instances, key=lambda place: int(stream(rows[place]).integers(1 << 62)))
    balanced = {place: _balance(instances[place], rank) for rank, place in enumerate(order)}
    return {place: _reformulated_row(rows[place], balanced[place], name) for place in instances}


def choices_of(rows: Sequence[Row], wrong: Sequence[Sequence[str]], options: int, name: str, seed: int) -> dict[int, Row]:
    """Open questions as multiple choice with given wrong answers, of which the first that fit are taken: of the gold's kind, and
    distinct in meaning. By number of the row; those with too few have none."""
    format, instances = next(form for form, count in CHOICES.items() if count == options), dict[int, Form]()
    for place, row in enumerate(rows):
        if row.family in CLOSED or not row.answer:
            continue
        modulus, found = reformulated.modulus_of(row.family, row.graph), list[str]()
        for text in wrong[place]:
            fits = _answer_kind(text) == _answer_kind(row.answer)
            if fits and len(found) < options - 1 and not any(same_answer(text, one, modulus) for one in [row.answer, *found]):
                found.append(text)
        form = Form(format, row.family, row.graph, row.answer, (row.answer, *found))
        if len(found) == options - 1 and is_valid(form):
            instances[place] = form
    return _balanced_rows(rows, instances, name, lambda row: random.generator(name, seed, "balance", _draw_key(row)))


def _first_valid(row: Row, answers: Sequence[str], inputs: StepInputs, spec: Step, format: str) -> Form | None:
    for attempt in range(spec.attempts):
        form = _draw_form(row, answers, inputs.random(spec.name, format, _draw_key(row), attempt), spec, format)
        if form and is_valid(form):
            return form
    return None


def _draw_form(row: Row, answers: Sequence[str], rng: np.random.Generator, spec: Step, format: str) -> Form | None:
    """One instance of a row. Statements of true_false are wrong at first; balancing makes half of them right."""
    if format == OPEN:
        return Form(OPEN, row.family, row.graph, row.answer)
    if isinstance(spec, context.Cloze) or (isinstance(spec, context.Ladder) and format == CLOZE):
        return _with_mask(row, spec.masked, rng)
    return _with_options(row, format, spec.distractors, answers, rng)


def _with_options(row: Row, format: str, source: str, answers: Sequence[str], rng: np.random.Generator) -> Form:
    modulus, count = reformulated.modulus_of(row.family, row.graph), CHOICES.get(format, 2) - 1
    wrong = draw_distractors(source, answers, row.answer, modulus, count, rng)
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
        modulus = reformulated.modulus_of(form.family, form.graph)
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


def wrong_options(row: Row) -> list[str]:
    """The wrong options of a row of multiple choice."""
    form = reformulated.read_form(row.graph)
    return [option for option in form.options if option != form.gold]


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


# Split solutions of op_dag. All steps drop and count rows of other families, and of reverse problems, whose intermediate values
# are not plain numbers.


def make_subproblems(spec: context.Subproblems, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows that ask for K values in order."""
    kept, counts = [], Counter[str]()
    for row, problem in forward_problems(rows, counts):
        asked = terse_variants.asked_nodes(problem, None if spec.k == "all" else spec.k)
        if len(asked) < 2:
            counts["single_value"] += 1
            continue
        made = terse_variants.Parts(problem, asked)
        prompt, solution = terse_variants.render(made, row.prompt, is_goal_first(row))
        columns = {"prompt": prompt, "solution": solution, "graph": terse_variants.dumps(made)}
        kept.append(transform_row(row, spec.name, mode="subproblems", family="subproblems", **columns))
    return StepResult(kept, dict(counts))


def make_interventions(spec: context.Intervention, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows whose solution is a sampled one up to its first wrong step, then the right step; without `suffix` their mode is
    UNFINISHED, for which data.corpus adds no end token."""
    kept, counts = [], Counter[str]()
    for row, problem in forward_problems(rows, counts):
        wrong = [sample["completion"] for sample in inputs.samples.get((row.set, row.index), []) if not sample["answer"]]
        counts["wrong_samples"] += len(wrong)
        found: list[str] = []
        for completion in dict.fromkeys(wrong):
            repaired = terse_variants.repair(problem, completion, is_goal_first(row))
            reason = "no_wrong_step" if repaired is None else "gives_the_answer" if repaired.answers else ""
            if reason or repaired is None:
                counts[reason] += 1
            elif (text := _intervention_text(spec, repaired)) not in found:
                found.append(text)
            if len(found) == spec.per_problem:
                break
        counts["without_intervention"] += not found
        mode = row.mode if spec.suffix else UNFINISHED
        kept += [transform_row(row, spec.name, solution=text, mode=mode) for text in found]
    return StepResult(kept, dict(+counts))


def _intervention_text(spec: context.Intervention, made: terse_variants.Repair) -> str:
    return (made.prefix if spec.prefix else "") + made.step + (made.suffix if spec.suffix else "")


def make_atoms(spec: context.Atoms, rows: list[Row], inputs: StepInputs) -> StepResult:
    """For each necessary node with parents, a problem that gives the values of the parents and asks for its own. An atom of
    another split than that of its problem is dropped, since a set of that split may contain it."""
    kept, counts, seen = [], Counter[str](), set[str]()
    for row, problem in forward_problems(rows, counts):
        for place in range(problem.necessary):
            atom = _make_atom(problem, place, inputs.random("atoms", row.origin, place))
            if atom is None:
                continue
            structure = dag.structure(atom)
            if split_of(structure) != split_of(row.key):
                counts["other_split"] += 1
                continue
            if spec.unique and structure in seen:
                counts["repeats"] += 1
                continue
            seen.add(structure)
            prompt, solution, answer = terse.render(atom, _task_of(row))
            columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": dag.dumps(atom)}
            kept.append(transform_row(row, spec.name, op=atom.op, key=structure, **columns))
    return StepResult(kept, dict(counts))


def _make_atom(problem: dag.Problem, place: int, rng: np.random.Generator) -> dag.Problem | None:
    """The definition of one node over leaves that hold its parents' values; None for a leaf."""
    node = problem.nodes[place]
    if not node.parents:
        return None
    leaves = tuple(dag.Node(problem.nodes[parent].name, "", (), problem.values[parent]) for parent in node.parents)
    nodes = (*leaves, node._replace(parents=tuple(range(len(leaves)))))
    values = (*(problem.values[parent] for parent in node.parents), problem.values[place])
    order = tuple(rng.permutation(len(nodes)).tolist())
    return dag.Problem(
        dag.FORWARD, problem.modulus, nodes, len(nodes), values, (0,) * len(nodes), order, filler=(0,) * (len(nodes) + 1)
    )


def is_goal_first(row: Row) -> bool:
    """Whether the gold solution of a forward row unfolds the goal before it evaluates."""
    return terse.SECTION in row.solution


def _task_of(row: Row) -> OpDag:
    """A task with the trace order of the row."""
    return OpDag(trace="goal_first" if is_goal_first(row) else "leaf_first")


def forward_problems(rows: list[Row], counts: Counter[str]) -> Iterator[tuple[Row, dag.Problem]]:
    """The rows of forward problems of op_dag, with their problems; other rows are counted by the reason."""
    for row in rows:
        problem = dag.loads(row.graph) if row.family == "op_dag" else None
        if problem is None or problem.mode != dag.FORWARD:
            counts["not_op_dag" if problem is None else "reverse"] += 1
        else:
            yield row, problem


# Solutions of several units.


def make_units(spec: context.Units, rows: list[Row], inputs: StepInputs) -> StepResult:
    """The rows in order, with solutions of several units. Counts: rows by number of units (units_1, ...), and wrong and right
    (redundant) attempts before the last one."""
    kept, counts = [], Counter[str]()
    for row, problem in forward_problems(rows, counts):
        stream = inputs.random("units", row.origin, row.prompt)
        number = 1 + int(stream.choice(len(spec.shares), p=spec.shares))
        wrong = [bool(stream.random() < spec.wrong) for _ in range(number - 1)]
        texts = [_wrong_attempt(problem, row, stream) if is_wrong else row.solution for is_wrong in wrong]
        counts.update({f"units_{number}": 1, "wrong": sum(wrong), "redundant": len(wrong) - sum(wrong)})
        kept.append(transform_row(row, spec.name, solution=spec.separator.join([*texts, row.solution])))
    return StepResult(kept, dict(+counts))


def _wrong_attempt(problem: dag.Problem, row: Row, stream: np.random.Generator) -> str:
    """An attempt with an error in one operation; where there is no operation, one that ends in another answer."""
    draw = integers_of(stream)
    seen = terse_variants.with_wrong_operation(problem, draw)
    if seen is None:
        return terse_variants.with_wrong_answer(problem, row.solution, draw)
    return terse.render(seen, _task_of(row)).solution
