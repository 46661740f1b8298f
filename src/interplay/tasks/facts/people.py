"""Synthetic people over a relation graph (From Atomic to Composite, arXiv:2512.01970): memorised (parametric) facts, facts of a
context, and questions that chain both: the world and its problems."""

from bisect import bisect
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, product
from typing import Any, Literal, NamedTuple

from interplay.core.random import Draw, draw_between, draw_shuffled, stream, stream_key
from interplay.tasks.facts.chains import About, Fact, invented_name
from interplay.tasks.facts.spec import ATTRIBUTES, COMPOSITES, RELATIONS, Bios
from interplay.tasks.family import check_op

# The world of a task: people, values, the parametric facts, and the relation paths of composite training. It depends on the keys
# in WORLD alone.

WORLD = ("world", "people", "relations", "attributes", "values", "parametric", "zero_shot", "held_out")
"""Keys of a task that determine its world."""
Path = tuple[str, ...]


class World(NamedTuple):
    """People and their parametric facts."""

    people: tuple[str, ...]
    values: dict[str, tuple[str, ...]]
    """Attribute -> its values."""
    contextual: tuple[str, ...]
    """Relations and attributes whose facts are in contexts."""
    facts: dict[About, str]
    """Every parametric fact."""
    order: tuple[Fact, ...]
    """Every parametric fact, in the order in which sets of them take them."""
    links: frozenset[str]
    """Relations from person to person."""


def world(task: Bios) -> World:
    """The world of a task."""
    return _world(*_keys(task))


def paths(task: Bios, hops: int) -> dict[str, tuple[Path, ...]]:
    """The relation paths of `hops` hops by level, from the first hop to the last: iid and composition partition the paths without
    relations of `zero_shot`, zero_shot has those with one. All have a parametric and a contextual relation, and every relation
    occurs in an iid path at each position at which it occurs in a path of composition."""
    return _paths(hops, *_keys(task))


def _keys(task: Bios) -> tuple[Any, ...]:
    return tuple([getattr(task, name) for name in WORLD])


def _task(keys: tuple[Any, ...]) -> Bios:
    return Bios.model_construct(**dict(zip(WORLD, keys, strict=True)))


@lru_cache(maxsize=32)
def _world(*keys: Any) -> World:
    task = _task(keys)
    attributes = ATTRIBUTES[: task.attributes]
    names = invented_name(task.people + task.values * len(attributes), "bios", task.world)
    people, rest = names[: task.people], names[task.people :]
    values = {attribute: rest[i * task.values : (i + 1) * task.values] for i, attribute in enumerate(attributes)}
    facts: dict[About, str] = {}
    for relation in task.all_relations():
        if relation in task.weights():
            draw = stream("bios", "facts", task.world, relation)
            for person in people:
                facts[person, relation] = draw_object(draw, person, relation, people, values)
    order = draw_shuffled(stream("bios", "order", task.world), [Fact(*about, object) for about, object in facts.items()])
    contextual = tuple(name for name in task.all_relations() if name not in task.weights())
    return World(people, values, contextual, facts, tuple(order), frozenset(RELATIONS[: task.relations]))


def draw_person(draw: Draw, people: tuple[str, ...], zipf: float) -> str:
    """One of the people."""
    return people[_place(draw, len(people), zipf)]


def draw_object(
    draw: Draw, person: str, relation: str, people: tuple[str, ...], values: dict[str, tuple[str, ...]], zipf: float = 0.0
) -> str:
    """A value of an attribute, or another person."""
    if relation in values:
        return values[relation][draw() % len(values[relation])]
    other = people[_place(draw, len(people) - 1, zipf)]
    return people[-1] if other == person else other


def _place(draw: Draw, count: int, zipf: float) -> int:
    """A number below `count`: n with a weight of (n + 1) to the power of -zipf."""
    if not zipf:
        return draw() % count
    bounds = _bounds(count, zipf)
    return bisect(bounds, draw() / 2**32 * bounds[-1])


