"""What a reader of a table must know before its differences: who sampled it, and where training changed nothing."""

from collections.abc import Iterable

from interplay.report import same_weights, sampled
from interplay.report.frame import Results


def of(results: Results, arms: Iterable[str]) -> tuple[str, ...]:
    """Lines on these arms; none where there is nothing to beware of."""
    chosen = list(arms)
    return (*same_weights.notes(results, chosen), *sampled.notes(results, chosen))
