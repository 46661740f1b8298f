"""Shares that sum to one."""

from typing import Annotated, Any

from pydantic import AfterValidator


def check_mix(mix: dict[Any, float], what: str) -> dict:
    """A mix names shares that are not negative and sum to one; nothing is normalised in silence. Raises ValueError."""
    total = sum(mix.values())
    if any(share < 0 for share in mix.values()):
        raise ValueError(f"{what} must be shares from 0 to 1; {min(mix.values()):g} is none")
    if not mix or not abs(total - 1) <= 1e-6:  # also refuses NaN
        raise ValueError(f"{what} must be shares that sum to 1; these sum to {total:g}")
    return mix


def _check_shares(value: list[float]) -> list[float]:
    check_mix(dict(enumerate(value)), "a mix")
    return value


Mix = Annotated[list[float], AfterValidator(_check_shares)]
"""Shares of `data.<i>` roles, in order; they sum to 1."""


def largest_remainder(shares: list[float], total: int) -> list[int]:
    """Whole numbers that sum to `total`, as near to shares * total as can be (Hamilton's method; ties go to the earlier)."""
    exact = [share * total / sum(shares) for share in shares]
    counts = [int(value + 1e-9) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (round(counts[i] - exact[i], 9), i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
