"""A table's cell, from its value down to the data: what it is uncertain over, and every stage behind it, each once.

Works from records alone where payloads are not here: then the interval is that of the report's record, and what needs samples or
problems says so."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from interplay.report import contrast, estimate, foretold, frame, gain, measure, stats, tables, text
from interplay.report.chain import stages_of
from interplay.report.estimate import Estimate
from interplay.report.frame import Results
from interplay.report.plain import aligned
from interplay.schema.base import UserError, nearest
from interplay.schema.metric import ERROR, ERRORS, HACKED, HACKED_OF_RIGHT, NLL, check_metric, is_error, samples_needed
from interplay.schema.report import ReportSpec, Table
from interplay.store import artifact

DIFFERENCES = "_differences"
COUNTS = ("prompts.parquet", "samples.parquet")
"""What cells are computed from; either will do."""

Stages = Mapping[str, Mapping[str, Any]]


class Asked(NamedTuple):
    """A cell, by the names that the table uses. `against` is empty in a table of values."""

    table: str
    arm: str
    against: str
    column: str
    metric: str


def explain(spec: ReportSpec, report: str, stages: Stages, results: Path, asked: Asked, seed: int | None) -> str:
    """The cell in words. `stages`: the study's plan as JSON, dependencies first; `report`: the digest of its report; `seed`: tell
    of one seed alone."""
    spec = spec.model_copy(update={"arms": [row for row in spec.arms if row.arm in (asked.arm, asked.against)]})
    found, notes = value(spec, report, results, asked)
    rows = [row for row in spec.arms if seed is None or row.seed == seed]
    if not rows:
        raise UserError(f"--seed {seed}: the study plans {asked.arm} at seeds {_listed(row.seed for row in spec.arms)}")
    chain, absent = stages_of(
        spec.model_copy(update={"arms": rows}), stages, results, lambda digest: _holds(stages, digest, asked, spec)
    )
    blocks = [_head(spec, report, found, asked), *chain]
    if notes or absent:
        blocks.append(["not here", *(f"  {line}" for line in [*notes, *absent])])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def match(spec: ReportSpec, stages: Stages, table: str, row: str, column: str, metric: str | None) -> Asked:
    """The cell that is meant: case, spaces, `:` and kinds of dashes do not matter; `column/metric` is one way to name the metric.

    Raises UserError with the nearest name for whatever the table does not have."""
    where = f"study {spec.study}"
    fights = [f"{known}{contrast.SUFFIX}" for known in spec.lineups]
    gains = [f"{known}{gain.SUFFIX}" for known, item in spec.tables.items() if item.gain is not None]
    differences = [f"{known}{DIFFERENCES}" for known, item in spec.tables.items() if item.against is None]
    name = _pick(table, [*spec.tables, *differences, *fights, *gains], where, "table")
    own = name in [*fights, *gains] or (name in spec.tables and spec.tables[name].against is not None)
    shown = spec.tables[name if name in spec.tables else _base_name(name)]
    pairs = {f"{arm} − {against}": (arm, against) for arm, against in _pairs(spec, name, shown)}
    values = {arm: (arm, "") for arm in frame.arms(spec)}
    known = pairs if name in [*differences, *gains] or (own and name in spec.tables) else values | pairs
    arm, against = known[_pick(row, list(known), f"table {name}", "row")]
    table = name if own else f"{name.removesuffix(DIFFERENCES)}{DIFFERENCES if against else ''}"
    column, _, behind = column.partition("/")
    bands = [foretold.bands(stages[d]["deps"]["data"], stages) for row in spec.arms for d in row.evaluations.values()]
    ops = sorted({op for known in bands for ops in known.values() for op in ops})
    columns = [part for item in shown.columns for part in ([f"op:{op}" for op in ops] if item == "op" else [item])]
    untold = "op" in shown.columns and any(foretold.all_ops(known) is None for known in bands)
    column = _pick(column, columns, f"table {name}", "column", lambda word: untold and word.startswith("op:"))
    metrics = list(dict.fromkeys(shown.cells)) if name in fights else tables.side_by_side(_cells(shown))
    if name in gains:
        return Asked(table, arm, against, column, _gain(metric or behind, shown, f"table {name}"))
    metric = _pick(metric or behind or metrics[0], metrics, f"table {name}", "metric", is_metric)
    return Asked(table, arm, against, column, metric)


def _base_name(name: str) -> str:
    """The table that one of differences, of a contrast or of gains belongs to."""
    return name.removesuffix(DIFFERENCES).removesuffix(contrast.SUFFIX).removesuffix(gain.SUFFIX)


def _cells(table: Table) -> list[str]:
    """Its cells, with every class of errors that may have occurred."""
    return [part for cell in table.cells for part in ([f"{ERROR}:{name}" for name in ERRORS] if cell == ERROR else [cell])]


def _gain(word: str, table: Table, where: str) -> str:
    """A column of a table of gains."""
    known = gain.metrics(table.gain.k or 1) if table.gain else []
    return _pick(word or known[0], known, where, "metric")


def _pairs(spec: ReportSpec, name: str, table: Table) -> list[tuple[str, str]]:
    """(arm, against) of the rows of differences to one arm; else of those to controls, and of a contrast if one is asked for:
    whichever try may have been chosen."""
    one = table.gain.against if table.gain and name.endswith(gain.SUFFIX) else table.against
    if one is not None:
        return [(arm, one) for arm in frame.arms(spec) if arm != one]
    pairs = tables.contrasts(Results(spec, {}, {}, {}))
    fight = name.removesuffix(contrast.SUFFIX)
    if fight == name or fight not in spec.lineups:
        return pairs
    lineup = spec.lineups[fight]
    first = [item.arm for one in lineup.contenders if one.name == lineup.against for item in one.tries]
    others = [item.arm for one in lineup.contenders if one.name != lineup.against for item in one.tries]
    return [*pairs, *((arm, against) for arm in others for against in first)]


def is_metric(word: str) -> bool:
    """Whether it can be computed, though the table may not show it."""
    try:
        return bool(check_metric(word))
    except ValueError:
        return False


def _pick(word: str, known: list[str], where: str, what: str, allowed: Callable[[str], bool] = lambda word: False) -> str:
    by_plain = {_plain(name): name for name in reversed(known)}
    if _plain(word) in by_plain:
        return by_plain[_plain(word)]
    if allowed(word):
        return word
    raise UserError(f"{where}: no {what} {word!r}{nearest(word, known)}")


def _plain(word: str) -> str:
    return re.sub(r"[\s_:–—−-]+", " ", word.strip().lower())


def _holds(stages: Stages, digest: str, asked: Asked, spec: ReportSpec) -> bool:
    """Whether an evaluation's problem set has the column, or may have it, by the spec."""
    bands = foretold.bands(stages[digest]["deps"]["data"], stages)
    if asked.column in bands:
        return True
    ops = foretold.all_ops(bands)
    named = asked.column.startswith("op:")
    wanted = {int(asked.column.removeprefix("op:"))} if named else set(spec.bands.get(asked.column, []))
    return (named if ops is None else False) or bool(wanted & set(ops or []))


