"""What a prompt tells that the goal does not need: further types in places whose total the goal does not ask."""

from typing import NamedTuple

from interplay.schema.op_dag_prose import Theme
from interplay.tasks.op_dag.stream import Draw
from interplay.tasks.op_dag_prose.graph import TOTAL, Node

MOST_PARENTS = 4


class Cast(NamedTuple):
    """The nouns of a problem, shuffled."""

    places: list[str]
    types: list[str]
    theme: Theme

    def total(self) -> str:
        """What a place's total counts."""
        return f"{TOTAL}{self.theme.things}"

    def room(self, nodes: list[Node]) -> int:
        """Types that can still be told without altering a total."""
        asked = sum([node.total for node in nodes])
        members = sum([len(node.parents) for node in nodes if node.total])
        return (len(self.places) - asked) * len(self.types) - (len(nodes) - asked - members)


def distract(nodes: list[Node], cast: Cast, number: int, draw: Draw) -> list[Node]:
    """So many definitions, and the totals that they read: leaves, and sums or differences of what stands before them, under a
    constant or not. Nothing evaluates them, so they need no values. A place whose total is read takes no further type, so that
    nothing reads itself."""
    found = list(nodes)
    asked = {node.place for node in nodes if node.total}
    used = {(node.thing, node.place) for node in nodes}
    slots = [(kind, place) for place in cast.places if place not in asked for kind in cast.types if (kind, place) not in used]
    for left in range(number, 0, -1):
        thing, place = slots.pop(draw() % len(slots))
        reads = _reads(found, draw)
        if reads and draw() & 3 == 0:
            slots = _read_total(found, reads, cast, place, slots, left - 1, draw)
        constant = draw() % 4 + 1 if not reads or draw() & 1 else None
        times = bool(reads) and constant is not None and constant > 1 and draw() & 1
        operator = "" if not reads or constant is None else "*" if times else "+"
        minus = len(reads) == 2 and draw() & 1 == 1
        found.append(Node(thing, place, False, tuple(reads), constant, operator, minus))
    return found[len(nodes) :]


def _reads(found: list[Node], draw: Draw) -> list[int]:
    """No node, or one to four of those before."""
    chance = draw() % 10
    size = 0 if chance < 4 else min(len(found), 1 if chance < 7 else 2 + draw() % (MOST_PARENTS - 1))
    reads: list[int] = []
    while len(reads) < size:
        place = draw() % len(found)
        if place not in reads:
            reads.append(place)
    return reads


def _read_total(
    found: list[Node], reads: list[int], cast: Cast, own: str, slots: list[tuple[str, str]], needed: int, draw: Draw
) -> list[tuple[str, str]]:
    """Let a distractor read the total of another place whose total nothing reads yet, if what is left still has room; the slots
    that stay."""
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
    found.append(Node(cast.total(), place, True, members, None, "", False))
    return kept
