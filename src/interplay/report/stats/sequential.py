"""Verdicts while replicates are added: group-sequential tests on the looks that a study declares; and what a claim still needs.

Alpha is spent over the looks by Lan and DeMets (Biometrika 70, 1983), with the function that is like O'Brien and Fleming's, both
directions together. Futility is an inner wedge (Pampallona and Tsiatis, Journal of Statistical Planning and Inference 42, 1994)
that spends beta likewise, and does not bind: the boundaries of alpha do not count on it. Probabilities come from the recursion
of Armitage, McPherson and Rowe (JRSS A 132, 1969) with Gauss-Legendre nodes.

They are of normal deviates; a boundary is applied to a t statistic by its nominal level (Pocock, Biometrika 64, 1977), so that a
look with few replicates needs a far larger t. A verdict takes the repeated confidence interval, the one at that level (Jennison
and Turnbull, JRSS B 51, 1989). Information is counted in replicates; where prompts are shared, looks agree more than that, which
errs on the safe side."""

import bisect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import optimize, special, stats

from interplay.core import metrics
from interplay.report import claim_spec
from interplay.report.claim_spec import Claim
from interplay.report.metric_spec import measure_of
from interplay.report.spec import Stopping
from interplay.report.stats import contrast, frame
from interplay.report.stats.contrast import JudgedClaim
from interplay.report.stats.intervals import LEVEL, Bound, FightLook, Look, Spread
from interplay.report.stats.power import replicate_seconds

NODES = 48
"""Per interval of a look's deviates on which a study goes on."""
FAR = 12.0
"""A deviate that stands for infinity."""
Part = tuple[float, float]
"""An interval of deviates."""
Bounds = tuple[Bound, ...]


class Walk(NamedTuple):
    """Where the process S = z sqrt(t) may be after the looks so far, given that none stopped it: masses at places (n,)."""

    time: float
    places: np.ndarray
    masses: np.ndarray

    def chance(self, time: float, drift: float, low: float, high: float) -> float:
        """That it goes on to `time` with a deviate between low and high there."""
        if high <= low:
            return 0.0
        step, mean = np.sqrt(time - self.time), self.places + drift * (time - self.time)
        ends = [special.ndtr((end * np.sqrt(time) - mean) / step) for end in (low, high)]
        return float(self.masses @ (ends[1] - ends[0]))

    def to(self, time: float, drift: float, parts: list[Part]) -> "Walk":
        """The same after a look that goes on where the deviate is in one of the parts."""
        step, mean = np.sqrt(time - self.time), self.places + drift * (time - self.time)
        nodes, weights = _nodes()
        halves = [(high - low) / 2 for low, high in parts]
        deviates = np.concatenate([half * nodes + low + half for half, (low, _) in zip(halves, parts, strict=True)])
        places = deviates * np.sqrt(time)
        density = np.exp(-(((places - mean[:, None]) / step) ** 2) / 2) * np.sqrt(time / (2 * np.pi)) / step
        return Walk(time, places, np.concatenate([half * weights for half in halves]) * (self.masses @ density))


@cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(NODES)


START = Walk(0.0, np.zeros(1), np.ones(1))


def spent(rate: float, time: float, sides: int) -> float:
    """What of an error rate is spent at a share of the information, on so many sides."""
    return float(2 * sides * stats.norm.sf(stats.norm.isf(rate / (2 * sides)) / np.sqrt(time)))


@cache
def boundaries(looks: tuple[int, ...], alpha: float, beta: float | None) -> Bounds:
    """Of each look, in order."""
    times = [look / looks[-1] for look in looks]
    walk, outer, gone = START, list[float](), 0.0
    for time in times:
        whole, due = walk.chance(time, 0.0, -FAR, FAR), spent(alpha, time, 2) - gone
        outer.append(_root(lambda end: whole - walk.chance(time, 0.0, -end, end) - due, 0.0, FAR))  # noqa: B023
        walk, gone = walk.to(time, 0.0, [(-outer[-1], outer[-1])]), spent(alpha, time, 2)
    inner = [0.0] * len(looks)
    if beta is not None:
        drift = _root(lambda shift: _wedge(times, outer, beta, shift)[1], 0.1, 20.0)
        inner = _wedge(times, outer, beta, drift)[0]
    return tuple(Bound(*one) for one in zip(times, outer, inner, strict=True))


