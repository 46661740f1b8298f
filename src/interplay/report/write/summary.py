"""A finished study's answers as one small JSON file that can be committed, and the tables and figures made from it again.

`docs/results/STUDY.SCALE.json.gz` holds verdicts, the numbers of every table and figure, the digest of the report (the lock with
this report has those of every stage), seeds, and the environments. `interplay export --from FILE` draws tables and figures from
it; `docs/papers.md` is made from it.

A cell is a list: an index into `samples`, value, low, high, minimum detectable effect, and the value at each seed where models
differ, in units of the last digit that the metric shows; null where it is empty. `samples`: [what the interval is uncertain over,
prompts, samples per prompt, distinct models], then the seeds of its values where they are not all seeds of the study: a base may
lack a band, and an arm a seed."""

import gzip
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from interplay.core import artifact, metrics as core_metrics, model
from interplay.report.display_spec import Contrast, Figure
from interplay.report.draw import figures
from interplay.report.metric_spec import COUNTED, ERROR, measure_of
from interplay.report.spec import Lineup, ReportSpec
from interplay.report.stats import contrast, estimate, frame
from interplay.report.write import answers, tables
from interplay.study.plan import Plan

KEPT = ("value", "low", "high", "over", "n_prompts", "n_samples")
"""What is kept of the estimate of a claim."""
PATH = ("evaluation", "stage", "step")
"""What names a rung of a training ladder."""

Samples = list[tuple[Any, ...]]
Cells = Mapping[tuple[str, str, str], estimate.Estimate]
"""By (row, column, metric)."""


def write_summary(plan: Plan, results: Path, out: Path) -> None:
    """Write the summary to `out`. Raises UserError when the study is not finished."""
    answers.finished_report(plan, results)
    write_known(summarise(plan, results), out)


def write_known(known: Mapping[str, Any], out: Path) -> None:
    """Write a summary: compressed, with the same bytes each time, where the name ends in .gz."""
    text = f"{core_metrics.compact_json(known)}\n".encode()
    artifact.write_atomic(out, gzip.compress(text, mtime=0) if out.suffix == ".gz" else text)


def summarise(plan: Plan, results: Path) -> dict[str, Any]:
    """The summary as JSON data; determined by the report's digest except for `environments` and `exported`."""
    report = artifact.folder(results, "report", plan.report)
    spec = plan.report_spec()
    made = answers.answer_study(frame.read_results(spec, answers.report_inputs(plan, results))._replace(kept={}), files=False)
    claims = [
        {
            **{key: claim[key] for key in ("says", "source", "verdict", "caveat", "test") if key in claim},
            "estimate": {key: claim["estimate"][key] for key in KEPT},
        }
        for claim in artifact.read_json(report / "claims.json")
    ]
    return {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "question": spec.question,
        "claims": claims,
        "contrasts": {
            name: {key: {k: one for k, one in entry.items() if k != "value"} for key, entry in entries.items()}
            for name, entries in artifact.record(report)["metrics"].get("contrasts", {}).items()
        },
        "seeds": _every_seed(spec),
        "stages": Counter(stage.kind for stage in plan.stages.values()),
        "environments": _environments(plan, results),
        "exported": core_metrics.current_environment(),
        **numbers_of(made),
    }


def _environments(plan: Plan, results: Path) -> list[dict[str, Any]]:
    """Each environment in which stages were made and the number of stages; only the number where telemetry holds none."""
    known = (core_metrics.read_telemetry(artifact.folder(results, s.kind, digest)) for digest, s in plan.stages.items())
    counts = Counter(json.dumps(each.get("environment", {}), sort_keys=True) for each in known)
    return [{"stages": count, **json.loads(known)} for known, count in counts.most_common()]


# Writing: grids of cells, of the tables and of what figures show beyond them.