@lru_cache(maxsize=32)
def _bounds(count: int, zipf: float) -> tuple[float, ...]:
    """Sums of the weights of the first 1, 2, ... `count` numbers."""
    return tuple(accumulate(number**-zipf for number in range(1, count + 1)))


@lru_cache(maxsize=128)
def _all_paths(hops: int, relations: tuple[str, ...]) -> tuple[Path, ...]:
    """Every path; an attribute can only be its last relation."""
    links = [name for name in relations if name not in ATTRIBUTES]
    return tuple((*head, last) for head in product(links, repeat=hops - 1) for last in relations)


@lru_cache(maxsize=32)
def _paths(hops: int, *keys: Any) -> dict[str, tuple[Path, ...]]:
    task = _task(keys)
    weights, unseen = task.weights(), set(task.unseen())
    mixed = [path for path in _all_paths(hops, task.all_relations()) if len({name in weights for name in path}) == 2]
    seen = [path for path in mixed if not unseen.intersection(path)]
    count = max(1, round(task.held_out * len(seen))) if task.held_out else 0
    held = _held_out(draw_shuffled(stream("bios", "paths", task.world, hops), list(seen)), count)
    return {
        "iid": tuple(path for path in seen if path not in held),
        "composition": tuple(path for path in seen if path in held),
        "zero_shot": tuple(path for path in mixed if unseen.intersection(path)),
    }


def _held_out(ordered: list[Path], count: int) -> set[Path]:
    """The first `count` paths, or fewer, such that every relation keeps another path at each of its positions."""
    left: dict[tuple[int, str], int] = {}
    for path in ordered:
        for place in enumerate(path):
            left[place] = left.get(place, 0) + 1
    held: set[Path] = set()
    for path in ordered:
        if len(held) < count and all(left[place] > 1 for place in enumerate(path)):
            held.add(path)
            for place in enumerate(path):
                left[place] -= 1
    return held


# Problems.


Surface = Literal["terse", "prose"]


class Problem(NamedTuple):
    """A question with the facts of its answer."""

    mode: str
    """The level: statement, parametric, contextual, reading, iid, composition, zero_shot, in_context or by_heart."""
    surface: Surface
    form: int
    """prose: the form of the first fact of the context; the next facts rotate through the forms."""
    hops: tuple[Fact, ...]
    """From the person in the question to the answer: the object of each is the subject of the next. Of mode reading, the facts of
    the questions, in order, one for each question."""
    context: tuple[Fact, ...]
    """The facts of the prompt, in order, grouped by person. Hops that are not among them are parametric."""

    @property
    def op(self) -> int:
        """Hops, or questions."""
        return len(self.hops)

    @property
    def answer(self) -> str:
        """The end of the chain; the answer to the last question."""
        return self.hops[-1].object


ROUNDS = 2


def structure(problem: Problem) -> str:
    """16 hex digits, equal for equivalent questions: order and wording of the context do not count, nor do names of people and
    values that no parametric fact of the chain has. Colours are refined (Weisfeiler and Lehman) along the facts of context and
    chain, so that other problems practically never share the key. A statement shares no key with a question."""
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
    neighbours: dict[str, list[str]] = {name: [] for name in colours}
    for subject, relation, there in facts:
        neighbours[subject].append(f"{relation}>{colours[there]}")
        neighbours[there].append(f"{relation}<{colours[subject]}")
    return {name: stream_key(colour, *sorted(neighbours[name])) for name, colour in colours.items()}


# Generation by construction: a path of relations, a chain of facts along it, then distractors.


TRIES = 50
"""Attempts to draw a chain without repeated people, and to draw a distractor that is new."""
FORMS = 3


