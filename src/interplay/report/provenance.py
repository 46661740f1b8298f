"""What a click on a cell of the page shows: n, interval, seeds, and the digests from the evaluations down to the data."""

import shlex
from typing import Any

from interplay.report import ledger, text
from interplay.report.behind import Behind
from interplay.report.estimate import Estimate
from interplay.report.tables import Cell, Grid, label
from interplay.schema.metric import measure_of
from interplay.schema.report import ReportSpec
from interplay.store.artifact import split_ref


def data(spec: ReportSpec, grids: dict[str, Grid], behind: Behind, anchors: dict[str, str]) -> dict[str, Any]:
    """What the page's script reads: `cells` by table/row/column/metric; `chains` by evaluation, lines of [depth, role, digest]
    from the evaluation down; `stages` by digest: [kind, name, anchor, why it is missing or '']."""
    cells = {"/".join((name, *key)): _cell(spec, name, cell) for name, grid in grids.items() for key, cell in grid.cells.items()}
    evaluations = dict.fromkeys(digest for cell in cells.values() for _, _, digests in cell["seeds"] for digest in digests)
    chains = {digest: chain(digest, behind) for digest in evaluations}
    needed = dict.fromkeys(digest for lines in chains.values() for _, _, digest in lines)
    stages = {digest: _stage(digest, behind, anchors) for digest in needed}
    return {"cells": cells, "chains": chains, "stages": stages}


def chain(digest: str, behind: Behind) -> list[tuple[int, str, str]]:
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
