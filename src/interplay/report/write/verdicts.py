"""The claims of a finished study as lines of text, read from the files of its report alone: no pandas, no inputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.report.metric_spec import Measure, measure_of

INDENT = 16
"""Columns of the verdict; the sentence and its numbers follow."""


def verdict_lines(report: Path) -> list[str]:
    """Two lines for each claim: verdict and sentence; metric, from, to, change, its 95 % interval, and what was claimed. None
    where the folder of the report holds no claims."""
    if not (report / "claims.json").exists():
        return []
    tables = artifact.record(report)["metrics"]["tables"]
    values = {key: numbers[0] for table in tables.values() for key, numbers in table.items()}
    claims = artifact.read_json(report / "claims.json")
    return [line for claim in claims for line in (f"{claim['verdict']:<{INDENT}}{claim['says']}", _numbers(claim, values))]


def _numbers(claim: Mapping[str, Any], values: Mapping[str, float | None]) -> str:
    """`values`: estimates of all tables by row/column/metric; an arm that no table has is shown without its value."""
    test, found = claim["test"], claim["estimate"]
    metric = test.get("difference") or test["value"]
    measure, place = measure_of(metric), test.get("band") or test["recorded"]
    if found["value"] is None:
        return f"{'':{INDENT}}{metric} of {place}: {claim['reason']}"
    signed = "difference" in test
    names = (test["against"], test["arm"]) if signed else ()
    arms = [_arm(name, values.get(f"{name}/{place}/{metric}"), measure) for name in names] or [test["arm"]]
    interval = f"[{_shown(found['low'], measure, signed)}, {_shown(found['high'], measure, signed)}]"
    change = f"{_shown(found['value'], measure, signed)} {interval} {measure.unit_of(signed)}".rstrip()
    why = f" ({claim['reason']})" if claim["verdict"] == "not judged" else ""
    arrow = " -> ".join(arms)
    return f"{'':{INDENT}}{metric} of {place}: {arrow}: {change} over {found['over']}; claimed {_claimed(test, measure)}{why}"


def _arm(name: str, value: float | None, measure: Measure) -> str:
    return name if value is None else f"{name} {measure.shown(value)}"


def _shown(value: float | None, measure: Measure, signed: bool) -> str:
    return measure.shown(float("nan") if value is None else value, signed)


def _claimed(test: Mapping[str, Any], measure: Measure) -> str:
    if "within" in test:
        low, high = test["within"]
        return f"{measure.shown(low)} to {measure.shown(high)}"
    least = "at_least" in test
    bound = test["at_least"] if least else test["at_most"]
    return f"at {'least' if least else 'most'} {measure.shown(bound, 'difference' in test)}"
