"""Curves of arms that came out the same. One would hide the other, so they are drawn one inside the other, the first the widest,
and the caption names them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

EDGE, WIDEST = 2.4, 7.0
"""Points by which a curve is wider than the next inside it, and the first at most than the last."""
DIGITS = 9

Groups = list[list[str]]
"""Names of curves that coincide, two at least in each group, in the order in which they are drawn."""
Key = TypeVar("Key", str, int)


def groups(curves: Mapping[Key, Iterable[np.ndarray]]) -> list[list[Key]]:
    """`curves` by name or number, each as its x and its y."""
    found: dict[tuple[bytes, ...], list[Key]] = {}
    for name, curve in curves.items():
        found.setdefault(tuple((np.round(part, DIGITS) + 0.0).tobytes() for part in curve), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def wider(name: Key, among: Sequence[list[Key]]) -> float:
    """Points that the line and the markers of a curve get beyond those of others."""
    for names in among:
        if name in names:
            inside = len(names) - 1 - names.index(name)
            return inside * min(EDGE, WIDEST / (len(names) - 1))
    return 0.0


def said(panels: Mapping[str, Groups]) -> str:
    """For the caption, by the title of the panel; nothing where no curves coincide."""
    told: dict[str, list[str]] = {}
    for panel, found in panels.items():
        for names in found:
            told.setdefault(", ".join(names), []).append(panel)
    several = len(panels) > 1
    parts = [f"{names} (in {', '.join(where)})" if several else names for names, where in told.items()]
    return f" The same curve, drawn one inside the other: {'; '.join(parts)}." if parts else ""
