"""A table's cell, from its value down to the data: its interval, and every stage that it depends on, each once.

Works from records alone where payloads are not here: then the interval is that of the report's record, and what needs samples or
problems says so."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from interplay.core import artifact, model
from interplay.report.inspect.chain import stages_of
from interplay.report.metric_spec import COUNTED, ERRORS, check_metric, each_class, find_metric, is_gain, measure_of
from interplay.report.spec import ReportSpec
from interplay.report.stats import contrast, estimate, frame, provenance
from interplay.report.write import plain, tables, text

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
    values: Rows = {arm: (arm, "") for arm in frame.arms(spec)}
    controls = _rows(tables.difference_pairs(frame.Results(spec, {}, {}, {})))
    found: dict[str, TableNames] = {}
    for name, table in spec.tables.items():
        cells = tables.side_by_side(each_class(table.cells, [*ERRORS]))
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
    return _rows([(arm, one) for arm in frame.arms(spec) if arm != one])


def _compared_pairs(spec: ReportSpec, name: str) -> list[tuple[str, str]]:
    """(arm, against) of a contrast, whichever try may have been chosen."""
    lineup = spec.lineups[name]
    first = [item.arm for one in lineup.contenders if one.name == lineup.against for item in one.tries]
    others = [item.arm for one in lineup.contenders if one.name != lineup.against for item in one.tries]
    return [(arm, against) for arm in others for against in first]


def _column(word: str, of: TableNames, spec: ReportSpec, stages: Stages, where: str) -> str:
    """One of its columns; any op, where `op` means all ops and the plan does not determine which there are."""
    digests = [digest for row in spec.arms for digest in row.evaluations.values()]
    bands = [provenance.planned_bands(stages[digest]["deps"]["data"], stages) for digest in digests]
    ops = sorted({op for known in bands for numbers in known.values() for op in numbers})
    columns = [part for item in of.columns for part in ([f"op:{op}" for op in ops] if item == "op" else [item])]
    untold = "op" in of.columns and any(provenance.planned_ops(known) is None for known in bands)
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
    spec = spec.model_copy(update={"arms": [row for row in spec.arms if row.arm in (query.arm, query.against)]})
    found, notes = value(spec, report, results, query)
    rows = [row for row in spec.arms if seed is None or row.seed == seed]
    if not rows:
        seeds = sorted({row.seed for row in spec.arms})
        raise model.UserError(f"--seed {seed}: the study plans {query.arm} at seeds {', '.join(map(str, seeds))}")
    chain, absent = stages_of(
        spec.model_copy(update={"arms": rows}), stages, results, lambda digest: _holds(stages, digest, query, spec)
    )
    blocks = [_head(spec, report, found, query), *chain]
    if notes or absent:
        blocks.append(["not here", *(f"  {line}" for line in [*notes, *absent])])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _holds(stages: Stages, digest: str, query: CellName, spec: ReportSpec) -> bool:
    """Whether an evaluation's problem set has the column, or may have it, by the spec."""
    bands = provenance.planned_bands(stages[digest]["deps"]["data"], stages)
    if query.column in bands:
        return True
    ops = provenance.planned_ops(bands)
    named = query.column.startswith("op:")
    wanted = {int(query.column.removeprefix("op:"))} if named else set(spec.bands.get(query.column, []))
    return (named if ops is None else False) or bool(wanted & set(ops or []))


def value(spec: ReportSpec, report: str, results: Path, query: CellName) -> tuple[estimate.Estimate, list[str]]:
    """The cell's estimate, and what kept it from being computed afresh: from samples where all are here, else from records."""
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
        if query.against:
            return estimate.difference(read, query.arm, query.against, query.column, query.metric), []
        return estimate.value(read, query.arm, query.column, query.metric), []
    shown = _shown(report, results, query)
    notes = [f"samples of evaluation {digest}: `interplay store pull` gets them" for digest in absent]
    found = _from_records(spec, folders, query, shown)
    return found, notes if shown else [*notes, "the interval: it needs samples, or the report's record"]


def _shown(report: str, results: Path, query: CellName) -> list[float] | None:
    """[estimate, low, high] in the report's record."""
    out = artifact.folder(results, "report", report)
    if not artifact.done(out):
        return None
    row = tables.row_label(query.arm, query.against)
    return artifact.record(out)["metrics"]["tables"].get(query.table, {}).get(f"{row}/{query.column}/{query.metric}")


