"""Tables: rows are arms, columns are bands or ops by metrics. One grid of cells gives CSV, Markdown, LaTeX and the page."""

import itertools
from typing import NamedTuple

import numpy as np

from interplay.report.metric_spec import each_class, find_metric, is_pass_rate, metric_heading, metric_row
from interplay.report.spec import Table
from interplay.report.stats import frame, notes
from interplay.report.stats.estimate import Estimate, difference, value

WIDEST = 8
"""Columns side by side; a wider grid is shown in blocks."""
UNTRAINED, PARTLY = "†", "‡"
MARKS = {
    UNTRAINED: "no op of this column is in the data of any stage of this arm",
    PARTLY: "only some ops of this column are in the data of the stages of this arm",
}


class Cell(NamedTuple):
    """One estimate and its place. `against` is empty in a table of values."""

    arm: str
    against: str
    column: str
    metric: str
    estimate: Estimate
    mark: str

    @property
    def row(self) -> str:
        """Label of the row."""
        return f"{self.arm} − {self.against}" if self.against else self.arm


class Grid(NamedTuple):
    """A table's cells with the order of its rows, columns and metrics."""

    rows: list[str]
    columns: list[str]
    metrics: list[str]
    cells: dict[tuple[str, str, str], Cell]
    """By (row, column, metric)."""
    prior: dict[tuple[str, str], float]
    """By (column, metric): what knowing nothing scores; see `baseline_score`."""
    notes: tuple[str, ...] = ()
    """What must be known to read the numbers, beyond the notes of the metrics."""


def value_grid(results: frame.Results, table: Table) -> Grid:
    """One row per arm of the table; where it shows differences to an arm, one for each of the others."""
    against = table.against or ""
    shown = [arm for arm in frame.arms(results.spec) if arm != against and (table.arms is None or arm in table.arms)]
    made = _grid(results, table, [(arm, against) for arm in shown])
    return made._replace(prior={}) if against else made


def difference_grid(results: frame.Results, table: Table) -> Grid:
    """One row per arm and what it is to be compared with: its control, and the model it started from where that is an arm."""
    return _grid(results, table, difference_pairs(results, table))._replace(prior={})


def difference_pairs(results: frame.Results, table: Table | None = None) -> list[tuple[str, str]]:
    """(arm, against) for each arm's control and for the arm with the longest path that its own path continues; of the arms of a
    table, or of all."""
    paths = {item.arm: [stage.name for stage in item.path] for item in results.spec.arms}
    controls = {item.arm: item.control for item in results.spec.arms}
    pairs = []
    for arm, path in paths.items():
        if table is not None and table.arms is not None and arm not in table.arms:
            continue
        starts = [other for other, head in paths.items() if len(head) < len(path) and _continues(results, arm, other)]
        start = max(starts, key=lambda other: len(paths[other]), default=None)
        pairs += [(arm, against) for against in dict.fromkeys([start, controls[arm]]) if against]
    return pairs


def _continues(results: frame.Results, arm: str, other: str) -> bool:
    """Whether at every seed the path of `arm` starts with that of `other`, stage for stage, each left at the same checkpoint."""
    models = {(item.arm, item.seed): [(stage.digest, stage.step) for stage in item.path] for item in results.spec.arms}
    heads = [(models[arm, seed], models.get((other, seed))) for seed in frame.seeds(results.spec, arm)]
    return all(head is not None and path[: len(head)] == head for path, head in heads)


