"""Problems by construction: the graph grows from its first leaf by choices each of which can still be completed."""

from bisect import bisect_right
from functools import cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

from interplay.core.random import Draw, draw_between, draw_sample, draw_some, stream
from interplay.tasks.family import check_op
from interplay.tasks.op_dag.dag import FORWARD, REVERSE, Node, Problem
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import node_letters

# The shapes that the next definition may have so that exactly the wanted number of edges can still be reached.
#
# While a graph grows, `open` nodes are those without a reader; in the end only the goal is open. With r edges still to place,
# joining the open nodes in pairs would take 2 * (open - 1); the rest, slack = r - 2 * (open - 1), is free to spend and must end
# at 0.


class Move(NamedTuple):
    """A definition by its operands: the numbers of open nodes and of nodes with a reader, and whether there is a constant."""

    fresh: int
    reused: int
    constant: bool

    def edges(self) -> int:
        """In-edges of the definition."""
        return self.fresh + self.reused + self.constant

    def spends(self) -> int:
        """Slack that the definition spends. A leaf adds an open node, which two more edges must join."""
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
def choose_move(slack: int, opened: int, spare: int, branching: float, copies: float, max_parents: int, most: int) -> Choice:
    """The possible moves with this slack, `opened` open nodes and `spare` other nodes to reuse; at most `most` operands.

    With `copies` 0 a copy (one edge) is possible only where no other move reaches the exact count, and so is a move that leaves a
    slack of 1, which only a copy could spend."""
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
    """Weight of a move: `branching` opens leaves, its complement extends chains, `copies` copies; joins have the weight of
    leaves, halved for each further operand and each node read again."""
    if move == LEAF:
        return branching
    if move == COPY:
        return max(copies, 0.01)
    if move == CHAIN:
        return max(1.0 - branching, 0.01)
    return branching * 0.5 ** (move.edges() - 2 + move.reused)


# The necessary part of a graph, grown from one leaf: the operands of each definition, and operators that keep every value in
# range.


Definition = tuple[str, tuple[int, ...], int | None]
"""Operator, parents and constant of a node."""


class Growth(NamedTuple):
    """The nodes so far, one entry each, and which are open. In reverse mode exactly one open node depends on the unknown, so that
    the goal does and the answer is unique."""

    made: list[Definition]
    values: list[int]
    slopes: list[int]
    """Coefficient of the unknown, modulo p where there is a modulus."""
    opened: list[int]
    """Nodes without a reader."""
    plain: list[int]
    """Nodes with a reader that do not depend on the unknown."""
    tied: list[int]
    """Nodes with a reader that depend on the unknown."""


def grow(task: OpDag, op: int, reverse: bool, draw: Draw) -> Growth:
    """A necessary graph with exactly `op` edges; its last node is the goal."""
    growth = Growth([], [], [], [], [], [])
    _plant(growth, task, reverse, draw)
    most = 2 if task.operators == "-" else max(2, task.max_parents)
    left = op - 1
    while left:
        opened = len(growth.opened)
        slack = left - 2 * (opened - 1)
        options = choose_move(slack, opened, len(growth.plain), task.branching, task.copies, task.max_parents, most)
        move = options.pick(draw() / 2**32)
        if not _add(growth, task, move, draw):
            move = _add_instead(growth, task, slack, draw)
        left -= move.edges()
    return growth


def _plant(growth: Growth, task: OpDag, reverse: bool, draw: Draw) -> None:
    """Add the first leaf. The unknown of a reverse problem is any residue, so that its prior is uniform, or without a modulus a
    constant like that of any leaf, as published."""
    if reverse and task.modulus:
        value = draw() % task.modulus
    else:
        value = draw_between(draw, task.constants)
        # Products of zero are all equal; with products only, a leaf is not zero unless it must be.
        value = task.constants[1] if task.operators == "*" and not value else value
        value = value if task.modulus else min(value, task.max_value)
    _append(growth, (), None if reverse else value, "", value, int(reverse))


def _add(growth: Growth, task: OpDag, move: Move, draw: Draw) -> bool:
    """Add a definition of this shape; False, and nothing changed, where no operator keeps its value in range."""
    constant = draw_between(draw, task.constants) if move.constant else None
    reads = _choose(growth, move, draw)
    if len(reads) > 1 and draw() & 1:
        reads.reverse()
    found = _leaf(growth, task, constant) if move == LEAF else _operation(growth, task, reads, constant, draw)
    if found is None:
        return False
    operator, order, value, slope = found
    for place in order:
        if place in growth.opened:
            growth.opened.remove(place)
            (growth.tied if growth.slopes[place] else growth.plain).append(place)
    _append(growth, tuple(order), constant, operator, value, slope)
    return True


def _add_instead(growth: Growth, task: OpDag, slack: int, draw: Draw) -> Move:
    """The fallback of a move without a value in range: a chain, else a copy, else a pair. One of them always fits: a copy keeps
    its value, and any two open nodes can be joined."""
    for move, needs in ((CHAIN, 2), (COPY, 1), (PAIR, 0)):
        if slack >= needs and len(growth.opened) >= move.fresh and _add(growth, task, move, draw):
            return move
    raise AssertionError(f"no definition fits {task} at slack {slack}")


