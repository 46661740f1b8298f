"""A key of a problem up to renaming of letters and reordering of definitions, commuting operands and filler."""

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
        colours.append(_mix((((constant * 8 + _OPERATORS[node.operator]) * 2 + goal) * 2 + unknown) + 1))
    given = problem.values[-1] + 1 if reverse else 0
    colours[problem.goal] = _mix(colours[problem.goal] + given * 131 + (problem.modulus or 0))
    for _ in range(2):
        _refine_down(problem, colours)
        _refine_up(problem, colours)
    return f"{_mix(sum(colours)):016x}"


def shared(problem: Problem) -> bool:
    """Whether the problem belongs to every split alike; none does: each is a question of its own."""
    return False


def _refine_down(problem: Problem, colours: list[int]) -> None:
    """Each node's colour from its own and its parents', which stand before it; their places count under a minus only."""
    for place, node in enumerate(problem.nodes):
        total = colours[place] * 3
        for number, parent in enumerate(node.parents):
            total += _mix(colours[parent] + (number if node.operator == "-" else 0))
        colours[place] = _mix(total)


def _refine_up(problem: Problem, colours: list[int]) -> None:
    """Each node's colour from its own and its readers', which stand after it."""
    totals = [colour * 5 for colour in colours]
    for place in range(len(colours) - 1, -1, -1):
        node = problem.nodes[place]
        colour = colours[place] = _mix(totals[place])
        for number, parent in enumerate(node.parents):
            totals[parent] += _mix(colour + (number if node.operator == "-" else 0) + 7)


def _mix(number: int) -> int:
    """A 64-bit finaliser (Stafford's variant 13 of MurmurHash3's)."""
    number &= _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31
