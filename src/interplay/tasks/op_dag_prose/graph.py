"""The gold graph of a prose problem: what is defined, what each definition reads, what the values are, and how it is told."""

import json
from typing import NamedTuple

from interplay.tasks.op_dag.graph import FORWARD, REVERSE, Form, mix_hash, refined
from interplay.tasks.op_dag.render import LETTERS

UNKNOWN = "x"
"""The letter of the unknown in solutions of reverse problems."""
TOTAL = "total number of "
"""What stands before the things of a place in the name of their total."""


class Node(NamedTuple):
    """One quantity. Without a constant, the sum (or difference) of its parents; with one, the constant plus or times that. The
    unknown has neither parents nor constant."""

    thing: str
    """What is counted: a type, or `total number of ...`."""
    place: str
    total: bool
    """Whether it is the total of its place, which no sentence defines: the parents are all types that are mentioned there."""
    parents: tuple[int, ...]
    """Places in `Problem.nodes`, all before the node's own."""
    constant: int | None
    operator: str
    """Between the constant and the rest, + or *; empty where there is no constant or nothing but one."""
    minus: bool
    """Whether the second of two parents is taken from the first."""

    @property
    def name(self) -> str:
        """The full name, such as `adult crow in Bundle Ranch`."""
        return f"{self.thing} in {self.place}"

    def edges(self) -> int:
        """In-edges, the constant counting as one; an unknown leaf stands for a constant and has one, too."""
        return max(1, len(self.parents) + (self.constant is not None))


class Problem(NamedTuple):
    """A problem with its gold graph. Necessary nodes come first in topological order, the goal last among them."""

    mode: str
    """`forward`: the goal's value is asked. `reverse`: the value of nodes[0], given the goal's."""
    theme: str
    nodes: tuple[Node, ...]
    necessary: int
    """The number of necessary nodes; those after them are distractors, and totals that only distractors read."""
    values: tuple[int, ...]
    """Value of each necessary node, the unknown being what it is."""
    slopes: tuple[int, ...]
    """Coefficient of the unknown in each necessary node's linear form; all 0 in forward mode."""
    order: tuple[int, ...]
    """Nodes in the order in which the prompt tells them, totals left out; in reverse mode -1 stands for the goal's value."""
    letters: str
    """Letters in the order in which the gold solution takes them."""

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
    """The linear form (a, b) of each necessary node: a times the unknown plus b."""
    if problem.mode == FORWARD:
        return [(0, value) for value in problem.values]
    unknown = problem.values[0]
    return [(a, value - a * unknown) for a, value in zip(problem.slopes, problem.values, strict=True)]


def letters(mode: str) -> list[str]:
    """The letters that solutions may take for nodes and for intermediate results."""
    return [letter for letter in LETTERS if mode == FORWARD or letter != UNKNOWN]


def levels(problem: Problem) -> list[int]:
    """For each necessary node, the number of nodes on the longest way from a leaf to it; the goal's is the depth."""
    found: list[int] = []
    for node in problem.nodes[: problem.necessary]:
        found.append(1 + max([found[parent] for parent in node.parents], default=0))
    return found


def dumps(problem: Problem) -> str:
    """The problem as JSON, one line."""
    return json.dumps(problem._asdict(), separators=(",", ":"), ensure_ascii=False)


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    raw = json.loads(text)
    nodes = [Node(thing, place, total, tuple(parents), *rest) for thing, place, total, parents, *rest in raw["nodes"]]
    raw |= {"nodes": tuple(nodes)} | {name: tuple(raw[name]) for name in ("values", "slopes", "order")}
    return Problem(**raw)


# A key of a problem up to renaming of nouns and letters and reordering of sentences and of commuting operands.


_OPERATORS = {"": 0, "+": 1, "*": 2}


def structure(problem: Problem) -> str:
    """16 hex digits, the same on every machine (op_dag.structure). Totals are nodes that read all that is mentioned for their
    place, so that what stands where needs no further colour."""
    colours = []
    for place, node in enumerate(problem.nodes):
        constant = 0 if node.constant is None else node.constant + 2
        unknown = node.constant is None and not node.parents
        kind = ((_OPERATORS[node.operator] * 2 + node.minus) * 2 + node.total) * 2 + unknown
        colours.append(mix_hash((constant * 64 + kind) * 2 + (place == problem.goal) + 1))
    given = problem.values[-1] + 1 if problem.mode == REVERSE else 0
    colours[problem.goal] = mix_hash(colours[problem.goal] + given * 131)
    reads = [node.parents for node in problem.nodes]
    return refined(reads, [node.minus for node in problem.nodes], colours)