def _wedge(times: list[float], outer: list[float], beta: float, drift: float) -> tuple[list[float], float]:
    """The inner boundaries that spend beta under a drift, and what is spent too much at the last look, where both meet."""
    walk, inner, gone = START, list[float](), 0.0
    for time, end in zip(times[:-1], outer[:-1], strict=True):
        due = spent(beta, time, 1) - gone
        most = walk.chance(time, drift, -end, end)
        inner.append(end if most <= due else _root(lambda at: walk.chance(time, drift, -at, at) - due, 0.0, end))  # noqa: B023
        gone += min(most, due)
        walk = walk.to(time, drift, [(-end, -inner[-1]), (inner[-1], end)])
    return [*inner, outer[-1]], walk.chance(times[-1], drift, -outer[-1], outer[-1]) - (beta - gone)


def _root(of: Callable[[float], float], low: float, high: float, accuracy: float = 1e-10) -> float:
    return float(optimize.brentq(of, low, high, xtol=accuracy))


def compare(results: frame.Results, name: str) -> contrast.Comparison:
    """The comparison of a table with a `contrast`, at looks where it is a fight (`_fought`), with what each had to choose from:
    the score of each try, and without tuning what is a confound."""
    made = _fought(results, name)
    tune, rows = made.contrast.tune, {row.chosen.name: row.chosen for row in made.blocks[0].rows}
    if tune is None:
        arms = [one.arm for one in rows.values()]
        said = [f"Confound, tuned contender: {one}." for one in frame.unequal_tries(results.spec, arms, arms)]
        return made._replace(caveats=(*made.caveats, *said))
    measure, each = measure_of(made.blocks[0].metric), []
    for one in made.lineup.contenders:
        pairs = zip(one.tries, rows[one.name].tuning, strict=True)
        shown = ", ".join(f"{item.value} ({measure.shown(number)})" for item, number in pairs)
        each.append(f"{made.label(one.name)} {rows[one.name].value or 'none'} of {shown}")
    said = [f"Tries of {tune.axis}, chosen by {made.blocks[0].metric} on {tune.band}: {'; '.join(each)}."]
    return made._replace(caveats=(*made.caveats, *said))


def _fought(results: frame.Results, name: str) -> contrast.Comparison:
    """The comparison of a table with a `contrast`: a fight at the looks of the study, where it declares some, until each
    contender is decided. Alpha is spent over the looks, and what is spent at one is the level of Dunnett's test there, so that by
    Bonferroni's inequality no more than alpha of all fights err at any look about any contender, however looks depend on each
    other. There is no futility. A decided contender keeps the numbers of its look."""
    stopping, table = results.spec.stopping, results.spec.tables[name]
    if stopping is None or table.fight is None:
        return contrast.compare_arms(results, name)
    seeds, looks = list(dict.fromkeys(row.seed for row in results.spec.arms)), stopping.looks
    made, decided, gone = None, dict[str, contrast.ComparisonRow](), 0.0
    for number, count in enumerate([count for count in looks if count <= len(seeds)], 1):
        level = spent(stopping.alpha, count / looks[-1], 2) - gone
        found, gone = contrast.compare_arms(frame.of_seeds(results, seeds[:count]), name, level), gone + level
        first, *rows = found.blocks[0].rows
        if any(row.verdict == "missing" for row in rows):
            made = made or found
            break
        decided = {row.chosen.name: row for row in rows if not _is_open(row.verdict)} | decided
        stopped = len(decided) == len(rows) or count == looks[-1]
        block = found.blocks[0]._replace(rows=[first, *(decided.get(row.chosen.name, row) for row in rows)])
        made = found._replace(blocks=[block], look=FightLook(number, len(looks), count, level, stopped))
        if stopped:
            break
    if made is None:
        made = contrast.compare_arms(results, name)
        rows = [row if at == 0 else row._replace(verdict="missing") for at, row in enumerate(made.blocks[0].rows)]
        why = f"Not tested: the first look is at {looks[0]} replicates, and {len(seeds)} are planned here."
        return made._replace(blocks=[made.blocks[0]._replace(rows=rows)], caveats=(why, *made.caveats))
    return made._replace(caveats=(*([_look_text(made.look, stopping)] if made.look else []), *made.caveats))


