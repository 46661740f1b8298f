"""The necessary part of a graph, grown from one leaf to exactly the wanted edges, depth and number of leaves.

Nodes without a reader are lanes. The goal reads all lanes at once, one level above the highest, so that at most `max_parents` of
them are open at a time. A definition is added only where the remaining edges can still be placed
(tasks.op_dag.spec.completes) and where the sum of all lanes, which the goal may have to be, stays in range."""

from bisect import bisect_right
from dataclasses import dataclass, field
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


class Wanted(NamedTuple):
    """The constants of a growing graph."""

    task: OpDagProse
    shape: Shape
    room: Room
    values: Leaves


@dataclass(slots=True)
class Growth:
    """The nodes so far, one entry each, in topological order, and the lanes."""

    wanted: Wanted
    edges: int
    """Still to be placed."""
    leaves: int
    """Still to be planted."""
    made: list["Definition"] = field(default_factory=list)
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


class Definition(NamedTuple):
    """A definition that may be added."""

    parents: tuple[int, ...]
    constant: int | None
    operator: str
    minus: bool
    value: int
    slope: int


class After(NamedTuple):
    """The state after a definition is added."""

    edges: int
    """Still to be placed."""
    kept: list[int]
    """Remaining lanes."""
    level: int
    """Of the new lane."""
    total_count: int
    """Totals."""
    free: int
    """Nodes in places without a total."""


def grow(task: OpDagProse, shape: Shape, room: Room, draw: Draw) -> Growth | None:
    """A necessary graph of that shape, its last node the goal; None where no value is in range for the last definitions, which is
    rare."""
    weights = task.leaf_weights()
    wanted = Wanted(task, shape, room, Leaves(tuple(weights), tuple(accumulate(weights.values()))))
    growth = Growth(wanted, shape.op, shape.width)
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
    leaves = growth.wanted.values
    return leaves.numbers[bisect_right(leaves.sums, draw() / 2**32 * leaves.sums[-1])]


def _plant(growth: Growth, value: int, unknown: bool) -> None:
    _append(growth, Definition((), None if unknown else value, "", False, value, int(unknown)), 1)
    growth.free += 1
    growth.leaves -= 1
    growth.edges -= 1


def _proposal(growth: Growth, draw: Draw) -> Proposal:
    """A random definition. Only the goal reads lanes directly below it."""
    task, shape = growth.wanted.task, growth.wanted.shape
    lanes, closed, levels, depth = growth.opened, growth.closed, growth.levels, shape.depth
    chance = draw()
    if growth.leaves and chance & 3 == 0:
        return None
    low = [place for place in lanes if levels[place] < depth - 1]
    room = task.max_parents - len(lanes)
    if not growth.leaves and len(low) < len(lanes) and (not low or chance & 4):
        over = growth.edges - len(lanes)
        constant = not shape.total and (over > min(room, len(closed)) or (over > 0 and chance & 24 == 0))
        if not (shape.total and over) and 0 <= over - constant <= min(room, len(closed)):
            return [*lanes, *draw_some(closed, over - constant, draw)], constant
    fresh = 1
    if len(low) > 1 and chance & 32:
        fresh = 2 + (draw() % (len(low) - 1) if chance & 64 else 0)
    elif closed and room > growth.leaves and (not low or chance & 896 == 0):
        fresh = 0
    reads = draw_some(low, min(fresh, len(low)), draw)
    extra = _extra(growth, depth, draw) + (not reads)
    constant = extra > 0 and draw() >= task.reuse * 2**32
    again = min(extra - constant, len(closed), task.max_parents - len(reads))
    reads += draw_some(closed, max(again, int(not reads and bool(closed))), draw)
    return reads or list(lanes), constant


def _extra(growth: Growth, depth: int, draw: Draw) -> int:
    """Edges of a definition after the first such that, if the highest lane takes as many at each level, all are placed."""
    climbs = depth - 1 - max([growth.levels[place] for place in growth.opened])
    left = growth.edges - len(growth.opened) - 2 * growth.leaves
    return (left * 2**32 + draw() * climbs) // (climbs * 2**32) - 1 if climbs > 0 else draw() & 1


