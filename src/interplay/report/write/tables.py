"""Tables: rows are arms, columns are bands or ops by metrics. One grid of cells gives CSV, Markdown, LaTeX and the page. Gains
are grids, too."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from interplay.report.display_spec import SPENT, Table
from interplay.report.metric_spec import ERROR, find_metric, is_of_run, is_pass_rate, metric_heading, metric_row
from interplay.report.shown_spec import SHARE, readable
from interplay.report.stats import budget, frame, notes
from interplay.report.stats.estimate import Estimate, difference, paired_estimate, plain_number, value
from interplay.tasks.verdict import pass_at_k

WIDEST = 8
"""Columns side by side; a wider grid is shown in blocks."""
UNTRAINED, PARTLY = "†", "‡"
MARKS = {
    UNTRAINED: "no op of this column is in the data of any stage of this arm",
    PARTLY: "only some ops of this column are in the data of the stages of this arm",
}


def row_label(arm: str, against: str) -> str:
    """The label of a row of values, or of differences."""
    return f"{arm} − {against}" if against else arm


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
        return row_label(self.arm, self.against)


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
    labels: Mapping[str, str] = {}
    """Row, or arm -> what it is called."""
    title: str = ""
    """Heads the table; empty: its name does."""
    caption: str = ""

    def label(self, row: str) -> str:
        """What a row is called; its name where the study says nothing else."""
        return self.labels.get(row, row)

    def grouped_label(self, row: str) -> str:
        """The label; the name where the label says no more, so that a row can be listed under the name of its group."""
        return row if self.label(row) == readable(row) else self.label(row)


def value_grid(results: frame.Results, table: Table) -> Grid:
    """One row per arm of the table; where it shows differences to an arm, one for each of the others."""
    against = table.against or ""
    shown = [arm for arm in table.arms or results.spec.arm_names() if arm != against]
    made = _grid(results, table, [(arm, against) for arm in shown])
    return made._replace(prior={}) if against else made


def difference_grid(results: frame.Results, table: Table) -> Grid:
    """One row per arm and what it is to be compared with: its control, and the model it started from where that is an arm."""
    curves = {results.spec.targets[column].stage for column in table.columns if column in results.spec.targets}
    having = {row.arm for row in results.spec.arms if curves <= {stage.name for stage in row.path}}
    made = _grid(results, table, [pair for pair in difference_pairs(results, table) if having.issuperset(pair)])
    return made._replace(prior={}, title=f"{made.title}: differences" if made.title else "")


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
    metrics = side_by_side(each_class(table.cells, frame.error_classes(results)))
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
    said = notes.caveats_of(results, itertools.chain.from_iterable(rows))
    labels = row_labels(results, cells.values())
    return Grid(order, columns, metrics, cells, known, said, labels, table.title, table.caption)


def row_labels(results: frame.Results, cells: Iterable[Cell]) -> dict[str, str]:
    """Row of a cell, or arm -> what it is called: the labels of its arms."""
    name, shown = results.spec.label_of, list(cells)
    rows = {cell.row: row_label(name(cell.arm), cell.against and name(cell.against)) for cell in shown}
    return {**{cell.arm: name(cell.arm) for cell in shown}, **rows}


def expand_columns(results: frame.Results, columns: list[str]) -> list[str]:
    """`op` becomes one column per op that was evaluated."""
    every = [f"op:{op}" for op in frame.ops(results)]
    return list(dict.fromkeys(itertools.chain.from_iterable(every if column == "op" else [column] for column in columns)))


def each_class(cells: list[str], classes: list[str]) -> list[str]:
    """The metrics of cells of a table, where `error` is one for each class."""
    every = [f"{ERROR}:{name}" for name in classes]
    return list(dict.fromkeys(part for cell in cells for part in (every if cell == ERROR else [cell])))


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


TABLE_TITLES = {
    "": "{}",
    "_differences": "{}: differences to the model before and to the control",
    "_gain": "Gains: sharpening and capability",
}


def table_title(grid: Grid, suffix: str = "") -> str:
    """What a table shows, in words, the study's own where it has some; `suffix`: what its name has beyond that of the study's
    table."""
    if grid.title:
        return grid.title
    ks = dict.fromkeys(metric_row(metric).argument for metric in grid.metrics if is_pass_rate(metric))
    rates = [f"strict and answer {' and '.join(f'pass@{k}' for k in ks)}"] if ks else []
    most = [*rates, *(metric_heading(metric) for metric in grid.metrics if not is_pass_rate(metric))]
    named = ", ".join(most[:3]) + (" and others" if len(most) > 3 else "")
    by = "op" if all(column.startswith("op:") for column in grid.columns) else "band"
    by = "target" if any(is_of_run(metric) for metric in grid.metrics) else by
    said = TABLE_TITLES.get(suffix, "{}").format(f"{named} by arm and {by}")
    return f"{said[:1].upper()}{said[1:]}"


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
    found = [frame.recorded_numbers(results, digest, column) for digest in results.prompts]
    scores = [entry[key] for entry in found if key in entry]
    return float(np.mean(scores)) if scores else np.nan


# What an arm gained over another: sharpening of what that one could already do, or capability that it did not have.
#
# pass@k of a base is what its samples reach if one could pick the best; folding it into pass@1 is sharpening, and what lies
# beyond it is capability (the question of arXiv:2504.13837 and of arXiv:2512.07783). Here both are measured prompt by prompt.
# Of a prompt let c of n samples of the base and d of m samples of the arm be strictly right, and let the gain be d/m - c/n.
# Then, as means over prompts,
#
#     sharpening  = gain where c > 0, else 0          capability = gain where c = 0, else 0
#
# which add up to the gain exactly. Their limit: the same samples choose the prompts and measure the base on them, and of
# prompts chosen for c = 0 the true rate of the base is above 0. By this regression to the mean the base, sampled afresh,
# would show capability above 0 and sharpening as far below. Samples of one number share their noise in both models, which
# takes part of that away (a model against itself shows 0), and how much depends on how similar the models are.
#
# Where the evaluations have several blocks of samples, `capability_split` has no such bias: the base's samples in one half of
# the blocks choose, and the other half measures both models, once either way, each weighted by the samples that measure.
# Samples of different numbers share no noise, so it estimates the gain on prompts that the base fails in so many samples
# without bias, however similar the models. What a half never solves is more than what all never solve, so the two pairs
# answer slightly different questions. With one block the counts per prompt do not show which samples chose, and the columns
# are left out.
#
# `newly_solved@k` and `lost@k` are shares of prompts: k samples of the base all fail and one of k of the arm succeeds, and
# the reverse. With k = n they are counts of prompts. With k < n they are products of unbiased pass@k of both
# (arXiv:2107.03374, eq. 1), as if sampled independently, and for models so similar that they share successes both come out
# too high. Their difference is the difference of pass@k exactly, for any k; each alone is above 0 between a model and itself
# sampled afresh.


GAIN_SUFFIX = "_gain"
"""Suffix of the name of the table."""
PARTS = ("gain", "sharpening", "capability")
SPLIT = ("sharpening_split", "capability_split")
"""The same where other samples choose than measure."""
SHARES = ("newly_solved", "lost")


class Counts(NamedTuple):
    """Strictly right samples of P prompts and how many there are, each array (P,)."""

    right: np.ndarray
    n: np.ndarray
    right_head: np.ndarray | None = None
    """Of the first half of the blocks; None where there is one block."""
    n_head: np.ndarray | None = None


def gain_metrics(k: int, split: bool = True) -> list[str]:
    """Columns of a table of gains, in order."""
    return [*PARTS, *(SPLIT if split else ()), *(f"{name}@{k}" for name in SHARES)]


def per_prompt(base: Counts, arm: Counts, k: int) -> dict[str, np.ndarray]:
    """Each quantity of `gain_metrics(k)` for each prompt (P,); NaN for the split ones where there is one block."""
    gain = arm.right / arm.n - base.right / base.n
    solved = base.right > 0
    capability = _capability_split(base, arm)
    solved_base, solved_arm = (pass_at_k(counts.n, counts.right, k) for counts in (base, arm))
    values = (gain, np.where(solved, gain, 0.0), np.where(solved, 0.0, gain), gain - capability, capability)
    shares = ((1 - solved_base) * solved_arm, solved_base * (1 - solved_arm))
    return dict(zip(gain_metrics(k), [*values, *shares], strict=True))


def _capability_split(base: Counts, arm: Counts) -> np.ndarray:
    """Capability (P,) with one half of the base's blocks choosing and the other half of both models measuring, both ways."""
    if base.right_head is None or base.n_head is None or arm.right_head is None or arm.n_head is None:
        return np.full(len(base.right), np.nan)
    base_tail, of_base = base.right - base.right_head, base.n - base.n_head
    arm_tail, of_arm = arm.right - arm.right_head, arm.n - arm.n_head
    by_head = np.where(base.right_head > 0, 0.0, arm_tail / of_arm - base_tail / of_base)
    by_tail = np.where(base_tail > 0, 0.0, arm.right_head / arm.n_head - base.right_head / base.n_head)
    return (of_base * by_head + base.n_head * by_tail) / base.n