def value(spec: ReportSpec, report: str, results: Path, asked: Asked) -> tuple[Estimate, list[str]]:
    """The cell's estimate, and what kept it from being computed afresh: from samples where all are here, else from records."""
    digests = [digest for row in spec.arms for digest in row.evaluations.values()]
    wanted = [block for digest in digests for block in spec.blocks_of(digest)]
    folders = {block: artifact.folder(results, "evaluate", block) for block in wanted}
    absent = [d for d, path in folders.items() if artifact.done(path) and not any((path / name).exists() for name in COUNTS)]
    if not absent:
        read = frame.read(spec, folders)
        if gain.is_gain(asked.metric):
            return _of_gain(read, asked), []
        if asked.against:
            return estimate.difference(read, asked.arm, asked.against, asked.column, asked.metric), []
        return estimate.value(read, asked.arm, asked.column, asked.metric), []
    shown = _shown(report, results, asked)
    notes = [f"samples of evaluation {digest}: `interplay store pull` gets them" for digest in absent]
    found = _from_records(spec, folders, asked, shown)
    return found, notes if shown else [*notes, "the interval: it needs samples, or the report's record"]


def _of_gain(read: Results, asked: Asked) -> Estimate:
    """A cell of a table of gains."""
    of = read.spec.tables[asked.table.removesuffix(gain.SUFFIX)].gain
    k = of.k if of and of.k else 1
    return gain.estimate(read, asked.arm, asked.against, asked.column, asked.metric, k)


def _shown(report: str, results: Path, asked: Asked) -> list[float] | None:
    """[estimate, low, high] in the report's record."""
    out = artifact.folder(results, "report", report)
    if not artifact.done(out):
        return None
    row = f"{asked.arm} − {asked.against}" if asked.against else asked.arm
    return artifact.record(out)["metrics"]["tables"].get(asked.table, {}).get(f"{row}/{asked.column}/{asked.metric}")


