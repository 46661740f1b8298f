"""A key of a problem up to renaming of nouns and letters and reordering of sentences and of commuting operands."""

from interplay.tasks.op_dag.graph import REVERSE
from interplay.tasks.op_dag.structure import mix, refined
from interplay.tasks.op_dag_prose.graph import Problem

_OPERATORS = {"": 0, "+": 1, "*": 2}


def structure(problem: Problem) -> str:
    """16 hex digits, the same on every machine (op_dag.structure). Totals are nodes that read all that is mentioned for their
    place, so that what stands where needs no further colour."""
    colours = []
    for place, node in enumerate(problem.nodes):
        constant = 0 if node.constant is None else node.constant + 2
        unknown = node.constant is None and not node.parents
        kind = ((_OPERATORS[node.operator] * 2 + node.minus) * 2 + node.total) * 2 + unknown
        colours.append(mix((constant * 64 + kind) * 2 + (place == problem.goal) + 1))
    given = problem.values[-1] + 1 if problem.mode == REVERSE else 0
    colours[problem.goal] = mix(colours[problem.goal] + given * 131)
    reads = [node.parents for node in problem.nodes]
    return refined(reads, [node.minus for node in problem.nodes], colours)
