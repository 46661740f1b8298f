"""Problems by construction, keyed by (task, seed, index, op): first the draws that do not depend on op, then the shape, the
graph, the distractors and the names; and a solver that reads the prompt only."""

import re
from bisect import bisect_right
from functools import lru_cache
from math import exp
from typing import NamedTuple

from interplay.core.model import UserError
from interplay.core.random import Draw, draw_between, draw_sample, stream, sum_in_order
from interplay.tasks.family import check_op
from interplay.tasks.op_dag.dag import REVERSE, linear_root
from interplay.tasks.op_dag.prose import TOTAL, Node, Problem, new_node, solution_letters
from interplay.tasks.op_dag.prose_growth import Growth, Room, Shape, grow
from interplay.tasks.op_dag.spec import OpDagProse, Theme, completes, shapes

# Distractors: further types in places whose total the goal does not read.


MOST_PARENTS = 4


class Cast(NamedTuple):
    """The nouns of a problem, shuffled."""

    places: list[str]
    types: list[str]
    theme: Theme

    def total(self) -> str:
        """The counted noun of a place's total."""
        return f"{TOTAL}{self.theme.things}"


def distract(nodes: list[Node], cast: Cast, number: int, draw: Draw) -> list[Node]:
    """`number` definitions, and the totals that they read: leaves, and sums or differences of earlier nodes, with or without a
    constant. They are never evaluated, so they need no values. A place whose total is read takes no further type, so that there
    are no cycles."""
    found = list(nodes)
    asked = {node[1] for node in nodes if node[2]}
    used = {node[:2] for node in nodes}
    slots = [slot for place in cast.places if place not in asked for kind in cast.types if (slot := (kind, place)) not in used]
    for left in range(number, 0, -1):
        thing, place = slots.pop(draw() % len(slots))
        reads = _reads(found, draw)
        if not reads:
            found.append(new_node((thing, place, False, (), draw() % 4 + 1, "", False)))
            continue
        if draw() & 3 == 0:
            slots = _read_total(found, reads, cast, place, slots, left - 1, draw)
        constant = draw() % 4 + 1 if draw() & 1 else None
        times = constant is not None and constant > 1 and draw() & 1
        operator = "" if constant is None else "*" if times else "+"
        minus = len(reads) == 2 and draw() & 1 == 1
        found.append(new_node((thing, place, False, tuple(reads), constant, operator, minus)))
    return found[len(nodes) :]


def _reads(found: list[Node], draw: Draw) -> list[int]:
    """No operand, or one to four earlier nodes."""
    chance = draw() % 10
    if chance < 4:
        return []
    total = len(found)
    if chance < 7:
        return [draw() % total]
    size = min(total, 2 + draw() % (MOST_PARENTS - 1))
    reads: list[int] = []
    while len(reads) < size:
        place = draw() % total
        if place not in reads:
            reads.append(place)
    return reads


def _read_total(
    found: list[Node], reads: list[int], cast: Cast, own: str, slots: list[tuple[str, str]], needed: int, draw: Draw
) -> list[tuple[str, str]]:
    """Let a distractor read the total of another place whose total has no reader, if there are still enough slots; the remaining
    slots."""
    asked = {node.place for node in found if node.total}
    places = [place for place in dict.fromkeys([node.place for node in found]) if place not in asked and place != own]
    if not places:
        return slots
    place = places[draw() % len(places)]
    kept = [slot for slot in slots if slot[1] != place]
    if len(kept) < needed:
        return slots
    members = tuple([number for number, node in enumerate(found) if node.place == place])
    reads[-1] = len(found)
    found.append(new_node((cast.total(), place, True, members, None, "", False)))
    return kept


MOST_SENTENCES = 20
"""Most sentences of a problem whose number of distractors is free (the released generator's ip_max), unless the goal needs
more."""
ATTEMPTS = 200


