"""Wrong answers that could be right: what makes a choice a choice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interplay.tasks.reformulated.equal import number, same
from interplay.tasks.text import EXACT_ONLY, normalise

WIDEST = 4
"""Largest gap between neighbours among near numbers."""
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
    kind = _kind(gold)
    for place in rng.integers(len(source.answers), size=DRAWS * count):
        answer = source.answers[place]
        if _kind(answer) == kind and not any(same(answer, other, modulus) for other in [gold, *found]):
            found.append(answer)
            if len(found) == count:
                break
    return found


def _kind(answer: str) -> tuple[bool, bool]:
    """Whether an answer is a number, and whether it is a yes or no: one of another kind than the gold is no option, for the
    question alone tells it from the gold."""
    return number(answer) is not None, normalise(answer) in EXACT_ONLY


def _near(gold: str, modulus: int | None, count: int, rng: np.random.Generator) -> list[str]:
    """Where there is a modulus other residues, each as likely; else whole numbers about the gold, at gaps that do not hang on
    which of the options it is: any closer choice would tell the gold by its place among the others."""
    value = number(gold)
    if value is None or gold != str(value):  # `20.0` or `$20` would stand out among plain numbers
        return []
    centre = int(value)
    if modulus:
        others = [residue for residue in range(modulus) if residue != centre % modulus]
        return [str(one) for one in rng.permutation(others)[:count]] if len(others) >= count else []
    if value.denominator != 1:
        return []
    places = np.concatenate([[0], np.cumsum(rng.integers(1, WIDEST + 1, size=count))]).tolist()
    ranks = [rank for rank, place in enumerate(places) if centre < 0 or centre >= place]
    first = centre - places[ranks[int(rng.integers(len(ranks)))]]
    return [str(first + place) for place in places if first + place != centre]