def generate(task: Bios, seed: int, index: int, op: int) -> Problem:
    """The problem of the task at (seed, index) with `op` hops; of level reading, with `op` facts and as many questions. Levels of
    single parametric facts take fact `index` modulo the number of facts, for every seed. Raises UserError where the level has no
    such op."""
    check_op(task, op, "level")
    draw = stream("bios", task.world, task.level, seed, index)
    form = draw() % FORMS
    if task.level in ("statement", "parametric"):
        order = world(task).order
        return Problem(task.level, task.surface, (index // len(order)) % FORMS, (order[index % len(order)],), ())
    if task.level == "reading":
        return _reading(task, op, form, draw)
    if task.level == "by_heart":
        known = _all_paths(op, tuple(name for name in task.all_relations() if name in task.weights()))
        return Problem(task.level, task.surface, form, _chain(task, known[draw() % len(known)], draw), ())
    chosen = paths(task, op)[task.level] if task.level in COMPOSITES else _all_paths(op, world(task).contextual)
    hops = _chain(task, chosen[draw() % len(chosen)], draw)
    context = _context(task, hops, draw_between(draw, task.distractors), draw)
    return Problem(task.level, task.surface, form, hops, context)


def _reading(task: Bios, op: int, form: int, draw: Draw) -> Problem:
    """A context of `op` facts, and `op` questions about facts drawn from it with replacement, so that no question can be inferred
    from earlier ones. In half of the contexts all facts have one relation, so that only the subject identifies the fact: a model
    trained without such contexts learns to match the relation alone. In the others a fact may share the relation or the subject
    of an earlier fact. In both, a fact may also have the object of an earlier one as its subject."""
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
    """Facts along the path. Contextual facts lead to a new person; where parametric ones lead back to an earlier one, another
    start is drawn, up to TRIES times."""
    known = world(task)
    for _ in range(TRIES):
        here = draw_person(draw, known.people, task.zipf)
        drawn: dict[About, str] = {}
        hops: list[Fact] = []
        visited = {here}
        for relation in path:
            there = drawn.get((here, relation)) or known.facts.get((here, relation))
            while there is None or (there in visited and (here, relation) not in drawn and relation in known.contextual):
                there = draw_object(draw, here, relation, known.people, known.values, task.zipf)
            drawn[here, relation] = there
            hops.append(Fact(here, relation, there))
            visited.add(there)
            here = there
        if len(visited) == len(path) + 1:
            break
    return tuple(hops)


def _context(task: Bios, hops: tuple[Fact, ...], distractors: int, draw: Draw) -> tuple[Fact, ...]:
    """The contextual hops and further contextual facts, grouped.

    First come facts with the relation of a hop and another subject; then, in alternation, facts about the subject of any fact
    with that relation, and facts whose subject is the object of a distractor: so that neither a relation, nor the number of facts
    about a person, nor being the end of a chain reveals the answer. The last hop is imitated first."""
    known = world(task)
    needed = [hop for hop in hops if hop.relation in known.contextual]
    facts = {hop[:2]: hop.object for hop in needed}
    # A hop that follows a parametric fact has no fact of the context that leads to it, so its distractors must have none either.
    bridged = {hop.relation for hop in needed} if len(needed) < len(hops) else set()
    distracting: list[Fact] = []
    for number in sorted(range(distractors), key=lambda number: number % 3 != 0):
        hop = needed[-1 - number // 3 % len(needed)]
        for _ in range(TRIES):
            subject, relation = draw_person(draw, known.people, task.zipf), known.contextual[draw() % len(known.contextual)]
            subjects = [person for person, its_relation in facts if its_relation == hop.relation]
            ends = [fact.object for fact in distracting if fact.relation in known.links]
            if number % 3 == 0:
                relation = hop.relation
            elif number % 3 == 1:
                subject = subjects[draw() % len(subjects)]
            elif ends:
                subject = ends[draw() % len(ends)]
            if (subject, relation) in facts or (number % 3 == 2 and relation in bridged):
                continue
            there = draw_object(draw, subject, relation, known.people, known.values, task.zipf)
            facts[subject, relation] = there
            distracting.append(Fact(subject, relation, there))
            break
    return grouped(facts, draw)


def grouped(facts: dict[About, str], draw: Draw) -> tuple[Fact, ...]:
    """Each person's facts together, people and facts in random order."""
    grouped: dict[str, list[Fact]] = {}
    for (subject, relation), there in draw_shuffled(draw, list(facts.items())):
        grouped.setdefault(subject, []).append(Fact(subject, relation, there))
    return tuple(fact for group in grouped.values() for fact in group)