OPEN = (claim_spec.NO_INFORMATION, claim_spec.NOT_TESTED, claim_spec.INDICATED, claim_spec.INDICATED_AGAINST)


def _is_open(verdict: str) -> bool:
    """Whether a further look may change it: bases that lack a band, or fail, can leave too few for a verdict at an early one."""
    return verdict in OPEN or verdict.endswith(contrast.HERE)


def _look_text(look: FightLook, stopping: Stopping) -> str:
    state = "stopped" if look.stopped else "open"
    return (
        f"Look {look.number} of {look.of}, at {look.replicates} replicates, {state}: intervals and verdicts at level "
        f"{look.level:.2g}, which this look spends of {stopping.alpha:g} over all looks and contenders; a decided contender "
        "keeps the numbers of its look."
    )


def after_stopping(spread: Spread, threshold: float, number: int, bounds: Bounds) -> Part:
    """The 95 % interval of a mean when a test stopped at a look (`number`, from 1): all outcomes, of any look, are ordered by
    their estimates (Emerson and Fleming, Biometrika 77, 1990). The deviate of the outcome itself is that of its t statistic."""
    error, free = spread.half / stats.t.ppf(1 - LEVEL / 2, spread.freedom), spread.freedom
    errors = [error * np.sqrt(bounds[number - 1].time / bound.time) for bound in bounds]

    def above(true: float) -> float:
        """Chance of an estimate as large as this one, or larger, where the mean is `true`."""
        deviate = float(np.clip(stats.norm.ppf(stats.t.cdf((spread.mean - true) / error, free)), -FAR, FAR))
        reached, drift, walk, total = true + error * deviate - threshold, (true - threshold) / errors[-1], START, 0.0
        for bound, of in zip(bounds, errors, strict=True):
            end, inner, at = bound.efficacy, bound.futility, reached / of
            last = bound is bounds[-1]
            stops = [(-np.inf, np.inf)] if last else [(-np.inf, -end), (-inner, inner), (end, np.inf)]
            total += sum(walk.chance(bound.time, drift, max(low, at), high) for low, high in stops)
            walk = walk if last else walk.to(bound.time, drift, [(-end, -inner), (inner, end)])
        return total

    wide = 40 * error
    low = _root(lambda true: above(true) - LEVEL / 2, spread.mean - wide, spread.mean, 1e-4 * error)
    return low, _root(lambda true: above(true) - 1 + LEVEL / 2, spread.mean, spread.mean + wide, 1e-4 * error)


# -- claims ------------------------------------------------------------------------------------------------------------------


def judge(results: frame.Results, claim: Claim) -> JudgedClaim:
    """The verdict on a claim, at the looks of the study where it declares some, and what of it was changed after it was
    registered."""
    stopping = results.spec.stopping
    judged = contrast.judge_claim(results, claim) if stopping is None else _at_looks(results, claim, stopping)
    return judged._replace(changed=results.spec.changes_of(claim))