def generate(task: OpDagProse, seed: int, index: int, op: int) -> Problem:
    """The problem of the task at (seed, index) with exactly `op` edges. Raises UserError where the task has no such op.

    Theme, mode, depth, width and the number of distractors are drawn first, where they have ranges: at one (seed, index) they are
    the same for every op."""
    check_op(task, op, "depth", "width", "distractors", "themes")
    draw = stream("op_dag_prose", seed, index)
    name, mode = pick(draw, task.themes), pick(draw, task.modes)
    depth, width, distractors = (
        draw_between(draw, bounds) if bounds else None for bounds in (task.depth, task.width, task.distractors)
    )
    theme = task.theme(name)
    places, types = theme.places[draw() % len(theme.places)], theme.types[draw() % len(theme.types)]
    room = Room(len(places), len(types), distractors or 0)
    spare = room.places * room.types - room.reserve
    found, sums = _shapes(op, task.max_parents, spare, depth, width)
    for _ in range(ATTEMPTS):
        deep, wide = found[bisect_right(sums, draw() / 2**32 * sums[-1])]
        total = draw() < task.totals * 2**32 and completes(op - 1, 1, 1, 1, 0, wide - 1, deep, task.max_parents, spare - 1, True)
        shape = Shape(op, deep, wide, mode == REVERSE, total)
        growth = grow(task, shape, room, draw)
        if growth:
            cast = Cast(draw_sample(draw, list(places), len(places)), draw_sample(draw, list(types), len(types)), theme)
            return _problem(growth, cast, name, mode, distractors, draw)
    raise UserError(f"task op_dag_prose: op {op} at depth {depth} and width {width} leaves max_value {task.max_value}; raise it")


def _problem(growth: Growth, cast: Cast, theme: str, mode: str, distractors: int | None, draw: Draw) -> Problem:
    necessary = len(growth.made)
    nodes = _cast(growth, cast, draw)
    if distractors is None:
        # Types that can still be mentioned without altering a total.
        room = (len(cast.places) - growth.total_count) * len(cast.types) - growth.free
        distractors = draw() % (1 + max(0, min(room, MOST_SENTENCES - necessary + growth.total_count)))
    nodes += distract(nodes, cast, distractors, draw)
    sentences = [place for place, node in enumerate(nodes) if not node[2]] + ([-1] if mode == REVERSE else [])
    alphabet = solution_letters(mode)
    return Problem(
        mode=mode,
        theme=theme,
        nodes=tuple(nodes),
        necessary=necessary,
        values=tuple(growth.values),
        slopes=tuple(growth.slopes),
        order=tuple(draw_sample(draw, sentences, len(sentences))),
        letters="".join(draw_sample(draw, alphabet, min(growth.shape.op, len(alphabet)))),
    )