def _from_records(spec: ReportSpec, folders: dict[str, Path], query: CellName, shown: list[float] | None) -> estimate.Estimate:
    """Means per seed from the evaluations' records; the interval over seeds from them, else that which the report shows."""
    parts: dict[int, tuple[float, tuple[str, ...]]] = {}
    counts: list[tuple[int, int]] = []
    for row in spec.arms:
        if row.arm != query.arm:
            continue
        others = [other for other in spec.arms if (other.arm, other.seed) == (query.against, row.seed)]
        cells = [_cell(item.evaluations.values(), spec, folders, query) for item in [row, *others]]
        if all(cells) and len(cells) == (2 if query.against else 1):
            known = [cell for cell in cells if cell]
            parts[row.seed] = (known[0][1] - (known[1][1] if query.against else 0.0), tuple(cell[0] for cell in known))
            counts += [cell[2] for cell in known]
    if not parts and shown and shown[0] is not None:
        return estimate.Estimate(shown[0], shown[1], shown[2])
    if not parts:
        return estimate.Estimate(missing=(f"no record here holds {query.metric} of {query.column}; any k needs the samples",))
    distinct = {digests: mean for mean, digests in parts.values()}
    means = np.array([*distinct.values()])
    low, high = (shown[1], shown[2]) if shown else (np.nan, np.nan)
    over = f"{min(count for count, _ in counts)} prompts"
    if len(means) > 1 and np.ptp(means) > estimate.AGREE:
        of = measure_of(query.metric)
        low, high = estimate.t_interval(means, of.support_of_differences if query.against else of.support)
        over = f"{len(means)} seeds"
    prompts, samples = (min(number) for number in zip(*counts, strict=True))
    per_seed = tuple(mean for mean, _ in parts.values())
    digests = tuple(dict.fromkeys(digest for _, pair in parts.values() for digest in pair))
    return estimate.Estimate(float(means.mean()), low, high, over, prompts, samples, tuple(parts), per_seed, len(means), digests)


def _cell(
    evaluations: Iterable[str], spec: ReportSpec, folders: dict[str, Path], query: CellName
) -> tuple[str, float, tuple[int, int]] | None:
    """(digest, mean, (prompts, samples)) of the first evaluation whose record holds the column. Of several blocks of samples the
    records add up for means over samples alone: pass@k of all is no mean of theirs."""
    axis, name = ("op", query.column.removeprefix("op:")) if query.column.startswith("op:") else ("band", query.column)
    made = find_metric(query.metric)  # none: a part of a gain, which no record of an evaluation holds
    adds_up = made is not None and made.samples == 1 and made.per in ("sample", "draw")
    for digest in evaluations:
        of = [folders[block] for block in spec.blocks_of(digest)]
        metrics = [artifact.record(folder)["metrics"] if artifact.done(folder) else {} for folder in of]
        cells = [each.get(axis, {}).get(name, {}) for each in metrics]
        numbers = [_recorded_metric(cell, query.metric) for cell in cells]
        if made is not None and made.per == "prompt":
            numbers = numbers[:1]  # the first block alone has it
        if not any(np.isnan(numbers)) and (len(numbers) == 1 or adds_up):
            samples = [each["n_samples"] for each in metrics]
            mean = np.average(numbers, weights=samples[: len(numbers)])
            return digest, float(mean), (cells[0]["n"], sum(samples))
    return None


def _recorded_metric(cell: Mapping[str, Any], metric: str) -> float:
    """What a record's numbers over some problems say of a metric; NaN where they do not."""
    query = find_metric(metric)
    if query is None or query.per == "draw":
        return float(cell.get(metric, np.nan))
    part = _mean(cell, query.column) - (_mean(cell, query.less) if query.less else 0.0)
    if query.per != "right answer":
        return part
    right = _mean(cell, "answer")
    return part / right if right else np.nan


def _mean(cell: Mapping[str, Any], column: str) -> float:
    """Mean over samples of what a column of `prompts.parquet` sums up, by the name that it has in a record."""
    if column.startswith(COUNTED) and "errors" in cell:
        return float(cell["errors"].get(column.removeprefix(COUNTED), 0.0))
    return float(cell.get(f"{column}_pass@1", cell.get(column, np.nan)))


def _head(spec: ReportSpec, report: str, found: estimate.Estimate, query: CellName) -> list[str]:
    signed = bool(query.against)
    row = tables.row_label(query.arm, query.against)
    measure = measure_of(query.metric)
    unit = measure.unit_of(signed)
    lines = [f"{row}, {tables.column_label(query.column, query.metric)}: "]
    if not np.isnan(found.value):
        interval = "" if np.isnan(found.low) else f" {text.interval_text(found, signed, query.metric, False)}"
        lines[0] += f"{measure.shown(found.value, signed)} {unit}{interval}"
        counted = f"uncertain over {found.over}; {found.n_prompts} prompts, {found.n_samples} samples each"
        lines.append(f"  {counted if found.seeds else 'as the record of the report says: no evaluation is here to count'}")
    else:
        lines[0] += "missing"
    lines.append(f"  table {query.table} of study {spec.study} at scale {spec.scale}, report {report}")
    if not np.isnan(found.detectable):
        effect = f"{measure.shown(found.detectable)} {measure.unit_of_differences}"
        lines.append(f"  smallest true difference that these seeds would find (80 % power): {effect}")
    seeds: dict[int, list[str]] = {}
    for item in sorted(spec.arms, key=lambda item: item.arm != query.arm):
        seeds.setdefault(item.seed, []).extend(digest for digest in item.evaluations.values() if digest in found.digests)
    shown = zip(found.seeds, found.per_seed, strict=True)
    lines += plain.aligned([[f"seed {seed}", f"{measure.shown(number, signed)} {unit}", *seeds[seed]] for seed, number in shown])
    return lines + [f"  missing: {reason}" for reason in found.missing]