def _at_looks(results: frame.Results, claim: Claim, stopping: Stopping) -> JudgedClaim:
    """The verdict of the first look at which the claim stopped, else of the last one that is complete. A look takes the first
    replicates of the study, however many more there are."""
    bounds = boundaries(tuple(stopping.looks), stopping.alpha, stopping.beta)
    seeds = list(dict.fromkeys(row.seed for row in results.spec.arms))
    reached = [count for count in stopping.looks if count <= len(seeds)]
    found: JudgedClaim | None = None
    for number, count in enumerate(reached, 1):
        made = contrast.judge_claim(frame.of_seeds(results, seeds[:count]), claim, bounds[number - 1].level)
        if made.verdict == claim_spec.NOT_JUDGED:
            found = found or made
            break
        found = at_look(made, number, bounds, stopping.looks)
        if found.look and found.look.stopped:
            break
    if found is None:
        why = f"the first look is at {stopping.looks[0]} replicates, and {len(seeds)} are planned here"
        return JudgedClaim(claim, claim_spec.NOT_JUDGED, why, contrast.Estimate(missing=(why,)))
    return found


def at_look(made: JudgedClaim, number: int, bounds: Bounds, looks: Sequence[int]) -> JudgedClaim:
    """The verdict with its look: whether the claim stops there, and why."""
    bound, spread, claim = bounds[number - 1], made.estimate.spread, made.claim
    last = number == len(bounds)
    said = f"look {number} of {len(bounds)}, at {looks[number - 1]} replicates, with a boundary of {bound.efficacy:.2f}"
    if made.verdict == claim_spec.NOT_TESTED or spread is None:
        return made._replace(look=Look(number, len(bounds), looks[number - 1], bound, last, (np.nan, np.nan)))
    threshold = deciding(claim, spread.mean)
    deviate = float(stats.norm.isf(spread._replace(mean=spread.mean - threshold).p_value() / 2))
    decided, futile = not _is_open(made.verdict), deviate < bound.futility
    ends = (np.nan, np.nan)
    if (decided or futile or last) and spread.error > 0 and spread.replicates > 1:
        ends = after_stopping(spread, threshold, number, bounds)
    why = "; stopped" if decided else "; given up: a verdict is too unlikely" if futile and not last else ""
    reason = f"{made.reason}; {said}, the deviate is {deviate:.2f}{why}"
    look = Look(number, len(bounds), looks[number - 1], bound, decided or futile or last, ends)
    return made._replace(reason=reason, look=look)


def deciding(claim: Claim, value: float) -> float:
    """The threshold that an interval around the value has to leave out for a verdict: of those that give one the farthest, since
    its interval may be the widest."""
    gives = [at for at in claim.thresholds if claim.word(*_just_short(value, at)) != claim_spec.NO_INFORMATION]
    return max(gives or claim.thresholds, key=lambda at: abs(value - at) if gives else -abs(value - at))


def _just_short(value: float, at: float) -> Part:
    reach = abs(value - at) * (1 - 1e-9)
    return value - reach, value + reach


# What a claim still needs: from the spread of the replicates that are there, how many of them settle it, and their cost.
#
# A claim is settled where half the width of its interval is below the margin, the distance of the estimate from the nearest
# threshold. More replicates shrink what they add to it, not what prompts add. At the n where both are equal, half of all
# repetitions settle (Kupper and Hafner, The American Statistician 43, 1989); so the number with power is stated, too: the least n
# whose minimum detectable effect (noncentral t, 80 %) is below the margin. Both take estimate and spread for the true ones.


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
    return [_need(results, judge(results, claim), inputs) for claim in results.spec.claims]


def _need(results: frame.Results, judged: contrast.JudgedClaim, inputs: Mapping[str, Iterable[str]]) -> Need:
    found, test, spread = judged.estimate, judged.claim.test, judged.estimate.spread
    margin = min(abs(found.value - threshold) for threshold in judged.claim.thresholds)

    def needed(width: Callable[[Spread], float]) -> int | None:
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
