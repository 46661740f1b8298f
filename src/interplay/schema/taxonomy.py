"""The taxonomy family: deep hierarchies whose facts enter the weights."""

from typing import Literal

from interplay.schema.base import Count, Model, Natural


class Taxonomy(Model):
    """A tree of classes; a question asks for an ancestor some levels up."""

    name: Literal["taxonomy"] = "taxonomy"
    depth: Count = 6
    """Levels below the root."""
    world: Natural = 0
    """Key of the tree and its names."""

    def ops(self) -> tuple[int, int]:
        """Least and most levels between a class and the ancestor that is asked for."""
        return (1, self.depth)
