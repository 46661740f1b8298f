"""Claims judged from the records: supported, refuted, no information, or not judged and why."""

from typing import NamedTuple

import numpy as np

from interplay.report.spec import Claim, Test
from interplay.report.stats import budget, notes
from interplay.report.stats.estimate import Estimate, difference, plain, value
from interplay.report.stats.frame import Results
from interplay.report.stats.recorded import recorded

LEAST_SEEDS = 3
LEAST_PROMPTS = 20
"""Below it a percentile interval over prompts is too narrow to lean on."""


class Judged(NamedTuple):
    """A claim, its verdict (supported, refuted, no information, not judged), the reason in words, and the estimate behind it."""

    claim: Claim
    verdict: str
    reason: str
    estimate: Estimate
    caveat: str = ""
    """What a reader of the verdict must know beside it."""


def judge(results: Results, claim: Claim) -> Judged:
    """Judge one claim by where its 95 % interval lies.

    Three seeds at least are asked for. An arm (or pair of arms) that is one model shared by all seeds is judged over prompts, 20
    at least."""
    test = claim.test
    if test.recorded is not None:
        estimate = recorded(results, test.recorded, test.metric, test.arm, test.against)
    elif test.difference is not None:
        estimate = difference(results, test.arm, str(test.against), test.band, test.difference)
    else:
        estimate = value(results, test.arm, test.band, str(test.value))
    obstacle = _obstacle(estimate) or budget.obstacle(results, test)
    if obstacle:
        return Judged(claim, "not judged", obstacle, estimate)
    low, high = bounds(test)
    verdict = side(estimate.low, estimate.high, low, high)
    where = {"supported": "lies inside", "refuted": "lies outside", "no information": "reaches across the edge of"}[verdict]
    alike = notes.between(results, test.arm, test.against) if test.against else ""
    return Judged(claim, verdict, f"the 95 % interval {where} the claimed range; uncertain over {estimate.over}", estimate, alike)


def bounds(test: Test) -> tuple[float, float]:
    """The range that the test claims; open sides are infinite."""
    if test.within is not None:
        return test.within
    return (-np.inf if test.at_least is None else test.at_least, np.inf if test.at_most is None else test.at_most)


def side(low: float, high: float, claimed_low: float, claimed_high: float) -> str:
    """Where the interval [low, high] lies: wholly inside the claimed range, wholly outside, or neither."""
    if claimed_low <= low and high <= claimed_high:
        return "supported"
    return "refuted" if high < claimed_low or low > claimed_high else "no information"


def _obstacle(estimate: Estimate) -> str:
    """Why a verdict may not be given; empty when it may."""
    if estimate.missing:
        return f"missing: {'; '.join(estimate.missing)}"
    if len(estimate.seeds) < LEAST_SEEDS:
        count = f"{len(estimate.seeds)} seed{'s' if len(estimate.seeds) > 1 else ''}"
        return f"{count}, and a verdict needs {LEAST_SEEDS}; the interval is over {estimate.over}"
    if 1 < estimate.models < LEAST_SEEDS:
        return f"{len(estimate.seeds)} seeds share {estimate.models} models, and a verdict over seeds needs {LEAST_SEEDS}"
    if np.isnan(estimate.deviation) and estimate.n_prompts < LEAST_PROMPTS:
        return f"{estimate.n_prompts} prompts, and a verdict over prompts needs {LEAST_PROMPTS}"
    return ""


def as_json(judged: list[Judged]) -> list[dict]:
    """The content of claims.json."""
    return [
        {
            "says": item.claim.says,
            "source": item.claim.source,
            "test": item.claim.test.model_dump(mode="json", exclude_none=True),
            "verdict": item.verdict,
            "reason": item.reason,
            **({"caveat": item.caveat} if item.caveat else {}),
            "estimate": plain(item.estimate),
        }
        for item in judged
    ]
