"""Random streams keyed by what they are for, so that nothing depends on the order in which work is done."""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain, count
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def stream_key(*parts: int | str) -> int:
    """A 64-bit seed from any labels: equal labels give equal streams on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*parts: int | str) -> "np.random.Generator":
    """NumPy's stream of numbers for these labels. NumPy is imported here, since planning computes keys and imports no NumPy."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(stream_key(*parts)))


def mix_words(x: "np.ndarray") -> "np.ndarray":
    """The finaliser of SplitMix64 (Steele, Lea and Flood, doi:10.1145/2660193.2660195): a bijection of 64-bit words (uint64)."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9
    x = (x ^ x >> 27) * 0x94D049BB133111EB
    return x ^ x >> 31


# Streams of integers that are cheap to start: seeding the standard library's generator takes longer than drawing a problem.


Draw = Callable[[], int]
"""Uniform integers in [0, 2**32). The modulo bias of `draw() % n` is below 1e-6 for every n used here."""

_BLOCK = struct.Struct("<128I")


def stream(*parts: int | str) -> Draw:
    """The stream of integers for these labels: equal labels give equal streams on every machine."""
    return chain.from_iterable(_blocks("\x1f".join([str(part) for part in parts]))).__next__


def _blocks(label: str) -> Iterator[tuple[int, ...]]:
    for number in count():
        yield _BLOCK.unpack(hashlib.shake_128(f"{label}\x1f{number}".encode()).digest(_BLOCK.size))


def integers_of(random: "np.random.Generator") -> Draw:
    """The integers of NumPy's stream, for functions that take a `Draw`."""
    return lambda: int(random.integers(2**32))


def draw_between(draw: Draw, bounds: tuple[int, int]) -> int:
    """A uniform integer in a closed range."""
    low, high = bounds
    return low + draw() % (high - low + 1)


def draw_some(places: list[int], size: int, draw: Draw) -> list[int]:
    """`size` distinct ones of the places; the list is reordered."""
    last = len(places)
    for _ in range(size):
        other = draw() % last
        last -= 1
        places[last], places[other] = places[other], places[last]
    return places[last:]


def draw_sample(draw: Draw, items: list, size: int) -> list:
    """`size` of the items in random order (Fisher and Yates, from the front); the list is reordered."""
    last = len(items)
    for place in range(size):
        other = place + draw() % (last - place)
        items[place], items[other] = items[other], items[place]
    return items[:size]


def draw_shuffled(draw: Draw, items: list) -> list:
    """The list, shuffled in place (Fisher and Yates, from the back)."""
    for last in range(len(items) - 1, 0, -1):
        other = draw() % (last + 1)
        items[last], items[other] = items[other], items[last]
    return items


def sum_in_order(values: Iterable[float]) -> float:
    """The sum from left to right. Python's own compensates for rounding from 3.12 on, and results are not to depend on that."""
    return reduce(add, values, 0)
