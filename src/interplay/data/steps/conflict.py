"""Steps that corrupt rows (poison) or put contexts before questions whose facts a model memorised (KnowPO, arXiv:2408.03297)."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from interplay.core import model, random
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps.context_spec import ConflictPairs
from interplay.data.steps.spec import Poison
from interplay.tasks import family, multihop, spec as tasks_spec
from interplay.tasks.facts import chains, people, questions
from interplay.tasks.families import judge_family, multihop_item
from interplay.tasks.op_dag import dag, terse_variants
from interplay.tasks.verdict import BOX, Row, closing_brace

# Poison: a share of the rows is corrupted. The graph and answer that a row is judged by stay true.


ANSWER_DONORS = 64
"""Rows from whose answers a wrong one is drawn."""
SENTENCE_DONORS = 4
"""Rows from whose documents an irrelevant sentence is drawn."""
POISONED_COLUMN = {"answer": "solution", "conflict": "prompt", "irrelevant": "prompt"}
"""Kind of poison -> the column that it changes."""


def poison_rows(spec: Poison, rows: list[Row], inputs: StepInputs) -> StepResult:
    """The rows in order, round(ratio * rows) of them poisoned, with `poison:<kind>` among their transforms. Counts: poisoned, and
    drawn rows that cannot be (cannot). Raises PermanentError where too few can."""
    wanted, cannot = round(spec.ratio * len(rows)), 0
    poisoned: dict[int, Row] = {}
    donors = sorted(rows, key=lambda row: (row.origin, row.prompt))
    letters = terse_variants.used_letters([row.prompt for row in rows if row.family == "op_dag"])
    places = [float(_row_stream(inputs, row, "which").random()) for row in rows] if wanted else []
    for number in np.argsort(places, kind="stable").tolist():
        if len(poisoned) == wanted:
            break
        made = poison_row(spec, rows[number], donors, letters, _row_stream(inputs, rows[number], "how"))
        cannot += made is None
        if made is not None:
            poisoned[number] = made
    if len(poisoned) < wanted:
        raise model.PermanentError(
            f"curate: step {inputs.number} (poison): ratio = {spec.ratio:g} needs {wanted} rows with {spec.kind}; "
            f"{len(poisoned)} of {len(rows)} can be changed so; lower the ratio"
        )
    return StepResult([poisoned.get(number, row) for number, row in enumerate(rows)], {"poisoned": wanted, "cannot": cannot})


def poison_row(spec: Poison, row: Row, donors: Sequence[Row], letters: str, stream: np.random.Generator) -> Row | None:
    """The poisoned row; None where it cannot be. `donors`: rows whose answers and sentences may be used."""
    draw = random.integers_of(stream)
    true_first = spec.resolve == "first" or (spec.resolve == "none" and draw() % 2 == 0)
    made = (_poison_graph if row.family == "op_dag" else _poison_text)(spec, row, donors, letters, true_first, draw)
    return None if made is None else transform_row(row, f"poison:{spec.kind}", **{POISONED_COLUMN[spec.kind]: made})


def _poison_graph(spec: Poison, row: Row, donors: Sequence[Row], letters: str, true_first: bool, draw: random.Draw) -> str | None:
    """The new solution (answer) or prompt of an op_dag row."""
    problem = dag.loads(row.graph)
    match spec.kind:
        case "answer":
            return terse_variants.with_wrong_answer(problem, row.solution, draw)
        case "conflict":
            return terse_variants.with_conflict(problem, row.prompt, true_first, draw)
        case "irrelevant":
            return terse_variants.with_irrelevant(problem, row.prompt, letters, draw)


def _poison_text(spec: Poison, row: Row, donors: Sequence[Row], letters: str, true_first: bool, draw: random.Draw) -> str | None:
    """The new solution (answer) or prompt of a row of prose."""
    asked, some = multihop_item(row), [donors[draw() % len(donors)] for _ in range(ANSWER_DONORS)]
    wrong = partial(_wrong_answers, row, sorted({other.answer for other in some}))
    match spec.kind:
        case "answer":
            return with_wrong_answer(row.solution, asked.answers if asked else [row.answer], wrong(), draw)
        case "conflict":
            return with_conflict(asked, row.prompt, wrong(), true_first, draw) if asked else None
        case "irrelevant":
            return with_irrelevant(asked, row.prompt, _sentences(some[:SENTENCE_DONORS]), draw) if asked else None


def _wrong_answers(row: Row, answers: Sequence[str]) -> list[str]:
    """The answers that the row's verifier judges wrong; it accepts equal values, such as 1/2 for 0.5, and aliases."""
    module, before = judge_family(row.family), row.solution.rpartition(BOX)[0]  # which may be part of the format
    problem = module.loads(row.graph)
    return [answer for answer in answers if not module.verify(problem, f"{before}{BOX}{answer}}}", tasks_spec.Verify()).answer]


