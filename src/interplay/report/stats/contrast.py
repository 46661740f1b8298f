"""Pairwise comparisons against a baseline with Holm's correction and a seed-noise floor, and claims judged by their intervals.

The noise floor is the difference between identical runs; a difference within it is *no information*."""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from interplay.core import artifact, model
from interplay.report.figure_spec import readable
from interplay.report.metric_spec import logged_measure
from interplay.report.spec import Claim, Contender, Contrast, Lineup, Test
from interplay.report.stats import budget, estimate, frame, notes
from interplay.report.stats.estimate import Estimate, difference, estimate_json, p_value, value
from interplay.report.write.tables import Cell, Grid, expand_columns

SUFFIX = "_contrast"
"""Suffix of the name of the table."""
NO_INFORMATION = "no information"
"""These runs do not separate the two, which does not make them equal."""
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
    """`arm` minus `twin`, paired by seed."""
    deviation: float
    """Standard deviation of one run around the mean of its identical ones at the same seed, pooled over twins and seeds."""
    runs: int
    """Runs that it was pooled from."""

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
    """better, worse, no information, missing; COMPARED of that one."""


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

    def label(self, name: str) -> str:
        """What a contender is called."""
        return self.labels.get(name) or readable(name)


def compare_arms(results: frame.Results, name: str) -> Comparison:
    """The comparison of a table with a `contrast`."""
    table, lineup = results.spec.tables[name], results.spec.lineups[name]
    contrast = table.contrast
    assert contrast is not None
    chosen = [_choose(results, contrast, one, table.cells[0]) for one in lineup.contenders]
    columns = expand_columns(results, table.columns)
    blocks = [_block(results, lineup, chosen, *pair) for pair in itertools.product(columns, dict.fromkeys(table.cells))]
    raw = np.array([row.p for block in blocks for row in block.rows])
    tested = ~np.isnan(raw)
    adjusted = raw.copy()
    if contrast.correction == "holm":
        adjusted[tested] = estimate.holm_adjusted(raw[tested])
    numbers = iter(adjusted.tolist())
    judged = [block._replace(rows=[_judged(row, next(numbers), block.floor) for row in block.rows]) for block in blocks]
    labels = {name: one.label for name, one in results.spec.shown.items()}
    caveats = notes.caveats_of(results, [one.arm for one in chosen])
    return Comparison(contrast, lineup, judged, int(tested.sum()), caveats, labels)


def _choose(results: frame.Results, contrast: Contrast, one: Contender, metric: str) -> ChosenArm:
    """The try with the best mean on the tuning column, the first of equals. None where some try is missing: a group that chose
    among fewer would not have had its chance."""
    if contrast.tune is None:
        return ChosenArm(one.name, one.tries[0].arm, "", ())
    found = [value(results, item.arm, contrast.tune.band, metric) for item in one.tries]
    tuning = tuple(item.value for item in found)
    missing = tuple(dict.fromkeys(reason for item in found for reason in item.missing))
    if missing:
        return ChosenArm(one.name, "", "", tuning, missing)
    best = one.tries[int(np.argmax(tuning))]
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
    return ComparisonRow(one, estimate, gap, p_value(results, one.arm, against.arm, column, metric), np.nan, "")


def _judged(row: ComparisonRow, adjusted: float, floor: NoiseFloor) -> ComparisonRow:
    """A verdict needs an adjusted p below 5 % and a difference beyond the noise floor. Without a floor there is none."""
    if row.verdict:
        return row
    if np.isnan(floor.size):
        verdict = "missing"
    elif adjusted < estimate.LEVEL and abs(row.gap.value) > floor.size:
        verdict = "better" if row.gap.value > 0 else "worse"
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


def leading_rows(block: ComparisonBlock) -> set[str]:
    """Names of the rows that are best as far as the tests show: those that are better than the baseline, else the baseline and
    those that are not worse, if some row is."""
    verdicts = {row.chosen.name: row.verdict for row in block.rows}
    better = {name for name, verdict in verdicts.items() if verdict == "better"}
    not_worse = {name for name, verdict in verdicts.items() if verdict not in ("worse", "missing")}
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


LEAST_SEEDS = 3
LEAST_PROMPTS = 20
"""Below it a percentile interval over prompts is too narrow to lean on."""


class JudgedClaim(NamedTuple):
    """A claim, its verdict (supported, refuted, no information, not judged), the reason in words, and its estimate."""

    claim: Claim
    verdict: str
    reason: str
    estimate: Estimate
    caveat: str = ""
    """A caveat on the verdict."""


