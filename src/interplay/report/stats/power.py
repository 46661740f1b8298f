"""The power of the replicates that a study plans, before there are data: from a pilot. With data, see `sequential`."""

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from interplay.core import artifact, metrics, model
from interplay.data.spec import ProblemsSpec
from interplay.report import claim_spec
from interplay.report.claim_spec import Test
from interplay.report.metric_spec import is_pass_rate, metric_row
from interplay.report.spec import ReportArm, ReportSpec
from interplay.report.stats import intervals
from interplay.study.plan import Plan

MOST_PLANNED = 200
"""Replicates beyond which a claim counts as out of reach."""
MOST_PROMPTS = 3000
"""Prompts of a band that are advised in place of more replicates."""


class Planned(NamedTuple):
    """What the planned replicates find of one claim."""

    claim: claim_spec.Claim
    said: str
    power: float | None
    """For a true difference of the published effect, else of twice the bound, or of 0 where the bound lies on the other side of
    it; None where the bound is 0, so that no effect is stated, or the pilot does not measure the metric."""
    exploratory: bool

    @property
    def short(self) -> bool:
        """Whether the claim is refused: its power is too small, and nothing says that it is exploratory."""
        return self.power is not None and self.power < intervals.POWER and not self.exploratory


def planned_power(plan: Plan, seconds: Callable[[str], float | None]) -> list[Planned]:
    """Of each claim, and of each fight, about a difference of pass rates, with the pilot's deviations. `seconds`: digest -> what
    the stage takes."""
    spec, inputs = plan.report_spec(), {d: of.deps.values() for d, of in plan.stages.items()}
    tests = ((claim, claim.test) for claim in spec.claims)
    measured = [(claim, 1) for claim, test in tests if test.difference and test.band and is_pass_rate(test.metric)]
    found = []
    for claim, contenders in [*measured, *_fights(spec)]:
        exploratory = claim.exploratory or plan.design["exploratory"]
        said, power = _planned(plan, spec, claim, replicate_seconds(spec, claim.test, seconds, inputs), contenders)
        found.append(Planned(claim, f"{said}{', exploratory' if exploratory else ''}", power, exploratory))
    return found


def refuse_short(plan: Plan, found: Iterable[Planned]) -> None:
    """Raises UserError where a claim or a fight cannot be found and does not say so: of `interplay plan` and `register`, and of a
    launch. A design that was registered passed then, and can be run as it is."""
    registered = plan.report_spec().registration
    short = [one for one in found if one.short and (registered is None or registered.changes)]
    if short:
        more = f" and of {model.plural(len(short) - 1, 'more claim')}" if len(short) > 1 else ""
        remedy = "give it the replicates or prompts it needs, another bound, or `exploratory: true`"
        said = f"power {short[0].power:.2f} of '{short[0].claim.says}'{more} at scale {plan.scale}: {remedy}"
        raise model.UserError(f"configs/study/{plan.study}.yaml: claims: {said}")


def _fights(spec: ReportSpec) -> Iterator[tuple[claim_spec.Claim, int]]:
    """The fights about pass rates, each as a claim about one of its contenders, and how many these are."""
    for name, table in spec.tables.items():
        if table.contrast is None or table.fight is None or not is_pass_rate(table.cells[0]):
            continue
        lineup, effect = spec.lineups[name], table.contrast.effect
        arms = {one.name: one.tries[0].arm for one in lineup.contenders}
        against = arms.pop(lineup.against)
        test = table.fight.model_copy(update={"arm": next(iter(arms.values())), "against": against, "margin": effect})
        says = f"fight {name}: a contender that differs from {against} by {100 * effect:g} points, one of {len(arms)}"
        yield claim_spec.Claim(says=says, test=test), len(arms)


