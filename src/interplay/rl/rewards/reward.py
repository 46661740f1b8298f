"""What every member of the reward seam gives back: `(spec, problems, completions, verdicts) -> Rewards`. All lists hold N
entries, one per completion."""

from typing import NamedTuple


class Rewards(NamedTuple):
    """`sequence`: N floats, what the policy is trained on; `parts`: what they were made of, N floats each, for the record."""

    sequence: list[float]
    parts: dict[str, list[float]]
