"""The `report` stage and its self-contained page, also of an unfinished study."""

import base64
import itertools
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from interplay.core import artifact
from interplay.core import metrics as surroundings
from interplay.core.execution import Run
from interplay.core.model import plural
from interplay.report.draw import bars, diagram
from interplay.report.inspect import chain
from interplay.report.metric_spec import Measure, measure_of
from interplay.report.spec import ReportSpec, Test
from interplay.report.stats import budget, contrast, frame, notes, provenance
from interplay.report.stats.estimate import Estimate
from interplay.report.write import answers, ledger, tables, text
from interplay.report.write import text as words

# The report stage, and its page: one self-contained file that shows the verdicts, the plan, the numbers and what they cost.
#
# The page is a view: it also shows what the digest does not determine (hours, hosts), so it is no payload and can be made
# again.


PAGE = "report.html"
MATCHES = {"matched": "yes", "not matched": "no", "not judged": "none"}
ACROSS, ACROSS_PHONE = 8, 3
"""Boxes side by side in the picture of the plan."""


class Gap(NamedTuple):
    """A missing stage that waits for no other, and how many wait for it."""

    label: str
    digest: str
    kind: str
    why: str
    waiting: int


def run(spec: ReportSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write the report of a study. `inputs` maps the digest of every stage it may read to that stage's artifact.

    Returns the verdicts and every table's numbers."""
    made = answers.answer_study(frame.read_results(spec, inputs))
    answers.write_answers(made, out)
    write_page(made, provenance.of_inputs(spec, inputs), out)
    return answers.record_metrics(made)


def remake_page(spec: ReportSpec, inputs: dict[str, Path], out: Path) -> None:
    """Make the page of a finished report again, without its tables and figures."""
    write_page(answers.answer_study(frame.read_results(spec, inputs)), provenance.of_inputs(spec, inputs), out)


def write_page(made: answers.Answer, of: provenance.Provenance, out: Path, gaps: list[Gap] | None = None) -> Path:
    """Write the page; returns its path. With `gaps` it is marked at the top as one of an unfinished study."""
    artifact.write_atomic(out / PAGE, render_page(made, of, gaps or []).encode())
    return out / PAGE


def render_page(made: answers.Answer, of: provenance.Provenance, gaps: list[Gap]) -> str:
    """The page: style, script and figures inside it, no request to anywhere."""
    loader = jinja2.PackageLoader("interplay.report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    spec = made.results.spec
    entries = ledger.stage_entries(spec, of)
    anchors = ledger.entry_anchors(entries)
    figures = [present_figure(name, made) for name in made.drawings]
    return environment.get_template("page.html.jinja").render(
        spec=spec,
        gaps=gaps,
        summary=verdict_summary(made),
        caveats=notes.caveats_of(made.results, frame.arms(spec)),
        facts=_facts(made, of),
        claims=[present_claim(item) for item in made.judged],
        plans=_plans(of, anchors),
        reuse=ledger.stage_reuse(spec, of),
        budgets=budget.arm_costs(spec, of),
        matches=[{"chip": MATCHES[item.verdict], **item._asdict()} for item in made.budgets],
        results=[figure for figure in figures if figure["x"] != "step"],
        curves=[figure for figure in figures if figure["x"] == "step"],
        tables=[present_table(name, grid) for name, grid in made.grids.items()],
        contrasts=[present_contrast(name, one) for name, one in made.contrasts.items()],
        provenance=provenance_data(
            spec, made.grids | {n: contrast.comparison_grid(one) for n, one in made.contrasts.items()}, of, anchors
        ),
        spent=budget.stage_costs(of),
        where=budget.where_and_when(of),
        entries=entries,
        most=ledger.MOST_MEMBERS,
        anchors=anchors,
        arms=chain.arm_rows(made.results),
        overlaps=chain.set_overlaps(made.results),
        environment=surroundings.versions(),
    )


def verdict_summary(made: answers.Answer) -> str:
    """`Of 3 claims 2 are supported and 1 gives no information.`"""
    counts = {verdict: sum(item.verdict == verdict for item in made.judged) for verdict in CHIPS}
    parts = [f"{count} {_verb(count, verdict)} {verdict}" for verdict, count in counts.items() if count]
    return f"Of {plural(len(made.judged), 'claim')} {_listed(parts)}." if made.judged else "The study makes no claim."


def _verb(count: int, verdict: str) -> str:
    if verdict == "no information":
        return "gives" if count == 1 else "give"
    return "is" if count == 1 else "are"


def _facts(made: answers.Answer, of: provenance.Provenance) -> Mapping[str, str]:
    """The line under the title: what this is, how large, how dear."""
    spec = made.results.spec
    seeds = len({arm.seed for arm in spec.arms})
    done = sum(of.done(digest) for digest in of.stages)
    stages = f"{done}" if done == len(of.stages) else f"{done} of {len(of.stages)} done"
    return {
        "study": spec.study,
        "scale": spec.scale,
        "arms": f"{len(frame.arms(spec))} × {plural(seeds, 'seed')}",
        "stages": stages,
        "time": f"{budget.total_hours(of)} of work",
    }


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _plans(of: provenance.Provenance, anchors: dict[str, str]) -> dict[str, str]:
    """The picture of the plan as SVG, for a wide and for a narrow page."""
    states = {digest: _state(of, digest) for digest in of.stages}
    nodes, edges = diagram.study_graph(of.stages, states, anchors)
    return {"wide": diagram.diagram_svg(nodes, edges, ACROSS), "narrow": diagram.diagram_svg(nodes, edges, ACROSS_PHONE)}


def _state(of: provenance.Provenance, digest: str) -> str:
    if of.done(digest):
        return "done"
    return notes.state_of(of.why.get(digest, ""))


# The page of an unfinished study: what is there, and what is missing and why. A view in `by-name`, never an artifact.


def render_partial(spec: ReportSpec, stages: Mapping[str, Mapping[str, Any]], results: Path, out: Path) -> Path:
    """Write tables, figures, claims and page into `out`; returns the page. `stages`: the plan as JSON, dependencies first."""
    shutil.rmtree(out, ignore_errors=True)
    why = notes.missing_reasons(stages, results, results.parent / "logs")
    folders = {digest: artifact.folder(results, stage["kind"], digest) for digest, stage in stages.items()}
    inputs = {digest: path for digest, path in folders.items() if stages[digest]["kind"] != "report"}
    made = answers.answer_study(frame.read_results(spec, inputs)._replace(why=why))
    answers.write_answers(made, out)
    return write_page(made, provenance.of_plan(stages, results, why), out, gaps(stages, why))


def gaps(stages: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]) -> list[Gap]:
    """What has to be fixed or run first, failures before the rest, with the number of stages that wait for each."""
    waiting: dict[str, set[str]] = {}
    """Digest -> the missing stages that it waits for."""
    for digest, stage in stages.items():
        deps = [artifact.split_ref(ref)[0] for ref in stage["deps"].values()]
        waiting[digest] = {dep for dep in deps if dep in why}.union(*(waiting[dep] for dep in deps))
    waiting = {digest: of for digest, of in waiting.items() if stages[digest]["kind"] != "report"}
    found = [_gap(stages[digest], why[digest], digest, waiting) for digest in notes.missing_roots(stages, why)]
    return sorted(found, key=lambda gap: notes.state_of(gap.why) != "failed")


def _gap(stage: Mapping[str, Any], why: str, digest: str, waiting: Mapping[str, set[str]]) -> Gap:
    return Gap(stage["label"], digest, stage["kind"], why, sum(digest in of for of in waiting.values()))


# Claims, tables and figures as the page's templates take them: text, already rounded and signed.


# What a click on a cell of the page shows: n, interval, seeds, and the digests from the evaluations down to the data.


def provenance_data(
    spec: ReportSpec, grids: dict[str, tables.Grid], behind: provenance.Provenance, anchors: dict[str, str]
) -> dict[str, Any]:
    """What the page's script reads: `cells` by table/row/column/metric; `chains` by evaluation, lines of [depth, role, digest]
    from the evaluation down; `stages` by digest: [kind, name, anchor, why it is missing or '']."""
    cells = {"/".join((name, *key)): _cell(spec, name, cell) for name, grid in grids.items() for key, cell in grid.cells.items()}
    evaluations = dict.fromkeys(digest for cell in cells.values() for _, _, digests in cell["seeds"] for digest in digests)
    chains = {digest: provenance_chain(digest, behind) for digest in evaluations}
    needed = dict.fromkeys(digest for lines in chains.values() for _, _, digest in lines)
    stages = {digest: _stage(digest, behind, anchors) for digest in needed}
    return {"cells": cells, "chains": chains, "stages": stages}


def provenance_chain(digest: str, behind: provenance.Provenance) -> list[tuple[int, str, str]]:
    """(depth, role, digest) of a stage and all that it depends on, each once; a checkpoint's step is part of its role."""
    lines: list[tuple[int, str, str]] = []
    seen: set[str] = set()

    def visit(ref: str, role: str, depth: int) -> None:
        at, step = artifact.split_ref(ref)
        lines.append((depth, role if step is None else f"{role} at step {step}", at))
        if at not in seen:
            seen.add(at)
            for name, dep in sorted(behind.stages.get(at, {"deps": {}})["deps"].items(), key=_models_first):
                visit(dep, name, depth + 1)

    visit(digest, "evaluation", 0)
    return lines


def explain_command(spec: ReportSpec, present_table: str, cell: tables.Cell) -> str:
    """The command line that prints the same chain."""
    words = [spec.study, present_table, cell.row.replace("−", "-"), f"{cell.column}/{cell.metric}"]
    return f"interplay explain {shlex.join(words)} --scale {shlex.quote(spec.scale)}"


def _models_first(item: tuple[str, str]) -> tuple[bool, str]:
    return item[0] not in ("model", "init"), item[0]


def _cell(spec: ReportSpec, present_table: str, cell: tables.Cell) -> dict[str, Any]:
    found, signed = cell.estimate, bool(cell.against)
    measure = measure_of(cell.metric)
    unit = measure.unit_of_differences if signed else measure.unit
    shown = bool(found.seeds)
    seeds = zip(found.seeds, found.per_seed, strict=True)
    return {
        "title": f"{cell.row}, {tables.column_label(cell.column, cell.metric)}",
        "value": f"{measure.shown(found.value, signed)} {unit}" if shown else "missing",
        "interval": text.interval_text(found, signed, cell.metric).removesuffix(text.OVER_PROMPTS) if shown else "",
        "over": found.over,
        "n": f"{found.n_prompts} prompts, {found.n_samples} samples each" if shown else "",
        "mde": "" if found.detectable != found.detectable else f"{measure.shown(found.detectable)} {measure.unit_of_differences}",
        "seeds": [(seed, measure.shown(number, signed), _evaluations(spec, cell, found, seed)) for seed, number in seeds],
        "missing": list(found.missing),
        "command": explain_command(spec, present_table, cell),
    }


def _evaluations(spec: ReportSpec, cell: tables.Cell, found: Estimate, seed: int) -> list[str]:
    """Of one seed: the arm's evaluation, then that of what it is compared with."""
    of_arm = {
        arm: [d for row in spec.arms if (row.arm, row.seed) == (arm, seed) for d in row.evaluations.values()]
        for arm in (cell.arm, cell.against)
    }
    return [digest for digests in of_arm.values() for digest in digests if digest in found.digests]


def _stage(digest: str, behind: provenance.Provenance, anchors: dict[str, str]) -> tuple[str, str, str, str]:
    stage = behind.stages.get(digest, {"kind": "unknown"})
    why = "" if behind.done(digest) else behind.why.get(digest, "not available")
    name = ledger.name_of(stage)
    return stage["kind"], "" if name == stage["kind"] else name, anchors.get(digest, ""), why


# Claims, tables and figures as the page's templates take them: text, already rounded and signed.


CHIPS = {"supported": "yes", "refuted": "no", "no information": "open", "not judged": "none"}
"""Verdict -> class of its chip."""
VERDICTS = {"better": "yes", "worse": "no", "no information": "none", "missing": "open"}
"""Verdict of a contrast -> class of its chip."""


def present_claim(item: contrast.JudgedClaim) -> dict[str, Any]:
    """What it says, its verdict, its number, and the picture of where its interval lies."""
    test, found = item.claim.test, item.estimate
    signed, metric = test.difference is not None, test.metric
    measure = measure_of(metric)
    unit = measure.unit_of_differences if signed else measure.unit
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
        "tested": f"{_what(test)} of {subject} {_range(*contrast.claimed_range(test), measure, unit)}",
        "picture": bars.forest_svg(found, contrast.claimed_range(test), signed, measure),
        "estimate": _minus(measure.shown(found.value, signed)) if found.seeds else "",
        "unit": unit,
        "interval": _minus(words.interval_text(found, signed, metric).removesuffix(words.OVER_PROMPTS)),
        "per_seed": _minus(words.per_seed(found, signed, metric)),
        "over": found.over,
        "detectable": measure.shown(found.detectable),
        "n": f"{found.models} runs" if test.recorded else f"{found.n_prompts} prompts, {found.n_samples} samples each",
        "digests": found.digests,
    }


