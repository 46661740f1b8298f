"""The gold graph of a problem, its structure key up to renaming, and the keyed random integers that it is drawn from."""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import shake_128
from itertools import chain, count
from typing import NamedTuple

from interplay.tasks.op_dag.spec import Range

# The gold graph of a problem: what is defined, what each definition reads, what the values are, and how the prompt shows it.


Form = tuple[int, int]
"""A linear form (a, b): a times the unknown plus b. A plain number is (0, b)."""

FORWARD = "forward"
REVERSE = "reverse"


class Node(NamedTuple):
    """One definition: `operator` over its parents, in order, and then its constant. The unknown has neither parents nor
    constant."""

    name: str
    operator: str
    """One of + - *, or empty where there is one operand only."""
    parents: tuple[int, ...]
    """Places in `Problem.nodes`, all before the node's own where the node is necessary."""
    constant: int | None

    def edges(self) -> int:
        """In-edges, the constant counting as one; an unknown leaf stands for a constant and has one, too."""
        return max(1, len(self.parents) + (self.constant is not None))


class Problem(NamedTuple):
    """A problem with its gold graph. Necessary nodes come first in topological order, the goal last among them."""

    mode: str
    """`forward`: the goal's value is asked. `reverse`: the value of nodes[0], given the goal's."""
    modulus: int | None
    nodes: tuple[Node, ...]
    necessary: int
    """The number of necessary nodes; those after them are distractors."""
    values: tuple[int, ...]
    """Value of each necessary node, the unknown being what it is."""
    slopes: tuple[int, ...]
    """Coefficient of the unknown in each necessary node's linear form; all 0 in forward mode."""
    order: tuple[int, ...]
    """Nodes in the order in which the prompt defines them."""
    filler: tuple[int, ...]
    """Neutral characters before the first definition and after each."""

    @property
    def op(self) -> int:
        """Edges of the necessary graph, constants counting one."""
        return sum(node.edges() for node in self.nodes[: self.necessary])

    @property
    def goal(self) -> int:
        """The place of the goal among the nodes."""
        return self.necessary - 1

    @property
    def answer(self) -> int:
        """The value that the problem asks for."""
        return self.values[0] if self.mode == REVERSE else self.values[-1]


def forms(problem: Problem) -> list[Form]:
    """The linear form of each necessary node: b = value - a * unknown, modulo p where there is a modulus."""
    if problem.mode == FORWARD:
        return [(0, value) for value in problem.values]
    unknown, modulus = problem.values[0], problem.modulus
    pairs = [(a, value - a * unknown) for a, value in zip(problem.slopes, problem.values, strict=True)]
    return [(a, b % modulus) for a, b in pairs] if modulus else pairs


def unfolding(problem: Problem) -> list[int]:
    """Necessary nodes from the goal down, each once and after all the necessary nodes that read it.

    Kahn's order, last in first out: an operand is followed to its leaves before the next one, the left one first, so that a
    line mostly follows from the line before. Reversed, it is an order of evaluation."""
    readers = [0] * problem.necessary
    for node in problem.nodes[: problem.necessary]:
        for parent in node.parents:
            readers[parent] += 1
    order = []
    stack = [problem.goal]
    while stack:
        place = stack.pop()
        order.append(place)
        for parent in reversed(problem.nodes[place].parents):
            readers[parent] -= 1
            if not readers[parent]:
                stack.append(parent)
    return order


