"""Pairwise comparisons against a baseline, with Holm's correction and a seed-noise floor or as a fight with Dunnett's, and
claims judged by their intervals.

The noise floor is the difference between identical runs; a difference within it is *no information*. A fight has one outcome,
one variance for all arms and no floor (`intervals`)."""

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from interplay.report import claim_spec
from interplay.report.claim_spec import EQUIVALENT, NO_INFORMATION, Claim, Premise, Test
from interplay.report.display_spec import Contrast
from interplay.report.metric_spec import lower_is_better, measure_of
from interplay.report.shown_spec import logged_measure, readable
from interplay.report.spec import Contender, Lineup
from interplay.report.stats import budget, estimate, frame, notes
from interplay.report.stats.estimate import Estimate, difference, p_value, recorded_estimate, value
from interplay.report.stats.intervals import LEVEL, FightLook, Look, holm_adjusted, interval_of_arms
from interplay.report.write.tables import Cell, Grid, baseline_score, expand_columns

SUFFIX = "_contrast"
"""Suffix of the name of the table."""
HERE = " here"
"""Ends a verdict that is about these bases alone."""
COMPARED = "compared with"
"""In the place of a verdict: this is the one that the others are compared with."""


class ChosenArm(NamedTuple):
    """Who stands for a contender."""

    name: str
    arm: str
    """Empty where not all of its tries are there to choose from."""
    value: str
    """Of the tuned axis; empty without tuning."""
    tuning: tuple[float, ...]
    """Mean over seeds on the tuning column of each try, in their order; empty without tuning."""
    missing: tuple[str, ...] = ()


class NoiseFloor(NamedTuple):
    """What chance alone makes: the largest difference between identical runs that differ in their random stream."""

    arm: str
    twin: str
    gap: Estimate
    deviation: float
    """Standard deviation of one run around the mean of its identical ones at the same seed, pooled over twins and seeds."""
    runs: int

    @property
    def size(self) -> float:
        """The floor; NaN where no identical runs are there."""
        return abs(self.gap.value)


class ComparisonRow(NamedTuple):
    """One contender in one column by one metric. The one that the others are compared with has no difference."""

    chosen: ChosenArm
    estimate: Estimate
    gap: Estimate
    p: float
    adjusted: float
    verdict: str
    """better, worse, in a fight equivalent (of fewer than three bases with HERE) or not tested, no information, missing; COMPARED
    of that one."""


class ComparisonBlock(NamedTuple):
    """One column by one metric."""

    column: str
    metric: str
    floor: NoiseFloor
    rows: list[ComparisonRow]


class Comparison(NamedTuple):
    """The contrast of one table."""

    contrast: Contrast
    lineup: Lineup
    blocks: list[ComparisonBlock]
    tests: int
    """Comparisons that were adjusted together."""
    caveats: tuple[str, ...] = ()
    """Lines on what to know before the differences (`caveats.of`)."""
    labels: Mapping[str, str] = {}
    """Contender -> what it is called, where it has a label."""
    look: FightLook | None = None

    @property
    def fight(self) -> bool:
        """Whether one outcome is judged, without a noise floor."""
        return self.contrast.correction == "dunnett"

    def label(self, name: str) -> str:
        """What a contender is called."""
        return self.labels.get(name) or readable(name)


