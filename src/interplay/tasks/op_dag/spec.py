"""The families op_dag and op_dag_prose: arithmetic over a dependency graph, in single characters and in sentences (the published
surface)."""

import json
import re
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import product
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from interplay.core.keys import ORDERED, SHARES, check_mix
from interplay.core.model import Count, Model, Natural, Share, Since, nearest_name

Range = Annotated[tuple[Natural, Natural], ORDERED]
LARGEST_PRIME = 1_000_000
Lengths = Annotated[tuple[Natural, Annotated[int, Field(le=10_000)]], ORDERED]
Modes = Annotated[dict[Literal["forward", "reverse"], float], SHARES]
LETTERS = 52
"""Letters that name nodes and intermediate results, a-z and A-Z."""


class OpDag(Model):
    """Arithmetic over a dependency graph. Difficulty `op` = edges of the necessary graph, a constant counting as one
    (Interplay, arXiv:2512.07783, section 2; GSM-Infinite)."""

    name: Literal["op_dag"] = "op_dag"
    modulus: int | None = 7
    """Values are integers modulo this prime; null for plain integers."""
    operators: Annotated[str, Field(pattern=r"^[-+*]+$")] = "+-*"
    """Operators that definitions may use, any of + - *."""
    letters: Annotated[int, Field(ge=1, le=LETTERS)] = 26
    """Size of the alphabet that names nodes, at most 52 (a-z, then A-Z)."""
    contexts: Annotated[Count, Since(1)] = 1
    """Contexts: disjoint alphabets of `letters` letters each, at most 52 letters in all. A tokenizer of the task has the letters
    of all contexts, so that sets of one study in different contexts share it."""
    context: Annotated[Natural, Since(0)] = 0
    """The context whose alphabet names the nodes, counted from 0. At one (seed, index, op) the problems of two contexts differ in
    names only and count as the same problem: they belong to the same split, and steps that compare by `renamed` or
    `structural` treat them as duplicates. Sets that should not be translations of each other need different seeds."""
    trace: Literal["goal_first", "leaf_first"] = "goal_first"
    """Order of the gold solution: unfold the goal down to the leaves and then evaluate upwards, or evaluate from the leaves
    (as published)."""
    modes: Modes = {"forward": 1.0}
    """Share of problems that ask the value of the goal (forward) or of an unknown leaf, given the goal's value (reverse). A
    reverse solution sets the goal's form equal to that value before it answers."""
    max_parents: Count = 2
    """Most parents that one definition reads."""
    branching: Share = 0.3
    """Tendency to open a new leaf rather than extend a chain, in [0, 1]: 0 gives chains, 1 wide trees."""
    copies: Share = 0.15
    """Tendency of a bare copy (one edge, no operator), in [0, 1]: with copies, the number of nodes and the depth vary at equal
    op. At 0 a copy occurs only where the exact op needs it."""
    constants: Range = (1, 4)
    """Constants are drawn uniformly from this closed range (leaf values, addends, factors)."""
    max_value: Count = 1000
    """Without a modulus, no value of a necessary node leaves [0, max_value]."""
    distractors: Range = (0, 4)
    """Closed range of the number of definitions that the goal does not need, drawn independently of op."""
    filler: Range = (0, 0)
    """Closed range of the number of neutral characters between definitions, drawn independently of op. It varies the prompt
    length, so that no op has an unseen prompt shape."""
    length: Annotated[Lengths | None, Since(None)] = None
    """Closed range of the characters of a gold solution, drawn for each problem and independently of op: its values are stated
    several times in a row until it has as many, but for what no further statement fits into. A solution that is longer stays as
    it is. Null: as long as its op makes it, 6 op + 1 characters where values have one digit. What looks for the first wrong step
    (the reward `steps`, the step `intervention`) takes a repetition for one."""
    asks_length: Annotated[bool, Since(False)] = False
    """Whether the prompt asks for the statements that `length` adds, by as many dots behind the question. What is asked for is
    not judged."""

    @field_validator("modulus")
    @classmethod
    def _prime(cls, value: int | None) -> int | None:
        if value is not None and (not 2 <= value <= LARGEST_PRIME or any(value % k == 0 for k in range(2, int(value**0.5) + 1))):
            raise ValueError(f"must be a prime up to {LARGEST_PRIME}, or null for integers")
        return value

    @model_validator(mode="after")
    def _ranges(self) -> "OpDag":
        low, high = self.constants
        if self.modulus is not None and high >= self.modulus:
            raise ValueError(f"constants must be residues below the modulus {self.modulus}, not up to {high}")
        if self.modulus is None and low > self.max_value:
            raise ValueError(f"constants start at {low}, above max_value {self.max_value}")
        if self.letters * self.contexts > LETTERS:
            raise ValueError(f"contexts: {self.contexts} alphabets of {self.letters} letters; there are {LETTERS} letters in all")
        if self.context >= self.contexts:
            raise ValueError(f"context = {self.context}: contexts = {self.contexts}, so it must lie in 0..{self.contexts - 1}")
        if self.asks_length and self.length is None:
            raise ValueError("asks_length goes with length; give the range of characters, or take it away")
        return self

    def hashed_version(self) -> int:
        """One more with reverse problems, which are not strictly right without their equation."""
        return self.VERSION + bool(self.modes.get("reverse"))

    def ops(self) -> Range:
        """Smallest and largest op that the alphabet can name: at worst one node per edge (chains of copies are never drawn)."""
        return (1, self.letters - self.distractors[1])


