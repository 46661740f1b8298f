"""The world of a task: people, values, the parametric facts, and which relation paths are for composite training. All of it hangs
on the keys of WORLD alone."""

from bisect import bisect
from functools import lru_cache
from itertools import accumulate, product
from typing import Any, NamedTuple

from interplay.tasks.bios.spec import ATTRIBUTES, RELATIONS, Bios
from interplay.tasks.facts import About, Fact, invented_name
from interplay.tasks.op_dag.graph import Draw, stream

WORLD = ("world", "people", "relations", "attributes", "values", "parametric", "zero_shot", "held_out")
"""Keys of a task that make its world; level, distractors and surface do not."""
Path = tuple[str, ...]


class World(NamedTuple):
    """People and what is always true of them."""

    people: tuple[str, ...]
    values: dict[str, tuple[str, ...]]
    """Attribute -> its values."""
    contextual: tuple[str, ...]
    """Relations and attributes whose facts stand in contexts."""
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
    """The relation paths of so many hops by level, each in the order in which it is walked: iid and composition share the paths
    without relations of `zero_shot`, zero_shot has those with one. All have a parametric and a contextual relation, and every
    relation stands in an iid path wherever it stands in one of composition."""
    return _paths(hops, *_keys(task))


def contextual_paths(task: Bios, hops: int) -> tuple[Path, ...]:
    """All paths of contextual relations."""
    return _all_paths(hops, world(task).contextual)


def parametric_paths(task: Bios, hops: int) -> tuple[Path, ...]:
    """All paths of parametric relations."""
    return _all_paths(hops, tuple(name for name in task.all_relations() if name in task.weights()))


def shuffled(draw: Draw, items: list) -> list:
    """The items in random order (Fisher and Yates)."""
    for last in range(len(items) - 1, 0, -1):
        other = draw() % (last + 1)
        items[last], items[other] = items[other], items[last]
    return items


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
    order = shuffled(stream("bios", "order", task.world), [Fact(*about, object) for about, object in facts.items()])
    contextual = tuple(name for name in task.all_relations() if name not in task.weights())
    return World(people, values, contextual, facts, tuple(order), frozenset(RELATIONS[: task.relations]))


def draw_person(draw: Draw, people: tuple[str, ...], zipf: float) -> str:
    """One of the people."""
    return people[_place(draw, len(people), zipf)]


def draw_object(
    draw: Draw, person: str, relation: str, people: tuple[str, ...], values: dict[str, tuple[str, ...]], zipf: float = 0.0
) -> str:
    """A value of an attribute, or somebody else."""
    if relation in values:
        return values[relation][draw() % len(values[relation])]
    other = people[_place(draw, len(people) - 1, zipf)]
    return people[-1] if other == person else other


def _place(draw: Draw, count: int, zipf: float) -> int:
    """One of the numbers below `count`: n with a weight of (n + 1) to the power of -zipf."""
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
    """Every path: attributes end one."""
    links = [name for name in relations if name not in ATTRIBUTES]
    return tuple((*head, last) for head in product(links, repeat=hops - 1) for last in relations)


@lru_cache(maxsize=32)
def _paths(hops: int, *keys: Any) -> dict[str, tuple[Path, ...]]:
    task = _task(keys)
    weights, unseen = task.weights(), set(task.unseen())
    mixed = [path for path in _all_paths(hops, task.all_relations()) if len({name in weights for name in path}) == 2]
    seen = [path for path in mixed if not unseen.intersection(path)]
    count = max(1, round(task.held_out * len(seen))) if task.held_out else 0
    held = _held_out(shuffled(stream("bios", "paths", task.world, hops), list(seen)), count)
    return {
        "iid": tuple(path for path in seen if path not in held),
        "composition": tuple(path for path in seen if path in held),
        "zero_shot": tuple(path for path in mixed if unseen.intersection(path)),
    }


def _held_out(ordered: list[Path], count: int) -> set[Path]:
    """The first `count` paths, or fewer, that leave every relation in some other path at each of its places."""
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
