"""The families bios, synthetic people over a relation graph (From Atomic to Composite, arXiv:2512.01970), taxonomy, a deep
hierarchy whose facts enter the weights, for recall by depth, and capo, biographies by heart."""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.keys import ORDERED
from interplay.core.model import Count, Model, Natural, Share

Range = Annotated[tuple[Natural, Natural], ORDERED]
RELATIONS = (
    "boss", "friend", "mother", "teacher", "doctor", "rival", "mentor", "neighbour", "partner", "tailor", "driver", "guard",
    "landlord", "cousin", "editor", "coach",
)  # fmt: skip
"""Names of relations from a person to a person, in the order in which a task takes them."""
ATTRIBUTES = ("city", "job", "sport", "dish", "colour", "instrument", "language", "pet")
"""Names of attributes, whose values are not people."""
COMPOSITES = ("iid", "composition", "zero_shot")
MOST_READ = 256
"""Most facts in a context of level reading; at most half the number of people."""
LONGEST = 4
"""Most hops of a composite question: its paths are enumerated."""
MOST_NAMES = 250_000
"""Names that can be invented before most attempts repeat one."""
FARTHEST = 8
"""Most hops of a question whose facts are all in the context."""


class Bios(Model):
    """Synthetic people over a relation graph. Each relation is a function: a person has one boss, one city. Some relations are
    parametric: the same in every problem, to be memorised. The facts of the others are in the context of a problem and new in
    each. Difficulty `op` = hops. Tasks that differ only in level, distractors or surface share people, facts and the
    partition of relation paths."""

    VERSION: ClassVar[int] = 2
    name: Literal["bios"] = "bios"
    world: Natural = 0
    """Key of the world: people, facts and partition of paths."""
    people: Annotated[Count, Field(ge=FARTHEST + 2)] = 100
    """People of the world."""
    relations: Annotated[int, Field(ge=1, le=len(RELATIONS))] = 8
    """Relations from a person to a person, at most 16."""
    attributes: Annotated[int, Field(ge=0, le=len(ATTRIBUTES))] = 4
    """Attributes of a person, at most 8."""
    values: Count = 20
    """Values of each attribute."""
    parametric: Share = 0.5
    """Share of the relations, and of the attributes, that are parametric."""
    zero_shot: Natural = 2
    """Relations (alternately parametric and contextual) that occur in no path of composite training."""
    held_out: Share = 0.3
    """Share of the paths of all other relations that are also held out of composite training."""
    level: Literal[
        "parametric", "statement", "contextual", "reading", "iid", "composition", "zero_shot", "in_context", "by_heart"
    ] = "iid"
    """statement: a parametric fact as a sentence to be completed; parametric: a question about one (the paper's Mem atom);
    contextual: one hop over facts of the context (Ctx atom); reading: `op` facts in a context, in half of the contexts all with
    one relation, and `op` questions, each about a fact drawn from them, answered in order, the last answer boxed (many retrievals
    for one context); iid, composition, zero_shot: chains that need both parametric and contextual facts, along paths of composite
    training, along other paths of the same relations, and along paths with a relation that composite training never has;
    in_context: chains of contextual facts only; by_heart: chains of parametric facts only, without a context. Statements and
    parametric questions are the same in all splits: a set of n takes the first n facts of the world, and all of them evenly where
    n is large enough."""
    distractors: Range = (2, 4)
    """Closed range of the number of facts in the context that the question does not need. Level reading has none."""
    zipf: Share = 0.0
    """Exponent of Zipf's law for the people in contexts: the n-th of the world has the weight n to the power of -zipf. 0 draws
    uniformly; with 1 a small model learns retrieval from the context sooner (docs/log.md)."""
    surface: Literal["terse", "prose"] = "terse"
    """terse: every fact reads `Ada's boss is Bea.`; prose: in rotation also `The boss of Ada is Bea.` and `Bea is the boss
    of Ada.`"""

    @model_validator(mode="after")
    def _possible(self) -> "Bios":
        if (needed := self.people + self.values * self.attributes) > MOST_NAMES:
            raise ValueError(f"people and values take {needed} names; there are {MOST_NAMES}")
        contextual = len(self.all_relations()) - len(self.weights())
        if self.level == "by_heart" and not set(RELATIONS[: self.relations]) & self.weights():
            raise ValueError("level by_heart needs a parametric relation from person to person; raise parametric")
        if self.level in ("parametric", "statement", *COMPOSITES) and not self.weights():
            raise ValueError(f"level {self.level} needs parametric relations; raise parametric")
        if self.level in ("contextual", "reading", "in_context", *COMPOSITES) and not contextual:
            raise ValueError(f"level {self.level} needs contextual relations; lower parametric")
        seen = [name in self.weights() for name in RELATIONS[: self.relations] if name not in self.unseen()]
        if self.level in COMPOSITES and not 0 < sum(seen) < len(seen):
            raise ValueError("composites need a parametric and a contextual relation outside zero_shot; lower zero_shot")
        if self.level == "composition" and not (self.held_out and 1 < sum(seen) < len(seen) - 1):
            raise ValueError("level composition needs held_out, and two relations of each sort outside zero_shot")
        if self.level == "in_context" and not set(RELATIONS[: self.relations]) - self.weights():
            raise ValueError("level in_context needs a contextual relation from person to person; lower parametric")
        if self.level == "zero_shot" and not self.zero_shot:
            raise ValueError("level zero_shot needs zero_shot relations; give their number")
        if contextual and self.distractors[1] > contextual * (self.people - FARTHEST):
            raise ValueError("distractors must be fewer than the possible contextual facts; take more people or relations")
        return self

    def all_relations(self) -> tuple[str, ...]:
        """Relations, then attributes."""
        return RELATIONS[: self.relations] + ATTRIBUTES[: self.attributes]

    def weights(self) -> frozenset[str]:
        """The relations and attributes that are parametric, spread evenly over the names."""
        names = RELATIONS[: self.relations], ATTRIBUTES[: self.attributes]
        share = self.parametric
        return frozenset(name for each in names for i, name in enumerate(each) if _step(i + 1, share) > _step(i, share))

    def unseen(self) -> tuple[str, ...]:
        """The relations from person to person that occur in no path of composite training: the last ones, alternately parametric
        and contextual while there are both."""
        last = RELATIONS[: self.relations][::-1]
        sides = [[n for n in last if n in self.weights()], [n for n in last if n not in self.weights()]]
        ranked = sorted((place, side, name) for side, names in enumerate(sides) for place, name in enumerate(names))
        return tuple(name for _, _, name in ranked[: self.zero_shot])

    def ops(self) -> Range:
        """Least and most hops of a question."""
        longest = {"in_context": (1, FARTHEST), "reading": (1, min(MOST_READ, self.people // 2)), "by_heart": (1, LONGEST)}
        return (2, LONGEST) if self.level in COMPOSITES else longest.get(self.level, (1, 1))


def _step(number: int, share: float) -> int:
    return int(number * share + 1e-9)


MOST_CLASSES = 100_000


class Taxonomy(Model):
    """A tree of classes with invented names, of which a model memorises `Nomi is a Bela.`; questions are about the ancestor `op`
    levels up: recall by depth."""

    VERSION: ClassVar[int] = 2

    name: Literal["taxonomy"] = "taxonomy"
    world: Natural = 0
    """Key of the names."""
    depth: Count = 6
    """Levels below the root."""
    branching: Count = 2
    """Children of each class that is no leaf."""
    level: Literal["statement", "recall"] = "recall"
    """statement: a fact as a sentence to be completed, the same in all splits, where a set of n takes the first n facts, and all
    of them evenly where n is large enough; recall: the ancestor of a class some levels up."""

    @model_validator(mode="after")
    def _small(self) -> "Taxonomy":
        if self.classes() > MOST_CLASSES:
            raise ValueError(f"more than {MOST_CLASSES} classes; lower depth {self.depth} or branching {self.branching}")
        return self

    def classes(self) -> int:
        """Classes of the tree, the root included; or more than MOST_CLASSES."""
        total = size = 1
        for _ in range(self.depth):
            size *= self.branching
            total += size
            if total > MOST_CLASSES:
                break
        return total

    def ops(self) -> tuple[int, int]:
        """Least and most levels between a class and the ancestor in question."""
        return (1, self.depth if self.level == "recall" else 1)


class Capo(Model):
    """Knowledge capacity: biographies that are learnt by heart (bioS, Capo of Physics of Language Models: Part 4.1). Difficulty
    `op` = fields that are left to say, from the employer alone to all six after the name; 7: the name, too. Biographies are the
    same in all splits: a set of n takes the first n, and all of them evenly where n is large enough."""

    name: Literal["capo"] = "capo"
    world: Natural = 0
    """Key of the people."""
    people: Annotated[int, Field(ge=2, le=1_000_000)] = 1000
    """People, each with a name of its own: N there, 50,000 to 2,000,000."""
    names: tuple[Count, Count, Count] = (400, 400, 1000)
    """First, middle and last names."""
    values: tuple[Count, Count, Count, Count, Count, Count, Count] = (12, 28, 200, 200, 300, 100, 263)
    """Months, days and years of birth, cities, universities, majors and employers. A pronoun is one of two; the city of work is a
    function of the employer, one of half as many."""

    @model_validator(mode="after")
    def _possible(self) -> "Capo":
        if math.prod(self.names) < 2 * self.people:
            raise ValueError(f"people = {self.people}: there are {math.prod(self.names)} names; raise names or take fewer people")
        return self

    def ops(self) -> Range:
        """Least and most fields."""
        return (1, 7)


Task = Bios | Taxonomy
FAMILIES = {
    "bios": "interplay.tasks.facts.questions:BIOS",
    "taxonomy": "interplay.tasks.facts.chains:TAXONOMY",
    "conflicts": "interplay.tasks.facts.questions:CONFLICTS",
}
"""Rows of tasks.spec.FAMILIES."""