# The surface in sentences.


PUBLISHED = {1: 0.125, 2: 0.875 / 3, 3: 0.875 / 3, 4: 0.875 / 3}
"""How often a leaf has which value in the released generator."""
_NOUN = re.compile(r"[^\W\d_](?:[^\W_]|[ '’-])*")
_RESERVED = re.compile(r"\b(?:in|and|as|of all|define|equals|total|number|have|does)\b")


class Theme(Model):
    """Nouns of a theme. A problem takes one group of places and one group of types; a node is a type in a place."""

    places: list[list[str]] = Field(min_length=1)
    """Groups of places, such as `[[Pine Ridge, Maple Creek], [South Zoo, Hamilton Farm]]`; two or more in each group."""
    types: list[list[str]] = Field(min_length=1)
    """Groups of types, such as `[[adult bear, adult fox], [adult owl, adult crow]]`; two or more in each group."""
    things: str
    """What all types are, in the plural: `the total number of adult animals in Pine Ridge` is the sum of its types there."""

    @model_validator(mode="after")
    def _nouns(self) -> "Theme":
        for name in ("places", "types"):
            groups = getattr(self, name)
            for group in groups:
                if len(group) < 2 or len(set(group)) < len(group):
                    raise ValueError(f"each group of {name} must hold two or more different nouns, not {group}")
        for noun in [self.things, *(noun for groups in (self.places, self.types) for group in groups for noun in group)]:
            if not _NOUN.fullmatch(noun) or _RESERVED.search(noun.lower()) or noun != " ".join(noun.split()):
                raise ValueError(
                    f"'{noun}' must be letters, digits, blanks, - and ', without words of the sentences such as in, and, as"
                )
        return self

    def slots(self) -> int:
        """Nodes that every choice of groups has room for: places times types."""
        return min(map(len, self.places)) * min(map(len, self.types))


_NOUNS = json.loads(files(__package__).joinpath("themes.json").read_text("utf-8"))
THEMES = {name: Theme.model_validate(nouns) for name, nouns in _NOUNS.items()}
"""The published themes crazy_zootopia, teachers_in_school and movie_festival_awards, at two layers."""


