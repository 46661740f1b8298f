"""The table of task families, joined from the tables of their packages: the union of their options, chosen by `name`, and where
each is implemented; the options of skills and of verifiers."""

import itertools
import math
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.keys import ORDERED, Written, partial_model, table_model, union_members, union_of
from interplay.core.model import Count, Model, Natural, Since
from interplay.tasks.environments import spec as environments
from interplay.tasks.facts import spec as facts
from interplay.tasks.op_dag import spec as op_dag

# Skills.


class Mano(Model):
    """Mental arithmetic: the value modulo a prime of an expression in prefix notation, said without steps (Mano of Physics of
    Language Models: Part 4.1). Difficulty `op` = operators."""

    name: Literal["mano"] = "mano"
    modulus: Annotated[int, Field(ge=2, le=97)] = 23
    """Values are taken modulo it."""
    operators: Literal["+", "+-", "+-*"] = "+-*"
    """Operators that occur."""

    def ops(self) -> facts.Range:
        """Least and most operators."""
        return (1, 24)


class Depo(Model):
    """Reasoning depth: the word that follows another, `op` hops on, in a cycle that is given as pairs in random order (Depo of
    Physics of Language Models: Part 4.1). Difficulty `op` = hops."""

    name: Literal["depo"] = "depo"
    nodes: tuple[Annotated[int, Field(ge=3, le=400)], Annotated[int, Field(ge=3, le=400)]] = (3, 20)
    """Fewest and most words of a cycle; of n words with the weight 1 / (n + sqrt(most)). Two equal numbers: always so many."""
    letters: Annotated[int, Field(ge=2, le=26)] = 3
    """Letters that words are made of; the last of a word is a capital."""
    word: tuple[Annotated[int, Field(ge=1, le=12)], Annotated[int, Field(ge=1, le=12)]] = (5, 7)
    """Fewest and most letters of a word."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key, (low, high) in (("nodes", self.nodes), ("word", self.word)):
            if low > high:
                raise ValueError(f"{key} = {[low, high]}: write the smaller first")
        if (known := sum(self.letters**size for size in range(self.word[0], self.word[1] + 1))) < 2 * self.nodes[1]:
            raise ValueError(f"nodes = {list(self.nodes)}: there are {known} words; raise letters or word")
        return self

    def ops(self) -> facts.Range:
        """Least and most hops."""
        return (1, 64)


class Brevo(Model):
    """Reasoning breadth: everything that a node of a directed acyclic graph depends on, in an order in which each node follows
    what it depends on (Brevo of Physics of Language Models: Part 4.1). Difficulty `op` = nodes of the graph."""

    name: Literal["brevo"] = "brevo"
    nodes: Annotated[int, Field(ge=3, le=110)] = 50
    """Most nodes of a graph: N there, where a graph has n with the weight 1 / (n + sqrt(N)) in training, and N in tests."""
    labels: Literal["numbers", "words"] = "numbers"
    """numbers: nodes are numbers from 1 to `nodes` (Brevo1); words: two to four of four letters, the last a capital (Brevo2)."""

    def ops(self) -> facts.Range:
        """Least and most nodes."""
        return (3, self.nodes)


class Lano(Model):
    """Structures of language: the rest of a sentence of a context-free grammar whose symbols are on levels, after a part of it
    (Lano of Physics of Language Models: Part 4.1). Difficulty `op` = levels of rules below the start symbol; of `depth` it is the
    root, of fewer the first symbol of its level."""

    name: Literal["lano"] = "lano"
    grammar: Natural = 1
    """Key of the grammar, which is drawn as the released ones were. Some are so dense that a fixed text ends many sentences, 0
    among them: `interplay audit` says so."""
    depth: Annotated[int, Field(ge=2, le=8)] = 6
    """Levels of rules; 6 in the released cfg3b to cfg3i, 7 in cfg3j and cfg3k."""
    symbols: Annotated[int, Field(ge=2, le=26)] = 3
    """Symbols of each level below the root, and letters of sentences."""
    rules: Annotated[tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(le=9)]], ORDERED] = (3, 4)
    """Fewest and most rules of a symbol; (3, 4) in cfg3f and cfg3k, (3, 3) in cfg3g and cfg3j, (2, 2) in cfg3b."""
    length: Annotated[tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(le=4)]], ORDERED] = (2, 3)
    """Fewest and most symbols that a rule writes."""
    repeats: bool = True
    """Whether a rule may write a symbol twice; false in cfg3b."""
    given: Annotated[float, Field(ge=0.1, le=0.9)] = 0.5
    """Share of the sentence that the prompt gives, rounded down, one letter at least."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        sizes = range(self.length[0], self.length[1] + 1)
        known = sum(self.symbols**size if self.repeats else math.perm(self.symbols, size) for size in sizes)
        if not self.repeats and self.length[1] > self.symbols:
            raise ValueError(f"length = {list(self.length)}: without repeats at most {self.symbols} symbols; raise symbols")
        if known < (needed := self.symbols * self.rules[1]):
            raise ValueError(
                f"rules = {list(self.rules)}: a level may need {needed} rules and {known} differ; raise length or symbols"
            )
        return self

    def ops(self) -> facts.Range:
        """Least and most levels."""
        return (2, self.depth)


