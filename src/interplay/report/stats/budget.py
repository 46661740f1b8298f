"""What arms cost, matched budgets judged from the records, and what a run spends until its learning curve reaches a
target."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum, isnan, nan
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from interplay.core import artifact, metrics
from interplay.core.model import plural
from interplay.kinds.formulas import Cost
from interplay.kinds.stages import paper_tokens, planned_costs, realised_cost, share_reached
from interplay.kinds.table import KINDS
from interplay.report.claim_spec import Test
from interplay.report.display_spec import Target
from interplay.report.metric_spec import measure_of
from interplay.report.spec import Match, ReportArm, ReportSpec, ReportStage, budget_spread, matched_stages
from interplay.report.stats import frame, provenance

# What training each arm costs: as planned from the specs, and as the records say it was. Evaluations do not count.


AMOUNTS = ("tokens", "rollouts", "flops")
"""Of a cost, in the order of the columns."""


def arm_costs(spec: ReportSpec, behind: provenance.Provenance) -> list[dict[str, Any]]:
    """One row per arm in the study's order, means over its seeds, as shown: `paper`, the planned training tokens with RL charged
    as (5/3) N r L; `planned` and `realised`, tokens trained on, rollouts and FLOPs. Those planned are upper bounds for RL, whose
    completions may be shorter."""
    known = {digest: stage for digest, stage in behind.stages.items() if stage["spec"] and stage["kind"] != "evaluate"}
    planned = planned_costs(known)
    found = []
    for name in spec.arm_names():
        arms = spec.rows_of(name)
        path = " → ".join(stage.name for stage in arms[0].path)
        paper, *shown = map(_mean, zip(*(_sums(arm, behind, known, planned) for arm in arms), strict=True))
        found.append({"arm": name, "path": path, "paper": paper, "planned": shown[:3], "realised": shown[3:]})
    return found


def _sums(
    arm: ReportArm, behind: provenance.Provenance, known: Mapping[str, Mapping[str, Any]], planned: Mapping[str, Cost]
) -> list[float | None]:
    """Paper tokens, then tokens, rollouts and FLOPs as planned and as realised, of one arm at one seed; None where a stage is not
    finished or the size of its model unknown."""
    path = [stage.digest for stage in arm.path]
    if not set(path) <= planned.keys():
        return [None] * 7
    charged = sum(paper_tokens(known[digest]["kind"], known[digest]["spec"]) for digest in path)
    done = [realised_cost(known[digest], planned[digest].parameters) if behind.done(digest) else None for digest in path]
    sides: list[list[Cost | None]] = [[planned[digest] for digest in path], done]
    amounts = [[getattr(one, key, None) for one in side] for side in sides for key in AMOUNTS]
    return [charged, *(None if None in numbers else sum(number or 0 for number in numbers) for numbers in amounts)]


def spent(results: frame.Results, unit: str) -> Mapping[str, float]:
    """Arm -> what its training took as recorded, in the mean over its seeds: tokens trained on, flops, or seconds of its stages;
    only arms of which all of it is known."""
    if unit in results.spent:
        return results.spent[unit]
    if unit == "kl":
        return frame.diverged(results)
    known = {
        digest: record for digest, record in results.records.items() if KINDS[record["kind"]].makes not in ("samples", "report")
    }
    sizes = planned_costs({digest: known[digest] for digest in _in_order(known)})
    found: dict[str, list[float]] = {}
    for row in results.spec.arms:
        path = [stage.digest for stage in row.path]
        took = [_took(results, digest, unit, sizes.get(digest)) for digest in path]
        found.setdefault(row.arm, []).append(nan if None in took else fsum(item or 0.0 for item in took))
    return {arm: fmean(amounts) for arm, amounts in found.items() if not isnan(fsum(amounts))}


def _in_order(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Their digests, dependencies first."""
    reached = artifact.closure(records, lambda digest: records[digest]["deps"].values() if digest in records else ())
    return [digest for digest in reached if digest in records]


def _took(results: frame.Results, digest: str, unit: str, planned: Cost | None) -> float | None:
    if digest not in results.records:
        return None
    if unit == "seconds":
        return metrics.read_telemetry(results.folders[digest]).get("seconds_wall")
    return getattr(realised_cost(results.records[digest], planned.parameters if planned else None), unit)


def _mean(numbers: Iterable[float | None]) -> str:
    """Mean over the seeds of which it is known; a dash where it is known of none."""
    known = [number for number in numbers if number is not None]
    return metrics.quantity(round(fmean(known))) if known else "–"