def _cast(growth: Growth, cast: Cast, draw: Draw) -> list[Node]:
    """The necessary nodes with their names: each total has its own place, the others share the rest."""
    names: dict[int, tuple[str, str]] = {}
    asked, types = 0, len(cast.types)
    if growth.total_count:
        for place, total in enumerate(growth.totals):
            if total:
                members = growth.made[place][0]
                kinds = draw_sample(draw, list(cast.types), len(members))
                names |= {member: (kind, cast.places[asked]) for member, kind in zip(members, kinds, strict=True)}
                names[place] = (cast.total(), cast.places[asked])
                asked += 1
    rest = len(growth.made) - len(names)
    fewest = -(-rest // types)
    most = len(cast.places) - asked
    kept = fewest + draw() % (most - fewest + 1) if rest else 0
    slots = iter(draw_sample(draw, list(range(kept * types)), rest))
    nodes = []
    for place, (total, one) in enumerate(zip(growth.totals, growth.made, strict=True)):
        if place in names:
            thing, where = names[place]
        else:
            group, kind = divmod(next(slots), types)
            thing, where = cast.types[kind], cast.places[asked + group]
        nodes.append(new_node((thing, where, total, *one)))
    return nodes


@lru_cache(maxsize=4096)
def _shapes(
    op: int, max_parents: int, room: int, depth: int | None, width: int | None
) -> tuple[list[tuple[int, int]], list[float]]:
    """The (depth, width) that a problem can have, and the running sums of their weights. Without a range they are about as
    published: depth around 1.2 + 0.38 op, three quarters of graphs with one leaf."""
    found, sums, total = [], [], 0.0
    for deep, wide in shapes(op, max_parents, room):
        if depth in (None, deep) and width in (None, wide):
            total += (exp(-((deep - 1.2 - 0.38 * op) ** 2) / 4) + 1e-6) * 0.25**wide
            found.append((deep, wide))
            sums.append(total)
    return found, sums


def pick(draw: Draw, shares: dict) -> str:
    """A key, drawn by its share."""
    point, total = draw() / 2**32 * sum_in_order(shares.values()), 0.0
    for name, share in shares.items():
        total += share
        if point < total:
            return name
    return next(reversed(shares))


# A solver that reads the prompt only: the oracle for the generator, with which it shares no code.


_SENTENCE = re.compile(r"The (?:number of )?([^.]+? in [^.]+?) (?:equals ([^.]+)|exists, and its number is greater than 0)\.")
_ASKED = re.compile(r"(?:How many ([^.?]+) does ([^.?]+) have|What is the ([^.?]+))\?")
_READ = re.compile(r"the (?:number of )?((?!sum of|difference between)[^,]+? in [^,]+?)(?=,| and the |$)")
_HEAD = re.compile(r"(?:([0-9]+)(?: (plus|times) |$))?(.*)")


def solve(prompt: str, task: OpDagProse) -> str:
    """The answer to a prompt. Evaluates the goal by substitution; for a reverse problem at 0 and at 1, which determines the line
    a*x + b that must equal the given value. Raises ValueError where the prompt has no unique answer."""
    bodies: dict[str, str] = {}
    given: list[tuple[str, int]] = []
    unknown = ""
    for name, body in _SENTENCE.findall(prompt):
        if not body:
            unknown = name
        elif body.isdigit() and (name.startswith(TOTAL) or name in bodies):
            given.append((name, int(body)))
        elif name in bodies:
            given.append((name, int(bodies[name])))
            bodies[name] = body
        else:
            bodies[name] = body
    mentioned = dict.fromkeys([*bodies, unknown, *(name for body in bodies.values() for name in _READ.findall(body))])
    members: dict[str, list[str]] = {}
    for name in mentioned:
        if name and not name.startswith(TOTAL):
            members.setdefault(name.partition(" in ")[2], []).append(name)
    asked = _ASKED.search(prompt)
    if asked is None:
        raise ValueError(f"no question: {prompt}")
    thing, place, total = asked.groups()
    name = total or f"{thing} in {place}"
    if not unknown:
        return str(_value(name, bodies, members, {}))
    ((goal, value),) = given
    at_zero = _value(goal, bodies, members, {unknown: 0})
    slope = _value(goal, bodies, members, {unknown: 1}) - at_zero
    if name != unknown:
        raise ValueError(f"the question is not about the unknown: {prompt}")
    return str(linear_root(slope, value - at_zero, None))


def _value(name: str, bodies: dict[str, str], members: dict[str, list[str]], known: dict[str, int]) -> int:
    """The value of a name, depth first; `known` holds the values so far and is extended."""
    if name not in known:
        if name.startswith(TOTAL):
            result = sum([_value(other, bodies, members, known) for other in members[name.partition(" in ")[2]]])
        else:
            head = _HEAD.fullmatch(bodies[name])
            assert head is not None
            number, operator, rest = head.groups()
            values = [_value(other, bodies, members, known) for other in _READ.findall(rest)]
            result = values[0] - values[1] if rest.startswith("the difference") else sum(values)
            if number:
                result = int(number) * result if operator == "times" else int(number) + result
        known[name] = result
    return known[name]