def compare_arms(results: frame.Results, name: str, level: float = LEVEL) -> Comparison:
    """The comparison of a table with a `contrast`; a fight at a level."""
    table, lineup = results.spec.tables[name], results.spec.lineups[name]
    contrast = table.contrast
    assert contrast is not None
    chosen = [_choose(results, contrast, one, table.cells[0]) for one in lineup.contenders]
    columns = expand_columns(results, table.columns)
    blocks = [_block(results, lineup, chosen, *pair) for pair in itertools.product(columns, dict.fromkeys(table.cells))]
    labels = {name: one.label for name, one in results.spec.shown.items()}
    caveats = notes.caveats_of(results, [one.arm for one in chosen])
    if table.fight:
        fought, failed = _fight(results, contrast, table.fight, blocks[0], level)
        said = (*(f"Not tested: {reason}." for reason in dict.fromkeys(failed)), *caveats)
        return Comparison(contrast, lineup, [fought], len(chosen) - 1, said, labels)
    raw = np.array([row.p for block in blocks for row in block.rows])
    tested, adjusted = ~np.isnan(raw), raw.copy()
    if contrast.correction == "holm":
        adjusted[tested] = holm_adjusted(raw[tested])
    numbers = iter(adjusted.tolist())
    judged = [block._replace(rows=[_judged(row, next(numbers), block) for row in block.rows]) for block in blocks]
    return Comparison(contrast, lineup, judged, int(tested.sum()), caveats, labels)


def _choose(results: frame.Results, contrast: Contrast, one: Contender, metric: str) -> ChosenArm:
    """The try with the best mean on the tuning column, the first of equals. None where some try is missing: a group that chose
    among fewer would not have had its chance."""
    if contrast.tune is None:
        return ChosenArm(one.name, one.tries[0].arm, "", ())
    pilot = results._replace(spec=results.spec.model_copy(update={"arms": results.spec.tuning}), kept=None)
    found = [value(pilot if contrast.tune.bases else results, item.arm, contrast.tune.band, metric) for item in one.tries]
    tuning = tuple(item.value for item in found)
    missing = tuple(dict.fromkeys(reason for item in found for reason in item.missing))
    if missing:
        return ChosenArm(one.name, "", "", tuning, missing)
    best = one.tries[int(np.argmin(tuning) if lower_is_better(metric) else np.argmax(tuning))]
    return ChosenArm(one.name, best.arm, best.value, tuning)


def _block(results: frame.Results, lineup: Lineup, chosen: list[ChosenArm], column: str, metric: str) -> ComparisonBlock:
    against = next(one for one in chosen if one.name == lineup.against)
    order = [against, *(one for one in chosen if one is not against)]
    rows = [_row(results, one, against, column, metric) for one in order]
    return ComparisonBlock(column, metric, _floor(results, lineup, against.arm, column, metric), rows)


def _row(results: frame.Results, one: ChosenArm, against: ChosenArm, column: str, metric: str) -> ComparisonRow:
    estimate = value(results, one.arm, column, metric) if one.arm else Estimate(missing=one.missing)
    if one is against:
        return ComparisonRow(one, estimate, Estimate(), np.nan, np.nan, COMPARED if estimate.seeds else "missing")
    if not (one.arm and against.arm):
        return ComparisonRow(one, estimate, Estimate(missing=against.missing), np.nan, np.nan, "missing")
    gap = difference(results, one.arm, against.arm, column, metric)
    if gap.missing:  # what is judged on some of its seeds was not what was planned
        return ComparisonRow(one, estimate, gap, np.nan, np.nan, "missing")
    return ComparisonRow(one, estimate, gap, p_value(gap), np.nan, "")


def _better_word(name: str, gap: float) -> str:
    """What a difference is for a study: better or worse."""
    return "better" if (gap < 0 if lower_is_better(name) else gap > 0) else "worse"


def _judged(row: ComparisonRow, adjusted: float, block: ComparisonBlock) -> ComparisonRow:
    """A verdict needs an adjusted p below 5 % and a difference beyond the noise floor. Without a floor there is none."""
    if row.verdict:
        return row
    if np.isnan(block.floor.size):
        verdict = "missing"
    elif adjusted < LEVEL and abs(row.gap.value) > block.floor.size:
        verdict = _better_word(block.metric, row.gap.value) + (HERE if lacks_bases(row.gap) else "")
    else:
        verdict = NO_INFORMATION
    return row._replace(adjusted=adjusted, verdict=verdict)


