"""What stages and arms cost, and matched budgets judged from the records."""

from collections.abc import Iterable, Mapping
from math import fsum, isnan, nan
from statistics import fmean, median
from typing import Any, NamedTuple

from interplay.core import artifact, execution, metrics
from interplay.kinds.formulas import Cost
from interplay.kinds.stages import costs, paper_tokens, reached, realised
from interplay.kinds.table import KINDS
from interplay.report.claim_spec import Test
from interplay.report.spec import Match, ReportArm, ReportSpec, ReportStage, budget_spread, matched_stages
from interplay.report.stats import frame, provenance

# What a study's stages took, from their telemetry: hours, processor hours, attempts, memory and rates. For the page alone.


ABSENT = "not recorded"
RATES = {"completion_tokens_per_second": "sampled", "tokens_per_second": "trained on"}
"""Telemetry key -> what its tokens are."""


def stage_costs(behind: provenance.Provenance) -> list[dict[str, str]]:
    """One row per kind in the order of the plan, then their sum, every figure as it is shown: kind; stages, such as `2 of 3
    done`; wall, cpu and gpu, the hours; attempts; memory; rate."""
    of_kind: dict[str, list[str]] = {}
    for digest, stage in behind.stages.items():
        of_kind.setdefault(stage["kind"], []).append(digest)
    found = [_row(kind, digests, behind) for kind, digests in of_kind.items()]
    return [*found, {**_row("all", list(behind.stages), behind), "rate": ""}]


def where_and_when(behind: provenance.Provenance) -> str:
    """`on vm; first stage started 2026-11-20 17:57, last 2026-11-20 18:30 UTC`; empty when telemetry says nothing."""
    known = behind.telemetry.values()
    hosts = sorted({str(item["host"]) for item in known if "host" in item})
    starts = sorted(str(item["started"]) for item in known if "started" in item)
    when = [time[:16].replace("T", " ") for time in (starts[:1] + starts[-1:])]
    starts_said = f"first stage started {when[0]}, last {when[1]} UTC" if when else ""
    return "; ".join(filter(None, [f"on {', '.join(hosts)}" if hosts else "", starts_said]))


def _row(kind: str, digests: list[str], behind: provenance.Provenance) -> dict[str, str]:
    done = [digest for digest in digests if behind.done(digest)]
    known = [behind.telemetry.get(digest, {}) for digest in done]
    gpus = [_gpu_seconds(behind.stages[digest], behind.telemetry.get(digest, {})) for digest in done]
    attempts = [int(item["attempts"]) for item in known if "attempts" in item]
    peaks = [float(item["peak_memory_mb"]) for item in known if "peak_memory_mb" in item]
    return {
        "kind": kind,
        "stages": f"{len(done)}" if len(done) == len(digests) else f"{len(done)} of {len(digests)} done",
        "wall": _summed([item.get("seconds_wall") for item in known]),
        "cpu": _summed([item.get("seconds_cpu") for item in known]),
        "gpu": "none" if gpus and not any(item != 0.0 for item in gpus) else _summed(gpus),
        "attempts": _partly(str(sum(attempts)), len(attempts), len(done)),
        "memory": _partly(f"{max(peaks, default=0) / 1024:.2f} GiB", len(peaks), len(done)),
        "rate": _rates(known),
    }


def _gpu_seconds(stage: dict[str, Any], known: dict[str, Any]) -> float | None:
    gpus = execution.Run(**stage["run"]).gpus if "run" in stage else None
    if gpus == 0:
        return 0.0
    return gpus * known["seconds_wall"] if gpus is not None and "seconds_wall" in known else None


def _summed(seconds: list[float | None]) -> str:
    known = [item for item in seconds if item is not None]
    return _partly(metrics.clock(sum(known)), len(known), len(seconds))


def _partly(shown: str, known: int, of: int) -> str:
    if not known:
        return ABSENT if of else "–"
    return shown if known == of else f"{shown} ({known} of {of} stages)"


def _rates(known: list[dict[str, Any]]) -> str:
    """The median over the stages of each rate that they report."""
    said = []
    for key, what in RATES.items():
        found = [float(item[key]) for item in known if key in item]
        if found:
            said.append(f"{metrics.quantity(round(median(found)))} tokens/s {what}")
    return ", ".join(said)


# What training each arm costs: as planned from the specs, and as the records say it was. Evaluations do not count.


AMOUNTS = ("tokens", "rollouts", "flops")
"""Of a cost, in the order of the columns."""


def arm_costs(spec: ReportSpec, behind: provenance.Provenance) -> list[dict[str, Any]]:
    """One row per arm in the study's order, means over its seeds, as shown: `paper`, the planned training tokens with RL charged
    as (5/3) N r L; `planned` and `realised`, tokens trained on, rollouts and FLOPs. Those planned are upper bounds for RL, whose
    completions may be shorter."""
    known = {digest: stage for digest, stage in behind.stages.items() if stage["spec"] and stage["kind"] != "evaluate"}
    planned = costs(known)
    found = []
    for name in dict.fromkeys(arm.arm for arm in spec.arms):
        arms = [arm for arm in spec.arms if arm.arm == name]
        path = " → ".join(stage.name for stage in arms[0].path)
        paper, *shown = map(_mean, zip(*(_sums(arm, behind, known, planned) for arm in arms), strict=True))
        found.append({"arm": name, "path": path, "paper": paper, "planned": shown[:3], "realised": shown[3:]})
    return found


