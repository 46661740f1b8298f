"""Problems by construction: a path of relations, a chain of facts along it, and the context that holds them."""

import json
from collections.abc import Iterable
from typing import Literal, NamedTuple

from interplay.core.model import UserError
from interplay.core.random import stream_key
from interplay.tasks.bios.spec import COMPOSITES, Bios
from interplay.tasks.bios.world import Path, contextual_paths, draw_object, draw_person, parametric_paths, paths, shuffled, world
from interplay.tasks.facts import About, Fact
from interplay.tasks.op_dag.graph import Draw, draw_between, stream

# The gold of a problem about people.


Surface = Literal["terse", "prose"]


class Problem(NamedTuple):
    """A question with the facts that lead to its answer."""

    mode: str
    """The level: statement, parametric, contextual, reading, iid, composition, zero_shot, in_context or by_heart."""
    surface: Surface
    form: int
    """prose: how the first fact of the context reads; the next ones follow by turns."""
    hops: tuple[Fact, ...]
    """From the person that the question names to the answer: the object of each is the subject of the next. Of mode reading, the
    facts that are asked for, in order, each by a question of its own."""
    context: tuple[Fact, ...]
    """The facts of the prompt, in order, those of a person together. Hops that are not among them are parametric."""

    @property
    def op(self) -> int:
        """Hops, or facts that are asked for."""
        return len(self.hops)

    @property
    def answer(self) -> str:
        """Where the chain ends; the answer to the last question."""
        return self.hops[-1].object


def dumps(problem: Problem) -> str:
    """JSON, one line."""
    return json.dumps(problem, separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    mode, surface, form, hops, context = json.loads(text)
    return Problem(mode, surface, form, tuple(Fact(*fact) for fact in hops), tuple(Fact(*fact) for fact in context))


# A key of a problem up to what does not matter in it.


ROUNDS = 2


def structure(problem: Problem) -> str:
    """16 hex digits. Problems that ask the same share the key: order and wording of the context do not count, and people and
    values may be renamed unless a parametric fact names them, since then the name is what is asked. Colours are refined
    (Weisfeiler and Lehman) along the facts of context and chain, so that other problems practically never share it. A statement
    asks nothing and shares no key with a question."""
    context = set(problem.context)
    facts = [*context, *(hop for hop in problem.hops if hop not in context)]
    named = {name for hop in problem.hops if hop not in context for name in (hop.subject, hop.object)}
    colours = {name: stream_key("name", name if name in named else "") for fact in facts for name in (fact.subject, fact.object)}
    colours[problem.hops[0].subject] = stream_key("start", colours[problem.hops[0].subject])
    for _ in range(ROUNDS):
        colours = _refined(colours, facts)
    path = " ".join(hop.relation for hop in problem.hops)
    asked = [colours[problem.hops[0].subject], *(colours[hop.object] for hop in problem.hops)]
    statement = problem.mode == "statement"
    return f"{stream_key('bios', statement, path, *asked, *sorted(colours.values())):016x}"


def _refined(colours: dict[str, int], facts: Iterable[Fact]) -> dict[str, int]:
    """Each colour with those of its neighbours by relation and direction."""
    beside: dict[str, list[str]] = {name: [] for name in colours}
    for subject, relation, there in facts:
        beside[subject].append(f"{relation}>{colours[there]}")
        beside[there].append(f"{relation}<{colours[subject]}")
    return {name: stream_key(colour, *sorted(beside[name])) for name, colour in colours.items()}


def shared(problem: Problem) -> bool:
    """Whether the problem belongs to every split alike: facts to be learnt by heart do, and questions that ask one of them."""
    return problem.mode in ("statement", "parametric")


# Problems by construction: a path of relations is drawn, a chain of facts along it, and then facts beside it.


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
    context = _context(task, hops, draw_between(draw, task.distractors), draw)
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