def _sentences(rows: Sequence[Row]) -> list[str]:
    """Sentences of the documents of these rows, without repeats."""
    found = (multihop_item(row) for row in rows)
    texts = {one.strip() for asked in found if asked for paragraph in asked.paragraphs for one in paragraph.sentences}
    return sorted(text for text in texts if text.endswith("."))


def _row_stream(inputs: StepInputs, row: Row, what: str) -> np.random.Generator:
    return inputs.random(what, row.origin, row.prompt)


# Corrupted questions over documents. The item stays the truth that completions are judged against.


def with_wrong_answer(solution: str, answers: Sequence[str], others: Sequence[str], draw: random.Draw) -> str | None:
    r"""The solution with one of the `others` in its last `\boxed{}`. None where it has no box, or no other answer fits."""
    head, box, rest = solution.rpartition(BOX)
    wrong = _incompatible(answers, others)
    if not box or not wrong:
        return None
    end = closing_brace(rest, 0)
    return f"{head}{box}{wrong[draw() % len(wrong)]}{rest[end:] if end >= 0 else '}'}"


def with_conflict(item: family.Item, prompt: str, others: Sequence[str], true_first: bool, draw: random.Draw) -> str | None:
    """The prompt with a second version of a supporting sentence that has another answer; `true_first`: directly after the true
    one, else directly before it. None where no such sentence occurs exactly once, or where the question itself names the answer,
    as in a comparison."""
    answer = next((answer for answer in item.answers if _mentions(answer, item.question)), None)
    wrong = _incompatible(item.answers, others)
    facts = [sentence for sentence in multihop.supporting_sentences(item) if prompt.count(sentence) == 1]
    held = [(sentence, answer) for sentence in facts for answer in item.answers if _mentions(answer, sentence)]
    if answer or not wrong or not held:
        return None
    sentence, answer = held[-1]
    false = re.sub(_word(answer), lambda _: wrong[draw() % len(wrong)], sentence, count=1, flags=re.IGNORECASE)
    return prompt.replace(sentence, f"{sentence} {false}" if true_first else f"{false} {sentence}")


def with_irrelevant(item: family.Item, prompt: str, sentences: Sequence[str], draw: random.Draw) -> str | None:
    """The prompt with one of the `sentences`, which must not name an answer, after a sentence of the item's documents. None where
    there is no such sentence or place."""
    new = [one for one in sentences if one not in prompt and not any(_mentions(answer, one) for answer in item.answers)]
    own = [one.strip() for paragraph in item.paragraphs for one in paragraph.sentences]
    places = [one for one in own if one.endswith(".") and prompt.count(one) == 1]
    if not new or not places:
        return None
    place = places[draw() % len(places)]
    return prompt.replace(place, f"{place} {new[draw() % len(new)]}")


def _incompatible(answers: Sequence[str], others: Sequence[str]) -> list[str]:
    """The others that neither contain an answer nor are part of one, and are numbers if and only if the answer is."""
    known = [answer.casefold() for answer in answers]
    distinct = [other for other in others if not any(one in other.casefold() or other.casefold() in one for one in known)]
    return [other for other in distinct if other[:1].isdigit() == answers[0][:1].isdigit()]


def _mentions(answer: str, text: str) -> bool:
    return bool(answer) and re.search(_word(answer), text, re.IGNORECASE) is not None


def _word(answer: str) -> str:
    return rf"(?<!\w){re.escape(answer)}(?!\w)"


# Conflicts between a context and memorised facts (KnowPO, arXiv:2408.03297).


class Names(NamedTuple):
    """The names that contexts are made of, in a fixed order."""

    people: list[str]
    objects: dict[str, list[str]]
    """Relation -> its objects."""


