"""The table of task families, joined from the tables of their packages: the union of their options, chosen by `name`, and where
each is implemented; and the options of their verifiers."""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from interplay.core.extension import Extension, written_as
from interplay.core.model import Model, Natural, Since, Written, partial_model, table_model, union_members, union_of
from interplay.tasks.environments import spec as environments
from interplay.tasks.facts import spec as facts
from interplay.tasks.op_dag import spec as op_dag


class OwnTask(Extension):
    """A task family of the user's own: `function(**options)`, which returns a `tasks.family.Generator`; an `Environment` also
    replies to turns."""

    UNION: ClassVar[str] = "family"
    op_range: tuple[Natural, Natural] = (0, 1000)
    """Smallest and largest op that it can generate."""

    def ops(self) -> tuple[int, int]:
        """Smallest and largest op."""
        return self.op_range


Task = Annotated[op_dag.Task | facts.Task | environments.Task | OwnTask, Field(discriminator="name"), written_as(OwnTask)]
"""The options of families that generate problems."""
FAMILIES = {
    **op_dag.FAMILIES,
    **facts.FAMILIES,
    **environments.FAMILIES,
    "multihop": "interplay.tasks.multihop:MULTIHOP",
    "qa": "interplay.tasks.qa:QA",
    "reformulated": "interplay.tasks.reformulated:REFORMULATED",
    "subproblems": "interplay.tasks.subproblems:SUBPROBLEMS",
}
"""Family -> `module:attribute` of its `tasks.family.Family`: those of the union, which generate problems, and those that judge
rows which curation makes or files hold (column `family`)."""


class TaskKey(Model):
    """A single task, parsed under its own key, so that errors name the key."""

    task: Task


@cache
def _families() -> dict[str, type[Model]]:
    return {model.model_fields["name"].default: partial_model(model, f"{model.__name__}Keys") for model in union_members(Task)}


TaskKeys = Annotated[dict[str, Any], Written(lambda: union_of(_families().values(), "name", written_as(OwnTask)))]
"""Some keys of a task; the keys of scale, study and arm together form one task."""
_Table = Written(cache(lambda: table_model("FamilyKeys", _families(), "Keys of tasks of family")))
FamilyKeys = Annotated[dict[str, dict[str, Any]], _Table]
"""Name of a family -> keys of its task."""


# How completions are judged.


class OwnVerifier(Extension):
    """A verifier of the user's own: `function(row, completion, verdict, **options) -> verdict`; `verdict` is the family's."""

    UNION: ClassVar[str] = "verifier"


class Verify(Model):
    """How a completion is judged against the gold graph."""

    operator: bool = False
    """Also require the gold operator in each step (the published verifier compares parents and value only)."""
    arithmetic: Annotated[bool, Since(False)] = False
    """Also require, on the terse surface of op_dag, that a value comes with the numbers it is worked out from (`w6-4=2`, where
    `w2` passes as published). Sentences of op_dag_prose always have them."""
    extra_nodes: Literal["free", "penalised"] = "free"
    """Whether steps for nodes that the goal does not need fail strict (the published evaluator ignores them, the released reward
    does not)."""
    separator: Annotated[str, Since("")] = ""
    """Text between the units of a completion, each a complete attempt with an answer (MinD, arXiv:2505.19788): only the last unit
    is judged. Empty: a completion is one attempt."""
    own: Annotated[OwnVerifier | None, Since(None), written_as(OwnVerifier)] = None
    """A verifier of the user's own, which reads a completion after that of the family; null: none."""
