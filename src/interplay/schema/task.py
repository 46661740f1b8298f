"""Task families. A member of the union is chosen by its `name`."""

from typing import Annotated

from pydantic import Field

from interplay.schema.base import Model
from interplay.schema.bios import Bios
from interplay.schema.environments import BiosSearch, Calculator, Kuhn, SelfSearch, TicTacToe, TwentyQuestions
from interplay.schema.op_dag import OpDag
from interplay.schema.op_dag_prose import OpDagProse
from interplay.schema.taxonomy import Taxonomy

Task = Annotated[
    OpDag | OpDagProse | Bios | Taxonomy | Calculator | BiosSearch | SelfSearch | TwentyQuestions | TicTacToe | Kuhn,
    Field(discriminator="name"),
]


class TaskKey(Model):
    """Where a task stands alone: parsed under its own key, so that errors name it."""

    task: Task
