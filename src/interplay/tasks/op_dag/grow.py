"""The necessary part of a graph, grown from one leaf: which nodes each definition reads, and operators that keep every value
in range."""

from math import prod
from typing import NamedTuple

from interplay.schema.op_dag import OpDag
from interplay.tasks.op_dag.moves import CHAIN, COPY, LEAF, PAIR, Move, choice
from interplay.tasks.op_dag.stream import Draw, between, some


class Growth(NamedTuple):
    """The nodes so far, one entry each, and what is still open. Nothing depends on the unknown in forward mode; in reverse
    mode exactly one open node does, so that the goal does and the answer is unique."""

    parents: list[tuple[int, ...]]
    constants: list[int | None]
    operators: list[str]
    values: list[int]
    slopes: list[int]
    """Coefficient of the unknown, modulo p where there is a modulus."""
    opened: list[int]
    """Nodes that nothing reads yet."""
    plain: list[int]
    """Nodes that something reads and that do not depend on the unknown."""
    tied: list[int]
    """Nodes that something reads and that depend on the unknown."""


def grow(task: OpDag, op: int, reverse: bool, draw: Draw) -> Growth:
    """A necessary graph with exactly `op` edges; its last node is the goal."""
    growth = Growth([], [], [], [], [], [], [], [])
    _plant(growth, task, reverse, draw)
    most = 2 if task.operators == "-" else max(2, task.max_parents)
    left = op - 1
    while left:
        opened = len(growth.opened)
        slack = left - 2 * (opened - 1)
        options = choice(slack, opened, len(growth.plain), task.branching, task.copies, task.max_parents, most)
        move = options.pick(draw() / 2**32)
        if not _add(growth, task, move, draw):
            move = _add_instead(growth, task, slack, draw)
        left -= move.edges()
    return growth


def _plant(growth: Growth, task: OpDag, reverse: bool, draw: Draw) -> None:
    """The first leaf. The unknown of a reverse problem is any residue, so that its prior tells nothing, or without a modulus a
    constant like that of any leaf, as published."""
    if reverse and task.modulus:
        value = draw() % task.modulus
    else:
        value = between(draw, task.constants)
        # Products of zero cannot be told apart; where there are only products a leaf is not zero unless it must.
        value = task.constants[1] if task.operators == "*" and not value else value
        value = value if task.modulus else min(value, task.max_value)
    _append(growth, (), None if reverse else value, "", value, int(reverse))


def _add(growth: Growth, task: OpDag, move: Move, draw: Draw) -> bool:
    """Add a definition of this shape; False, and nothing changed, where no operator keeps its value in range."""
    constant = between(draw, task.constants) if move.constant else None
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
    """Where the move drawn has no value in range: a chain, else a copy, else a pair. One of them always fits: a copy keeps its
    value, and open nodes are kept such that any two can be joined."""
    for move, needs in ((CHAIN, 2), (COPY, 1), (PAIR, 0)):
        if slack >= needs and len(growth.opened) >= move.fresh and _add(growth, task, move, draw):
            return move
    raise AssertionError(f"no definition fits {task} at slack {slack}")


def _choose(growth: Growth, move: Move, draw: Draw) -> list[int]:
    """The nodes that a move reads: open ones, and others read before. What depends on the unknown is read again only together
    with the open node that does, or two open nodes would depend on it."""
    reads = some(growth.opened, move.fresh, draw)
    if move.reused:
        slopes = growth.slopes
        bound = any([slopes[place] for place in reads])
        reads += some(growth.plain + growth.tied if bound else growth.plain, move.reused, draw)
    return reads


def _leaf(growth: Growth, task: OpDag, constant: int | None) -> tuple[str, list[int], int, int] | None:
    assert constant is not None
    if (task.operators == "*" and not constant) or not _fits(growth, task, [], constant):
        return None
    return "", [], constant, 0


def _operation(
    growth: Growth, task: OpDag, reads: list[int], constant: int | None, draw: Draw
) -> tuple[str, list[int], int, int] | None:
    """An operator that keeps the value in range and the unknown in sight: (operator, order of the reads, value, slope), or
    None."""
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
            # A factor of zero would forget the others (and lose the unknown); two that depend on the unknown would make a square.
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
    """Whether a value is in range and leaves the open nodes such that they can still be joined within it. Differences always
    can; without them the sum (or, where there are products only, the product) of all that is open stays in range."""
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
    growth.opened.append(len(growth.parents))
    growth.parents.append(reads)
    growth.constants.append(constant)
    growth.operators.append(operator)
    growth.values.append(value)
    growth.slopes.append(slope)
