"""Rows for tests of reformulation: op_dag problems as a problem set holds them."""

from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.verdict import Row

TASK = OpDag(modulus=23, letters=12, constants=(0, 22), distractors=(0, 2))
INTEGERS = OpDag(modulus=None, operators="+-", letters=12, distractors=(0, 2))


def rows(size: int, task: OpDag = TASK, op: int = 4, first: int = 0) -> list[Row]:
    """`size` rows of the task."""
    return [row(task, op, first + index, index) for index in range(size)]


def row(task: OpDag, op: int, place: int, index: int = 0) -> Row:
    """The row of the problem at (0, place)."""
    problem = OP_DAG.generate(task, 0, place, op)
    prompt, solution, answer = OP_DAG.render(problem, task)
    return Row(
        set=0,
        index=index,
        band="id",
        op=op,
        mode=problem.mode,
        prompt=prompt,
        solution=solution,
        answer=answer,
        graph=OP_DAG.dumps(problem),
        key=OP_DAG.structure(problem),
        family="op_dag",
        origin=f"{'a' * 12}:{place}",
    )