def _choose(growth: Growth, move: Move, draw: Draw) -> list[int]:
    """The nodes that a move reads: open ones, and others. A node that depends on the unknown is read again only together with the
    open node that does, or two open nodes would depend on it."""
    reads = draw_some(growth.opened, move.fresh, draw)
    if move.reused:
        slopes = growth.slopes
        bound = any([slopes[place] for place in reads])
        reads += draw_some(growth.plain + growth.tied if bound else growth.plain, move.reused, draw)
    return reads


def _leaf(growth: Growth, task: OpDag, constant: int | None) -> tuple[str, list[int], int, int] | None:
    assert constant is not None
    if (task.operators == "*" and not constant) or not _fits(growth, task, [], constant):
        return None
    return "", [], constant, 0


def _operation(
    growth: Growth, task: OpDag, reads: list[int], constant: int | None, draw: Draw
) -> tuple[str, list[int], int, int] | None:
    """An operator that keeps the value in range and the slope nonzero where an operand's is: (operator, order of the operands,
    value, slope), or None."""
    values = [growth.values[place] for place in reads]
    slopes = [growth.slopes[place] for place in reads]
    if constant is not None:
        values.append(constant)
        slopes.append(0)
    if len(values) == 1:
        return "", reads, values[0], slopes[0]
    modulus = task.modulus
    start = draw()
    for turn in range(len(task.operators)):
        operator = task.operators[(start + turn) % len(task.operators)]
        order = reads
        if operator == "+":
            value, slope = sum(values), sum(slopes)
        elif operator == "*":
            # A factor of zero would cancel the others (and the unknown); two that depend on the unknown would make a square.
            if (
                any([not value and not slope for value, slope in zip(values, slopes, strict=True)])
                or len(slopes) - slopes.count(0) > 1
            ):
                continue
            value, slope = _product(values, slopes)
        elif len(values) > 2:
            continue
        else:
            value, slope = values[0] - values[1], slopes[0] - slopes[1]
            if value < 0 and not modulus and constant is None:
                order, value, slope = reads[::-1], -value, -slope
        if modulus:
            value, slope = value % modulus, slope % modulus
        if (slope or not any(slopes)) and _fits(growth, task, reads, value):
            return operator, order, value, slope
    return None


def _product(values: list[int], slopes: list[int]) -> tuple[int, int]:
    """Value and slope of a product of which at most one factor has a slope."""
    value, slope = values[0], slopes[0]
    for other, other_slope in zip(values[1:], slopes[1:], strict=True):
        value, slope = value * other, slope * other + other_slope * value
    return value, slope


def _fits(growth: Growth, task: OpDag, reads: list[int], value: int) -> bool:
    """Whether a value is in range and the open nodes can still be joined within it. With differences they always can; without,
    the sum (or, with products only, the product) of all open nodes has to stay in range."""
    if task.modulus:
        return True
    if not 0 <= value <= task.max_value:
        return False
    if "-" in task.operators:
        return True
    others = [growth.values[place] for place in growth.opened if place not in reads]
    joined = sum(others) + value if "+" in task.operators else prod(others) * value
    return joined <= task.max_value


def _append(growth: Growth, reads: tuple[int, ...], constant: int | None, operator: str, value: int, slope: int) -> None:
    growth.opened.append(len(growth.made))
    growth.made.append((operator, reads, constant))
    growth.values.append(value)
    growth.slopes.append(slope)


# Problems: every choice can still be completed to exactly `op` edges and in-range values, so that nothing is rejected and a
# problem is a function of (task, seed, index, op) alone.


def generate(task: OpDag, seed: int, index: int, op: int) -> Problem:
    """The problem of the task at (seed, index) with exactly `op` edges. Raises UserError where there are too few letters for op.

    The numbers of distractors and fillers and the mode are drawn first: at one (seed, index) they are the same for every op.
    """
    check_op(task, op, "letters", "distractors")
    draw = stream("op_dag", seed, index)
    distractors = draw_between(draw, task.distractors)
    dots = draw_between(draw, task.filler)
    mode = FORWARD if draw() < task.modes.get("forward", 0.0) * 2**32 else REVERSE
    growth = grow(task, op, mode == REVERSE, draw)
    necessary = len(growth.made)
    for _ in range(distractors):
        growth.made.append(_distractor(task, len(growth.made), draw))
    total = necessary + distractors
    letters = draw_sample(draw, list(node_letters(task)), total)
    return Problem(
        mode=mode,
        modulus=task.modulus,
        nodes=tuple([Node(letter, *one) for letter, one in zip(letters, growth.made, strict=True)]),
        necessary=necessary,
        values=tuple(growth.values),
        slopes=tuple(growth.slopes),
        order=tuple(draw_sample(draw, list(range(total)), total)),
        filler=_scatter(draw, dots, total + 1),
    )


def _scatter(draw: Draw, dots: int, gaps: int) -> tuple[int, ...]:
    counts = [0] * gaps
    for _ in range(dots):
        counts[draw() % gaps] += 1
    return tuple(counts)


def _distractor(task: OpDag, here: int, draw: Draw) -> Definition:
    """The definition of a distractor, the node number `here`: a leaf, a copy, or one or two earlier definitions under an
    operator. It is never evaluated, so it needs no value."""
    shape = draw() % 3
    first = draw() % here
    operator = task.operators[draw() % len(task.operators)]
    if draw() < task.copies * 2**32:
        return "", (first,), None
    if shape == 2 and here > 1 and task.max_parents > 1:
        return operator, (first, (first + 1 + draw() % (here - 1)) % here), None
    constant = draw_between(draw, task.constants)
    return (operator, (first,), constant) if shape else ("", (), constant)
