"""Wrong answers that could be right: what makes a choice a choice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interplay.tasks.reformulated.equal import number, same

NEAREST = 2
"""Wrong numbers on one side of the gold come from its nearest neighbours there, so many times as many as are wanted."""
DRAWS = 40
"""Times the wanted number of answers that are drawn from other rows before the draw counts as failed."""


@dataclass(frozen=True)
class Source:
    """Where wrong answers come from."""

    kind: str
    """same_set or near."""
    answers: Sequence[str]
    """Answers of all rows, as often as they occur."""


def draw(source: Source, gold: str, modulus: int | None, count: int, rng: np.random.Generator) -> list[str]:
    """`count` wrong answers, no two of which mean the same, nor the gold; fewer where there are none."""
    if source.kind == "near":
        return _near(gold, modulus, count, rng)
    found: list[str] = []
    numeric = number(gold) is not None
    for place in rng.integers(len(source.answers), size=DRAWS * count):
        answer = source.answers[place]
        if (number(answer) is not None) == numeric and not any(same(answer, other, modulus) for other in [gold, *found]):
            found.append(answer)
            if len(found) == count:
                break
    return found


def _near(gold: str, modulus: int | None, count: int, rng: np.random.Generator) -> list[str]:
    """Whole numbers about the gold: how many of them lie below it is drawn uniformly, as far as the range allows. As many
    on each side would give it away as the middle one."""
    value = number(gold)
    if value is None or value.denominator != 1:
        return []
    centre = int(value)
    low = 0 if centre >= 0 else centre - NEAREST * count
    high = modulus - 1 if modulus else centre + NEAREST * count
    below, above = centre - low, high - centre
    fewest, most = max(0, count - above), min(count, below)
    if fewest > most:
        return []
    under = int(rng.integers(fewest, most + 1))
    return [str(centre + step) for step in [*(-s for s in _steps(under, below, rng)), *_steps(count - under, above, rng)]]


def _steps(count: int, room: int, rng: np.random.Generator) -> list[int]:
    """`count` distances within the room, from the nearest ones."""
    reach = min(room, max(NEAREST * count, count))
    return [int(step) + 1 for step in rng.permutation(reach)[:count]]
