"""What every member of the reward seam gives back: `(spec, problems, completions, verdicts) -> Rewards`. All lists hold N
entries, one per completion."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from interplay.rl.spans import Span
from interplay.tasks.row import Row

T = TypeVar("T")


class Rewards(NamedTuple):
    """`sequence`: N floats, what the policy is trained on; `parts`: what they were made of, N floats each, for the record."""

    sequence: list[float]
    parts: dict[str, list[float]]
    spans: list[list[Span]] | None = None
    """For each completion its parts that have rewards of their own, in characters; None where there are none."""


def per_completion(function: Callable[[Row], T], problems: Sequence[Row]) -> list[T]:
    """What a function says of each completion's row, N values, worked out once for each row: reading the gold of a long context
    costs more than judging an answer."""
    known: dict[int, T] = {}
    for row in problems:
        if id(row) not in known:
            known[id(row)] = function(row)
    return [known[id(row)] for row in problems]