class OpDagProse(Model):
    """Arithmetic over a dependency graph, in sentences: the published surface (Interplay, arXiv:2512.07783, section 2;
    GSM-Infinite), at two layers: types in places. (The third, an average per type, is not built.) What is in a place is defined
    by a sentence; the total of a place never is: it is the sum of all types that are mentioned for it. Difficulty `op` = edges of
    the necessary graph, a constant counting as one."""

    name: Literal["op_dag_prose"] = "op_dag_prose"
    themes: Annotated[dict[str, float], SHARES] = {"zoo": 1 / 3, "school": 1 / 3, "film": 1 / 3}
    """Share of problems by theme: zoo, school, film, or one of `own`."""
    own: dict[str, Theme] = {}
    """Themes of the study's own, by name."""
    modes: Modes = {"forward": 0.5, "reverse": 0.5}
    """Share of problems that ask the value of the goal (forward) or of an unknown leaf, given the goal's value (reverse)."""
    depth: Annotated[tuple[Annotated[int, Field(ge=2)], Natural], ORDERED] | None = None
    """Closed range of the number of nodes on the longest way from a leaf to the goal, drawn uniformly and independently of op;
    null: free, about as published (it grows with op)."""
    width: Annotated[tuple[Count, Natural], ORDERED] | None = None
    """Closed range of the number of leaves of the necessary graph, drawn evenly and independently of op; null: free, about as
    published (mostly one)."""
    distractors: Range | None = None
    """Closed range of the number of sentences that the goal does not need, drawn independently of op; null: up to the room that
    the places leave, as published (at most 20 sentences in all, more where the goal needs them)."""
    max_parents: Annotated[int, Field(ge=2, le=10)] = 5
    """Most nodes that one definition reads, 2 to 10; also the most branches that are open while a graph grows."""
    totals: Share = 0.9
    """Tendency of the goal, and of a sum without a constant, to be the total of a place, where a place is still free."""
    reuse: Share = 0.3
    """Tendency of a definition to read another node that is read elsewhere, too, rather than to have a constant."""
    constants: Literal["published", "uniform"] | dict[int, float] = "published"
    """Values of leaves: published (1: 12.5 %, 2 to 4: 29.2 % each), uniform over 1..4, or shares by value. Addends are uniform
    over 1..4, factors over 2..4."""
    max_value: Annotated[Count, Field(ge=50)] = 1000
    """No value of a necessary node leaves [1, max_value]; at least 50."""
    note: bool = False
    """Whether the prompt opens with the rule about totals. The published training text leaves it out."""
    length: Annotated[Lengths | None, Since(None)] = None
    """Closed range of the characters of a gold solution, drawn for each problem and independently of op: sentences are repeated
    at once until it has as many, but for what no further one fits into. A solution that is longer stays as it is. Null: as
    published."""

    @field_validator("constants")
    @classmethod
    def _weights(cls, value: str | dict[int, float]) -> str | dict[int, float]:
        if isinstance(value, dict):
            check_mix(value, "constants")
            if not all(1 <= number <= 9 for number in value):
                raise ValueError(f"constants must lie in 1..9, not {sorted(value)}")
        return value

    @model_validator(mode="after")
    def _possible(self) -> "OpDagProse":
        for name in self.themes:
            if name not in self.own and name not in THEMES:
                raise ValueError(f"no theme '{name}'{nearest_name(name, [*THEMES, *self.own])}; declare it under own")
        if taken := sorted(set(self.own) & set(THEMES)):
            raise ValueError(f"own.{taken[0]} has the name of a built-in theme; choose another")
        if not self._possible_ops:
            raise ValueError(
                f"no op has every depth in {_range_text(self.depth)}, width in {_range_text(self.width)} and distractors in "
                f"{_range_text(self.distractors)} with max_parents {self.max_parents} and {self.slots()} slots; narrow a range"
            )
        return self

    def hashed_version(self) -> int:
        """One more with reverse problems, which are not strictly right without their equation."""
        return self.VERSION + bool(self.modes.get("reverse"))

    def theme(self, name: str) -> Theme:
        """The theme of that name."""
        return self.own[name] if name in self.own else THEMES[name]

    def slots(self) -> int:
        """Nodes that every theme has room for."""
        return min(self.theme(name).slots() for name in self.themes)

    def leaf_weights(self) -> dict[int, float]:
        """Share of each value of a leaf."""
        if isinstance(self.constants, dict):
            return self.constants
        return PUBLISHED if self.constants == "published" else dict.fromkeys(range(1, 5), 0.25)

    def ops(self) -> Range:
        """Smallest and largest op that every depth, width and number of distractors of the task can have."""
        return self._possible_ops[0], self._possible_ops[-1]

    @cached_property
    def _possible_ops(self) -> tuple[int, ...]:
        room = self.slots() - (self.distractors[1] if self.distractors else 0)
        return _possible_ops(self.depth, self.width, self.max_parents, room)


