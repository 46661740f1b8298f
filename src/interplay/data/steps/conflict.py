"""Steps that spoil rows or set contexts against what a model knows (KnowPO, arXiv:2408.03297)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from interplay.core.model import PermanentError
from interplay.core.random import Draw, draw_between
from interplay.data.steps.context_spec import ConflictPairs
from interplay.data.steps.spec import Poison
from interplay.data.steps.step import Inputs, Made, changed
from interplay.tasks import conflicts, multihop
from interplay.tasks.bios.people import BIOS, TRIES, Problem, grouped, written
from interplay.tasks.conflicts import Conflict
from interplay.tasks.facts import About, Fact
from interplay.tasks.family import judge_family, multihop_item
from interplay.tasks.op_dag import dag, terse_corruptions
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Row

# The step that spoils a share of the rows. What a row is judged by, its graph and answer, stays true.


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
    letters = terse_corruptions.used_letters([row.prompt for row in rows if row.family == "op_dag"])
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
    problem = dag.loads(row.graph)
    if spec.kind == "answer":
        return terse_corruptions.with_wrong_answer(problem, row.solution, draw)
    if spec.kind == "conflict":
        return terse_corruptions.with_conflict(problem, row.prompt, true_first, draw)
    return terse_corruptions.with_irrelevant(problem, row.prompt, letters, draw)


def _text(spec: Poison, row: Row, donors: Sequence[Row], letters: str, true_first: bool, draw: Draw) -> str | None:
    """The new solution (answer) or prompt of a row of prose."""
    asked, some = multihop_item(row), [donors[draw() % len(donors)] for _ in range(FEW)]
    if spec.kind == "irrelevant":
        return multihop.with_irrelevant(asked, row.prompt, _sentences(some[:FEWER]), draw) if asked else None
    others = _wrong(row, sorted({other.answer for other in some}))
    if spec.kind == "answer":
        return multihop.with_wrong_answer(row.solution, asked.answers if asked else [row.answer], others, draw)
    return multihop.with_conflict(asked, row.prompt, others, true_first, draw) if asked else None


def _wrong(row: Row, answers: Sequence[str]) -> list[str]:
    """Those of the answers that the row's own judge does not take for right, as it takes 1/2 beside 0.5 and every alias."""
    module, before = judge_family(row.family), row.solution.rpartition(BOX)[0]  # what stands before may be part of the format
    problem = module.loads(row.graph)
    return [answer for answer in answers if not module.verify(problem, f"{before}{BOX}{answer}}}", Verify()).answer]


def _sentences(rows: Sequence[Row]) -> list[str]:
    """Sentences of the documents of these rows, without repeats."""
    found = (multihop_item(row) for row in rows)
    texts = {one.strip() for asked in found if asked for paragraph in asked.paragraphs for one in paragraph.sentences}
    return sorted(text for text in texts if text.endswith("."))


def _stream(inputs: Inputs, row: Row, what: str) -> np.random.Generator:
    return inputs.random(what, row.origin, row.prompt)


# The step that sets contexts against what a model knows by heart (KnowPO, arXiv:2408.03297).


class Pool(NamedTuple):
    """What contexts are made of, in a fixed order."""

    people: list[str]
    objects: dict[str, list[str]]
    """Relation -> what occurs as its object."""


