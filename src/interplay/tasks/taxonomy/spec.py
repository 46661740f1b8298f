"""The taxonomy family: a deep hierarchy whose facts enter the weights, for recall by depth."""

from typing import ClassVar, Literal

from pydantic import model_validator

from interplay.core.model import Count, Model, Natural

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
