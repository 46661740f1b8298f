"""The step that sets contexts against what a model knows by heart (KnowPO, arXiv:2408.03297)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from interplay.data.steps.step import Inputs, Made, changed
from interplay.schema.steps.conflict import ConflictPairs
from interplay.tasks import bios, conflicts
from interplay.tasks.answer import BOX
from interplay.tasks.bios.generate import TRIES, grouped
from interplay.tasks.bios.render import written
from interplay.tasks.conflicts import Conflict
from interplay.tasks.facts import About, Fact
from interplay.tasks.op_dag.stream import Draw, between
from interplay.tasks.row import Row


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


def _by_heart(row: Row) -> bios.Problem | None:
    return bios.loads(row.graph) if row.family == "bios" and row.mode == "parametric" else None


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
    beside = _beside(known, {known.object, told.object}, between(draw, spec.context) - len(shown), pool, draw)
    if sort != "ignorance" and not beside:
        return None
    lure = known.object if sort == "ignorance" else next(iter(beside.values()))
    problem = bios.loads(row.graph)._replace(hops=(told,), context=grouped(shown | beside, draw))
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