def _sums(
    arm: ReportArm, behind: provenance.Provenance, known: Mapping[str, Mapping[str, Any]], planned: Mapping[str, Cost]
) -> list[float | None]:
    """Paper tokens, then tokens, rollouts and FLOPs as planned and as realised, of one arm at one seed; None where a stage is not
    finished or the size of its model unknown."""
    path = [artifact.split_ref(stage.digest)[0] for stage in arm.path]
    if not set(path) <= planned.keys():
        return [None] * 7
    charged = sum(paper_tokens(known[digest]["kind"], known[digest]["spec"]) for digest in path)
    done = [realised(known[digest], planned[digest].parameters) if behind.done(digest) else None for digest in path]
    sides: list[list[Cost | None]] = [[planned[digest] for digest in path], done]
    amounts = [[getattr(one, key, None) for one in side] for side in sides for key in AMOUNTS]
    return [charged, *(None if None in numbers else sum(number or 0 for number in numbers) for numbers in amounts)]


def spent(results: frame.Results, unit: str) -> Mapping[str, float]:
    """Arm -> what its training took as recorded, in the mean over its seeds: tokens trained on, flops, or seconds of its stages;
    only arms of which all of it is known."""
    if unit in results.spent:
        return results.spent[unit]
    known = {
        digest: record for digest, record in results.records.items() if KINDS[record["kind"]].makes not in ("samples", "report")
    }
    sizes = costs({digest: known[digest] for digest in _in_order(known)})
    found: dict[str, list[float]] = {}
    for row in results.spec.arms:
        path = [artifact.split_ref(stage.digest)[0] for stage in row.path]
        took = [_took(results, digest, unit, sizes.get(digest)) for digest in path]
        found.setdefault(row.arm, []).append(nan if None in took else fsum(item or 0.0 for item in took))
    return {arm: fmean(amounts) for arm, amounts in found.items() if not isnan(fsum(amounts))}


def _in_order(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Their digests, dependencies first."""
    found: dict[str, None] = {}

    def visit(digest: str) -> None:
        if digest in records and digest not in found:
            for ref in records[digest]["deps"].values():
                visit(artifact.split_ref(ref)[0])
            found[digest] = None

    for digest in records:
        visit(digest)
    return list(found)


def _took(results: frame.Results, digest: str, unit: str, planned: Cost | None) -> float | None:
    if digest not in results.records:
        return None
    if unit == "seconds":
        return metrics.read_telemetry(results.folders[digest]).get("seconds_wall")
    return getattr(realised(results.records[digest], planned.parameters if planned else None), unit)


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


def unequal_training(results: frame.Results, test: Test) -> str:
    """How much more one arm of a difference trained than the other, where they train in the same kinds of stages; empty where
    that is within UNEQUAL, or a record is missing."""
    sides = [[row for row in results.spec.arms if row.arm == arm] for arm in (test.arm, test.against)]
    spent: list[dict[str, float]] = [{}, {}]
    for pair in zip(*sides, strict=False):
        paths = [[artifact.split_ref(stage.digest)[0] for stage in row.path] for row in pair]
        own = [[digest for digest in path if digest not in paths[1 - side]] for side, path in enumerate(paths)]
        if any(digest not in results.records for digest in (*own[0], *own[1])):
            return ""
        kinds = [[results.records[digest]["kind"] for digest in path] for path in own]
        if kinds[0] != kinds[1] or not kinds[0]:
            return ""
        for side, path in enumerate(own):
            planned = costs({digest: results.records[digest] for digest in path})
            for digest in path:
                cost = realised(results.records[digest], planned[digest].parameters)
                unit = "rollouts" if cost.rollouts else "tokens"
                spent[side][unit] = spent[side].get(unit, 0.0) + (cost.rollouts or cost.tokens)
    for unit in spent[0]:
        most, least = max(side.get(unit, 0.0) for side in spent), min(side.get(unit, 0.0) for side in spent)
        if most and (most - least) / most > UNEQUAL:
            return f"{test.arm} trained on {spent[0][unit]:,.0f} {unit} and {test.against} on {spent[1].get(unit, 0.0):,.0f}"
    return ""


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
    planned, paper = costs(path), match.accounting == "paper"
    numbers = []
    for stage in stages:
        record, parameters = path[stage.digest], planned[stage.digest].parameters
        charged = paper_tokens(record["kind"], record["spec"])
        cost = planned[stage.digest] if paper else realised(record, parameters)
        amount = {
            "rollouts": cost.rollouts,
            "tokens": charged if paper else cost.tokens,
            "flops": None if parameters is None else 6 * parameters * charged if paper else cost.flops,
        }[match.budget]
        if amount is None:
            return None
        share = (
            reached(record["kind"], record["spec"], stage.step)
            if paper or stage.step is None
            else stage.step / record["metrics"]["steps"]  # of a finished stage: the steps that lead to a kept checkpoint
        )
        numbers.append(round(share * amount))
    return sum(numbers)