def dumps(problem: Problem) -> str:
    """The problem as JSON, one line."""
    return json.dumps(problem._asdict(), separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    raw = json.loads(text)
    return Problem(
        mode=raw["mode"],
        modulus=raw["modulus"],
        nodes=tuple(Node(name, operator, tuple(parents), constant) for name, operator, parents, constant in raw["nodes"]),
        necessary=raw["necessary"],
        values=tuple(raw["values"]),
        slopes=tuple(raw["slopes"]),
        order=tuple(raw["order"]),
        filler=tuple(raw["filler"]),
    )


# A key of a problem up to renaming of letters and reordering of definitions, commuting operands and filler.


_MASK = 2**64 - 1
_OPERATORS = {"": 1, "+": 2, "-": 3, "*": 4}


def structure(problem: Problem) -> str:
    """16 hex digits. Isomorphic problems share the key; colours are refined (Weisfeiler and Lehman) down and up the graph,
    twice, so that others practically never do. Arithmetic on integers only: the key is the same on every machine and version
    of Python."""
    reverse = problem.mode == REVERSE
    colours = []
    for place, node in enumerate(problem.nodes):
        constant = 0 if node.constant is None else node.constant + 2
        unknown = node.constant is None and not node.parents
        goal = place == problem.goal
        colours.append(mix_hash((((constant * 8 + _OPERATORS[node.operator]) * 2 + goal) * 2 + unknown) + 1))
    given = problem.values[-1] + 1 if reverse else 0
    colours[problem.goal] = mix_hash(colours[problem.goal] + given * 131 + (problem.modulus or 0))
    return refined([node.parents for node in problem.nodes], [node.operator == "-" for node in problem.nodes], colours)


def shared(problem: Problem) -> bool:
    """Whether the problem belongs to every split alike; none does: each is a question of its own."""
    return False


def refined(reads: Sequence[tuple[int, ...]], ordered: Sequence[bool], colours: list[int]) -> str:
    """The key of a graph whose nodes have these colours (which are altered): `reads` holds the parents of each node, which stand
    before it, and `ordered` whether their order counts."""
    for _ in range(2):
        _refine_down(reads, ordered, colours)
        _refine_up(reads, ordered, colours)
    return f"{mix_hash(sum(colours)):016x}"


def _refine_down(reads: Sequence[tuple[int, ...]], ordered: Sequence[bool], colours: list[int]) -> None:
    """Each node's colour from its own and its parents', which stand before it; their places count under a minus only."""
    mixed: list[int] = []
    """What each node so far adds to its readers."""
    for place, parents in enumerate(reads):
        total = colours[place] * 3
        if ordered[place]:
            for number, parent in enumerate(parents):
                total += mix_hash(colours[parent] + number)
        else:
            for parent in parents:
                total += mixed[parent] or _mixed(mixed, colours, parent)
        colours[place] = mix_hash(total)
        mixed.append(0)


def _mixed(mixed: list[int], colours: list[int], parent: int) -> int:
    """Work out and keep what a node adds: many are read more than once, and many by none."""
    found = mixed[parent] = mix_hash(colours[parent])
    return found


def _refine_up(reads: Sequence[tuple[int, ...]], ordered: Sequence[bool], colours: list[int]) -> None:
    """Each node's colour from its own and its readers', which stand after it."""
    totals = [colour * 5 for colour in colours]
    for place in range(len(colours) - 1, -1, -1):
        colour = colours[place] = mix_hash(totals[place])
        if ordered[place]:
            for number, parent in enumerate(reads[place]):
                totals[parent] += mix_hash(colour + number + 7)
        elif reads[place]:
            added = mix_hash(colour + 7)
            for parent in reads[place]:
                totals[parent] += added


def mix_hash(number: int) -> int:
    """A 64-bit finaliser (Stafford's variant 13 of MurmurHash3's)."""
    number &= _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31


# Keyed random integers, cheap to start: seeding the standard library's generator takes longer than growing a graph.


Draw = Callable[[], int]
"""Uniform integers in [0, 2**32). The modulo bias of `draw() % n` is below 1e-6 for every n used here."""

_BLOCK = struct.Struct("<128I")


def stream(*parts: int | str) -> Draw:
    """The stream known by these labels: equal labels give equal streams on every machine."""
    return chain.from_iterable(_blocks("\x1f".join([str(part) for part in parts]))).__next__


def draw_between(draw: Draw, bounds: Range) -> int:
    """A uniform integer in a closed range."""
    low, high = bounds
    return low + draw() % (high - low + 1)


def draw_some(places: list[int], size: int, draw: Draw) -> list[int]:
    """`size` distinct ones of the places; the list is reordered."""
    last = len(places)
    for _ in range(size):
        other = draw() % last
        last -= 1
        places[last], places[other] = places[other], places[last]
    return places[last:]


def draw_sample(draw: Draw, items: list, size: int) -> list:
    """`size` of the items in random order (Fisher and Yates, from the front); the list is reordered."""
    last = len(items)
    for place in range(size):
        other = place + draw() % (last - place)
        items[place], items[other] = items[other], items[place]
    return items[:size]


def _blocks(label: str) -> Iterator[tuple[int, ...]]:
    for number in count():
        yield _BLOCK.unpack(shake_128(f"{label}\x1f{number}".encode()).digest(_BLOCK.size))