# Matched budgets judged from the records: what each arm spent, the spread of the arms, and which claims that leaves open.


class JudgedMatch(NamedTuple):
    """A match and what became of it."""

    match: Match
    spent: dict[str, dict[int, int | None]]
    """Arm -> seed -> budget in the match's unit; None where a record or the size of a model is missing."""
    means: dict[str, float]
    """Arm -> mean over its seeds, of the arms whose every seed is known."""
    spread: float
    """How far the smallest mean lies below the largest, as a share of it."""
    verdict: str
    """matched, not matched, or not judged."""
    reason: str
    """In words, with the numbers."""


def judge_match(results: frame.Results, match: Match) -> JudgedMatch:
    """Judge one match. Arms without all their records are left out; of fewer than two nothing can be said."""
    spent: dict[str, dict[int, int | None]] = {name: {} for name in match.among}
    for seed in sorted({row.seed for row in results.spec.arms}):
        rows = [row for row in results.spec.arms if row.seed == seed]
        chosen = matched_stages(match, rows)
        for row in rows:
            if row.arm in chosen:
                spent[row.arm][seed] = _spent(match, row, chosen[row.arm], results.records)
    full = {arm: [number for number in by_seed.values() if number is not None] for arm, by_seed in spent.items()}
    means = {arm: fmean(numbers) for arm, numbers in full.items() if numbers and len(numbers) == len(spent[arm])}
    missing = [arm for arm in match.among if arm not in means]
    found = budget_spread(means)
    what = f"{match.accounting} {match.budget}"
    unknown = f"; not known of {', '.join(missing)}" if missing else ""
    if len(means) < 2:
        return JudgedMatch(match, spent, means, found, "not judged", f"{what}{unknown}")
    listed = ", ".join(f"{arm} {mean:,.0f}" for arm, mean in means.items())
    reason = f"{what} differ by {found:.1%}, {match.tolerance:.1%} allowed: {listed}{unknown}"
    verdict = "not matched" if found > match.tolerance else "not judged" if missing else "matched"
    return JudgedMatch(match, spent, means, found, verdict, reason)


def judge_all(results: frame.Results) -> list[JudgedMatch]:
    """Every match of the study, in its order."""
    return [judge_match(results, match) for match in results.spec.match]


def budget_obstacle(results: frame.Results, test: Test) -> str:
    """Why the two arms of a test must not be compared: they are in a match that failed. Empty where they may be."""
    pair = {test.arm, test.against}
    for match in results.spec.match:
        if pair <= set(match.among) and (judged := judge_match(results, match)).verdict == "not matched":
            return f"budgets not matched: {judged.reason}"
    return ""


UNEQUAL = 0.05
"""How far budgets of the same kinds of training may differ, as a share of the larger (`Match.tolerance`)."""


def unequal_compute(results: frame.Results, test: Test) -> Iterator[str]:
    """Lines where the two arms of a test train by unequal amounts, in the same kinds of stages or in as many that sample nothing
    (SFT, DPO); or are in a match that failed."""
    if test.against is None:
        return
    if obstacle := budget_obstacle(results, test):
        yield obstacle
        return
    spent, same_kinds = list[dict[str, float]]([{}, {}]), True
    for one, other in zip(results.spec.rows_of(test.arm), results.spec.rows_of(test.against), strict=False):
        paths = [[(stage.digest, stage.step) for stage in row.path] for row in (one, other)]
        own = [[stage for stage in path if stage not in paths[1 - side]] for side, path in enumerate(paths)]
        if any(digest not in results.records for digest, _ in (*own[0], *own[1])):
            return
        kinds = [[results.records[digest]["kind"] for digest, _ in path] for path in own]
        if len(kinds[0]) != len(kinds[1]) or not kinds[0]:
            return
        same_kinds = same_kinds and kinds[0] == kinds[1]
        for side, path in enumerate(own):
            planned = planned_costs({digest: results.records[digest] for digest, _ in path})
            for digest, step in path:
                record = results.records[digest]
                cost = realised_cost(record, planned[digest].parameters)
                unit = "rollouts" if cost.rollouts else "tokens"
                spent[side][unit] = spent[side].get(unit, 0.0) + _share_kept(record, step) * (cost.rollouts or cost.tokens)
    if not same_kinds and any("rollouts" in side for side in spent):
        return
    gaps = {unit: [side.get(unit, 0.0) for side in spent] for unit in sorted({*spent[0], *spent[1]}, reverse=True)}
    gaps = {unit: pair for unit, pair in gaps.items() if max(pair) and (max(pair) - min(pair)) / max(pair) > UNEQUAL}
    if gaps:  # the arm with more comes first, so that a comparison has one line whichever way a claim asks it
        arms, first = (test.arm, test.against), next(iter(gaps.values()))
        amounts = [" and ".join(f"{pair[side]:,.0f} {unit}" for unit, pair in gaps.items()) for side in (0, 1)]
        more, less = (0, 1) if first[0] > first[1] else (1, 0)
        yield f"{arms[more]} trained on {amounts[more]}, {arms[less]} on {amounts[less]}"


