"""The table of task families, joined from the tables of their packages: the union of their options, chosen by `name`, and where
each is implemented; the options of the environments, small text tasks for episodes of several turns, and of verifiers."""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Model, Natural, Since, Written, partial_model, table_model, union_members, union_of
from interplay.tasks.adapters import spec as adapters
from interplay.tasks.facts import spec as facts
from interplay.tasks.op_dag import spec as op_dag

# Environments.


MOST_OBJECTS, MOST_ATTRIBUTES = 16, 8


class Calculator(Model):
    """Arithmetic with a tool: the policy writes `calc(3+4)` and reads `7`. Difficulty `op` = operators of the expression."""

    name: Literal["calculator"] = "calculator"
    operators: Literal["+", "+-", "+-*", "+*"] = "+-*"
    """Operators that occur."""
    largest: Annotated[int, Field(ge=1, le=999)] = 99
    """Numbers of the expression lie in 0..largest; at most 999, so that the tool can hold every value."""
    single: bool = True
    """Whether the tool takes one operator at a time, so that an expression of n takes n turns; else it takes any expression."""

    def ops(self) -> facts.Range:
        """Least and most operators."""
        return (1, 5)


class Search(Model):
    """Common options of searches in a dictionary of people."""

    LEVEL: ClassVar[str]
    """The level of bios whose facts the dictionary holds."""
    bios: facts.Bios

    @model_validator(mode="after")
    def _has_level(self) -> Self:
        if self.bios.level != self.LEVEL:
            raise ValueError(f"bios.level = {self.bios.level}: must be {self.LEVEL}, whose facts are in the dictionary")
        return self

    def ops(self) -> facts.Range:
        """Least and most hops."""
        return self.bios.ops()


class BiosSearch(Search):
    """Questions about people whose facts are in a dictionary: the policy writes `look(Ada)` and reads the facts about Ada.
    Difficulty `op` = hops."""

    LEVEL: ClassVar[str] = "in_context"
    name: Literal["bios_search"] = "bios_search"
    bios: facts.Bios = facts.Bios(level="in_context", distractors=(8, 12))
    """The people; level in_context, whose context is the dictionary."""


class SelfSearch(Search):
    """Questions about people whose facts are memorised, answered in one completion that writes both the look-up and its
    result: `look(Ada)Ada's boss is Bea. Ada's city is Rom.`, line by line, then the box (SSRL, arXiv:2508.10874). The episode
    environment with `stop: ")"` substitutes the real dictionary for the results that the model would write. Difficulty `op` =
    hops."""

    LEVEL: ClassVar[str] = "by_heart"
    name: Literal["self_search"] = "self_search"
    bios: facts.Bios = facts.Bios(level="by_heart")
    """The people; level by_heart, whose facts pre-training can teach as statements."""


class TwentyQuestions(Model):
    """One of the objects of a table is the target: the policy asks for attributes, `ask(red)`, reads yes or no, and names the
    object. Difficulty `op` = objects."""

    name: Literal["twenty_questions"] = "twenty_questions"
    world: Natural = 0
    """Key of the names."""
    attributes: Annotated[int, Field(ge=1, le=MOST_ATTRIBUTES)] = 6
    """Attributes that an object has or lacks, at most 8."""
    names: Annotated[Count, Field(ge=MOST_OBJECTS)] = 40
    """Names that objects can have, 16 at least."""

    def ops(self) -> facts.Range:
        """Least and most objects; they differ in their attributes."""
        return (2, min(MOST_OBJECTS, 2**self.attributes))


class TicTacToe(Model):
    """Tic-tac-toe from a random position, against a scripted opponent or, in the episode self_play, against oneself. Difficulty
    `op` = empty cells at the start."""

    name: Literal["tic_tac_toe"] = "tic_tac_toe"
    opponent: Literal["perfect", "random"] = "perfect"
    """How the scripted opponent plays: the first of the best moves, or a random move keyed by the problem."""

    def ops(self) -> facts.Range:
        """Least and most empty cells."""
        return (1, 9)


class Kuhn(Model):
    """Kuhn poker: three cards, one chip each, one bet (Kuhn 1950). Difficulty `op` is 1. Its dozen problems (a deal and a seat)
    belong to every split; the scripted opponent plays an equilibrium, with draws keyed by the problem."""

    name: Literal["kuhn"] = "kuhn"

    def ops(self) -> facts.Range:
        """One difficulty."""
        return (1, 1)


Environment = Calculator | BiosSearch | SelfSearch | TwentyQuestions | TicTacToe | Kuhn


# All families.


class OwnTask(Extension):
    """A task family of the user's own: a class with `generate`, `prompt` and `answer`, or of an environment with `generate`,
    `reset` and `step`; or `function(**options)`, which returns a `tasks.family.Generator`, such as an `Environment`."""

    UNION: ClassVar[str] = "family"
    op_range: tuple[Natural, Natural] = (0, 1000)
    """Smallest and largest op that it can generate."""

    def ops(self) -> tuple[int, int]:
        """Smallest and largest op."""
        return self.op_range


Task = Annotated[
    op_dag.Task | facts.Task | Environment | adapters.Task | OwnTask, Field(discriminator="name"), written_as(OwnTask)
]
"""The options of families that generate problems."""
FAMILIES = {
    **op_dag.FAMILIES,
    **facts.FAMILIES,
    "calculator": "interplay.tasks.environments.tools:CALCULATOR",
    "bios_search": "interplay.tasks.environments.tools:BIOS_SEARCH",
    "self_search": "interplay.tasks.environments.tools:SELF_SEARCH",
    "twenty_questions": "interplay.tasks.environments.tools:TWENTY_QUESTIONS",
    "tic_tac_toe": "interplay.tasks.environments.games:TIC_TAC_TOE",
    "kuhn": "interplay.tasks.environments.games:KUHN",
    **adapters.FAMILIES,
    "multihop": "interplay.tasks.multihop:MULTIHOP",
    "qa": "interplay.tasks.qa:QA",
    "reformulated": "interplay.tasks.reformulated:REFORMULATED",
    "subproblems": "interplay.tasks.op_dag.terse_variants:SUBPROBLEMS",
    "text": "interplay.tasks.transcripts:TEXT",
}
"""Family -> `module:attribute` of its `tasks.family.Family`: those of the union, which generate problems, and those that judge
rows which curation makes or files hold (column `family`)."""
OWN = "interplay.tasks.transcripts:own_family"
"""What makes a `Generator` of an object of a user's class."""


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