def numbers_of(made: answers.Answer) -> dict[str, Any]:
    """Everything that tables and figures show, as JSON data. `made`: of Results that keep their estimates."""
    samples: Samples = []
    every = _every_seed(made.results.spec)
    grids = {name: _grid(grid, samples) for name, grid in made.grids.items()}
    grids |= {name: _grid(_with_floors(one), samples) for name, one in made.contrasts.items()}
    seen = {key for grid in made.grids.values() for key in grid.cells}
    return {
        "arms": _arms(made.results),
        **{key: value for key, value in tables.display_json(made.results).items() if value},
        "bands": made.results.spec.bands,
        "ops": {band: sorted(map(int, ops)) for band, ops in _ops(made.results).items()},
        "n_samples": min((int(table["n"].min()) for table in made.results.prompts.values()), default=0),
        "grids": grids,
        "compared": {name: _compared(one) for name, one in made.contrasts.items()},
        "figures": _figures(made, seen, samples),
        "samples": [(*one, of) if list(of) != every else one for *one, of in samples],
    }


def _every_seed(spec: ReportSpec) -> list[int]:
    return sorted({arm.seed for arm in spec.arms})


def _arms(results: frame.Results) -> dict[str, dict[str, Any]]:
    """The seeds of each arm where it has not all, and its rungs, if any, with the number of the ladder: arms may share one."""
    every = _every_seed(results.spec)
    seeds = {arm: frame.seeds(results.spec, arm) for arm in results.spec.arm_names()}
    rows: dict[str, dict[str, Any]] = {arm: {"seeds": of} if of != every else {} for arm, of in seeds.items()}
    ladders: dict[tuple[str, ...], int] = {}
    for arm, row in rows.items():
        rungs = [(item, rung) for item in results.spec.rows_of(arm) for rung in item.rungs]
        steps = [(rung.evaluation, rung.stage, frame.step_of(results, item, rung)) for item, rung in rungs]
        if rungs:
            ladder = ladders.setdefault(tuple(rung.digest for _, rung in rungs), len(ladders))
            row["ladder"] = [ladder, *(list(key) for key in dict.fromkeys(steps) if key[-1] is not None)]
    return rows


def _ops(results: frame.Results) -> dict[str, set[Any]]:
    """Band -> ops of its prompts in the evaluations."""
    found: dict[str, set[Any]] = {}
    for table in results.prompts.values():
        for band, op in table[["band", "op"]].drop_duplicates().itertuples(index=False):
            found.setdefault(str(band), set()).add(op)
    return found


def _grid(grid: tables.Grid, samples: Samples) -> dict[str, Any]:
    cells = {key: cell.estimate for key, cell in grid.cells.items()}
    keys = list(itertools.product(grid.columns, grid.metrics))
    marks = {(cell.arm, cell.column): cell.mark or " " for cell in grid.cells.values()}
    arms = dict.fromkeys(arm for arm, _ in marks)
    gaps = dict.fromkeys(reason for cell in grid.cells.values() for reason in cell.estimate.missing)
    found = {
        **_rows(cells, grid.rows, grid.columns, grid.metrics, samples),
        "prior": [_units(grid.prior.get(key, math.nan), key[1]) for key in keys] if grid.prior else [],
        "notes": list(grid.notes),
        "missing": list(gaps),
        "marks": {arm: mark for arm in arms if (mark := "".join(marks.get((arm, one), " ") for one in grid.columns)).strip()},
    }
    return {key: item for key, item in found.items() if item}


def _rows(cells: Cells, rows: Iterable[str], columns: list[str], metrics: list[str], samples: Samples) -> dict[str, Any]:
    keys = list(itertools.product(columns, metrics))
    found = {row: [_encode(cells.get((row, *key)), key[1], samples) for key in keys] for row in rows}
    return {"columns": columns, "metrics": metrics, "rows": found} if found else {}