def as_json(judged: list[JudgedMatch]) -> list[dict[str, Any]]:
    """The content of budgets.json."""
    return [
        {
            "match": item.match.model_dump(mode="json"),
            "spent": {arm: {str(seed): number for seed, number in by_seed.items()} for arm, by_seed in item.spent.items()},
            "means": item.means,
            "spread": round(item.spread, 6),
            "verdict": item.verdict,
            "reason": item.reason,
        }
        for item in judged
    ]


def _spent(match: Match, row: ReportArm, stages: list[ReportStage], records: Mapping[str, dict]) -> int | None:
    """Sum over the stages that count; None where one is not finished, or for FLOPs of a model of unknown size."""
    path = {stage.digest: records[stage.digest] for stage in row.path if stage.digest in records}
    if any(stage.digest not in path for stage in stages):
        return None
    planned, paper = planned_costs(path), match.accounting == "paper"
    numbers = []
    for stage in stages:
        record, parameters = path[stage.digest], planned[stage.digest].parameters
        charged = paper_tokens(record["kind"], record["spec"])
        cost = planned[stage.digest] if paper else realised_cost(record, parameters)
        amount = {
            "rollouts": cost.rollouts,
            "tokens": charged if paper else cost.tokens,
            "flops": None if parameters is None else 6 * parameters * charged if paper else cost.flops,
        }[match.budget]
        if amount is None:
            return None
        share = share_reached(record["spec"], stage.step) if paper else _share_kept(record, stage.step)
        numbers.append(round(share * amount))
    return sum(numbers)


def _share_kept(record: Mapping[str, Any], step: int | None) -> float:
    """Of a finished stage: the share of its steps that lead to the checkpoint of a step, or to its end."""
    return 1.0 if step is None else step / record["metrics"]["steps"]


# Targets of learning curves. With one horizon for all runs, min(time, horizon) is known of each, also of those that never come
# to the target, so that its mean needs no model of censoring: the restricted mean, a run or base being the unit.


UNITS = {"steps_to_target": "steps", "tokens_to_target": "tokens", "seconds_to_target": "CPU seconds"}
REACHED = "reached_target"


class Way(NamedTuple):
    """A run on its way to a target: steps, tokens and CPU seconds, each NaN where it is not known."""

    digest: str
    taken: dict[str, float]
    """Until it was there; infinite where it was not."""
    whole: dict[str, float]
    """Until its curve ended."""


def target_rows(results: frame.Results, arm: str, seed: int, column: str, metric: str) -> tuple[pd.DataFrame, str] | str:
    """One row with the metrics of a run on a target, and the digest of its stage; or why there are none."""
    ways = _ways(results, column)
    way = ways.get((arm, seed), f"the study plans no {arm} at seed {seed}")
    if isinstance(way, str):
        return way
    row = {"n": 1, REACHED: float(way.taken["steps_to_target"] <= horizon(ways, "steps_to_target"))}
    row |= {unit: min(way.taken[unit], horizon(ways, unit)) for unit in UNITS}
    if isnan(row[metric]):
        return f"CPU seconds of {way.digest} are not known: no telemetry, or that of several attempts"
    return pd.DataFrame([row]), way.digest


Ways = Mapping[tuple[str, int], "Way | str"]
"""Arm and seed -> its run, or why it is not there."""


def horizon(ways: Ways, unit: str) -> float:
    """What the shortest of all runs with the curve took, in a unit: up to there every one of them is known."""
    ends = [way.whole[unit] for way in ways.values() if isinstance(way, Way)]
    return min((end for end in ends if not isnan(end)), default=nan)


