"""The bios family: synthetic people over a relation graph (From Atomic to Composite, arXiv:2512.01970)."""

from typing import Literal

from interplay.schema.base import Count, Model, Natural


class Bios(Model):
    """Synthetic people over a relation graph."""

    name: Literal["bios"] = "bios"
    people: Count = 200
    """People of the world."""
    world: Natural = 0
    """Key of the world: its people and facts."""

    def ops(self) -> tuple[int, int]:
        """Least and most hops of a question."""
        return (1, 4)
