"""A table's cell, from its value down to the data: what it is uncertain over, and every stage behind it, each once.

Works from records alone where payloads are not here: then the interval is that of the report's record, and what needs samples or
problems says so."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.report.inspect.asked import Asked, Stages
from interplay.report.inspect.chain import stages_of
from interplay.report.metric_spec import COUNTED, find, is_gain, measure_of
from interplay.report.spec import ReportSpec
from interplay.report.stats import estimate, frame, gain, intervals, recorded
from interplay.report.stats.estimate import Estimate
from interplay.report.stats.frame import Results
from interplay.report.write import tables, text
from interplay.report.write.plain import aligned

COUNTS = ("prompts.parquet", "samples.parquet")
"""What cells are computed from; either will do."""


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


def _holds(stages: Stages, digest: str, asked: Asked, spec: ReportSpec) -> bool:
    """Whether an evaluation's problem set has the column, or may have it, by the spec."""
    bands = recorded.bands(stages[digest]["deps"]["data"], stages)
    if asked.column in bands:
        return True
    ops = recorded.all_ops(bands)
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
        if is_gain(asked.metric):
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
        of = measure_of(asked.metric)
        low, high = intervals.t_interval(means, of.support_of_differences if asked.against else of.support)
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
    made = find(asked.metric)  # none: a part of a gain, which no record of an evaluation holds
    adds_up = made is not None and made.samples == 1 and made.per in ("sample", "draw")
    for digest in evaluations:
        of = [folders[block] for block in spec.blocks_of(digest)]
        metrics = [artifact.record(folder)["metrics"] if artifact.done(folder) else {} for folder in of]
        cells = [each.get(axis, {}).get(name, {}) for each in metrics]
        told = [_told(cell, asked.metric) for cell in cells]
        if made is not None and made.per == "prompt":
            told = told[:1]  # the first block alone has it
        if not any(np.isnan(told)) and (len(told) == 1 or adds_up):
            samples = [each["n_samples"] for each in metrics]
            mean = np.average(told, weights=samples[: len(told)])
            return digest, float(mean), (cells[0]["n"], sum(samples))
    return None


def _told(cell: Mapping[str, Any], metric: str) -> float:
    """What a record's numbers over some problems say of a metric; NaN where they do not."""
    asked = find(metric)
    if asked is None or asked.per == "draw":
        return float(cell.get(metric, np.nan))
    part = _mean(cell, asked.column) - (_mean(cell, asked.less) if asked.less else 0.0)
    if asked.per != "right answer":
        return part
    right = _mean(cell, "answer")
    return part / right if right else np.nan


def _mean(cell: Mapping[str, Any], column: str) -> float:
    """Mean over samples of what a column of `prompts.parquet` sums up, by the name that it has in a record."""
    if column.startswith(COUNTED) and "errors" in cell:
        return float(cell["errors"].get(column.removeprefix(COUNTED), 0.0))
    return float(cell.get(f"{column}_pass@1", cell.get(column, np.nan)))


def _head(spec: ReportSpec, report: str, found: Estimate, asked: Asked) -> list[str]:
    signed = bool(asked.against)
    row = f"{asked.arm} − {asked.against}" if signed else asked.arm
    told_in = measure_of(asked.metric)
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