def make_conflict_pairs(spec: ConflictPairs, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Questions about single memorised facts, each after a context and with a rejected completion. Counts: pairs of each sort
    (ignorance, over_inclusion, irrelevant), rows about other things (not_by_heart), and rows for which there are too few names
    (no_context)."""
    asked = [row for row in rows if row.family == "bios" and row.mode == "parametric"]
    known = [(row, questions.BIOS.loads(row.graph).hops[0]) for row in asked]
    names = _collect_names([fact for _, fact in known])
    against = _draw_share([row for row, _ in known], spec.contradicting, "contradicting", inputs)
    sorts = dict.fromkeys(against, "over_inclusion")
    for place in _draw_share([known[number][0] for number in against], spec.ignorance, "ignorance", inputs):
        sorts[against[place]] = "ignorance"
    counts = {"ignorance": 0, "over_inclusion": 0, "irrelevant": 0, "not_by_heart": len(rows) - len(known), "no_context": 0}
    made = []
    for number, (row, fact) in enumerate(known):
        sort = sorts.get(number, "irrelevant")
        pair = _make_pair(spec, row, fact, sort, names, inputs)
        counts[sort if pair else "no_context"] += 1
        made += [pair] if pair else []
    return StepResult(made, counts)


def _collect_names(facts: Sequence[chains.Fact]) -> Names:
    objects: dict[str, set[str]] = defaultdict(set)
    for fact in facts:
        objects[fact.relation].add(fact.object)
    return Names(sorted({fact.subject for fact in facts}), {name: sorted(objects[name]) for name in sorted(objects)})


def _draw_share(rows: Sequence[Row], share: float, what: str, inputs: StepInputs) -> list[int]:
    """Numbers of round(share * rows) of the rows, ascending."""
    order = np.argsort([float(inputs.random(what, row.origin).random()) for row in rows], kind="stable")
    return sorted(order[: round(share * len(rows))].tolist())


def _make_pair(spec: ConflictPairs, row: Row, known: chains.Fact, sort: str, names: Names, inputs: StepInputs) -> Row | None:
    """The row after its context, with a rejected completion; None where there are too few names."""
    draw = random.integers_of(inputs.random("context", row.origin))
    other = _draw_other(names.objects[known.relation], {known.subject, known.object}, draw)
    if other is None:
        return None
    answer = known if sort == "irrelevant" else known._replace(object=other)
    shown: dict[chains.About, str] = {} if answer == known else {answer[:2]: answer.object}
    others = _distractor_facts(
        known, {known.object, answer.object}, random.draw_between(draw, spec.context) - len(shown), names, draw
    )
    if sort != "ignorance" and not others:
        return None
    lure = known.object if sort == "ignorance" else next(iter(others.values()))
    problem = questions.BIOS.loads(row.graph)._replace(hops=(answer,), context=people.grouped(shown | others, draw))
    made, conflict = questions.written(problem), questions.Conflict(problem, known)
    rejected = questions.written(problem._replace(hops=(known._replace(object=lure),))).solution
    bare = {} if spec.rewrite else {known.object: f"{BOX}{known.object}}}"}
    return transform_row(
        row,
        spec.name,
        mode=conflict.mode,
        prompt=made.prompt,
        solution=bare.get(answer.object, made.solution),
        rejected=bare.get(lure, rejected),
        answer=made.answer,
        graph=questions.dumps_conflict(conflict),
        key=questions.structure_conflict(conflict),
        family="conflicts",
    )


def _distractor_facts(
    known: chains.Fact, taken: set[str], count: int, names: Names, draw: random.Draw
) -> dict[chains.About, str]:
    """Up to `count` facts other than the known one, with objects that are not taken: in turn the same relation of another person,
    another relation of the same person, another relation of another person."""
    facts: dict[chains.About, str] = {}
    relations = list(names.objects)
    for number in range(count):
        for _ in range(people.TRIES):
            subject = known.subject if number % 3 == 1 else names.people[draw() % len(names.people)]
            relation = known.relation if number % 3 == 0 else relations[draw() % len(relations)]
            there = _draw_other(names.objects[relation], taken | {subject}, draw)
            if (subject, relation) != known[:2] and (subject, relation) not in facts and there is not None:
                facts[subject, relation] = there
                break
    return facts


def _draw_other(candidates: Sequence[str], taken: set[str], draw: random.Draw) -> str | None:
    """A name that is not taken; None where all are."""
    free = [name for name in candidates if name not in taken]
    return free[draw() % len(free)] if free else None
