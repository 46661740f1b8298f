"""Problems by construction: a path of relations is drawn, a chain of facts along it, and then facts beside it."""

from interplay.schema.base import UserError
from interplay.schema.bios import COMPOSITES, Bios
from interplay.tasks.bios.problem import Problem
from interplay.tasks.bios.world import Path, contextual_paths, draw_object, draw_person, parametric_paths, paths, shuffled, world
from interplay.tasks.facts import About, Fact
from interplay.tasks.op_dag.stream import Draw, between, stream

TRIES = 50
"""Chains that are drawn before one may meet a person twice, and facts before one beside it is left out."""
FORMS = 3


def generate(task: Bios, seed: int, index: int, op: int) -> Problem:
    """The problem of the task at (seed, index) with `op` hops; of level reading, with `op` facts and as many questions. Levels
    of single parametric facts take fact `index` modulo their number, whatever the seed. Raises UserError where the
    level has not so many hops."""
    low, high = task.ops()
    if not low <= op <= high:
        raise UserError(f"task bios: op {op} lies outside {low}..{high} (level {task.level})")
    draw = stream("bios", task.world, task.level, seed, index)
    form = draw() % FORMS
    if task.level in ("statement", "parametric"):
        order = world(task).order
        return Problem(task.level, task.surface, (index // len(order)) % FORMS, (order[index % len(order)],), ())
    if task.level == "reading":
        return _reading(task, op, form, draw)
    if task.level == "by_heart":
        known = parametric_paths(task, op)
        return Problem(task.level, task.surface, form, _chain(task, known[draw() % len(known)], draw), ())
    chosen = paths(task, op)[task.level] if task.level in COMPOSITES else contextual_paths(task, op)
    hops = _chain(task, chosen[draw() % len(chosen)], draw)
    context = _context(task, hops, between(draw, task.distractors), draw)
    return Problem(task.level, task.surface, form, hops, context)


def _reading(task: Bios, op: int, form: int, draw: Draw) -> Problem:
    """A context of `op` facts, and `op` of them that are asked for, drawn one by one, so that none can be told from those that
    were asked before it. In half of the contexts all facts have one relation, so that only the subject tells which is asked: a
    model that is trained on others alone settles for the relation. In the others a fact has the relation of an earlier one or
    its subject. In both, by turns, it goes on from one."""
    known = world(task)
    only = known.contextual[draw() % len(known.contextual)] if draw() % 2 else None
    facts: dict[About, str] = {}
    while len(facts) < op:
        subject = draw_person(draw, known.people, task.zipf)
        relation = only or known.contextual[draw() % len(known.contextual)]
        if facts:
            (other, its_relation), its_object = [*facts.items()][draw() % len(facts)]
            turn = draw() % 3
            relation = its_relation if turn == 0 else relation
            subject = other if turn == 1 and not only else its_object if turn == 2 and its_relation in known.links else subject
        if (subject, relation) not in facts:
            facts[subject, relation] = draw_object(draw, subject, relation, known.people, known.values, task.zipf)
    context = grouped(facts, draw)
    return Problem(task.level, task.surface, form, tuple(context[draw() % op] for _ in range(op)), context)


def _chain(task: Bios, path: Path, draw: Draw) -> tuple[Fact, ...]:
    """Facts along the path. Contextual facts lead to somebody new; parametric ones may lead back, and then another start is
    tried, TRIES times."""
    known = world(task)
    for _ in range(TRIES):
        here = draw_person(draw, known.people, task.zipf)
        said: dict[About, str] = {}
        hops: list[Fact] = []
        met = {here}
        for relation in path:
            there = said.get((here, relation)) or known.facts.get((here, relation))
            while there is None or (there in met and (here, relation) not in said and relation in known.contextual):
                there = draw_object(draw, here, relation, known.people, known.values, task.zipf)
            said[here, relation] = there
            hops.append(Fact(here, relation, there))
            met.add(there)
            here = there
        if len(met) == len(path) + 1:
            break
    return tuple(hops)


def _context(task: Bios, hops: tuple[Fact, ...], distractors: int, draw: Draw) -> tuple[Fact, ...]:
    """The contextual hops and further contextual facts, grouped.

    First come facts with the relation of a hop and another subject, then by turns others about the subject of any fact with
    that relation, and others that go on from a further fact: so that neither a relation, nor how much is said of a person, nor
    being the end of a chain gives the answer away. The last hop is imitated first."""
    known = world(task)
    needed = [hop for hop in hops if hop.relation in known.contextual]
    facts = {hop[:2]: hop.object for hop in needed}
    # Where a parametric fact leads to the hop, nothing in the context does: nor must anything lead to those beside it.
    bridged = {hop.relation for hop in needed} if len(needed) < len(hops) else set()
    beside: list[Fact] = []
    for number in sorted(range(distractors), key=lambda number: number % 3 != 0):
        hop = needed[-1 - number // 3 % len(needed)]
        for _ in range(TRIES):
            subject, relation = draw_person(draw, known.people, task.zipf), known.contextual[draw() % len(known.contextual)]
            alike = [person for person, its_relation in facts if its_relation == hop.relation]
            ends = [fact.object for fact in beside if fact.relation in known.links]
            if number % 3 == 0:
                relation = hop.relation
            elif number % 3 == 1:
                subject = alike[draw() % len(alike)]
            elif ends:
                subject = ends[draw() % len(ends)]
            if (subject, relation) in facts or (number % 3 == 2 and relation in bridged):
                continue
            there = draw_object(draw, subject, relation, known.people, known.values, task.zipf)
            facts[subject, relation] = there
            beside.append(Fact(subject, relation, there))
            break
    return grouped(facts, draw)


def grouped(facts: dict[About, str], draw: Draw) -> tuple[Fact, ...]:
    """Each person's facts together, people and facts in random order."""
    grouped: dict[str, list[Fact]] = {}
    for (subject, relation), there in shuffled(draw, list(facts.items())):
        grouped.setdefault(subject, []).append(Fact(subject, relation, there))
    return tuple(fact for group in grouped.values() for fact in group)
