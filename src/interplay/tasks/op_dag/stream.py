"""Keyed random integers, cheap to start: seeding the standard library's generator takes longer than growing a graph."""

import struct
from collections.abc import Callable, Iterator
from hashlib import shake_128
from itertools import chain, count

from interplay.schema.op_dag import Range

Draw = Callable[[], int]
"""Uniform integers in [0, 2**32). The modulo bias of `draw() % n` is below 1e-6 for every n used here."""

_BLOCK = struct.Struct("<128I")


def stream(*parts: int | str) -> Draw:
    """The stream known by these labels: equal labels give equal streams on every machine."""
    return chain.from_iterable(_blocks("\x1f".join([str(part) for part in parts]))).__next__


def between(draw: Draw, bounds: Range) -> int:
    """A uniform integer in a closed range."""
    low, high = bounds
    return low + draw() % (high - low + 1)


def some(places: list[int], size: int, draw: Draw) -> list[int]:
    """`size` distinct ones of the places; the list is reordered."""
    last = len(places)
    for _ in range(size):
        other = draw() % last
        last -= 1
        places[last], places[other] = places[other], places[last]
    return places[last:]


def sample(draw: Draw, items: list, size: int) -> list:
    """`size` of the items in random order (Fisher and Yates, from the front); the list is reordered."""
    last = len(items)
    for place in range(size):
        other = place + draw() % (last - place)
        items[place], items[other] = items[other], items[place]
    return items[:size]


def _blocks(label: str) -> Iterator[tuple[int, ...]]:
    for number in count():
        yield _BLOCK.unpack(shake_128(f"{label}\x1f{number}".encode()).digest(_BLOCK.size))
