"""Which cell is meant by the words of a command line: case, spaces, `:` and kinds of dashes do not matter."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from interplay.core.model import UserError, nearest_name
from interplay.report.metric_spec import ERRORS, check_metric, each_class, is_gain
from interplay.report.spec import ReportSpec
from interplay.report.stats import contrast, frame, gain, recorded
from interplay.report.stats.frame import Results
from interplay.report.write import tables

DIFFERENCES = "_differences"

Stages = Mapping[str, Mapping[str, Any]]
Rows = dict[str, tuple[str, str]]
"""Name of a row -> (arm, against); `against` is empty in a row of values."""


class Asked(NamedTuple):
    """A cell, by the names that the table uses. `against` is empty in a table of values."""

    table: str
    arm: str
    against: str
    column: str
    metric: str


class Shown(NamedTuple):
    """A table of the report."""

    columns: list[str]
    """As declared."""
    rows: Rows
    metrics: list[str]
    differences: str
    """The table that holds its rows with an `against`: itself, or the one of differences beside it."""


def match(spec: ReportSpec, stages: Stages, table: str, row: str, column: str, metric: str | None) -> Asked:
    """The cell that is meant; `column/metric` is one way to name the metric.

    Raises UserError with the nearest name for whatever the table does not have."""
    known = shown(spec)
    name = _pick(table, list(known), f"study {spec.study}", "table")
    of, where = known[name], f"table {name}"
    arm, against = of.rows[_pick(row, list(of.rows), where, "row")]
    column, _, behind = column.partition("/")
    column = _column(column, of, spec, stages, where)
    others = _none if is_gain(of.metrics[0]) else is_metric
    metric = _pick(metric or behind or of.metrics[0], of.metrics, where, "metric", others)
    return Asked(of.differences if against else name, arm, against, column, metric)


def shown(spec: ReportSpec) -> dict[str, Shown]:
    """Every table of the report by its name: those that are declared, and what stands beside them."""
    values: Rows = {arm: (arm, "") for arm in frame.arms(spec)}
    controls = _rows(tables.contrasts(Results(spec, {}, {}, {})))
    found: dict[str, Shown] = {}
    for name, table in spec.tables.items():
        cells = tables.side_by_side(each_class(table.cells, [*ERRORS]))
        if table.against is not None:
            found[name] = Shown(table.columns, _against(spec, table.against), cells, name)
        else:
            beside = f"{name}{DIFFERENCES}"
            found[name] = Shown(table.columns, values | controls, cells, beside)
            found[beside] = Shown(table.columns, controls, cells, beside)
        if name in spec.lineups:
            fight = f"{name}{contrast.SUFFIX}"
            rows = values | controls | _rows(_fights(spec, name))
            found[fight] = Shown(table.columns, rows, list(dict.fromkeys(table.cells)), fight)
        if table.gain is not None:
            gains = f"{name}{gain.SUFFIX}"
            found[gains] = Shown(table.columns, _against(spec, table.gain.against), gain.metrics(table.gain.k or 1), gains)
    return found


def _rows(pairs: list[tuple[str, str]]) -> Rows:
    return {f"{arm} − {against}": (arm, against) for arm, against in pairs}


def _against(spec: ReportSpec, one: str) -> Rows:
    """All other arms beside one."""
    return _rows([(arm, one) for arm in frame.arms(spec) if arm != one])


def _fights(spec: ReportSpec, name: str) -> list[tuple[str, str]]:
    """(arm, against) of a contrast, whichever try may have been chosen."""
    lineup = spec.lineups[name]
    first = [item.arm for one in lineup.contenders if one.name == lineup.against for item in one.tries]
    others = [item.arm for one in lineup.contenders if one.name != lineup.against for item in one.tries]
    return [(arm, against) for arm in others for against in first]


def _column(word: str, of: Shown, spec: ReportSpec, stages: Stages, where: str) -> str:
    """One of its columns; any op, where `op` stands for all and no plan knows which there are."""
    bands = [recorded.bands(stages[digest]["deps"]["data"], stages) for row in spec.arms for digest in row.evaluations.values()]
    ops = sorted({op for known in bands for numbers in known.values() for op in numbers})
    columns = [part for item in of.columns for part in ([f"op:{op}" for op in ops] if item == "op" else [item])]
    untold = "op" in of.columns and any(recorded.all_ops(known) is None for known in bands)
    return _pick(word, columns, where, "column", (lambda other: other.startswith("op:")) if untold else _none)


def is_metric(word: str) -> bool:
    """Whether it can be computed, though the table may not show it."""
    try:
        return bool(check_metric(word))
    except ValueError:
        return False


def _none(word: str) -> bool:
    return False


def _pick(word: str, known: list[str], where: str, what: str, allowed: Callable[[str], bool] = _none) -> str:
    by_plain = {_plain(name): name for name in reversed(known)}
    if _plain(word) in by_plain:
        return by_plain[_plain(word)]
    if allowed(word):
        return word
    raise UserError(f"{where}: no {what} {word!r}{nearest_name(word, known)}")


def _plain(word: str) -> str:
    return re.sub(r"[\s_:–—−-]+", " ", word.strip().lower())
