"""The necessary part of a graph, grown from one leaf to exactly the wanted edges, depth and number of leaves.

Nodes without a reader are lanes. The goal reads all lanes at once, one level above the highest, so that at most `max_parents` of
them are open at a time. A definition is added only where the remaining edges can still be placed
(tasks.op_dag.spec.completes) and where the sum of all lanes, which the goal may have to be, stays in range."""

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from interplay.core.random import Draw, draw_some
from interplay.tasks.op_dag.spec import OpDagProse, completes

TRIES = 5
"""Random definitions that are tried before one that certainly fits the count."""
LARGEST_LEAF = 9


class Room(NamedTuple):
    """The space for nodes: places, types in each place, and how many nodes are reserved for distractors."""

    places: int
    types: int
    reserve: int


class Shape(NamedTuple):
    """The required shape of the graph."""

    op: int
    depth: int
    width: int
    reverse: bool
    total: bool
    """Whether the goal should be the total of a place: it then reads the lanes only."""


class Leaves(NamedTuple):
    """Values of leaves, and the running sums of their shares."""

    numbers: tuple[int, ...]
    sums: tuple[float, ...]


@lru_cache(maxsize=64)
def _leaves(weights: tuple[tuple[int, float], ...]) -> Leaves:
    numbers, shares = zip(*weights, strict=True)
    return Leaves(numbers, tuple(accumulate(shares)))


Definition = tuple[tuple[int, ...], int | None, str, bool]
"""Parents, constant, operator and minus of a node (op_dag.prose.Node)."""


@dataclass(slots=True)
class Growth:
    """The nodes so far, one entry each, in topological order, and the lanes. Scalars of the task lie here for speed."""

    shape: Shape
    room: Room
    values_of_leaves: Leaves
    depth: int
    max_parents: int
    max_value: int
    totals_share: float
    """`task.totals` as a bound on a draw."""
    reuse_share: float
    edges: int
    """Still to be placed."""
    leaves: int
    """Still to be planted."""
    made: list[Definition] = field(default_factory=list)
    totals: list[bool] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    slopes: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    """Lanes: nodes without a reader."""
    closed: list[int] = field(default_factory=list)
    members: set[int] = field(default_factory=set)
    """Nodes that are part of a total, and totals, which cannot be part of one."""
    total_count: int = 0
    """Totals so far; each has its own place."""
    free: int = 0
    """Nodes in places without a total."""


def grow(task: OpDagProse, shape: Shape, room: Room, draw: Draw) -> Growth | None:
    """A necessary graph of that shape, its last node the goal; None where no value is in range for the last definitions, which is
    rare."""
    leaves = _leaves(tuple(task.leaf_weights().items()))
    totals, reuse = task.totals * 2**32, task.reuse * 2**32
    growth = Growth(shape, room, leaves, shape.depth, task.max_parents, task.max_value, totals, reuse, shape.op, shape.width)
    _plant(growth, _leaf(growth, draw), shape.reverse)
    while growth.edges:
        for _ in range(TRIES):
            if _try(growth, _proposal(growth, draw), draw):
                break
        else:
            for proposal in _sure(growth):
                if _try(growth, proposal, draw):
                    break
            else:
                return None
    return growth


Proposal = tuple[list[int], bool] | None
"""The operands of a definition and whether it has a constant; None: a leaf."""


def _leaf(growth: Growth, draw: Draw) -> int:
    leaves = growth.values_of_leaves
    return leaves.numbers[bisect_right(leaves.sums, draw() / 2**32 * leaves.sums[-1])]


def _plant(growth: Growth, value: int, unknown: bool) -> None:
    _append(growth, ((), None if unknown else value, "", False), value, int(unknown), 1)
    growth.free += 1
    growth.leaves -= 1
    growth.edges -= 1