def _what(test: Test) -> str:
    """The metric and its band or stage."""
    return f"{test.recorded}: {test.metric}" if test.recorded else tables.column_label(test.band, test.metric)


def _range(low: float, high: float, measure: Measure, unit: str) -> str:
    if high == float("inf"):
        return f"at least {_minus(measure.shown(low))} {unit}".rstrip()
    if low == -float("inf"):
        return f"at most {_minus(measure.shown(high))} {unit}".rstrip()
    return f"within {measure.shown(low)} to {measure.shown(high)} {unit}".rstrip()


def present_table(name: str, grid: tables.Grid) -> dict[str, Any]:
    """Blocks of (bands with their widths, metrics, rows, prior)."""
    shown = []
    for block in tables.grid_blocks(grid):
        rows = [(row, [_present_cell(name, grid.cells[row, *key]) for key in block]) for row in grid.rows]
        bands = [(tables.column_label(column), len(list(of))) for column, of in itertools.groupby(column for column, _ in block)]
        metrics = [tables.column_label("", metric) for _, metric in block]
        shown.append({"bands": bands, "metrics": metrics, "rows": rows, "prior": words.baseline_rows(grid, block)})
    wide = len(grid.columns) > tables.WIDEST // 2
    # Values per seed and detectable effects are a click away here, and written out in the other forms of the table.
    unit, *others = words.grid_notes(grid)
    head = unit.replace(" and under it the value at each seed", "")
    notes = [head, *(note for note in others if not note.startswith("MDE"))]
    return {"name": name, "title": name.replace("_", " "), "blocks": shown, "notes": notes, "wide": wide}


