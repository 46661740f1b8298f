"""A table's cell, from its value down to the data: its interval, and every stage that it depends on, each once.

Works from records alone where payloads are not here: then value and interval are those of the report's record, and what needs
samples or problems says so."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from interplay.core import artifact, metrics, model
from interplay.report.inspect.chain import planned_bands, planned_ops, read_curves, stages_of
from interplay.report.metric_spec import ERRORS, check_metric, is_gain, measure_of
from interplay.report.spec import ReportSpec
from interplay.report.stats import contrast, estimate, frame
from interplay.report.write import tables, text

# The cell that the words of a command line name: case, spaces, `:` and kinds of dashes do not matter.


DIFFERENCES = "_differences"

Stages = Mapping[str, Mapping[str, Any]]
Rows = dict[str, tuple[str, str]]
"""Name of a row -> (arm, against); `against` is empty in a row of values."""


class CellName(NamedTuple):
    """A cell, by the names that the table uses. `against` is empty in a table of values."""

    table: str
    arm: str
    against: str
    column: str
    metric: str


class TableNames(NamedTuple):
    """A table of the report."""

    columns: list[str]
    """As declared."""
    rows: Rows
    metrics: list[str]
    differences: str
    """The table that holds its rows with an `against`: itself, or its table of differences."""


def match_cell(spec: ReportSpec, stages: Stages, table: str, row: str, column: str, metric: str | None) -> CellName:
    """The cell that is meant; `column/metric` is one way to name the metric.

    Raises UserError with the nearest name for a row, column or metric that the table lacks."""
    known = shown_tables(spec)
    name = _pick(table, list(known), f"study {spec.study}", "table")
    of, where = known[name], f"table {name}"
    arm, against = of.rows[_pick(row, list(of.rows), where, "row")]
    column, _, behind = column.partition("/")
    column = _column(column, of, spec, stages, where)
    others = _none if is_gain(of.metrics[0]) else is_metric
    metric = _pick(metric or behind or of.metrics[0], of.metrics, where, "metric", others)
    return CellName(of.differences if against else name, arm, against, column, metric)


def shown_tables(spec: ReportSpec) -> dict[str, TableNames]:
    """Every table of the report by its name: those that are declared, and the tables derived from them."""
    values: Rows = {arm: (arm, "") for arm in spec.arm_names()}
    controls = _rows(tables.difference_pairs(frame.Results(spec, {}, {}, {})))
    found: dict[str, TableNames] = {}
    for name, table in spec.tables.items():
        cells = tables.side_by_side(tables.each_class(table.cells, [*ERRORS]))
        if table.against is not None:
            found[name] = TableNames(table.columns, _against(spec, table.against), cells, name)
        else:
            differences = f"{name}{DIFFERENCES}"
            found[name] = TableNames(table.columns, values | controls, cells, differences)
            found[differences] = TableNames(table.columns, controls, cells, differences)
        if name in spec.lineups:
            compared = f"{name}{contrast.SUFFIX}"
            rows = values | controls | _rows(_compared_pairs(spec, name))
            found[compared] = TableNames(table.columns, rows, list(dict.fromkeys(table.cells)), compared)
        if table.gain is not None:
            gains = f"{name}{tables.GAIN_SUFFIX}"
            metrics = tables.gain_metrics(table.gain.k or 1)
            found[gains] = TableNames(table.columns, _against(spec, table.gain.against), metrics, gains)
    return found


def _rows(pairs: list[tuple[str, str]]) -> Rows:
    return {f"{arm} − {against}": (arm, against) for arm, against in pairs}


def _against(spec: ReportSpec, one: str) -> Rows:
    """All other arms, compared with one."""
    return _rows([(arm, one) for arm in spec.arm_names() if arm != one])


def _compared_pairs(spec: ReportSpec, name: str) -> list[tuple[str, str]]:
    """(arm, against) of a contrast, whichever try may have been chosen."""
    lineup = spec.lineups[name]
    first = [item.arm for one in lineup.contenders if one.name == lineup.against for item in one.tries]
    others = [item.arm for one in lineup.contenders if one.name != lineup.against for item in one.tries]
    return [(arm, against) for arm in others for against in first]


def _column(word: str, of: TableNames, spec: ReportSpec, stages: Stages, where: str) -> str:
    """One of its columns; any op, where `op` means all ops and the plan does not determine which there are."""
    digests = [digest for row in spec.arms for digest in row.evaluations.values()]
    bands = [planned_bands(stages[digest]["deps"]["data"], stages) for digest in digests]
    ops = sorted({op for known in bands for numbers in known.values() for op in numbers})
    columns = [part for item in of.columns for part in ([f"op:{op}" for op in ops] if item == "op" else [item])]
    untold = "op" in of.columns and any(planned_ops(known) is None for known in bands)
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
    raise model.UserError(f"{where}: no {what} {word!r}{model.nearest_name(word, known)}")


def _plain(word: str) -> str:
    return re.sub(r"[\s_:–—−-]+", " ", word.strip().lower())


COUNTS = ("prompts.parquet", "samples.parquet")
"""What cells are computed from; either will do."""


def explain(spec: ReportSpec, report: str, stages: Stages, results: Path, query: CellName, seed: int | None) -> str:
    """The cell in words. `stages`: the study's plan as JSON, dependencies first; `report`: the digest of its report; `seed`: only
    that seed."""
    whole, target = spec, spec.targets.get(query.column)
    spec = spec.model_copy(update={"arms": spec.rows_of(query.arm, query.against)})
    found, notes = value(whole if target else spec, report, results, query)
    rows = [row for row in spec.arms if seed is None or row.seed == seed]
    if not rows:
        seeds = sorted({row.seed for row in spec.arms})
        raise model.UserError(f"--seed {seed}: the study plans {query.arm} at {metrics.seeds_text(seeds)}")
    chain, absent = stages_of(
        spec.model_copy(update={"arms": rows}),
        stages,
        results,
        lambda digest: target is None and _holds(stages, digest, query, spec),
        [part.digest for row in rows for part in row.path if target and part.name == target.stage],
    )
    blocks = [_head(spec, report, found, query), *chain]
    if notes or absent:
        blocks.append(["not here", *(f"  {line}" for line in [*notes, *absent])])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _holds(stages: Stages, digest: str, query: CellName, spec: ReportSpec) -> bool:
    """Whether an evaluation's problem set has the column, or may have it, by the spec."""
    bands = planned_bands(stages[digest]["deps"]["data"], stages)
    if query.column in bands:
        return True
    ops = planned_ops(bands)
    named = query.column.startswith("op:")
    wanted = {int(query.column.removeprefix("op:"))} if named else set(spec.bands.get(query.column, []))
    return (named if ops is None else False) or bool(wanted & set(ops or []))


