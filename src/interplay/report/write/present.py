"""Claims, tables and figures as the page's templates take them, with the provenance of each cell."""

import base64
import itertools
import shlex
from typing import Any

from interplay.core.artifact import split_ref
from interplay.report.draw import bars
from interplay.report.metric_spec import Measure, measure_of
from interplay.report.spec import ReportSpec, Test
from interplay.report.stats import claims, contrast
from interplay.report.stats.estimate import Estimate
from interplay.report.stats.provenance import Behind
from interplay.report.write import contrast_text, ledger, tables, text
from interplay.report.write import text as words
from interplay.report.write.answers import Answer
from interplay.report.write.tables import Cell, Grid, label

# What a click on a cell of the page shows: n, interval, seeds, and the digests from the evaluations down to the data.


def provenance_data(spec: ReportSpec, grids: dict[str, Grid], behind: Behind, anchors: dict[str, str]) -> dict[str, Any]:
    """What the page's script reads: `cells` by table/row/column/metric; `chains` by evaluation, lines of [depth, role, digest]
    from the evaluation down; `stages` by digest: [kind, name, anchor, why it is missing or '']."""
    cells = {"/".join((name, *key)): _cell(spec, name, cell) for name, grid in grids.items() for key, cell in grid.cells.items()}
    evaluations = dict.fromkeys(digest for cell in cells.values() for _, _, digests in cell["seeds"] for digest in digests)
    chains = {digest: provenance_chain(digest, behind) for digest in evaluations}
    needed = dict.fromkeys(digest for lines in chains.values() for _, _, digest in lines)
    stages = {digest: _stage(digest, behind, anchors) for digest in needed}
    return {"cells": cells, "chains": chains, "stages": stages}


def provenance_chain(digest: str, behind: Behind) -> list[tuple[int, str, str]]:
    """(depth, role, digest) of a stage and all behind it, each once; a kept checkpoint's step stands with its role."""
    lines: list[tuple[int, str, str]] = []
    seen: set[str] = set()

    def visit(ref: str, role: str, depth: int) -> None:
        at, step = split_ref(ref)
        lines.append((depth, role if step is None else f"{role} at step {step}", at))
        if at not in seen:
            seen.add(at)
            for name, dep in sorted(behind.stages.get(at, {"deps": {}})["deps"].items(), key=_models_first):
                visit(dep, name, depth + 1)

    visit(digest, "evaluation", 0)
    return lines


def command(spec: ReportSpec, table: str, cell: Cell) -> str:
    """The command line that prints the same chain."""
    words = [spec.study, table, cell.row.replace("−", "-"), f"{cell.column}/{cell.metric}"]
    return f"interplay explain {shlex.join(words)} --scale {shlex.quote(spec.scale)}"


def _models_first(item: tuple[str, str]) -> tuple[bool, str]:
    return item[0] not in ("model", "init"), item[0]


def _cell(spec: ReportSpec, table: str, cell: Cell) -> dict[str, Any]:
    found, signed = cell.estimate, bool(cell.against)
    told_in = measure_of(cell.metric)
    unit = told_in.unit_of_differences if signed else told_in.unit
    shown = bool(found.seeds)
    seeds = zip(found.seeds, found.per_seed, strict=True)
    return {
        "title": f"{cell.row}, {label(cell.column, cell.metric)}",
        "value": f"{told_in.shown(found.value, signed)} {unit}" if shown else "missing",
        "interval": text.interval(found, signed, cell.metric).removesuffix(text.OVER_PROMPTS) if shown else "",
        "over": found.over,
        "n": f"{found.n_prompts} prompts, {found.n_samples} samples each" if shown else "",
        "mde": "" if found.detectable != found.detectable else f"{told_in.shown(found.detectable)} {told_in.unit_of_differences}",
        "seeds": [(seed, told_in.shown(number, signed), _evaluations(spec, cell, found, seed)) for seed, number in seeds],
        "missing": list(found.missing),
        "command": command(spec, table, cell),
    }


def _evaluations(spec: ReportSpec, cell: Cell, found: Estimate, seed: int) -> list[str]:
    """Of one seed: the arm's evaluation, then that of what it is compared with."""
    of_arm = {
        arm: [d for row in spec.arms if (row.arm, row.seed) == (arm, seed) for d in row.evaluations.values()]
        for arm in (cell.arm, cell.against)
    }
    return [digest for digests in of_arm.values() for digest in digests if digest in found.digests]


def _stage(digest: str, behind: Behind, anchors: dict[str, str]) -> tuple[str, str, str, str]:
    stage = behind.stages.get(digest, {"kind": "unknown"})
    why = "" if behind.done(digest) else behind.why.get(digest, "not at hand")
    name = ledger.name_of(stage)
    return stage["kind"], "" if name == stage["kind"] else name, anchors.get(digest, ""), why


# Claims, tables and figures as the page's templates take them: text, already rounded and signed.


CHIPS = {"supported": "yes", "refuted": "no", "no information": "open", "not judged": "none"}
"""Verdict -> class of its chip."""
VERDICTS = {"better": "yes", "worse": "no", "no information": "none", "missing": "open"}
"""Verdict of a contrast -> class of its chip."""