def _sure(growth: Growth) -> list[Proposal]:
    """Definitions of which one fits every count."""
    task, levels = growth.wanted.task, growth.levels
    lanes = sorted(growth.opened, key=levels.__getitem__)
    high, low = lanes[-1], lanes[0]
    below = [place for place in growth.closed if levels[place] < levels[high]]
    again = [high, *below[: task.max_parents - 1]]
    ends = lanes + [place for place in growth.closed if place not in lanes][: task.max_parents - len(lanes)]
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
    levels = growth.levels
    edges = growth.edges - len(reads) - constant
    level = 1 + max([levels[place] for place in reads])
    kept = [place for place in growth.opened if place not in reads]
    if edges < 0 or (not edges and (kept or growth.leaves or level != growth.wanted.shape.depth)):
        return False
    after = After(edges, kept, level, growth.total_count, growth.free + 1)
    total = not constant and _can_total(growth, reads, level, draw)
    if total:
        as_total = After(edges, kept, level, growth.total_count + 1, growth.free - len(reads))
        total = _completes(growth, as_total)
        after = as_total if total else after
    if not total and not _completes(growth, after):
        return False
    found = _defined(growth, reads, constant, total, kept, draw)
    if found is None:
        return False
    growth.closed += [place for place in growth.opened if place in reads]
    growth.edges, growth.opened, growth.total_count, growth.free = edges, kept, after.total_count, after.free
    if total:
        growth.members.update(reads, [len(levels)])
    _append(growth, found, level, total)
    return True


def _can_total(growth: Growth, reads: list[int], level: int, draw: Draw) -> bool:
    """Whether the operands may be all types of a place, and the definition its total."""
    task, shape, room, _ = growth.wanted
    if not growth.members.isdisjoint(reads) or len(reads) > room.types:
        return False
    if shape.total and level >= shape.depth - 1:
        return level == shape.depth
    return draw() < task.totals * 2**32


def _try_leaf(growth: Growth, value: int) -> bool:
    growth.leaves -= 1
    after = After(growth.edges - 1, growth.opened, 1, growth.total_count, growth.free + 1)
    if growth.leaves >= 0 and _completes(growth, after):
        growth.edges, growth.free = after.edges, after.free
        _append(growth, Definition((), value, "", False, value, 0), 1)
        return True
    growth.leaves += 1
    return False


def _completes(growth: Growth, after: After) -> bool:
    """Whether the rest can be placed after that."""
    task, shape, room, _ = growth.wanted
    left = (room.places - after.total_count) * room.types - after.free - room.reserve
    if not after.edges:
        return left >= 0
    levels = growth.levels
    top = total = after.level
    for place in after.kept:
        height = levels[place]
        total += height
        if height > top:
            top = height
    lanes = len(after.kept)
    closed = len(growth.closed) + len(growth.opened) - lanes
    return completes(after.edges, lanes + 1, total, top, closed, growth.leaves, shape.depth, task.max_parents, left, shape.total)


def _defined(growth: Growth, reads: list[int], constant: bool, total: bool, kept: list[int], draw: Draw) -> Definition | None:
    """The definition with an operator that keeps its value in range and the slope nonzero where an operand's is; None where there
    is none.

    Open nodes that depend on the unknown all have slopes of one sign, so that their sum does, too."""
    values, slopes = growth.values, growth.slopes
    most_value = growth.wanted.task.max_value - sum([values[place] for place in kept]) - LARGEST_LEAF * growth.leaves
    chance = draw()
    minuses = (False,) if total or len(reads) != 2 else (True, False) if chance & 1 else (False, True)
    bound = any([slopes[place] for place in reads])
    sign = next((slopes[place] for place in kept if slopes[place]), 0)
    for minus in minuses:
        value, slope = sum([values[place] for place in reads]), sum([slopes[place] for place in reads])
        if minus:
            first, second = reads if values[reads[0]] >= values[reads[1]] else reads[::-1]
            value, slope = values[first] - values[second], slopes[first] - slopes[second]
            reads = [first, second]
        if value <= 0 or (bound and not slope) or slope * sign < 0:
            continue
        for times in ((True, False) if chance & 2 else (False, True)) if constant else (None,):
            number = None if times is None else 2 + (chance >> 8) % 3 if times else 1 + (chance >> 8) % 4
            result = value if number is None else value * number if times else value + number
            if result <= most_value:
                operator = "" if times is None else "*" if times else "+"
                return Definition(tuple(reads), number, operator, minus, result, slope * number if times and number else slope)
    return None


def _append(growth: Growth, found: Definition, level: int, total: bool = False) -> None:
    growth.opened = [*growth.opened, len(growth.levels)]
    growth.made.append(found)
    growth.totals.append(total)
    growth.values.append(found.value)
    growth.slopes.append(found.slope)
    growth.levels.append(level)
