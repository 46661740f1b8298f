"""Options of tasks and environments that other packages make."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from interplay.core.model import Count, Model, Natural

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


Task = ReasoningGym | TextArena | TextWorld | ScienceWorld | Bfcl | Gymnasium
FAMILIES = {
    "reasoning_gym": "interplay.tasks.adapters.reasoning_gym:REASONING_GYM",
    "textarena": "interplay.tasks.adapters.textarena:TEXTARENA",
    "textworld": "interplay.tasks.adapters.stories:TEXTWORLD",
    "scienceworld": "interplay.tasks.adapters.stories:SCIENCEWORLD",
    "bfcl": "interplay.tasks.adapters.bfcl:BFCL",
    "gymnasium": "interplay.tasks.adapters.gymnasium:GYMNASIUM",
}
"""Rows of tasks.spec.FAMILIES."""
