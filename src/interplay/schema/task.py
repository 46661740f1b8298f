"""Task families. A member of the union is chosen by its `name`."""

from functools import cache
from typing import Annotated, Any

from pydantic import Field

from interplay.schema.base import Model
from interplay.schema.bios import Bios
from interplay.schema.environments import BiosSearch, Calculator, Kuhn, SelfSearch, TicTacToe, TwentyQuestions
from interplay.schema.op_dag import OpDag
from interplay.schema.op_dag_prose import OpDagProse
from interplay.schema.partial import Written, members, partial, table, union_of
from interplay.schema.taxonomy import Taxonomy

Task = Annotated[
    OpDag | OpDagProse | Bios | Taxonomy | Calculator | BiosSearch | SelfSearch | TwentyQuestions | TicTacToe | Kuhn,
    Field(discriminator="name"),
]


class TaskKey(Model):
    """Where a task stands alone: parsed under its own key, so that errors name it."""

    task: Task


@cache
def _families() -> dict[str, type[Model]]:
    return {model.model_fields["name"].default: partial(model, f"{model.__name__}Keys") for model in members(Task)}


def _one_of_them() -> Any:
    return union_of(_families().values(), "name")


@cache
def _table() -> type[Model]:
    return table("FamilyKeys", _families(), "Keys of tasks of family")


TaskKeys = Annotated[dict[str, Any], Written(_one_of_them)]
"""Some keys of a task; those of the scale, study and arm together make one."""
FamilyKeys = Annotated[dict[str, dict[str, Any]], Written(_table)]
"""Name of a family -> keys of its task."""
