"""Options of environments, small text tasks for episodes of several turns, of tools, and of tasks and environments that other
packages make."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from interplay.core.keys import ORDERED
from interplay.core.model import Count, Exact, Model, Natural
from interplay.tasks.facts import spec as facts

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
    names: Annotated[Count, Field(ge=MOST_OBJECTS, le=facts.MOST_NAMES)] = 40
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


class SqlQuestions(Model):
    """Questions about a table of people, such as how many of a city are older than 40, that a query answers: the policy may try
    queries, `sql(SELECT ...)`, and boxes the one whose result counts (text-to-SQL, judged by execution). Difficulty `op` =
    conditions."""

    name: Literal["sql_questions"] = "sql_questions"
    world: Natural = 0
    """Key of the names."""
    rows: Annotated[tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(le=50)]], ORDERED] = (6, 12)
    """Fewest and most rows of the table."""
    names: Annotated[Count, Field(ge=50, le=2000)] = 60
    """Names that people, cities and employers can have."""

    def ops(self) -> facts.Range:
        """Least and most conditions."""
        return (1, 4)


Environment = Calculator | BiosSearch | SelfSearch | TwentyQuestions | TicTacToe | Kuhn | SqlQuestions


# Tools, which a family that judges completions can be given.


Length = Annotated[int, Field(ge=16, le=100_000)]


class Tool(Exact):
    """Common options of tools."""

    output: Length = 400
    """Characters of a reply, at most; the rest is cut."""
    longest: Length = 2000
    """Characters of a call's text, at most."""