def claim(item: claims.Judged) -> dict[str, Any]:
    """What it says, its verdict, its number, and the picture of where its interval lies."""
    test, found = item.claim.test, item.estimate
    signed, metric = test.difference is not None, test.metric
    told_in = measure_of(metric)
    unit = told_in.unit_of_differences if signed else told_in.unit
    subject = f"{test.arm} − {test.against}" if signed else test.arm
    return {
        "says": item.claim.says,
        "source": item.claim.source,
        "published": item.claim.published,
        "scale_note": item.claim.scale_note,
        "verdict": item.verdict,
        "chip": CHIPS[item.verdict],
        "reason": item.reason,
        "caveat": item.caveat,
        "tested": f"{_what(test)} of {subject} {_range(*claims.bounds(test), told_in, unit)}",
        "picture": bars.forest_svg(found, claims.bounds(test), signed, told_in),
        "estimate": _minus(told_in.shown(found.value, signed)) if found.seeds else "",
        "unit": unit,
        "interval": _minus(words.interval(found, signed, metric).removesuffix(words.OVER_PROMPTS)),
        "per_seed": _minus(words.per_seed(found, signed, metric)),
        "over": found.over,
        "detectable": told_in.shown(found.detectable),
        "n": f"{found.models} runs" if test.recorded else f"{found.n_prompts} prompts, {found.n_samples} samples each",
        "digests": found.digests,
    }


def _what(test: Test) -> str:
    """The metric and where it is told."""
    return f"{test.recorded}: {test.metric}" if test.recorded else tables.label(test.band, test.metric)


def _range(low: float, high: float, told_in: Measure, unit: str) -> str:
    if high == float("inf"):
        return f"at least {_minus(told_in.shown(low))} {unit}".rstrip()
    if low == -float("inf"):
        return f"at most {_minus(told_in.shown(high))} {unit}".rstrip()
    return f"within {told_in.shown(low)} to {told_in.shown(high)} {unit}".rstrip()


def table(name: str, grid: tables.Grid) -> dict[str, Any]:
    """Blocks of (bands with their widths, metrics, rows, prior)."""
    shown = []
    for block in tables.blocks(grid):
        rows = [(row, [_present_cell(name, grid.cells[row, *key]) for key in block]) for row in grid.rows]
        bands = [(tables.label(column), len(list(of))) for column, of in itertools.groupby(column for column, _ in block)]
        metrics = [tables.label("", metric) for _, metric in block]
        shown.append({"bands": bands, "metrics": metrics, "rows": rows, "prior": words.baselines(grid, block)})
    wide = len(grid.columns) > tables.WIDEST // 2
    # Values per seed and detectable effects are a click away here, and written out in the other forms of the table.
    unit, *others = words.notes(grid)
    head = unit.replace(" and under it the value at each seed", "")
    notes = [head, *(note for note in others if not note.startswith("MDE"))]
    return {"name": name, "title": name.replace("_", " "), "blocks": shown, "notes": notes, "wide": wide}


def _present_cell(table: str, cell: tables.Cell) -> dict[str, Any]:
    """Its key for the script, value and interval, and what is missing of it."""
    key = "/".join((table, cell.row, cell.column, cell.metric))
    lines = [_minus(line) for line in words.lines(cell)[:2]]
    gaps = cell.estimate.missing if cell.estimate.seeds else ()
    return {"key": key, "lines": lines, "partly": bool(gaps), "why": "; ".join(cell.estimate.missing)}


def fight(name: str, made: contrast.Made) -> dict[str, Any]:
    """Blocks of (caption, rows); a row is its cells, each lines of text and, where something stands behind it, a key for the
    script, and the class of its verdict."""
    blocks = []
    for block in made.blocks:
        against = block.rows[0].chosen.arm
        rows = []
        for row in block.rows:
            cells = [
                {"lines": [_minus(line) for line in lines[:2]], "key": ""} for lines in contrast_text.cells(made, block, row)
            ]
            at = 2 if made.contrast.tune else 1
            for place, other, found in ((at, "", row.estimate), (at + 1, against, row.gap)):
                if found.seeds:
                    cell = tables.Cell(row.chosen.arm, other, block.column, block.metric, found, "")
                    cells[place]["key"] = "/".join((name, cell.row, cell.column, cell.metric))
            rows.append({"cells": cells, "chip": VERDICTS.get(row.verdict, "")})
        blocks.append({"caption": _minus(contrast_text.caption(block)), "rows": rows})
    title = f"{name.removesuffix(contrast.SUFFIX).replace('_', ' ')}: against {made.lineup.against}, beside the noise floor"
    return {
        "name": name,
        "title": title,
        "heads": contrast_text.heads(made),
        "blocks": blocks,
        "notes": contrast_text.notes(made),
    }


def _minus(text: str) -> str:
    """With the sign that is as wide as a plus."""
    return text.replace("-", "−")


def figure(name: str, made: Answer) -> dict[str, Any]:
    """The SVG as a data URI: inlined as an image, so that the ids inside two figures cannot clash."""
    drawing, figure = made.drawings[name], made.results.spec.figures[name]
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawing.svg).decode()}" if drawing.svg else ""
    return {
        "name": name,
        "title": name.replace("_", " "),
        "caption": drawing.caption,
        "notes": drawing.notes,
        "source": source,
        "x": figure.x,
    }