class WordCounts(Model):
    """The words that occur most often in a list (common and frequent words of RULER, arXiv:2404.06654). Difficulty `op` = words
    that are asked for: 10 and 3 there."""

    name: Literal["word_counts"] = "word_counts"
    counts: Literal["common", "frequent"] = "common"
    """common: the asked words occur so often, and all others so much less; frequent: words by a power law, whose first is noise,
    written as dots, and the next are asked for."""
    others: Count = 20
    """Of common: other words."""
    repeats: tuple[Count, Count] = (6, 1)
    """Of common: times that each asked word occurs, and each other one. RULER has 30 and 3 from 4,096 tokens on."""
    words: Annotated[int, Field(ge=12, le=1_000_000)] = 400
    """Of frequent: words in all, dots included; the one of rank k occurs words k^-2 / zeta(2) times, rounded down."""
    letters: Annotated[int, Field(ge=2, le=26)] = 26
    """Letters that words are made of."""
    length: Annotated[int, Field(ge=1, le=12)] = 6
    """Letters of a word."""
    style: Literal["prose", "terse"] = "prose"
    """prose: a question in words, over a numbered list where words are common; terse: `ab cd ab|1=`, for tiny models."""

    def ranks(self) -> list[int]:
        """Of frequent: how often the word of each rank occurs, the first rank first; none that occurs never."""
        found = (int(self.words * 6 / (math.pi * rank) ** 2) for rank in range(1, self.words))
        return list(itertools.takewhile(bool, found))

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.counts == "common" and self.repeats[0] <= self.repeats[1]:
            raise ValueError(f"repeats = {list(self.repeats)}: asked words occur more often than others; write the larger first")
        needed = self.others + self.ops()[1] if self.counts == "common" else len(self.ranks())
        if self.letters**self.length < 2 * needed:
            raise ValueError(f"letters = {self.letters}: there are {self.letters**self.length} words; raise letters or length")
        return self

    def ops(self) -> facts.Range:
        """Least and most words; of frequent such as each occur more often than the next."""
        if self.counts == "common":
            return (1, 10)
        counts = [*self.ranks(), 0]
        return (1, max(1, sum(1 for _ in itertools.takewhile(lambda pair: pair[0] > pair[1], itertools.pairwise(counts[1:])))))


Skill = Mano | Depo | Brevo | Lano | facts.Capo | WordCounts


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
    op_dag.Task | facts.Task | environments.Environment | Skill | environments.PackagedTask | OwnTask,
    Field(discriminator="name"),
    written_as(OwnTask),
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
    "mano": "interplay.tasks.skills:MANO",
    "depo": "interplay.tasks.skills:DEPO",
    "brevo": "interplay.tasks.skills:BREVO",
    "lano": "interplay.tasks.skills:LANO",
    "capo": "interplay.tasks.facts.questions:CAPO",
    "word_counts": "interplay.tasks.qa:WORD_COUNTS",
    "sql_questions": "interplay.tasks.programs:SQL_QUESTIONS",
    "with_tools": "interplay.tasks.environments.given_tools:WITH_TOOLS",
    **environments.PACKAGED,
    "multihop": "interplay.tasks.multihop:MULTIHOP",
    "qa": "interplay.tasks.qa:QA",
    "programs": "interplay.tasks.programs:PROGRAMS",
    "reformulated": "interplay.tasks.reformulated:REFORMULATED",
    "subproblems": "interplay.tasks.op_dag.terse_variants:SUBPROBLEMS",
    "text": "interplay.tasks.transcripts:TEXT",
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