class PythonTool(Tool):
    """Python in the interpreter of pydantic-monty: no files, network, environment or clock."""

    name: Literal["python"] = "python"
    state: bool = True
    """Whether what a call defines is there in the later calls of the episode."""
    seconds: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Time that a call may run, on the clock: a program that is stopped by it may be stopped elsewhere on another machine."""
    megabytes: Annotated[int, Field(ge=1, le=1024)] = 16
    """Memory of its objects."""
    depth: Annotated[int, Field(ge=10, le=500)] = 100
    """Depth of calls within it."""


class SqlTool(Tool):
    """SELECT of sqlite over tables in memory: those of the family, else the row's documents as the table `documents(title,
    text)`."""

    name: Literal["sql"] = "sql"
    rows: Annotated[int, Field(ge=1, le=1000)] = 20
    """Rows of a result that are shown."""
    steps: Annotated[int, Field(ge=1000, le=100_000_000)] = 1_000_000
    """Steps of sqlite's machine that a query may take."""


class SearchTool(Tool):
    """BM25 over the row's documents."""

    name: Literal["search"] = "search"
    k: Annotated[int, Field(ge=1, le=50)] = 3
    """Documents of a reply, at most; `output` is the length of each."""
    others: Annotated[int, Field(ge=0, le=1000)] = 0
    """Documents that are added to a row's own, of other rows and of rows of text: those that are nearest to its question."""


Tools = Annotated[
    list[Annotated[PythonTool | SqlTool | SearchTool, Field(discriminator="name")]], Field(min_length=1, max_length=3)
]


# Tasks and environments of other packages.


Text = Annotated[str, Field(min_length=1)]


class Packaged(Model):
    """What makes the problems is a package that is no part of this one."""

    def ops(self) -> tuple[int, int]:
        """One difficulty."""
        return (1, 1)


class ReasoningGym(Packaged):
    """A dataset of the package reasoning-gym (extra `reasoning-gym`), with its verifier; answers are between `<answer>` and
    `</answer>`. Difficulty `op` = level of the dataset's curriculum, from 1."""

    VERSION: ClassVar[int] = 2
    name: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str
    """Its name, such as leg_counting or simple_equations."""
    config: dict[str, JsonValue] = {}
    """Values of the dataset's configuration that replace those of the level."""
    version: str = "0.1.25"
    """Version of the package; another that is installed is refused, since it may generate other problems."""

    def ops(self) -> tuple[int, int]:
        """Least and most level of any dataset."""
        return (1, 40)


class PackagedWorld(Packaged):
    """An environment of another package. What it draws comes from the problem's seed, also where other code draws."""

    ascii: bool = True
    """Whether characters outside ASCII are written out by their names, such as `<black heart suit>`; false leaves them, for
    tokenizers of bytes."""


class TextArena(PackagedWorld):
    """A game of the package textarena (extra `textarena`). The policy has one seat, drawn by the problem; in the others a script
    draws legal moves. An episode is right when the game pays 1. Difficulty `op` is 1: variants have names of their own."""

    name: Literal["textarena"] = "textarena"
    game: Text
    """Its name, such as TicTacToe-v0."""
    config: dict[str, JsonValue] = {}
    """Arguments of the game that replace those of its name."""
    players: Natural = 0
    """Seats; 0: two, or as few as the game takes where it does not take two."""
    moves: list[Text] = []
    """Moves that the script tries, such as `[Pass]`, before those that the game's text shows in brackets."""
    playouts: Natural = 0
    """Games of random legal moves that are tried for each problem; the first that is right is the expert's, and a start that
    none wins is drawn again. 0: no expert."""
    version: str = "0.7.4"
    """Version of the package; another that is installed is refused."""


class TextWorld(PackagedWorld):
    """A text adventure that the package textworld generates (extra `textworld`), with its walkthrough as the expert. Score points
    pay their share, a lost game ends. Difficulty `op` = commands of the quest."""

    name: Literal["textworld"] = "textworld"
    rooms: Count = 2
    """Rooms of the world."""
    objects: Count = 4
    """Objects in it."""
    breadth: Count = 1
    """Sub-quests that run side by side in the quest."""
    version: str = "1.7.0"
    """Version of the package; another that is installed is refused."""

    def ops(self) -> tuple[int, int]:
        """Least and most commands."""
        return (1, 30)


class ScienceWorld(PackagedWorld):
    """A variation of a task of the package scienceworld (extra `scienceworld`; needs Java), with its gold path as the expert.
    Each turn pays what it adds to the score, up to 1 in all. Difficulty `op` is 1."""

    name: Literal["scienceworld"] = "scienceworld"
    task: Text
    """Its name, such as boil or find-living-thing."""
    simplifications: list[Text] = ["easy"]
    """Of the package: easy (all of them), teleportAction, openDoors, openContainers, selfWateringFlowerPots,
    noElectricalAction."""
    variations: Literal["all", "train", "dev", "test"] = "all"
    """Which of the package's own splits variations are drawn from; all: any, split as all problems are."""
    version: str = "1.2.3"
    """Version of the package; another that is installed is refused."""


class Bfcl(PackagedWorld):
    """A multi-turn conversation of the package bfcl-eval (in an environment of its own, or without its dependencies): the policy
    calls functions of stateful interfaces, `cd(folder='document')`, one or a list of calls a turn, and ends its part of the
    conversation by a turn that is no call. Each request of the user pays its share when the state and the results are those of
    the gold calls, as its checkers say. Difficulty `op` = requests, 2 to 6, or 3 to 7 where something is missing at first;
    other numbers have three conversations at most. A conversation is in one split, as its number says."""

    name: Literal["bfcl"] = "bfcl"
    category: Literal["base", "miss_func", "miss_param", "long_context"] = "base"
    """Of `multi_turn_CATEGORY`."""
    documented: Literal["full", "signatures"] = "full"
    """How functions are shown: descriptions in JSON, as the package has them, or signatures alone."""
    version: str = "2026.3.23"
    """Version of the package; another that is installed is refused."""

    def ops(self) -> tuple[int, int]:
        """Least and most requests."""
        return (3, 7) if self.category.startswith("miss") else (2, 6)


class Gymnasium(PackagedWorld):
    """A registered environment of the package gymnasium (extra `gymnasium`) whose observations are text, numbers from a finite
    set, or rendered as text, and whose actions are text or numbers from a finite set. Where it has a table of transitions (`P`,
    as FrozenLake, Taxi and CliffWalking have), a policy of value iteration is the expert. Difficulty `op` is 1, and with
    `config: {desc: random}` the side of FrozenLake's map, from 3 on, which is drawn for each problem."""

    name: Literal["gymnasium"] = "gymnasium"
    env: Text
    """Its name, such as FrozenLake-v1."""
    config: dict[str, JsonValue] = {}
    """Arguments of `gymnasium.make`, such as `{map_name: 8x8, is_slippery: false}`."""
    target: float = 1.0
    """Return from which on an episode is right."""
    version: str = "1.4.0"
    """Version of the package; another that is installed is refused."""

    def ops(self) -> tuple[int, int]:
        """Least and greatest side of a map; a side of 2 has three maps, and one of 1 has none."""
        return (3, 16) if self.config.get("desc") == "random" else (1, 1)


PackagedTask = ReasoningGym | TextArena | TextWorld | ScienceWorld | Bfcl | Gymnasium
PACKAGED = {
    "reasoning_gym": "interplay.tasks.adapters.reasoning_gym:REASONING_GYM",
    "textarena": "interplay.tasks.adapters.games:TEXTARENA",
    "textworld": "interplay.tasks.adapters.stories:TEXTWORLD",
    "scienceworld": "interplay.tasks.adapters.stories:SCIENCEWORLD",
    "bfcl": "interplay.tasks.adapters.bfcl:BFCL",
    "gymnasium": "interplay.tasks.adapters.games:GYMNASIUM",
}
"""Rows of tasks.spec.FAMILIES."""
