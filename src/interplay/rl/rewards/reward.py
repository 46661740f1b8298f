"""What every member of the reward seam gives back: `(spec, problems, completions, verdicts) -> Rewards`. All lists hold N
entries, one per completion."""

from typing import NamedTuple

from interplay.rl.spans import Span


class Rewards(NamedTuple):
    """`sequence`: N floats, what the policy is trained on; `parts`: what they were made of, N floats each, for the record."""

    sequence: list[float]
    parts: dict[str, list[float]]
    spans: list[list[Span]] | None = None
    """For each completion its parts that have rewards of their own, in characters; None where there are none."""
