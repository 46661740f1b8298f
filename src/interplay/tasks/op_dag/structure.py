"""A key of a problem up to renaming of letters and reordering of definitions, commuting operands and filler."""

from collections.abc import Sequence

from interplay.tasks.op_dag.graph import REVERSE, Problem

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
        colours.append(mix((((constant * 8 + _OPERATORS[node.operator]) * 2 + goal) * 2 + unknown) + 1))
    given = problem.values[-1] + 1 if reverse else 0
    colours[problem.goal] = mix(colours[problem.goal] + given * 131 + (problem.modulus or 0))
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
    return f"{mix(sum(colours)):016x}"


def _refine_down(reads: Sequence[tuple[int, ...]], ordered: Sequence[bool], colours: list[int]) -> None:
    """Each node's colour from its own and its parents', which stand before it; their places count under a minus only."""
    mixed: list[int] = []
    """What each node so far adds to its readers."""
    for place, parents in enumerate(reads):
        total = colours[place] * 3
        if ordered[place]:
            for number, parent in enumerate(parents):
                total += mix(colours[parent] + number)
        else:
            for parent in parents:
                total += mixed[parent] or _mixed(mixed, colours, parent)
        colours[place] = mix(total)
        mixed.append(0)


def _mixed(mixed: list[int], colours: list[int], parent: int) -> int:
    """Work out and keep what a node adds: many are read more than once, and many by none."""
    found = mixed[parent] = mix(colours[parent])
    return found


def _refine_up(reads: Sequence[tuple[int, ...]], ordered: Sequence[bool], colours: list[int]) -> None:
    """Each node's colour from its own and its readers', which stand after it."""
    totals = [colour * 5 for colour in colours]
    for place in range(len(colours) - 1, -1, -1):
        colour = colours[place] = mix(totals[place])
        if ordered[place]:
            for number, parent in enumerate(reads[place]):
                totals[parent] += mix(colour + number + 7)
        elif reads[place]:
            added = mix(colour + 7)
            for parent in reads[place]:
                totals[parent] += added


def mix(number: int) -> int:
    """A 64-bit finaliser (Stafford's variant 13 of MurmurHash3's)."""
    number &= _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31
