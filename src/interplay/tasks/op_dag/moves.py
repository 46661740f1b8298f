"""The shapes that the next definition may have so that exactly the wanted number of edges can still be reached.

While a graph grows, `open` nodes are those that nothing reads yet; in the end one is left, the goal. With r edges still to
place, joining the open nodes in pairs would take 2 * (open - 1); what is left over, slack = r - 2 * (open - 1), is free to
spend and must end at 0.
"""

from bisect import bisect_right
from functools import cache
from itertools import accumulate
from typing import NamedTuple


class Move(NamedTuple):
    """A definition by what it reads: so many open nodes, so many nodes that are read already, and a constant or none."""

    fresh: int
    reused: int
    constant: bool

    def edges(self) -> int:
        """In-edges of the definition."""
        return self.fresh + self.reused + self.constant

    def spends(self) -> int:
        """Slack that the definition uses up. A leaf adds an open node, which two more edges must join."""
        return self.edges() - 2 * (self.fresh - 1)


LEAF = Move(0, 0, True)
COPY = Move(1, 0, False)
CHAIN = Move(1, 0, True)
PAIR = Move(2, 0, False)


class Choice(NamedTuple):
    """Moves and the running sum of their weights."""

    moves: tuple[Move, ...]
    sums: tuple[float, ...]

    def pick(self, uniform: float) -> Move:
        """The move at a uniform number in [0, 1)."""
        if len(self.moves) == 1:
            return self.moves[0]
        return self.moves[bisect_right(self.sums, uniform * self.sums[-1])]


@cache
def choice(slack: int, opened: int, spare: int, branching: float, copies: float, max_parents: int, most: int) -> Choice:
    """The moves at hand with so much slack, so many open nodes and so many other nodes to reuse; at most `most` operands.

    Where copies (one edge) are not wanted, one stands only where nothing else reaches the exact count, and a move that leaves a
    slack of 1, which only a copy could use up, only where there is no other.
    """
    known = [
        (move, weight)
        for move in _shapes(min(opened, max_parents), min(spare, max_parents - 1), max_parents, most)
        if move.spends() <= slack and (weight := _weight(move, branching, copies)) > 0
    ]
    best = known if copies else [(move, weight) for move, weight in known if move != COPY and slack - move.spends() != 1]
    moves, weights = zip(*(best or known), strict=True)
    return Choice(moves, tuple(accumulate(weights)))


def _shapes(fresh: int, reused: int, max_parents: int, most: int) -> list[Move]:
    shapes = [LEAF] if max_parents > 1 else []
    for new in range(1, fresh + 1):
        for old in range(0, min(reused, max_parents - new) + 1):
            shapes += [Move(new, old, constant) for constant in (False, True) if new + old + constant <= most]
    return shapes


def _weight(move: Move, branching: float, copies: float) -> float:
    """Tendency of a move: `branching` opens leaves, its complement extends chains, `copies` copies; joins come as often as
    leaves do, and half as often for each further operand and each node read again."""
    if move == LEAF:
        return branching
    if move == COPY:
        return max(copies, 0.01)
    if move == CHAIN:
        return max(1.0 - branching, 0.01)
    return branching * 0.5 ** (move.edges() - 2 + move.reused)
