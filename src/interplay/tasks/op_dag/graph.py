"""The gold graph of a problem: what is defined, what each definition reads, what the values are, and how the prompt shows it."""

import json
from typing import NamedTuple

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