def _grid(results: frame.Results, table: Table, rows: list[tuple[str, str]]) -> Grid:
    columns = expand_columns(results, table.columns)
    metrics = side_by_side(expand_cells(results, table.cells))
    cells = {}
    held = {column: column_ops(results, column) for column in columns}
    trained = {arm: frame.trained_ops(results, arm) for arm, _ in rows}
    for (arm, against), column, metric in itertools.product(rows, columns, metrics):
        found = difference(results, arm, against, column, metric) if against else value(results, arm, column, metric)
        cell = Cell(arm, against, column, metric, found, trained_mark(held[column], trained[arm]))
        cells[cell.row, column, metric] = cell
    prior = {(column, metric): baseline_score(results, column, metric) for column in columns for metric in metrics}
    order = list(dict.fromkeys(key[0] for key in cells))
    known = {key: score for key, score in prior.items() if not np.isnan(score)}
    return Grid(order, columns, metrics, cells, known, notes.caveats_of(results, itertools.chain.from_iterable(rows)))


def expand_columns(results: frame.Results, columns: list[str]) -> list[str]:
    """`op` becomes one column per op that was evaluated."""
    every = [f"op:{op}" for op in frame.ops(results)]
    return list(dict.fromkeys(itertools.chain.from_iterable(every if column == "op" else [column] for column in columns)))


def expand_cells(results: frame.Results, cells: list[str]) -> list[str]:
    """`error` becomes one cell per class of errors that occurred."""
    return each_class(cells, frame.error_classes(results))


def side_by_side(metrics: list[str]) -> list[str]:
    """Each strict metric next to its answer-only counterpart, if either is a cell of the table; then those that have none, the
    leading ones first."""
    ks = dict.fromkeys(metric_row(metric).argument for metric in metrics if is_pass_rate(metric))
    single = sorted(
        dict.fromkeys(metric for metric in metrics if not is_pass_rate(metric)), key=lambda metric: not _leads(metric)
    )
    return [f"{kind}_pass@{k}" for k in ks for kind in ("strict", "answer")] + single


def _leads(metric: str) -> bool:
    found = find_metric(metric)
    return found is not None and found.leads


def column_ops(results: frame.Results, column: str) -> set[int]:
    """Ops of the prompts of a column."""
    tables = (frame.of_column(table, column, results.by_ops) for table in results.prompts.values())
    return {int(op) for table in tables for op in table["op"].unique()}


def trained_mark(ops: set[int], trained: list[int] | None) -> str:
    """The mark of a column with these ops for an arm that was trained on none, or only some, of them; none where it is not
    known what the arm was trained on."""
    if trained is None or ops <= set(trained):
        return ""
    return PARTLY if ops & set(trained) else UNTRAINED


def column_label(column: str, metric: str = "") -> str:
    """`op:9` reads `op 9`, with the metric by its heading."""
    return f"{column.replace(':', ' ')} {metric_heading(metric)}".strip()


def grid_blocks(grid: Grid) -> list[list[tuple[str, str]]]:
    """(column, metric) of the columns side by side: all in one block when that is not too wide, else a block per k, with strict
    next to answer, else a block per metric. Many metrics that do not lead, such as classes of errors, get a block per column."""
    if not any(map(_leads, grid.metrics)) and len(grid.metrics) > 3:
        return [[(column, metric) for metric in grid.metrics] for column in grid.columns]
    pairs = [grid.metrics[at : at + 2] for at in range(0, len(grid.metrics), 2)]
    for groups in ([grid.metrics], pairs):
        if len(grid.columns) * max(map(len, groups)) <= WIDEST:
            break
    else:
        groups = [[metric] for metric in grid.metrics]
    return [[(column, metric) for column in grid.columns for metric in group] for group in groups]


def baseline_score(results: frame.Results, column: str, metric: str) -> float:
    """Mean over the evaluations of what their records say that knowing nothing would score (`Metric.baseline`). NaN for metrics
    without one or where none has it."""
    asked = find_metric(metric)
    if asked is None or asked.baseline is None:
        return np.nan
    key = asked.baseline.key.format(asked.argument)
    group, name = ("op", column.removeprefix("op:")) if column.startswith("op:") else ("band", column)
    found = [results.records[digest]["metrics"].get(group, {}).get(name, {}) for digest in results.prompts]
    scores = [entry[key] for entry in found if key in entry]
    return float(np.mean(scores)) if scores else np.nan
