"""The union of task families, chosen by `name`, and the options of their verifiers."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from interplay.core.model import Model, Since
from interplay.core.partial import Written, members, partial, table, union_of
from interplay.tasks.bios.spec import Bios
from interplay.tasks.environments.spec import BiosSearch, Calculator, Kuhn, SelfSearch, TicTacToe, TwentyQuestions
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag_prose.spec import OpDagProse
from interplay.tasks.taxonomy.spec import Taxonomy

# Task families. A member of the union is chosen by its `name`.


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


# How completions are judged.


class Verify(Model):
    """How a completion is judged against the gold graph."""

    operator: bool = False
    """Also demand the gold operator in each step (the published verifier compares parents and value only)."""
    extra_nodes: Literal["free", "penalised"] = "free"
    """Whether steps for nodes that the goal does not need forfeit strictness (the published evaluator forgives them, the released
    reward does not)."""
    separator: Annotated[str, Since("")] = ""
    """Text between the units of a completion, each a whole attempt with an answer (MinD, arXiv:2505.19788): the last one is
    judged, as if nothing stood before it. Empty: a completion is one attempt."""
