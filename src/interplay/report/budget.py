"""Matched budgets judged from the records: what each arm spent, how far apart the arms lie, and which claims that leaves open."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from interplay.report.frame import Results
from interplay.schema.cost import costs, paper_tokens, reached, realised
from interplay.schema.match import counted, spread
from interplay.schema.report import Match, ReportArm, ReportStage, Test


class Judged(NamedTuple):
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


def judge(results: Results, match: Match) -> Judged:
    """Judge one match. Arms without all their records are left out; of fewer than two nothing can be said."""
    spent: dict[str, dict[int, int | None]] = {name: {} for name in match.among}
    for seed in sorted({row.seed for row in results.spec.arms}):
        rows = [row for row in results.spec.arms if row.seed == seed]
        chosen = counted(match, rows)
        for row in rows:
            if row.arm in chosen:
                spent[row.arm][seed] = _spent(match, row, chosen[row.arm], results.records)
    full = {arm: [number for number in by_seed.values() if number is not None] for arm, by_seed in spent.items()}
    means = {arm: fmean(numbers) for arm, numbers in full.items() if numbers and len(numbers) == len(spent[arm])}
    missing = [arm for arm in match.among if arm not in means]
    found = spread(means)
    what = f"{match.accounting} {match.budget}"
    unknown = f"; not known of {', '.join(missing)}" if missing else ""
    if len(means) < 2:
        return Judged(match, spent, means, found, "not judged", f"{what}{unknown}")
    listed = ", ".join(f"{arm} {mean:,.0f}" for arm, mean in means.items())
    reason = f"{what} differ by {found:.1%}, {match.tolerance:.1%} allowed: {listed}{unknown}"
    verdict = "not matched" if found > match.tolerance else "not judged" if missing else "matched"
    return Judged(match, spent, means, found, verdict, reason)


def judge_all(results: Results) -> list[Judged]:
    """Every match of the study, in its order."""
    return [judge(results, match) for match in results.spec.match]


def obstacle(results: Results, test: Test) -> str:
    """Why the two arms of a test must not be compared: they stand in a match that failed. Empty where they may be."""
    pair = {test.arm, test.against}
    for match in results.spec.match:
        if pair <= set(match.among) and (judged := judge(results, match)).verdict == "not matched":
            return f"budgets not matched: {judged.reason}"
    return ""


def as_json(judged: list[Judged]) -> list[dict[str, Any]]:
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
    """Sum over the stages that count; None where one is not finished, or where FLOPs of a model of unknown size are asked for."""
    path = {stage.digest: records[stage.digest] for stage in row.path if stage.digest in records}
    planned = costs(path)
    numbers = []
    for stage in stages:
        if stage.digest not in path:
            return None
        record, parameters = path[stage.digest], planned[stage.digest].parameters
        paper = match.accounting == "paper"
        charged = paper_tokens(record["kind"], record["spec"])
        cost = planned[stage.digest] if paper else realised(record, parameters)
        amount = {
            "rollouts": cost.rollouts,
            "tokens": charged if paper else cost.tokens,
            "flops": None if parameters is None else 6 * parameters * charged if paper else cost.flops,
        }[match.budget]
        if amount is None:
            return None
        share = reached(record["kind"], record["spec"], stage.step) if paper or stage.step is None else _made(record, stage.step)
        numbers.append(round(share * amount))
    return sum(numbers)


def _made(record: Mapping[str, Any], step: int) -> float:
    """Share of a finished stage's steps that lead to a kept checkpoint."""
    return step / record["metrics"]["steps"]