def judge_claim(results: frame.Results, claim: Claim) -> JudgedClaim:
    """Judge one claim by where its 95 % interval lies.

    At least three seeds are required. An arm (or pair of arms) that is one model shared by all seeds is judged over prompts, 20
    at least."""
    test = claim.test
    if test.recorded is not None:
        found = recorded_estimate(results, test.recorded, test.metric, test.arm, test.against)
    elif test.difference is not None:
        found = difference(results, test.arm, str(test.against), test.band, test.difference)
    else:
        found = value(results, test.arm, test.band, str(test.value))
    if obstacle := _obstacle(found) or budget.budget_obstacle(results, test):
        return JudgedClaim(claim, "not judged", obstacle, found)
    verdict = interval_verdict(found.low, found.high, *claimed_range(test))
    where = {"supported": "lies inside", "refuted": "lies outside", "no information": "reaches across the edge of"}[verdict]
    caveat = notes.same_weights_note(results, test.arm, test.against) if test.against else ""
    reason = f"the 95 % interval {where} the claimed range; uncertain over {found.over}"
    return JudgedClaim(claim, verdict, reason, found, caveat)


def claimed_range(test: Test) -> tuple[float, float]:
    """The range that the test claims; open sides are infinite."""
    if test.within is not None:
        return test.within
    return (-np.inf if test.at_least is None else test.at_least, np.inf if test.at_most is None else test.at_most)


def interval_verdict(low: float, high: float, claimed_low: float, claimed_high: float) -> str:
    """Where the interval [low, high] lies: wholly inside the claimed range, wholly outside, or neither."""
    if claimed_low <= low and high <= claimed_high:
        return "supported"
    return "refuted" if high < claimed_low or low > claimed_high else "no information"


def lacks_replicates(estimate: Estimate) -> bool:
    """Whether too few replicates are the only reason why an estimate has no verdict."""
    few = len(estimate.seeds) < LEAST_SEEDS or 1 < estimate.models < LEAST_SEEDS
    return bool(estimate.seeds) and few and not estimate.missing


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


def claims_json(judged: list[JudgedClaim]) -> list[dict]:
    """The content of claims.json."""
    return [
        {
            "says": item.claim.says,
            "source": item.claim.source,
            "test": item.claim.test.model_dump(mode="json", exclude_none=True),
            "verdict": item.verdict,
            "reason": item.reason,
            **({"caveat": item.caveat} if item.caveat else {}),
            "estimate": estimate_json(item.estimate),
        }
        for item in judged
    ]


# Numbers that runs record of themselves, such as the entropy at the end of RL: one per run, uncertain over seeds alone.


Found = tuple[float, str]
"""The number, and the digest of its stage."""


def recorded_estimate(results: frame.Results, stage: str, key: str, arm: str, against: str | None = None) -> Estimate:
    """Mean over seeds of `key` in the record of the stage `stage` of an arm, or of the differences to `against` paired by seed,
    with Student's interval. An arm whose seeds share one run has no interval."""
    per_seed: dict[int, float] = {}
    runs: dict[tuple[str, ...], float] = {}
    missing = estimate.absent_arm(results, arm)
    for seed in frame.seeds(results.spec, arm):
        of_seed = [_of(results, stage, key, one, seed) for one in (arm, against) if one is not None]
        there = [one for one in of_seed if not isinstance(one, str)]
        missing += [one for one in of_seed if isinstance(one, str)]
        if len(there) == len(of_seed):
            number, *other = (number for number, _ in there)
            per_seed[seed] = runs[tuple(digest for _, digest in there)] = number - sum(other)
    if not runs:
        return Estimate(missing=tuple(missing))
    values, measure = np.array(list(runs.values())), logged_measure(key)
    found = Estimate(
        value=float(values.mean()),
        over=f"{len(values)} seeds",
        seeds=tuple(per_seed),
        per_seed=tuple(per_seed.values()),
        models=len(values),
        digests=tuple(dict.fromkeys(digest for run in runs for digest in run)),
    )
    if len(values) < 2:
        return found._replace(missing=(*missing, "one run for all seeds"))
    low, high = estimate.t_interval(values, measure.support if against is None else measure.support_of_differences)
    deviation = float(values.std(ddof=1))
    differs = against is not None and deviation > estimate.AGREE
    effect = estimate.minimum_detectable(deviation, len(values)) if differs else np.nan
    return found._replace(low=low, high=high, deviation=deviation, detectable=effect, missing=tuple(missing))


def _of(results: frame.Results, stage: str, key: str, arm: str, seed: int) -> Found | str:
    """The number of one run, or why there is none."""
    planned = next((one for one in results.spec.arms if one.arm == arm and one.seed == seed), None)
    on_path = [one.digest for one in planned.path if one.name == stage] if planned else []
    if not on_path:
        return f"the study plans no {stage} of {arm} at seed {seed}"
    digest = artifact.split_ref(on_path[-1])[0]
    if digest not in results.records:
        return f"stage {stage} of {arm} at seed {seed} is not there: {results.why.get(digest, digest)}"
    values_of = results.records[digest]["metrics"]
    if not isinstance(values_of.get(key), int | float):
        return f"the record of {stage} {digest} has no '{key}'{model.nearest_name(key, values_of)}"
    return float(values_of[key]), digest