def _proposal(growth: Growth, draw: Draw) -> Proposal:
    """A random definition. Only the goal reads lanes directly below it."""
    lanes, closed, levels, depth, leaves = growth.opened, growth.closed, growth.levels, growth.depth, growth.leaves
    chance = draw()
    if leaves and chance & 3 == 0:
        return None
    low = [place for place in lanes if levels[place] < depth - 1]
    room = growth.max_parents - len(lanes)
    if not leaves and len(low) < len(lanes) and (not low or chance & 4):
        over, total = growth.edges - len(lanes), growth.shape.total
        constant = not total and (over > min(room, len(closed)) or (over > 0 and chance & 24 == 0))
        if not (total and over) and 0 <= over - constant <= min(room, len(closed)):
            return [*lanes, *draw_some(closed, over - constant, draw)], constant
    fresh = 1
    if len(low) > 1 and chance & 32:
        fresh = 2 + (draw() % (len(low) - 1) if chance & 64 else 0)
    elif closed and room > leaves and (not low or chance & 896 == 0):
        fresh = 0
    reads = draw_some(low, min(fresh, len(low)), draw) if fresh and low else []
    extra = _extra(growth, depth, draw) + (not reads)
    constant = extra > 0 and draw() >= growth.reuse_share
    again = extra - constant
    if closed and (again > 0 or not reads):
        reads += draw_some(closed, max(min(again, len(closed), growth.max_parents - len(reads)), not reads), draw)
    return reads or list(lanes), constant


def _extra(growth: Growth, depth: int, draw: Draw) -> int:
    """Edges of a definition after the first such that, if the highest lane takes as many at each level, all are placed."""
    lanes, levels = growth.opened, growth.levels
    climbs = depth - 1 - (max([levels[place] for place in lanes]) if len(lanes) > 1 else levels[lanes[0]])
    if climbs <= 0:
        return draw() & 1
    left = growth.edges - len(lanes) - 2 * growth.leaves
    return (left * 2**32 + draw() * climbs) // (climbs * 2**32) - 1


def _sure(growth: Growth) -> list[Proposal]:
    """Definitions of which one fits every count."""
    max_parents, levels = growth.max_parents, growth.levels
    lanes = sorted(growth.opened, key=levels.__getitem__)
    high, low = lanes[-1], lanes[0]
    below = [place for place in growth.closed if levels[place] < levels[high]]
    again = [high, *below[: max_parents - 1]]
    ends = lanes + [place for place in growth.closed if place not in lanes][: max_parents - len(lanes)]
    options: list[Proposal] = [(lanes, False), (lanes, True)] if not growth.leaves else []
    options += [([high], False), ([high], True), ([low], True), ([low], False), None, (again, True)]
    if not growth.leaves:
        options += [(ends[:size], constant) for size in range(len(lanes) + 1, len(ends) + 1) for constant in (False, True)]
    if growth.closed:
        leaf = min(growth.closed, key=levels.__getitem__)
        options += [([leaf], True), ([leaf], False)]
    return options + [(again[:size], True) for size in range(len(again) - 1, 1, -1)]


def _try(growth: Growth, proposal: Proposal, draw: Draw) -> bool:
    """Add a definition of this kind; False, and nothing changed, where the rest could not be placed or no value is in range."""
    if proposal is None:
        return _try_leaf(growth, _leaf(growth, draw))
    reads, constant = proposal
    levels, opened = growth.levels, growth.opened
    edges = growth.edges - len(reads) - constant
    level = 1 + (max([levels[place] for place in reads]) if len(reads) > 1 else levels[reads[0]])
    kept = [place for place in opened if place not in reads]
    if edges < 0 or (not edges and (kept or growth.leaves or level != growth.depth)):
        return False
    count, free = growth.total_count + 1, growth.free - len(reads)
    total = not constant and _can_total(growth, reads, level, draw) and _completes(growth, edges, kept, level, count, free)
    if not total:
        count, free = growth.total_count, growth.free + 1
        if not _completes(growth, edges, kept, level, count, free):
            return False
    found = _defined(growth, reads, constant, total, kept, draw)
    if found is None:
        return False
    growth.closed += [place for place in opened if place in reads] if kept else opened
    growth.edges, growth.opened, growth.total_count, growth.free = edges, kept, count, free
    if total:
        growth.members.update(reads, [len(levels)])
    _append(growth, *found, level, total)
    return True


