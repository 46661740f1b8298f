"""The tables of task families. A family is a module: whoever generates problems has generate, render, solve, structure, shared,
dumps and an alphabet or a vocabulary; whoever judges completions has loads and verify. Transforms make rows of families that only
judge."""

from types import ModuleType

from interplay.schema.task import Task
from interplay.tasks import op_dag

FAMILIES: dict[str, ModuleType] = {"op_dag": op_dag}
"""Families that generate problems, by the name of their task."""
JUDGES: dict[str, ModuleType] = {**FAMILIES}
"""Families that judge completions, by the column `family` of a row."""


def family(task: Task) -> ModuleType:
    """The module that generates the problems of a task."""
    return FAMILIES[task.name]


def judge(name: str) -> ModuleType:
    """The module that judges the completions of a row of this family."""
    return JUDGES[name]
