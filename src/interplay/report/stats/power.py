"""What a verdict still needs: from the spread of the replicates that are there, how many of them settle a claim, and their cost.

A claim is settled where half the width of its interval is below the margin, the distance of the estimate from the nearest
threshold. More replicates shrink what they add to it, not what prompts add. At the n where both are equal, half of all
repetitions settle (Kupper and Hafner, The American Statistician 43, 1989); so the number with power is stated, too: the least n
whose minimum detectable effect (noncentral t, 80 %) is below the margin. Both take estimate and spread for the true ones."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from interplay.core import artifact, metrics
from interplay.report import claim_spec
from interplay.report.claim_spec import Test
from interplay.report.spec import ReportArm, ReportSpec
from interplay.report.stats import contrast, frame, intervals

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
    return [_need(results, contrast.judge_claim(results, claim), inputs) for claim in results.spec.claims]


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
        seconds=replicate_seconds(results.spec, test, results.folders, inputs),
    )


def replicates(margin: float, width: Callable[[int], float]) -> int | None:
    """The least number of replicates, 3 or more, at which `width` is not above the margin; None: more than `MOST`, or unknown."""
    if not (margin > 0 and width(MOST) <= margin):  # also for NaN
        return None
    low, high = claim_spec.LEAST_BASES - 1, MOST  # width falls in n: the answer is in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if width(middle) <= margin else (middle, high)
    return high


def replicate_seconds(
    spec: ReportSpec, test: Test, folders: Mapping[str, Path], inputs: Mapping[str, Iterable[str]]
) -> float | None:
    """Mean over the replicates of the seconds that the stages took which belong to one replicate of the test's arms alone; None
    where some of them are not finished, or kept no time."""
    rows = [row for row in spec.arms if row.arm in (test.arm, test.against)]
    stages = {seed: _stages([row for row in rows if row.seed == seed], inputs) for seed in {row.seed for row in rows}}
    totals = []
    for seed, own in stages.items():
        others = set().union(*(of for other, of in stages.items() if other != seed))
        times = [_seconds(folders.get(digest)) for digest in own - others]
        totals.append(np.nan if None in times else sum(time or 0.0 for time in times))
    mean = float(np.nanmean(totals)) if totals and not np.isnan(totals).all() else np.nan
    return None if math.isnan(mean) else mean


def _stages(rows: Iterable[ReportArm], inputs: Mapping[str, Iterable[str]]) -> set[str]:
    ends = [digest for row in rows for digest in (*(step.digest for step in row.path), *row.evaluations.values())]
    return set(artifact.closure(ends, lambda digest: inputs.get(digest, ())))


def _seconds(folder: Path | None) -> float | None:
    found = metrics.read_telemetry(folder).get("seconds_wall") if folder else None
    return None if found is None else float(found)