def _can_total(growth: Growth, reads: list[int], level: int, draw: Draw) -> bool:
    """Whether the operands may be all types of a place, and the definition its total."""
    if not growth.members.isdisjoint(reads) or len(reads) > growth.room.types:
        return False
    if growth.shape.total and level >= growth.depth - 1:
        return level == growth.depth
    return draw() < growth.totals_share


def _try_leaf(growth: Growth, value: int) -> bool:
    growth.leaves -= 1
    edges, free = growth.edges - 1, growth.free + 1
    if growth.leaves >= 0 and _completes(growth, edges, growth.opened, 1, growth.total_count, free):
        growth.edges, growth.free = edges, free
        _append(growth, ((), value, "", False), value, 0, 1)
        return True
    growth.leaves += 1
    return False


def _completes(growth: Growth, edges: int, kept: list[int], level: int, total_count: int, free: int) -> bool:
    """Whether `edges` can be placed after a definition at `level` that leaves these other lanes, totals, and nodes in places
    without a total."""
    places, types, reserve = growth.room
    left = (places - total_count) * types - free - reserve
    if not edges:
        return left >= 0
    levels = growth.levels
    top = total = level
    for place in kept:
        height = levels[place]
        total += height
        if height > top:
            top = height
    lanes = len(kept)
    closed = len(growth.closed) + len(growth.opened) - lanes
    return completes(
        edges, lanes + 1, total, top, closed, growth.leaves, growth.depth, growth.max_parents, left, growth.shape.total
    )


def _defined(
    growth: Growth, reads: list[int], constant: bool, total: bool, kept: list[int], draw: Draw
) -> tuple[Definition, int, int] | None:
    """The definition with an operator that keeps its value in range and the slope nonzero where an operand's is, with its value
    and its slope; None where there is none.

    Open nodes that depend on the unknown all have slopes of one sign, so that their sum does, too."""
    values, slopes = growth.values, growth.slopes
    most_value = growth.max_value - LARGEST_LEAF * growth.leaves
    sign = 0
    for place in kept:
        most_value -= values[place]
        sign = sign or slopes[place]
    chance = draw()
    value = slope = 0
    bound = False
    for place in reads:
        value += values[place]
        slope += slopes[place]
        bound = bound or slopes[place] != 0
    pair = len(reads) == 2 and not total
    for minus in ((True, False) if chance & 1 else (False, True)) if pair else (False,):
        if minus:
            first, second = reads if values[reads[0]] >= values[reads[1]] else reads[::-1]
            result, rise = values[first] - values[second], slopes[first] - slopes[second]
            reads = [first, second]
        else:
            result, rise = value, slope
        if result <= 0 or (bound and not rise) or rise * sign < 0:
            continue
        if not constant:
            if result <= most_value:
                return (tuple(reads), None, "", minus), result, rise
            continue
        for times in (True, False) if chance & 2 else (False, True):
            number = 2 + (chance >> 8) % 3 if times else 1 + (chance >> 8) % 4
            if (result * number if times else result + number) <= most_value:
                definition = (tuple(reads), number, "*" if times else "+", minus)
                return (definition, result * number, rise * number) if times else (definition, result + number, rise)
    return None


def _append(growth: Growth, found: Definition, value: int, slope: int, level: int, total: bool = False) -> None:
    growth.opened = [*growth.opened, len(growth.levels)]
    growth.made.append(found)
    growth.totals.append(total)
    growth.values.append(value)
    growth.slopes.append(slope)
    growth.levels.append(level)