def conflict_pairs(spec: ConflictPairs, rows: list[Row], inputs: Inputs) -> Made:
    """The questions about single facts known by heart behind contexts, with a rejected completion each. Counts: pairs of each
    sort (ignorance, over_inclusion, irrelevant), rows that ask no such thing (not_by_heart), and rows for which the others hold
    too few names (no_context)."""
    known = [(row, problem.hops[0]) for row in rows if (problem := _by_heart(row))]
    pool = _pool([fact for _, fact in known])
    against = _drawn([row for row, _ in known], spec.contradicting, "contradicting", inputs)
    sorts = dict.fromkeys(against, "over_inclusion")
    for place in _drawn([known[number][0] for number in against], spec.ignorance, "ignorance", inputs):
        sorts[against[place]] = "ignorance"
    counts = {"ignorance": 0, "over_inclusion": 0, "irrelevant": 0, "not_by_heart": len(rows) - len(known), "no_context": 0}
    made = []
    for number, (row, fact) in enumerate(known):
        sort = sorts.get(number, "irrelevant")
        pair = _pair(spec, row, fact, sort, pool, inputs)
        counts[sort if pair else "no_context"] += 1
        made += [pair] if pair else []
    return Made(made, counts)


def _by_heart(row: Row) -> Problem | None:
    return BIOS.loads(row.graph) if row.family == "bios" and row.mode == "parametric" else None


def _pool(facts: Sequence[Fact]) -> Pool:
    objects: dict[str, set[str]] = defaultdict(set)
    for fact in facts:
        objects[fact.relation].add(fact.object)
    return Pool(sorted({fact.subject for fact in facts}), {name: sorted(objects[name]) for name in sorted(objects)})


def _drawn(rows: Sequence[Row], share: float, what: str, inputs: Inputs) -> list[int]:
    """Places of round(share * rows) of the rows, in order."""
    order = np.argsort([float(inputs.random(what, row.origin).random()) for row in rows], kind="stable")
    return sorted(order[: round(share * len(rows))].tolist())


def _pair(spec: ConflictPairs, row: Row, known: Fact, sort: str, pool: Pool, inputs: Inputs) -> Row | None:
    """The row behind its context, with what is rejected; None where the pool has too few names."""
    stream = inputs.random("context", row.origin)

    def draw() -> int:
        return int(stream.integers(2**32))

    other = _other(pool.objects[known.relation], {known.subject, known.object}, draw)
    if other is None:
        return None
    told = known if sort == "irrelevant" else known._replace(object=other)
    shown: dict[About, str] = {} if told == known else {told[:2]: told.object}
    beside = _beside(known, {known.object, told.object}, draw_between(draw, spec.context) - len(shown), pool, draw)
    if sort != "ignorance" and not beside:
        return None
    lure = known.object if sort == "ignorance" else next(iter(beside.values()))
    problem = BIOS.loads(row.graph)._replace(hops=(told,), context=grouped(shown | beside, draw))
    made, conflict = written(problem), Conflict(problem, known)
    rejected = written(problem._replace(hops=(known._replace(object=lure),))).solution
    bare = {} if spec.rewrite else {known.object: f"{BOX}{known.object}}}"}
    return changed(
        row,
        spec.name,
        mode=conflict.mode,
        prompt=made.prompt,
        solution=bare.get(told.object, made.solution),
        rejected=bare.get(lure, rejected),
        answer=made.answer,
        graph=conflicts.dumps(conflict),
        key=conflicts.structure(conflict),
        family="conflicts",
    )


def _beside(known: Fact, taken: set[str], count: int, pool: Pool, draw: Draw) -> dict[About, str]:
    """Up to `count` facts about something else than the known one, with objects that are not taken: by turns the same relation of
    somebody else, another of the same person, another of somebody else."""
    facts: dict[About, str] = {}
    relations = list(pool.objects)
    for number in range(count):
        for _ in range(TRIES):
            subject = known.subject if number % 3 == 1 else pool.people[draw() % len(pool.people)]
            relation = known.relation if number % 3 == 0 else relations[draw() % len(relations)]
            there = _other(pool.objects[relation], taken | {subject}, draw)
            if (subject, relation) != known[:2] and (subject, relation) not in facts and there is not None:
                facts[subject, relation] = there
                break
    return facts


def _other(names: Sequence[str], taken: set[str], draw: Draw) -> str | None:
    """One of the names that is not taken; None where all are."""
    free = [name for name in names if name not in taken]
    return free[draw() % len(free)] if free else None