def reach_text(results: frame.Results, arms_: Sequence[str], column: str, metric: str) -> str:
    """`up to 30 steps: edge reached it in 3 of 4 runs, median 12; uniform in 1 of 4, median not reached`."""
    ways, unit, said = _ways(results, column), metric if metric in UNITS else "steps_to_target", []
    end, measure = horizon(ways, unit), measure_of(unit)
    for name in arms_:
        found = {way.digest: way.taken[unit] for (arm, _), way in ways.items() if arm == name and isinstance(way, Way)}
        taken = [time if time <= end else np.inf for time in found.values()]
        middle = float(np.median(taken)) if taken else nan
        median = "not reached" if np.isinf(middle) else measure.shown(middle)
        said.append(f"{name} reached it in {sum(map(np.isfinite, taken))} of {plural(len(taken), 'run')}, median {median}")
    return f"up to {measure.shown(end)} {measure.unit}: {'; '.join(said)}"


def _ways(results: frame.Results, column: str) -> Ways:
    kept, key = {} if results.kept is None else results.kept, ("", "", column, "ways")
    if key not in kept:
        target = results.spec.targets[column]
        kept[key] = {(row.arm, row.seed): _way(results, row, target) for row in results.spec.arms}
    found: Ways = kept[key]
    return found


def _way(results: frame.Results, row: ReportArm, target: Target) -> "Way | str":
    stage = next((stage for stage in row.path if stage.name == target.stage), None)
    if stage is None:
        return f"the study plans no {target.stage} of {row.arm} at seed {row.seed}"
    digest = stage.digest
    if digest not in results.records:
        return f"stage {target.stage} of {row.arm} at seed {row.seed} is not there: {results.why.get(digest, digest)}"
    lines = [one for one in metrics.read(results.folders[digest]) if stage.step is None or one["step"] <= stage.step]
    if not lines:
        return f"no curve of {target.stage} {digest} is here: it has no metrics.jsonl"
    points = _evaluated(results, row, target) if target.evaluation else _logged(lines, target)
    if isinstance(points, str):
        return points
    at, last = first_reach(points, target.level, target.points(len(points))), max(step for step, _ in points)
    record, known = results.records[digest], metrics.read_telemetry(results.folders[digest])
    whole = _spent_tokens(record, lines, last)
    alone = known.get("attempts", 1) == 1 and "continued_from" not in known
    rate = known["seconds_cpu"] / _spent_tokens(record, lines, lines[-1]["step"]) if alone and "seconds_cpu" in known else nan
    tokens = np.inf if at is None else _spent_tokens(record, lines, at)
    taken = (np.inf if at is None else float(at), tokens, rate * tokens)
    return Way(digest, dict(zip(UNITS, taken, strict=True)), dict(zip(UNITS, (float(last), whole, rate * whole), strict=True)))


def first_reach(points: Sequence[tuple[int, float]], level: float, window: int) -> int | None:
    """The first step at which the mean of the last `window` points (step, value) is at the level; None where none is."""
    values = np.array([value for _, value in points], dtype=float)
    if len(values) < window:
        return None
    means = np.convolve(values, np.full(window, 1 / window), "valid")
    there = np.flatnonzero(means >= level - 1e-12)  # but for rounding
    return points[window - 1 + int(there[0])][0] if len(there) else None


def _spent_tokens(record: Mapping[str, Any], lines: Sequence[Mapping[str, float]], step: int) -> float:
    """Tokens generated and trained on up to a step, as of a run that ended there."""
    keys = ("completions", "prompt_tokens", "completion_tokens")
    until = {key: sum(line[key] for line in lines if line["step"] <= step) for key in keys}
    cost = realised_cost({**record, "metrics": until}, None)
    return float(cost.tokens + cost.sampled)


def _logged(lines: Sequence[Mapping[str, float]], target: Target) -> "list[tuple[int, float]] | str":
    """The points of a training curve."""
    points = [(int(one["step"]), one[target.curve]) for one in lines if target.curve in one]
    return points if len(points) == len(lines) else f"{target.stage} logged no {target.curve} at some step"


def _evaluated(results: frame.Results, row: ReportArm, target: Target) -> "list[tuple[int, float]] | str":
    """The points of a curve of evaluations along a stage."""
    points = []
    for rung in (rung for rung in row.rungs if (rung.evaluation, rung.stage) == (target.evaluation, target.stage)):
        step = frame.step_of(results, row, rung)
        if step is None or rung.digest not in results.prompts:
            return f"evaluation {rung.digest} along {target.stage} of {row.arm} at seed {row.seed} is not there"
        rows = frame.of_column(results.prompts[rung.digest], target.band or None, results.by_ops)
        if not len(rows):
            return f"no prompt of {target.band} in evaluation {rung.digest}"
        points.append((step, float(frame.prompt_scores(rows, target.curve).mean())))
    return sorted(points) or f"no {target.evaluation} along {target.stage} of {row.arm} at seed {row.seed}"
