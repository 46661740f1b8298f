"""The table of task families."""

from types import ModuleType

from interplay.schema.task import Task
from interplay.tasks import op_dag

FAMILIES: dict[str, ModuleType] = {"op_dag": op_dag}


def family(task: Task) -> ModuleType:
    """The module of a task's family: generate, render, alphabet, structure, dumps, loads, verify, solve."""
    return FAMILIES[task.name]