def _present_cell(present_table: str, cell: tables.Cell) -> dict[str, Any]:
    """Its key for the script, value and interval, and what is missing of it."""
    key = "/".join((present_table, cell.row, cell.column, cell.metric))
    lines = [_minus(line) for line in words.cell_lines(cell)[:2]]
    gaps = cell.estimate.missing if cell.estimate.seeds else ()
    return {"key": key, "lines": lines, "partly": bool(gaps), "why": "; ".join(cell.estimate.missing)}


def present_contrast(name: str, made: contrast.Comparison) -> dict[str, Any]:
    """Blocks of (caption, rows); a row is its cells, each lines of text and, where it has provenance, a key for the
    script, and the class of its verdict."""
    blocks = []
    for block in made.blocks:
        against = block.rows[0].chosen.arm
        rows = []
        for row in block.rows:
            cells = [
                {"lines": [_minus(line) for line in lines[:2]], "key": ""} for lines in text.contrast_cells(made, block, row)
            ]
            at = 2 if made.contrast.tune else 1
            for place, other, found in ((at, "", row.estimate), (at + 1, against, row.gap)):
                if found.seeds:
                    cell = tables.Cell(row.chosen.arm, other, block.column, block.metric, found, "")
                    cells[place]["key"] = "/".join((name, cell.row, cell.column, cell.metric))
            rows.append({"cells": cells, "chip": VERDICTS.get(row.verdict, "")})
        blocks.append({"caption": _minus(text.contrast_caption(block)), "rows": rows})
    title = f"{name.removesuffix(contrast.SUFFIX).replace('_', ' ')}: differences to {made.lineup.against}, with the noise floor"
    return {
        "name": name,
        "title": title,
        "heads": text.contrast_heads(made),
        "blocks": blocks,
        "notes": text.contrast_notes(made),
    }


def _minus(text: str) -> str:
    """With the sign that is as wide as a plus."""
    return text.replace("-", "−")


def present_figure(name: str, made: answers.Answer) -> dict[str, Any]:
    """The SVG as a data URI: inlined as an image, so that the ids inside two figures cannot clash."""
    drawing, present_figure = made.drawings[name], made.results.spec.figures[name]
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawing.svg).decode()}" if drawing.svg else ""
    return {
        "name": name,
        "title": name.replace("_", " "),
        "caption": drawing.caption,
        "notes": drawing.notes,
        "source": source,
        "x": present_figure.x,
    }