def _from_records(spec: ReportSpec, folders: dict[str, Path], asked: Asked, shown: list[float] | None) -> Estimate:
    """Means per seed from the evaluations' records; the interval over seeds from them, else that which the report shows."""
    parts: dict[int, tuple[float, tuple[str, ...]]] = {}
    counts: list[tuple[int, int]] = []
    for row in spec.arms:
        if row.arm != asked.arm:
            continue
        others = [other for other in spec.arms if (other.arm, other.seed) == (asked.against, row.seed)]
        cells = [_cell(item.evaluations.values(), spec, folders, asked) for item in [row, *others]]
        if all(cells) and len(cells) == (2 if asked.against else 1):
            known = [cell for cell in cells if cell]
            parts[row.seed] = (known[0][1] - (known[1][1] if asked.against else 0.0), tuple(cell[0] for cell in known))
            counts += [cell[2] for cell in known]
    if not parts and shown and shown[0] is not None:
        return Estimate(shown[0], shown[1], shown[2])
    if not parts:
        return Estimate(missing=(f"no record here holds {asked.metric} of {asked.column}; any k needs the samples",))
    distinct = {digests: mean for mean, digests in parts.values()}
    means = np.array([*distinct.values()])
    low, high = (shown[1], shown[2]) if shown else (np.nan, np.nan)
    over = f"{min(count for count, _ in counts)} prompts"
    if len(means) > 1 and np.ptp(means) > estimate.AGREE:
        of = measure.of(asked.metric)
        low, high = stats.t_interval(means, of.support_of_differences if asked.against else of.support)
        over = f"{len(means)} seeds"
    prompts, samples = (min(number) for number in zip(*counts, strict=True))
    per_seed = tuple(mean for mean, _ in parts.values())
    digests = tuple(dict.fromkeys(digest for _, pair in parts.values() for digest in pair))
    return Estimate(float(means.mean()), low, high, over, prompts, samples, tuple(parts), per_seed, len(means), digests)


def _cell(
    evaluations: Iterable[str], spec: ReportSpec, folders: dict[str, Path], asked: Asked
) -> tuple[str, float, tuple[int, int]] | None:
    """(digest, mean, (prompts, samples)) of the first evaluation whose record holds the column. Of several blocks of samples the
    records add up for means over samples alone: pass@k of all is no mean of theirs."""
    axis, name = ("op", asked.column.removeprefix("op:")) if asked.column.startswith("op:") else ("band", asked.column)
    adds_up = samples_needed(asked.metric) == 1 and asked.metric not in (NLL, HACKED_OF_RIGHT)
    for digest in evaluations:
        of = [folders[block] for block in spec.blocks_of(digest)]
        metrics = [artifact.record(folder)["metrics"] if artifact.done(folder) else {} for folder in of]
        cells = [each.get(axis, {}).get(name, {}) for each in metrics]
        told = [_told(cell, asked.metric) for cell in cells]
        if asked.metric == NLL:
            told = told[:1]  # the first block alone scores gold solutions
        if not any(np.isnan(told)) and (len(told) == 1 or adds_up):
            samples = [each["n_samples"] for each in metrics]
            mean = np.average(told, weights=samples[: len(told)])
            return digest, float(mean), (cells[0]["n"], sum(samples))
    return None


def _told(cell: Mapping[str, Any], metric: str) -> float:
    """What a record's numbers over some problems say of a metric; NaN where they do not."""
    if is_error(metric) and "errors" in cell:
        return float(cell["errors"].get(metric.removeprefix(f"{ERROR}:"), 0.0))
    if metric in (HACKED, HACKED_OF_RIGHT) and "answer_pass@1" in cell:
        hacked, right = cell["answer_pass@1"] - cell["strict_pass@1"], cell["answer_pass@1"]
        return float(hacked if metric == HACKED else hacked / right if right else np.nan)
    return float(cell.get(metric, np.nan))


def _head(spec: ReportSpec, report: str, found: Estimate, asked: Asked) -> list[str]:
    signed = bool(asked.against)
    row = f"{asked.arm} − {asked.against}" if signed else asked.arm
    told_in = measure.of(asked.metric)
    unit = told_in.unit_of_differences if signed else told_in.unit
    lines = [f"{row}, {tables.label(asked.column, asked.metric)}: "]
    if not np.isnan(found.value):
        interval = "" if np.isnan(found.low) else f" {text.interval(found, signed, asked.metric).removesuffix(text.OVER_PROMPTS)}"
        lines[0] += f"{told_in.shown(found.value, signed)} {unit}{interval}"
        counted = f"uncertain over {found.over}; {found.n_prompts} prompts, {found.n_samples} samples each"
        lines.append(f"  {counted if found.seeds else 'as the record of the report says: no evaluation is here to count'}")
    else:
        lines[0] += "missing"
    lines.append(f"  table {asked.table} of study {spec.study} at scale {spec.scale}, report {report}")
    if not np.isnan(found.detectable):
        lines.append(
            f"  smallest true difference that these seeds would find (80 % power): {told_in.shown(found.detectable)} "
            f"{told_in.unit_of_differences}"
        )
    seeds: dict[int, list[str]] = {}
    for item in sorted(spec.arms, key=lambda item: item.arm != asked.arm):
        seeds.setdefault(item.seed, []).extend(digest for digest in item.evaluations.values() if digest in found.digests)
    shown = zip(found.seeds, found.per_seed, strict=True)
    lines += aligned([[f"seed {seed}", f"{told_in.shown(number, signed)} {unit}", *seeds[seed]] for seed, number in shown])
    return lines + [f"  missing: {reason}" for reason in found.missing]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in sorted(set(numbers)))
