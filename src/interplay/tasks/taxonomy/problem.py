"""The tree of a task and its problems."""

import json
from functools import lru_cache
from typing import NamedTuple

from interplay.schema.base import UserError
from interplay.schema.taxonomy import Taxonomy
from interplay.store.random import key
from interplay.tasks.facts import Fact
from interplay.tasks.names import invented
from interplay.tasks.op_dag.stream import stream

IS = "is a"
"""The one relation: from a class to the one right above it."""


class Problem(NamedTuple):
    """A question about an ancestor, or a fact to be completed."""

    mode: str
    """The level: statement or recall."""
    hops: tuple[Fact, ...]
    """From the class that is named up to the answer."""

    @property
    def op(self) -> int:
        """Levels between the two."""
        return len(self.hops)

    @property
    def answer(self) -> str:
        """The ancestor."""
        return self.hops[-1].object


def tree(task: Taxonomy) -> tuple[str, ...]:
    """Names of all classes, the root first, level by level: class i stands right below class (i - 1) // branching."""
    return _tree(task.world, task.depth, task.branching)


@lru_cache(maxsize=32)
def _tree(world: int, depth: int, branching: int) -> tuple[str, ...]:
    shape = Taxonomy.model_construct(depth=depth, branching=branching)
    return invented(shape.classes(), "taxonomy", world)


@lru_cache(maxsize=32)
def _order(world: int, classes: int) -> tuple[int, ...]:
    """All classes but the root, in the order in which sets of statements take them."""
    return tuple(sorted(range(1, classes), key=lambda number: key("taxonomy", "order", world, number)))


def generate(task: Taxonomy, seed: int, index: int, op: int) -> Problem:
    """The problem of the task at (seed, index) about an ancestor `op` levels up. Statements take fact `index` modulo their
    number, whatever the seed. Raises UserError where the tree is not so deep."""
    low, high = task.ops()
    if not low <= op <= high:
        raise UserError(f"task taxonomy: op {op} lies outside {low}..{high} (depth {task.depth}, level {task.level})")
    names = tree(task)
    if task.level == "statement":
        order = _order(task.world, len(names))
        here = order[index % len(order)]
    else:
        first = sum(task.branching**level for level in range(op))
        draw = stream("taxonomy", task.world, seed, index, op)
        here = first + draw() % (len(names) - first)
    hops = []
    for _ in range(op):
        above = (here - 1) // task.branching
        hops.append(Fact(names[here], IS, names[above]))
        here = above
    return Problem(task.level, tuple(hops))


def structure(problem: Problem) -> str:
    """16 hex digits: the names are what is asked. A statement shares no key with a question."""
    return f"{key('taxonomy', problem.mode == 'statement', *(name for hop in problem.hops for name in hop)):016x}"


def shared(problem: Problem) -> bool:
    """Whether the problem belongs to every split alike: facts to be learnt by heart do."""
    return problem.mode == "statement"


def dumps(problem: Problem) -> str:
    """JSON, one line."""
    return json.dumps(problem, separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    mode, hops = json.loads(text)
    return Problem(mode, tuple(Fact(*fact) for fact in hops))
