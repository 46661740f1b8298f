"""Problems by construction: the graph grows from its first leaf by choices each of which can still be completed to exactly
`op` edges and in-range values, so that nothing is ever thrown away and a problem is a function of (task, seed, index, op)
alone."""

from interplay.schema.base import UserError
from interplay.schema.op_dag import OpDag
from interplay.tasks.op_dag.graph import FORWARD, REVERSE, Node, Problem
from interplay.tasks.op_dag.grow import grow
from interplay.tasks.op_dag.render import names
from interplay.tasks.op_dag.stream import Draw, between, sample, stream


def generate(task: OpDag, seed: int, index: int, op: int) -> Problem:
    """The problem of the task at (seed, index) with exactly `op` edges. Raises UserError where the letters do not suffice for op.

    The numbers of distractors and fillers and the mode are drawn first: at one (seed, index) they are the same for every op.
    """
    low, high = task.ops()
    if not low <= op <= high:
        raise UserError(
            f"task op_dag: op {op} lies outside {low}..{high} (letters {task.letters}, distractors {task.distractors})"
        )
    draw = stream("op_dag", seed, index)
    distractors = between(draw, task.distractors)
    dots = between(draw, task.filler)
    mode = _mode(draw, task.modes)
    growth = grow(task, op, mode == REVERSE, draw)
    necessary = len(growth.parents)
    for _ in range(distractors):
        _distract(task, growth.parents, growth.constants, growth.operators, draw)
    total = necessary + distractors
    nodes = zip(sample(draw, list(names(task)), total), growth.operators, growth.parents, growth.constants, strict=True)
    return Problem(
        mode=mode,
        modulus=task.modulus,
        nodes=tuple(map(Node._make, nodes)),
        necessary=necessary,
        values=tuple(growth.values),
        slopes=tuple(growth.slopes),
        order=tuple(sample(draw, list(range(total)), total)),
        filler=_strew(draw, dots, total + 1),
    )


def _mode(draw: Draw, modes: dict) -> str:
    return FORWARD if draw() < modes.get(FORWARD, 0.0) * 2**32 else REVERSE


def _strew(draw: Draw, dots: int, gaps: int) -> tuple[int, ...]:
    counts = [0] * gaps
    for _ in range(dots):
        counts[draw() % gaps] += 1
    return tuple(counts)


def _distract(task: OpDag, parents: list, constants: list, operators: list, draw: Draw) -> None:
    """Append a definition that no necessary one reads: a leaf, a copy, or one or two earlier definitions under an operator.
    Nothing evaluates it, so it needs no value."""
    shape = draw() % 3
    here = len(parents)
    first = draw() % here
    operator = task.operators[draw() % len(task.operators)]
    if draw() < task.copies * 2**32:
        _append(parents, (first,), constants, None, operators, "")
    elif shape == 2 and here > 1 and task.max_parents > 1:
        second = (first + 1 + draw() % (here - 1)) % here
        _append(parents, (first, second), constants, None, operators, operator)
    elif shape:
        _append(parents, (first,), constants, between(draw, task.constants), operators, operator)
    else:
        _append(parents, (), constants, between(draw, task.constants), operators, "")


def _append(parents: list, reads: tuple, constants: list, constant: int | None, operators: list, operator: str) -> None:
    parents.append(reads)
    constants.append(constant)
    operators.append(operator)