def _floor(results: frame.Results, lineup: Lineup, against: str, column: str, metric: str) -> NoiseFloor:
    """Of the runs that repeat the arm which the others are compared with, as far as it was repeated; else of all."""
    own = {arm: twin for arm, twin in lineup.twins.items() if twin == against} or lineup.twins
    gaps = {arm: difference(results, arm, twin, column, metric) for arm, twin in own.items()}
    there = [arm for arm in gaps if not np.isnan(gaps[arm].value)]
    if not there:
        missing = tuple(dict.fromkeys(reason for gap in gaps.values() for reason in gap.missing))
        return NoiseFloor("", "", Estimate(missing=missing), np.nan, 0)
    widest = max(there, key=lambda arm: abs(gaps[arm].value))
    deviation, runs = _pooled(results, lineup.twins, column, metric)
    return NoiseFloor(widest, own[widest], gaps[widest], deviation, runs)


def _pooled(results: frame.Results, twins: dict[str, str], column: str, metric: str) -> tuple[float, int]:
    """Standard deviation within sets of identical runs at one seed, and the number of runs in all sets."""
    sets: dict[tuple[str, int], list[float]] = {}
    for twin in dict.fromkeys(twins.values()):
        for arm in [twin, *(other for other, of in twins.items() if of == twin)]:
            found = value(results, arm, column, metric)
            for seed, number in zip(found.seeds, found.per_seed, strict=True):
                sets.setdefault((twin, seed), []).append(number)
    several = [np.array(numbers) for numbers in sets.values() if len(numbers) > 1]
    freedom = sum(len(numbers) - 1 for numbers in several)
    if not freedom:
        return np.nan, 0
    squares = sum(float(((numbers - numbers.mean()) ** 2).sum()) for numbers in several)
    return float(np.sqrt(squares / freedom)), freedom + len(several)


def _fight(
    results: frame.Results, contrast: Contrast, test: Test, block: ComparisonBlock, level: float
) -> tuple[ComparisonBlock, list[str]]:
    """The block with pooled variances and Dunnett's p-values, and why it, or a contender, is not tested."""
    against, *rows = block.rows
    failed = [reason for one in contrast.requires if (reason := _unmet(results, test, one))]
    arms = [row.chosen.arm for row in rows if row.verdict != "missing"]
    found = estimate.fight_estimates(results, arms, against.chosen.arm, block.column, block.metric, len(rows), level)
    judged, said = [against], list(failed)
    for row in rows:
        gap = found.get(row.chosen.arm)
        if gap is None or gap.spread is None:
            judged.append(row._replace(verdict="missing"))
            continue
        alone, adjusted = p_value(gap._replace(spread=gap.spread._replace(family=1))), p_value(gap)
        inaction = notes.inaction_notes(results, row.chosen.arm, against.chosen.arm)
        idle = [] if failed else [reason for reason in inaction if reason]
        said += idle
        tied = claim_spec.within_margin(contrast.margin, gap.low, gap.high)
        word = EQUIVALENT if tied else NO_INFORMATION if adjusted >= level else _better_word(block.metric, gap.value)
        here = HERE if word != NO_INFORMATION and lacks_bases(gap) else ""
        verdict = claim_spec.NOT_TESTED if failed or idle else word + here
        judged.append(row._replace(gap=gap, p=alone, adjusted=adjusted, verdict=verdict))
    spreads = [one.gap.spread for one in judged[1:] if one.gap.spread]
    spread = max(spreads, key=lambda of: of.pooled, default=None)
    runs = (len(arms) + 1) * spread.replicates if spread else 0
    deviation = float(np.sqrt(spread.between * spread.replicates / 2)) if spread and spread.replicates > 1 else np.nan
    return block._replace(rows=judged, floor=NoiseFloor("", "", Estimate(), deviation, runs)), said