def value(spec: ReportSpec, report: str, results: Path, query: CellName) -> tuple[estimate.Estimate, list[str]]:
    """The cell's estimate, and what kept it from being computed afresh: from counts where all are here, else the report's."""
    if query.column in spec.targets:
        return _estimate(read_curves(spec, results), query), []
    digests = [digest for row in spec.arms for digest in row.evaluations.values()]
    wanted = [block for digest in digests for block in spec.blocks_of(digest)]
    folders = {block: artifact.folder(results, "evaluate", block) for block in wanted}
    absent = [d for d, path in folders.items() if artifact.done(path) and not any((path / name).exists() for name in COUNTS)]
    if not absent:
        read = frame.read_results(spec, folders)
        if is_gain(query.metric):
            of = spec.tables[query.table.removesuffix(tables.GAIN_SUFFIX)].gain
            k = of.k if of and of.k else 1
            return tables.gain_estimate(read, query.arm, query.against, query.column, query.metric, k), []
        return _estimate(read, query), []
    notes = [f"samples of evaluation {digest}: `interplay store pull` gets them" for digest in absent]
    out = artifact.folder(results, "report", report)
    shown = artifact.record(out)["metrics"]["tables"].get(query.table, {}) if artifact.done(out) else {}
    cell = shown.get(f"{tables.row_label(query.arm, query.against)}/{query.column}/{query.metric}")
    if cell is None or cell[0] is None:
        lacks = f"no record of the report here holds {query.metric} of {query.column}; any k needs the samples"
        return estimate.Estimate(missing=(lacks,)), notes
    number, low, high = (np.nan if item is None else item for item in cell)
    return estimate.Estimate(number, low, high), notes


def _estimate(read: frame.Results, query: CellName) -> estimate.Estimate:
    if query.against:
        return estimate.difference(read, query.arm, query.against, query.column, query.metric)
    return estimate.value(read, query.arm, query.column, query.metric)


def _head(spec: ReportSpec, report: str, found: estimate.Estimate, query: CellName) -> list[str]:
    signed = bool(query.against)
    row = tables.row_label(query.arm, query.against)
    measure = measure_of(query.metric)
    unit = measure.unit_of(signed)
    lines = [f"{row}, {tables.column_label(query.column, query.metric)}: "]
    if not np.isnan(found.value):
        interval = "" if np.isnan(found.low) else f" {text.interval_text(found, signed, query.metric, False)}"
        lines[0] += f"{measure.shown(found.value, signed)} {unit}{interval}"
        counted = f"for {found.over}{f'; {found.n_samples} samples of each prompt' if found.n_samples else ''}"
        lines.append(f"  {counted if found.seeds else 'as the record of the report says: no evaluation is here to count'}")
    else:
        lines[0] += "missing"
    lines.append(f"  table {query.table} of study {spec.study} at scale {spec.scale}, report {report}")
    if not np.isnan(found.detectable):
        effect = f"{measure.shown(found.detectable)} {measure.unit_of_differences}"
        lines.append(f"  smallest true difference that these replicates would find (80 % power): {effect}")
    seeds: dict[int, list[str]] = {}
    for item in sorted(spec.arms, key=lambda item: item.arm != query.arm):
        seeds.setdefault(item.seed, []).extend(item.among(found.digests))
    shown = zip(found.seeds, found.per_seed, strict=True)
    lines += metrics.aligned(
        [[f"seed {seed}", f"{measure.shown(number, signed)} {unit}", *seeds[seed]] for seed, number in shown]
    )
    return lines + [f"  missing: {reason}" for reason in found.missing]