def _planned(
    plan: Plan, spec: ReportSpec, claim: claim_spec.Claim, each: float | None, contenders: int
) -> tuple[str, float | None]:
    """`contenders`: of a fight, which share the variance and the error rate."""
    pilot = plan.pilot or {}
    arms = [spec.rows_of(arm) for arm in (claim.test.arm, claim.test.against)]
    bases = min(len({row.path[0].digest for row in rows}) for rows in arms)
    prompts = _prompts(plan, spec, arms[0][0], claim.test)
    rivals = contenders > 1 or _are_rivals(arms[0][0], arms[1][0])
    of_bases, of_prompts = (rivals and pilot["contenders"]) or (pilot["bases"], pilot["prompts"])

    claimed = claim in spec.claims  # and no fight, whose looks spend alpha on their own
    level = spec.stopping.alpha if spec.stopping and claimed else intervals.LEVEL
    both = claimed and claim.test.bounds == (-(claim.test.margin or 0.0), claim.test.margin)

    def planned(replicates: int, prompts: int = prompts) -> intervals.Spread:
        of, shared = of_bases if bases > 1 else pilot["seeds"], of_prompts**2 / prompts
        many = {"pooled": contenders, "family": contenders}
        if arms[0][0].calibration and bases > 1:  # prompts of its own for each base
            return intervals.Spread(
                0.0, replicates, replicates * prompts, (of**2 + shared) / replicates, 0.0, **many, level=level
            )
        return intervals.Spread(0.0, replicates, prompts, of**2 / replicates, shared, **many, level=level)

    replicates, unit = (bases if bases > 1 else len(arms[0])), "base" if bases > 1 else "run"
    if spec.stopping and bases > 1:
        replicates = spec.stopping.looks[-1]
    found = planned(replicates)
    count = model.plural(replicates, "base") if bases > 1 else "1 base"
    said = f"{count}{'' if bases > 2 else ', at most indicated'}, finds {found.detectable:.1f} points"
    most, unseen = claim.fails.most if claim.fails else 1.0, intervals.share_interval(0, replicates)[1]
    if unseen > most:
        least = replicates_for(lambda n: float(intervals.share_interval(0, n)[1] <= most))
        still = f"where none fails up to {unseen:.0%} may, above fails.most = {most:g}"
        return f"{said}; {still}: needs {model.plural(least, unit) if least else f'over {MOST_PLANNED} replicates'}", 0.0
    distance = 100 * min(abs(threshold) for threshold in claim.thresholds if threshold or claim.effect is None)
    if not distance:
        return said, None

    def chance(of: intervals.Spread) -> float:
        """Of a verdict: equivalence needs both bounds left out, of which each is missed on a side of its own."""
        return max(0.0, 2 * of.power(distance) - 1) if both else of.power(distance)

    power = chance(found)
    if power >= intervals.POWER:
        return f"{said}, power {power:.2f}", power
    options = list[str]()
    if need := replicates_for(lambda n: chance(planned(n))):
        options.append(model.plural(need, unit) + (f" ({metrics.clock(need * each)})" if each else ""))
    more = range(prompts, max(prompts, MOST_PROMPTS))
    enough = prompts + bisect.bisect_left(more, intervals.POWER, key=lambda n: chance(planned(replicates, n)))
    if enough < MOST_PROMPTS:
        options.append(f"{enough} prompts in place of {prompts}")
    if not options:
        options = ["more prompts" if chance(planned(10**6)) < intervals.POWER else f"over {MOST_PLANNED} replicates"]
    return f"{said}, power {power:.2f}, below {intervals.POWER:g}: needs {' or '.join(options)}", power


def _are_rivals(one: ReportArm, other: ReportArm) -> bool:
    """Whether two arms train stages of the same kinds on one base. Training moves some prompts far more than others, in both arms
    the same ones, so that such a difference varies less between prompts than that of an arm and its base."""
    kinds = [[stage.kind for stage in arm.path] for arm in (one, other)]
    return kinds[0] == kinds[1] and len(kinds[0]) > 1 and one.path[0].digest == other.path[0].digest


def replicates_for(power: Callable[[int], float]) -> int | None:
    """The least number of replicates, 3 or more, with enough power, which rises; None beyond `MOST_PLANNED`."""
    counts = range(claim_spec.LEAST_BASES, MOST_PLANNED)
    at = bisect.bisect_left(counts, intervals.POWER, key=power)
    return counts[at] if at < len(counts) else None


def _prompts(plan: Plan, spec: ReportSpec, row: ReportArm, test: Test) -> int:
    """Prompts of the band in the first evaluation by name whose problems are generated with it and that has as many samples of
    each as the metric needs (`estimate`); where none is known, so many that they add nothing."""
    for _, digest in sorted(row.evaluations.items()):
        data = plan.stages[plan.stages[digest].deps["data"]].spec
        samples = sum(getattr(plan.stages[block].spec, "num_samples", 0) for block in spec.blocks_of(digest))
        if isinstance(data, ProblemsSpec) and test.band in data.shares and samples >= metric_row(test.metric).samples:
            return max(2, round(data.size * data.shares[test.band]))
    return 10**6


def replicate_seconds(
    spec: ReportSpec, test: Test, seconds: Callable[[str], float | None], inputs: Mapping[str, Iterable[str]]
) -> float | None:
    """Mean over the replicates of the seconds of the stages which belong to one replicate of the test's arms alone; None where
    some of them are not known."""
    rows = spec.rows_of(*test.arms)
    stages = {seed: _stages([row for row in rows if row.seed == seed], inputs) for seed in {row.seed for row in rows}}
    totals = []
    for seed, own in stages.items():
        others = set().union(*(of for other, of in stages.items() if other != seed))
        times = [seconds(digest) for digest in own - others]
        totals.append(np.nan if None in times else sum(time or 0.0 for time in times))
    mean = float(np.nanmean(totals)) if totals and not np.isnan(totals).all() else np.nan
    return None if math.isnan(mean) else mean


def _stages(rows: Iterable[ReportArm], inputs: Mapping[str, Iterable[str]]) -> set[str]:
    return set(artifact.closure([digest for row in rows for digest in row.digests()], lambda digest: inputs.get(digest, ())))