def gain_grid(results: frame.Results, table: Table) -> Grid:
    """The gains of a table with `gain`: a row per arm except the one that they are compared with. The planner gave it a k."""
    assert table.gain is not None
    against, k = table.gain.against, table.gain.k or 1
    arms = [arm for arm in table.arms or results.spec.arm_names() if arm != against]
    columns, shown = expand_columns(results, table.columns), gain_metrics(k, _halved(results, [*arms, against]))
    held = {column: column_ops(results, column) for column in columns}
    trained = {arm: frame.trained_ops(results, arm) for arm in arms}
    cells = {}
    for arm, column, metric in itertools.product(arms, columns, shown):
        found = gain_estimate(results, arm, against, column, metric, k)
        cell = Cell(arm, against, column, metric, found, trained_mark(held[column], trained[arm]))
        cells[cell.row, column, metric] = cell
    said = (*gain_notes(against, k, SPLIT[0] in shown), *notes.caveats_of(results, [*arms, against]))
    rows = list(dict.fromkeys(key[0] for key in cells))
    return Grid(rows, columns, shown, cells, {}, said, row_labels(results, cells.values()))


def gain_estimate(results: frame.Results, arm: str, against: str, column: str, metric: str, k: int) -> Estimate:
    """One cell: the mean over prompts, with the interval that differences have."""

    def of(one: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
        found = per_prompt(_counts(other.loc[one.index]), _counts(one), k)
        return pd.Series(found[metric], index=one.index)

    share = metric.partition("@")[0] in SHARES
    support = SHARE.support if share else SHARE.support_of_differences
    return paired_estimate(results, arm, against, column, f"strict_pass@{k}", of, support)


def _counts(rows: pd.DataFrame) -> Counts:
    names = ("strict", "n", *(name for name in frame.HEAD if name in rows))
    return Counts(*(rows[name].to_numpy() for name in names))


def _halved(results: frame.Results, arms: list[str]) -> bool:
    """Whether every evaluation of these arms that is there has several blocks."""
    digests = [digest for row in results.spec.rows_of(*arms) for digest in row.evaluations.values()]
    return all(set(frame.HEAD) <= set(results.prompts[digest].columns) for digest in digests if digest in results.prompts)


def gain_notes(against: str, k: int, split: bool) -> tuple[str, ...]:
    """What must be known to read the columns."""
    split_note = (
        "Columns marked split have no such bias: one half of the blocks of samples chooses, the other measures both, either way."
        if split
        else "With several blocks of samples (more than 32) the table also has columns without that bias."
    )
    return (
        f"Gain: strict pass@1 minus that of {against}. It is, exactly, sharpening (on prompts that some sample of {against} "
        f"solved) plus capability (on prompts that none did).",
        f"The same samples of {against} choose these prompts and measure it there, so that by regression to the mean {against} "
        f"sampled afresh would show capability above 0 and sharpening below. {split_note}",
        f"Newly solved@{k}: share of prompts that {against} fails in {k} samples and the arm solves in {k}; lost@{k}: the "
        f"reverse. Their difference is that of strict pass@{k}; chance alone puts each above 0.",
    )


# What a summary keeps of how arms are shown.


def display_json(results: frame.Results) -> dict[str, Any]:
    """Labels and colours of arms, their places in figures against axes, and what training took."""
    spec = results.spec
    units = dict.fromkeys(figure.x for figure in spec.figures.values() if figure.x in SPENT)
    return {
        "shown": {arm: one.model_dump(exclude_defaults=True) for arm, one in spec.shown.items()},
        "placed": {name: [one.model_dump(exclude_defaults=True) for one in of] for name, of in spec.placed.items()},
        "spent": {unit: {arm: plain_number(amount) for arm, amount in budget.spent(results, unit).items()} for unit in units},
        "controls": {row.arm: row.control for row in spec.arms if row.control} if spec.placed else {},
    }