def _with_floors(made: contrast.Comparison) -> tables.Grid:
    """The cells of a contrast and the differences between identical runs."""
    grid = contrast.comparison_grid(made)
    for block in made.blocks:
        floor = block.floor
        cell = tables.Cell(floor.arm, floor.twin, block.column, block.metric, floor.gap, "")
        if floor.arm:
            grid.cells[cell.row, block.column, block.metric] = cell
    return grid._replace(rows=list(dict.fromkeys(key[0] for key in grid.cells)))


def _compared(made: contrast.Comparison) -> dict[str, Any]:
    """What determines the verdicts of a contrast, except its cells."""
    first = made.blocks[0].rows if made.blocks else []
    floors = {f"{one.column}/{one.metric}": _floor(one.floor, one.metric) for one in made.blocks}
    return {
        "contrast": made.contrast.model_dump(mode="json", exclude_defaults=True),
        "against": made.lineup.against,
        "tries": max((len(one.tries) for one in made.lineup.contenders), default=1),
        "tests": made.tests,
        "caveats": list(made.caveats),
        "chosen": {row.chosen.name: row.chosen.value for row in first},
        "floors": floors,
    }


def _floor(floor: contrast.NoiseFloor, metric: str) -> list[Any]:
    return [floor.arm, floor.twin, _units(floor.deviation, metric), floor.runs, list(floor.gap.missing)]


def _figures(made: answers.Answer, seen: set[tuple[str, str, str]], samples: Samples) -> dict[str, Any]:
    """Figures of what the study found; the curves of training are left out: they are the largest and show how it went."""
    kept = made.results.kept or {}
    found = {}
    for name, drawing in made.drawings.items():
        figure = made.results.spec.figures[name]
        if figure.x != "step" or figure.along():
            cells = {(tables.row_label(*key[:2]), *key[2:]): item for key, item in kept.items() if _shown_in(figure, key)}
            new = {key: item for key, item in cells.items() if key not in seen}
            rows, columns, metrics = (list(dict.fromkeys(key[at] for key in new)) for at in range(3))
            found[name] = {
                "figure": figure.model_dump(mode="json", exclude_defaults=True),
                "caption": drawing.caption,
                **({"notes": drawing.notes} if drawing.notes else {}),
                **_rows(new, rows, columns, metrics, samples),
            }
            seen |= new.keys()
    return found


def _shown_in(figure: Figure, key: frame.Key) -> bool:
    """Whether an estimate is of the metric, and compared with the arm, of a figure."""
    _, against, _, metric = key
    named = figure.y in (metric, metric.partition("@")[0]) or metric.partition(":")[0] == figure.y == ERROR
    named |= figure.x == "kl" and "_best@" in metric and metric.partition("@")[0] == figure.y.partition("@")[0]
    return named and against == (figure.against or "")


def _encode(found: estimate.Estimate | None, metric: str, samples: Samples) -> list[Any] | None:
    if found is None or math.isnan(found.value):
        return None
    sample = (found.over, found.n_prompts, found.n_samples, found.models, found.seeds)
    if sample not in samples:
        samples.append(sample)
    numbers = (found.value, found.low, found.high, found.detectable, *(found.per_seed if found.models > 1 else ()))
    return [samples.index(sample), *(_units(number, metric) for number in numbers)]


def _units(number: float, metric: str) -> float | None:
    """In units of the last digit that is shown, rounded as it is shown; where that is none, a first digit that is shown as none,
    too, so that the sign is kept."""
    measure = measure_of(metric)
    if math.isnan(number):
        return None
    rounded = round(round(measure.factor * number, measure.decimals) * 10**measure.decimals)
    small = float(f"{measure.factor * number * 10**measure.decimals:.1g}")
    return rounded or math.copysign(min(abs(small), 0.4), small)


def _fraction(units: float | None, metric: str) -> float:
    measure = measure_of(metric)
    return math.nan if units is None else units / 10**measure.decimals / measure.factor


# Reading: the same answers from the file.