Task = OpDag | OpDagProse
FAMILIES = {
    "op_dag": "interplay.tasks.op_dag.terse_prompts:OP_DAG",
    "op_dag_prose": "interplay.tasks.op_dag.prose_verifier:OP_DAG_PROSE",
}
"""Rows of tasks.spec.FAMILIES."""


def _range_text(bounds: Range | None) -> str:
    return "any" if bounds is None else f"{bounds[0]}..{bounds[1]}"


@lru_cache(maxsize=64)
def _possible_ops(depth: Range | None, width: Range | None, max_parents: int, room: int) -> tuple[int, ...]:
    return tuple(op for op in range(2, LETTERS + 1) if _everywhere(op, depth, width, max_parents, room))


def _everywhere(op: int, depth: Range | None, width: Range | None, max_parents: int, room: int) -> bool:
    """Whether op can have every depth with every width in their ranges (with some, where one is free)."""
    found = set(shapes(op, max_parents, room))
    depths, widths = {d for d, _ in found}, {w for _, w in found}
    wanted_depths = set(range(depth[0], depth[1] + 1)) if depth else depths
    wanted_widths = set(range(width[0], width[1] + 1)) if width else widths
    if depth and width:
        return found.issuperset(product(wanted_depths, wanted_widths))
    return bool(found) and wanted_depths <= depths and wanted_widths <= widths


@lru_cache(maxsize=1024)
def shapes(op: int, max_parents: int, room: int) -> tuple[tuple[int, int], ...]:
    """The (depth, width) for which a graph of op edges with at most `room` nodes certainly exists."""
    return tuple(
        (depth, width)
        for width in range(1, max_parents + 1)
        for depth in range(2, op + 1)
        if completes(op - 1, 1, 1, 1, 0, width - 1, depth, max_parents, room - 1, False)
    )


def completes(
    edges: int, lanes: int, levels: int, top: int, closed: int, leaves: int, depth: int, max_parents: int, room: int, bare: bool
) -> bool:
    """Whether exactly `edges` can be placed in a graph with `lanes` lanes (nodes without a reader, their levels summing to
    `levels`, the highest at `top`) and `closed` other nodes, that still takes `leaves` leaves and at most `room` nodes. `bare`:
    the goal reads the lanes only, so that it can be a total. A sufficient condition.

    Lower bound: each leaf has an edge, the goal reads each lane, and the highest lane climbs to the level directly below it.
    Upper bound: every lane climbs by a constant and a parent per level, the highest also reads closed nodes again, and as many
    further lanes as the goal can read start at level 2 from a leaf with another reader."""
    ends, climbs = lanes + leaves, depth - 1 - top
    if climbs < 0 or ends > max_parents or edges < leaves + ends + climbs:
        return False
    spine = 2 * climbs + _again(climbs, closed, max_parents) + leaves + ends + (not bare)
    lower = 2 * (lanes * (depth - 1) - levels - climbs) + leaves * (2 * depth - 4)
    over = edges - spine
    if over > lower + (max_parents - ends) * (2 * depth - 3 if depth > 2 else 0):
        return False
    return leaves + climbs + 1 + max(0, over + 1) // 2 <= room


@lru_cache(maxsize=4096)
def _again(climbs: int, closed: int, max_parents: int) -> int:
    """The nodes that the highest lane can read again on its way up, as each step closes one more."""
    return sum([min(max_parents - 1, closed + step) for step in range(climbs)])