def leading_rows(block: ComparisonBlock) -> set[str]:
    """Names of the rows that are best as far as the tests show: those that are better than the baseline, else the baseline and
    those that are not worse, if some row is."""
    verdicts = {row.chosen.name: row.verdict for row in block.rows}
    better = {name for name, verdict in verdicts.items() if verdict == "better"}
    not_worse = {name for name, verdict in verdicts.items() if verdict not in ("worse", "missing", claim_spec.NOT_TESTED)}
    return better or (not_worse if "worse" in verdicts.values() else set())


def comparison_grid(made: Comparison) -> Grid:
    """Values and differences as cells like those of other tables: for the provenance on the page and for
    `interplay explain`."""
    cells = {}
    for block in made.blocks:
        against = block.rows[0].chosen.arm
        for row in block.rows:
            if row.chosen.arm:
                pairs = [("", row.estimate), *([(against, row.gap)] if row.gap.seeds else [])]
                for other, found in pairs:
                    cell = Cell(row.chosen.arm, other, block.column, block.metric, found, "")
                    cells[cell.row, block.column, block.metric] = cell
    rows, columns, metrics = (list(dict.fromkeys(key[at] for key in cells)) for at in range(3))
    return Grid(rows, columns, metrics, cells, {})


# Claims, judged by the interval of their estimate.


class JudgedClaim(NamedTuple):
    """A claim, its verdict (`Claim.word`, or indicated, indicated against, not tested, not judged), the reason in words, and its
    estimate."""

    claim: Claim
    verdict: str
    reason: str
    estimate: Estimate
    caveat: str = ""
    changed: tuple[str, ...] = ()
    """What of the claim differs from what was registered."""
    look: Look | None = None
    """Where it is in its sequence of looks; the estimate has its repeated confidence interval."""
    failing: notes.Failures | None = None
    """Of a claim about bases that do not fail: those that did, which the estimate leaves out."""


def judge_claim(results: frame.Results, claim: Claim, level: float = LEVEL) -> JudgedClaim:
    """Judge one claim by where its interval lies, the 95 % one or that of another level, over three bases at least: over fewer it
    is indicated at most. Not tested where a premise fails; not judged where results are missing, or its arms differ in a budget
    that they were to share."""
    test = claim.test
    found = estimate_of(results, test, test.metric, test.arm, test.against)
    lacking = notes.lacking_bands(results, test.arms, test.band)
    if lacking and (results.spec.lacking == "not tested" or not found.seeds):
        return JudgedClaim(claim, claim_spec.NOT_TESTED, lacking, found)
    if found.missing:
        return JudgedClaim(claim, claim_spec.NOT_JUDGED, f"missing: {'; '.join(found.missing)}", found)
    if obstacle := budget.budget_obstacle(results, test):
        return JudgedClaim(claim, claim_spec.NOT_JUDGED, obstacle, found)
    if failed := [said for said in _failed_premises(results, claim) if said]:
        return JudgedClaim(claim, claim_spec.NOT_TESTED, "; ".join(failed), found)
    failing = notes.find_failures(results, claim, found, level) if claim.fails else None
    if isinstance(failing, str):
        return JudgedClaim(claim, claim_spec.NOT_JUDGED, failing, found)
    kept = failing.others(results) if failing else results
    if failing and failing.failed:
        found = estimate_of(kept, test, test.metric, test.arm, test.against) if failing.kept else Estimate()
    found = found if level == LEVEL else estimate.at_level(found, level, test.metric, test.against is not None, test.recorded)
    found = _by_arms(kept, test, found, level) if test.interval else found
    found = found._replace(over=f"{found.over or 'any base'}, where it does not fail") if failing else found
    alone, word = claim.word(found.low, found.high), claim.word(found.low, found.high, failing.share if failing else (0.0, 0.0))
    interval = "95 % interval" if level == LEVEL else "repeated confidence interval"
    said = f"the {interval} {claim_spec.REASONS[alone]}" if found.seeds else "every base failed"
    reason = f"{said}, for {found.over}{f', of bases that have the band; {lacking}' if lacking else ''}"
    if claim.fails and word != alone:
        reason += f"; {'more' if word in claim_spec.AGAINST else 'perhaps more'} than {claim.fails.most:.0%} of bases fail"
    if lacks_bases(found):
        word = claim_spec.indicated(word)
        reason += f", and a verdict needs {claim_spec.LEAST_BASES} bases"
    caveats = [notes.same_weights_note(results, test.arm, test.against) if test.against else "", failing.said if failing else ""]
    return JudgedClaim(claim, word, reason, found, "; ".join(filter(None, caveats)), failing=failing)


