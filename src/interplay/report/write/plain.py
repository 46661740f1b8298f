"""Plain text for terminals: aligned columns, short values, JSON in lines that people can read, and the verdicts of a report."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.report.metric_spec import Measure, measure_of

LONGEST = 90
"""Characters of one value."""
WIDTH = 180
"""Characters of a line of JSON, as far as values can be broken."""


def aligned(rows: Iterable[Sequence[str]], indent: int = 2, right: Sequence[int] = ()) -> list[str]:
    """Rows of cells as lines, two spaces between columns; columns whose numbers are in `right` are flush right."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in itertools.zip_longest(*table, fillvalue="")]
    lines = []
    for row in table:
        cells = [cell.rjust(widths[at]) if at in right else cell.ljust(widths[at]) for at, cell in enumerate(row)]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines


def short(value: Any) -> str:
    """A value on one line: text as it is, in quotes where nothing of it would be seen, numbers to 7 digits, the rest as JSON;
    long ones cut, with what was left out."""
    if isinstance(value, str):
        lines = value.splitlines()
        text = value if len(lines) < 2 else f"{lines[0]} (and {len(lines) - 1} more lines)"
        text = text if value.strip() else repr(value)
    elif isinstance(value, float):
        text = f"{value:.7g}"
    elif isinstance(value, (list, dict, bool)) or value is None:
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def pairs(values: dict[str, Any], indent: int = 2) -> list[str]:
    """`key  value` lines."""
    return aligned(((key, short(value)) for key, value in values.items()), indent)


def size(count: int) -> str:
    """Bytes: `512 B`, `3.4 MB`."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"


def compact_json(value: Any, indent: int = 0) -> str:
    """JSON with a key on each line as long as what it holds does not fit in one."""
    flat = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    is_row = isinstance(value, list) and all(item is None or isinstance(item, list | str | int | float) for item in value)
    if len(flat) + indent <= WIDTH or not value or not isinstance(value, dict | list) or is_row:
        return flat
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}:{compact_json(item, indent + 1)}" for key, item in value.items()]
    else:
        parts = [compact_json(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(parts) + "\n" + closing


# The claims of a finished study as lines of text, read from the files of its report alone: no pandas, no inputs.


INDENT = 16
"""Columns of the verdict; the sentence and its numbers follow."""


def verdict_lines(report: Path) -> list[str]:
    """Two lines for each claim: verdict and sentence; metric, from, to, change, its 95 % interval, and what was claimed. None
    where the folder of the report holds no claims."""
    if not (report / "claims.json").exists():
        return []
    tables = artifact.record(report)["metrics"]["tables"]
    values = {key: numbers[0] for table in tables.values() for key, numbers in table.items()}
    return claim_lines(artifact.read_json(report / "claims.json"), values)


def claim_lines(claims: list[dict[str, Any]], values: Mapping[str, float | None]) -> list[str]:
    """The lines of claims as in `claims.json`; `values`: estimates by arm/column/metric."""
    return [line for claim in claims for line in (f"{claim['verdict']:<{INDENT - 1}} {claim['says']}", _numbers(claim, values))]


def _numbers(claim: Mapping[str, Any], values: Mapping[str, float | None]) -> str:
    """`values`: estimates of all tables by row/column/metric; an arm that no table has is shown without its value."""
    test, found = claim["test"], claim["estimate"]
    metric = test.get("difference") or test["value"]
    measure, place = measure_of(metric), test.get("band") or test["recorded"]
    if found["value"] is None:
        return f"{'':{INDENT}}{metric} of {place}: {claim['reason']}"
    signed = "difference" in test
    names = (test["against"], test["arm"]) if signed else ()
    known = {name: values.get(f"{name}/{place}/{metric}") for name in names}
    arms = [name if value is None else f"{name} {measure.shown(value)}" for name, value in known.items()] or [test["arm"]]
    interval = f"[{_shown(found['low'], measure, signed)}, {_shown(found['high'], measure, signed)}]"
    change = f"{_shown(found['value'], measure, signed)} {interval} {measure.unit_of(signed)}".rstrip()
    why = f" ({claim['reason']})" if claim["verdict"].startswith("not ") else ""
    arrow = " -> ".join(arms)
    said = _claimed(test, measure, claim.get("effect"))
    return f"{'':{INDENT}}{metric} of {place}: {arrow}: {change} for {found['over']}; {said}{why}"


def _shown(value: float | None, measure: Measure, signed: bool) -> str:
    return measure.shown(float("nan") if value is None else value, signed)


def _claimed(test: Mapping[str, Any], measure: Measure, effect: float | None) -> str:
    if effect is not None:
        return f"published {effect:+g}"
    if "within" in test:
        low, high = test["within"]
        return f"claimed {measure.shown(low)} to {measure.shown(high)}"
    for key, word in (("at_least", "at least"), ("at_most", "at most")):
        if key in test:
            return f"claimed {word} {measure.shown(test[key], 'difference' in test)}"
    return f"claimed within {measure.shown(test['margin'])} of each other"