def read_known(path: Path) -> dict[str, Any]:
    """The file as JSON data. Raises UserError for one that is no summary."""
    remedy = "name a file that `interplay export STUDY -o FILE.json.gz` wrote"
    try:
        known = artifact.read_json(path)
    except model.UserError as error:
        raise model.UserError(f"{error}; {remedy}") from None
    wanted = ("grids", "figures", "samples", "arms", "ops") if isinstance(known, dict) else ("a mapping",)
    if absent := [key for key in wanted if key not in known]:
        raise model.UserError(f"{path}: {absent[0]} is missing; {remedy}")
    return dict(known)


def read_summary(path: Path) -> answers.Answer:
    """The tables, contrasts and figures of a summary. Raises UserError for a file that is none."""
    known = read_known(path)
    grids = read_grids(known)
    results = _results(known, read_estimates(known, grids))
    grids = {name: one._replace(labels=tables.row_labels(results, one.cells.values())) for name, one in grids.items()}
    contrasts = {name: _comparison(known, name, grids[name]) for name in known["compared"]}
    drawings = {
        name: figures.draw_figure(results, figure)._replace(caption=known["figures"][name].get("caption", ""))
        for name, figure in results.spec.figures.items()
    }
    return answers.Answer(results, [], {n: grid for n, grid in grids.items() if n not in contrasts}, drawings, [], contrasts)


def read_grids(known: Mapping[str, Any]) -> dict[str, tables.Grid]:
    """The tables of a summary, contrasts among them, without a figure being drawn."""
    return {name: _decode_grid(known, grid) for name, grid in known["grids"].items()}


def read_estimates(known: Mapping[str, Any], grids: Mapping[str, tables.Grid]) -> dict[frame.Key, estimate.Estimate]:
    """Every estimate of a summary, of its tables (`read_grids`) and of what figures show beyond them."""
    kept = {(one.arm, one.against, one.column, one.metric): one.estimate for g in grids.values() for one in g.cells.values()}
    for figure in known["figures"].values():
        cells = _decode_rows(known, figure) if "rows" in figure else {}
        kept |= {(*_pair(row), column, metric): found for (row, column, metric), found in cells.items() if found.seeds}
    return kept


def _results(known: Mapping[str, Any], kept: dict[frame.Key, estimate.Estimate]) -> frame.Results:
    """Results whose every estimate is known; of prompts it holds which bands, ops and classes of errors there are."""
    rungs = {
        arm: [{**dict(zip(PATH, key, strict=True)), "digest": f"{ladder}@{key}"} for key in keys]
        for arm, row in known["arms"].items()
        for ladder, *keys in [row.get("ladder", [0])]
    }
    controls = known.get("controls", {})
    arms = [
        {"arm": arm, "seed": seed, "control": controls.get(arm), "path": [], "evaluations": {}, "rungs": rungs[arm]}
        for arm, row in known["arms"].items()
        for seed in row.get("seeds", known["seeds"])
    ]
    shown = {key: known[key] for key in ("study", "scale", "question", "bands")}
    shown |= {"figures": {name: one["figure"] for name, one in known["figures"].items()}}
    shown |= {key: known[key] for key in ("shown", "placed") if key in known}
    spec = ReportSpec.model_validate({**shown, "arms": arms, "trained_ops": {}, "tables": {}, "claims": []})
    prompts = pd.DataFrame([(band, op) for band, ops in known["ops"].items() for op in ops], columns=["band", "op"])
    prompts["n"] = known["n_samples"]
    classes = dict.fromkeys(key[3].partition(":")[2] for key in kept if key[3].startswith(f"{ERROR}:"))
    prompts[[f"{COUNTED}{name}" for name in classes]] = 0
    return frame.Results(spec, {"summary": prompts}, {}, {}, kept=kept, spent=known.get("spent", {}))