def _by_arms(results: frame.Results, test: Test, found: Estimate, level: float) -> Estimate:
    """The difference with its interval, at a level, from those of both arms."""
    one, other = (estimate_of(results, test, test.metric, str(arm)).spread for arm in (test.arm, test.against))
    gap = found.spread and found.spread._replace(level=level)
    ends = interval_of_arms(one, other, gap) if one and other and gap else (found.low, found.high)
    return found._replace(low=ends[0], high=ends[1])


def estimate_of(results: frame.Results, test: Test, metric: str, arm: str, against: str | None = None) -> Estimate:
    """What a test measures, of an arm or of the difference of two."""
    if test.recorded is not None:
        return recorded_estimate(results, test.recorded, metric, arm, against)
    return value(results, arm, test.band, metric) if against is None else difference(results, arm, against, test.band, metric)


def lacks_bases(found: Estimate) -> bool:
    """Whether there are results of too few bases for a verdict."""
    return bool(found.seeds) and found.bases < claim_spec.LEAST_BASES and not found.missing


# Premises: what must hold for a claim to be tested, read from records and evaluations alone.


def _failed_premises(results: frame.Results, claim: Claim) -> Iterator[str]:
    """Why the claim is not tested: whether the arms that it compares acted, and its premises; empty for what holds. A claim that
    declares what fails is about the bases that did not, so that its arms need to act on one."""
    yield from notes.inaction_notes(results, claim.test.arm, claim.test.against, 1.0 if claim.fails else notes.HALF)
    for premise in claim.requires:
        yield _unmet(results, claim.test, premise)


def _unmet(results: frame.Results, test: Test, premise: Premise) -> str:
    """Why a premise fails; empty where it holds."""
    of = premise.of
    if of is None:
        return notes.inaction_note(results, str(premise.acts))
    metric, band = of.value or test.metric, of.band or test.band
    against = of.against if isinstance(of, claim_spec.Improves) else None
    if premise.recorded:
        found, measure = recorded_estimate(results, premise.recorded, metric, of.arm, against), logged_measure(metric)
    else:
        found = difference(results, of.arm, against, band, metric) if against else value(results, of.arm, band, metric)
        measure = measure_of(metric)
    what = f"{metric} of {of.arm} on {premise.recorded or band}" + (f" minus {against}" if against else "")
    if found.missing:
        return f"{what} is missing: {'; '.join(found.missing)}"
    said = f"{what} is {measure.shown(found.value)} [{measure.shown(found.low)}, {measure.shown(found.high)}]"
    if isinstance(of, claim_spec.Headroom):
        room = f"no headroom: {said}, and {measure.shown(of.low)} to {measure.shown(of.high)} is required"
        return "" if of.low <= found.value <= of.high else room
    if isinstance(of, claim_spec.Improves):
        least = -found.high if not premise.recorded and lower_is_better(metric) else found.low
        return "" if least >= of.by else f"the positive control fails: {said}, and {measure.shown(of.by)} is required"
    level = baseline_score(results, band, metric) if of.than == "answer_prior" else of.than
    named = f"the answer prior, {measure.shown(level)}" if of.than == "answer_prior" else measure.shown(level)
    return "" if found.low > level else f"{said}, not above {named}"
