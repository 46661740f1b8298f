"""What a claim still needs once there are data: from the spread of the replicates that are there, how many of them settle it, and
their cost.

A claim is settled where half the width of its interval is below the margin, the distance of the estimate from the nearest
threshold. More replicates shrink what they add to it, not what prompts add. At the n where both are equal, half of all
repetitions settle (Kupper and Hafner, The American Statistician 43, 1989); so the number with power is stated, too: the least n
whose minimum detectable effect (noncentral t, 80 %) is below the margin. Both take estimate and spread for the true ones."""

import bisect
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from interplay.core import metrics
from interplay.report import claim_spec
from interplay.report.stats import contrast, frame, intervals, sequential
from interplay.report.stats.power import replicate_seconds

MOST = 1000
"""Replicates beyond which a claim counts as out of reach."""


class Need(NamedTuple):
    """What one claim needs. Numbers are totals of replicates, those that are there included; None: out of reach, or unknown."""

    judged: contrast.JudgedClaim
    margin: float
    """Distance of the estimate from the nearest bound; NaN without an estimate."""
    have: int
    interval: int | None
    """From how many replicates the interval is below the margin."""
    powered: int | None
    """From how many on four of five repetitions settle it."""
    prompts: int | None
    """Where no number of replicates is enough: how many prompts would make what they add narrower than the margin."""
    seconds: float | None
    """What one more replicate of its arms takes, one stage after another, as the finished ones did."""

    @property
    def settled(self) -> bool:
        """Whether there is a verdict."""
        return self.judged.verdict in (*claim_spec.FOR, *claim_spec.AGAINST)


def what_is_needed(results: frame.Results, inputs: Mapping[str, Iterable[str]]) -> list[Need]:
    """For every claim. `inputs`: digest -> digests that the stage depends on, of all stages of the plan."""
    return [_need(results, sequential.judge(results, claim), inputs) for claim in results.spec.claims]


def _need(results: frame.Results, judged: contrast.JudgedClaim, inputs: Mapping[str, Iterable[str]]) -> Need:
    found, test, spread = judged.estimate, judged.claim.test, judged.estimate.spread
    margin = min(abs(found.value - threshold) for threshold in judged.claim.thresholds)

    def needed(width: Callable[[intervals.Spread], float]) -> int | None:
        return None if spread is None or spread.replicates < 2 else replicates(margin, lambda n: width(spread.of(n)))

    interval, alone = needed(lambda of: of.half), 0.0
    if spread is not None and interval is None and margin > 0:
        alone = spread._replace(replicates=1, between=0.0).half
    return Need(
        judged=judged,
        margin=margin,
        have=found.bases,
        interval=interval,
        powered=needed(lambda of: of.detectable),
        prompts=math.ceil(found.n_prompts * (alone / margin) ** 2) if alone > margin else None,
        seconds=replicate_seconds(results.spec, test, lambda digest: _seconds(results.folders.get(digest)), inputs),
    )


def replicates(margin: float, width: Callable[[int], float]) -> int | None:
    """The least number of replicates, 3 or more, at which `width`, which falls, is not above the margin; None: more than `MOST`,
    or unknown."""
    if not (margin > 0 and width(MOST) <= margin):  # also for NaN
        return None
    counts = range(claim_spec.LEAST_BASES, MOST)
    return counts.start + bisect.bisect_left(counts, True, key=lambda n: width(n) <= margin)


def _seconds(folder: Path | None) -> float | None:
    found = metrics.read_telemetry(folder).get("seconds_wall") if folder else None
    return None if found is None else float(found)