def _decode_grid(known: Mapping[str, Any], grid: Mapping[str, Any]) -> tables.Grid:
    gaps = tuple(grid.get("missing", []))
    cells: dict[tuple[str, str, str], tables.Cell] = {}
    for (row, column, metric), found in _decode_rows(known, grid).items():
        mark = grid.get("marks", {}).get(_pair(row)[0], "").ljust(len(grid["columns"]))[grid["columns"].index(column)]
        if found.seeds or not _pair(row)[1]:
            cells[row, column, metric] = tables.Cell(*_pair(row), column, metric, found._replace(missing=gaps), mark.strip())
            gaps = ()
    scores = zip(itertools.product(grid["columns"], grid["metrics"]), grid.get("prior", []), strict=False)
    prior = {key: _fraction(score, key[1]) for key, score in scores if score is not None}
    return tables.Grid(list(grid["rows"]), grid["columns"], grid["metrics"], cells, prior, tuple(grid.get("notes", [])))


def _decode_rows(known: Mapping[str, Any], grid: Mapping[str, Any]) -> dict[tuple[str, str, str], estimate.Estimate]:
    keys = list(itertools.product(grid["columns"], grid["metrics"]))
    return {
        (row, *key): _decode(cell, key[1], known) if cell else estimate.Estimate()
        for row, cells in grid["rows"].items()
        for key, cell in zip(keys, cells, strict=True)
    }


def _decode(cell: list[Any], metric: str, known: Mapping[str, Any]) -> estimate.Estimate:
    over, n_prompts, n_samples, models, *own = known["samples"][cell[0]]
    value, low, high, detectable, *each = (_fraction(units, metric) for units in cell[1:])
    seeds = tuple(own[0] if own else known["seeds"])
    each = each or [value] * len(seeds)
    if len(each) != len(seeds):
        raise model.UserError(
            f"the summary of {known['study']} holds {len(each)} values of {metric} for {len(seeds)} seeds; "
            f"write it again with `interplay export {known['study']} --scale {known['scale']} -o FILE.json.gz`"
        )
    return estimate.Estimate(value, low, high, over, n_prompts, n_samples, seeds, tuple(each), models, detectable=detectable)


def _pair(row: str) -> tuple[str, str]:
    """The arm of a row, and the arm that it is compared with, if any."""
    arm, _, against = row.partition(" − ")
    return arm, against


def _comparison(known: Mapping[str, Any], name: str, grid: tables.Grid) -> contrast.Comparison:
    of, entries = known["compared"][name], known["contrasts"][name]
    tries = [{"arm": ""}] * of["tries"]
    contenders = [{"name": one, "tries": tries} for one in of["chosen"]]
    lineup = Lineup.model_validate({"against": of["against"], "contenders": contenders, "twins": {}})
    blocks = []
    for key, (arm, twin, deviation, runs, missing) in of["floors"].items():
        column, _, metric = key.partition("/")
        gap = grid.cells[f"{arm} − {twin}", column, metric].estimate if arm else estimate.Estimate(missing=tuple(missing))
        floor = contrast.NoiseFloor(arm, twin, gap, _fraction(deviation, metric), runs)
        against = entries[f"{of['against']}/{key}"]["arm"]
        rows = [_row_of(grid, one, of["chosen"][one], against, entries[f"{one}/{key}"], key) for one in of["chosen"]]
        blocks.append(contrast.ComparisonBlock(column, metric, floor, rows))
    return contrast.Comparison(Contrast.model_validate(of["contrast"]), lineup, blocks, of["tests"], tuple(of["caveats"]))


def _row_of(grid: tables.Grid, name: str, value: str, against: str, entry: Mapping[str, Any], key: str) -> contrast.ComparisonRow:
    arm, (column, _, metric) = entry["arm"], key.partition("/")
    cells = [grid.cells.get((row, column, metric)) for row in (arm, f"{arm} − {against}")]
    found, gap = (cell.estimate if cell else estimate.Estimate() for cell in cells)
    p, adjusted = (np.nan if entry[one] is None else entry[one] for one in ("p", "adjusted"))
    return contrast.ComparisonRow(contrast.ChosenArm(name, arm, value, ()), found, gap, p, adjusted, entry["verdict"])
