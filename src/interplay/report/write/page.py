"""The `report` stage and its self-contained page, also of an unfinished study.

The page is a view: it also shows what the digest does not determine (hours, hosts), so it is no payload and can be made again."""

import base64
import itertools
import math
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from interplay.core import artifact, execution, metrics as surroundings, model
from interplay.report.draw import diagram
from interplay.report.inspect import chain
from interplay.report.metric_spec import SHARE, Measure, measure_of
from interplay.report.spec import ReportSpec
from interplay.report.stats import budget, contrast, estimate, frame, notes, provenance
from interplay.report.write import answers, tables, text

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


def write_report(spec: ReportSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
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
    strict: dict[str, Any] = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=loader, autoescape=True, **strict)
    environment.globals["cell_lines"] = text.cell_lines
    environment.filters |= {"minus": _minus, "base64": lambda svg: base64.b64encode(svg).decode()}
    spec = made.results.spec
    entries = provenance.stage_entries(spec, of)
    anchors = provenance.entry_anchors(entries)
    compared = {name: contrast.comparison_grid(one) for name, one in made.contrasts.items()}
    return environment.get_template("page.html.jinja").render(
        spec=spec,
        gaps=gaps,
        summary=verdict_summary(made),
        caveats=notes.caveats_of(made.results, frame.arms(spec)),
        facts=_facts(made, of),
        claims=[(item, present_claim(item)) for item in made.judged],
        plans=_plans(of, anchors),
        reuse=provenance.stage_reuse(spec, of),
        budgets=budget.arm_costs(spec, of),
        matches=[{"chip": MATCHES[item.verdict], **item._asdict()} for item in made.budgets],
        results={name: drawing for name, drawing in made.drawings.items() if spec.figures[name].x != "step"},
        curves={name: drawing for name, drawing in made.drawings.items() if spec.figures[name].x == "step"},
        tables=[present_table(name, grid) for name, grid in made.grids.items()],
        contrasts=[present_contrast(name, one) for name, one in made.contrasts.items()],
        provenance=provenance_data(spec, made.grids | compared, of, anchors),
        spent=budget.stage_costs(of),
        where=budget.where_and_when(of),
        entries=entries,
        most=provenance.MOST_MEMBERS,
        anchors=anchors,
        arms=chain.arm_rows(made.results),
        overlaps=chain.set_overlaps(made.results),
        environment=surroundings.versions(),
    )


def verdict_summary(made: answers.Answer) -> str:
    """`Of 3 claims 2 are supported and 1 gives no information.`"""
    counts = {verdict: sum(item.verdict == verdict for item in made.judged) for verdict in CHIPS}
    verbs = {verdict: ("gives", "give") if verdict == contrast.NO_INFORMATION else ("is", "are") for verdict in CHIPS}
    *most, last = [f"{count} {verbs[verdict][count > 1]} {verdict}" for verdict, count in counts.items() if count] or [""]
    listed = f"{', '.join(most)} and {last}" if most else last
    return f"Of {model.plural(len(made.judged), 'claim')} {listed}." if made.judged else "The study makes no claim."


def _facts(made: answers.Answer, of: provenance.Provenance) -> Mapping[str, str]:
    """The line under the title: what this is, how large, how dear."""
    spec = made.results.spec
    seeds = len({arm.seed for arm in spec.arms})
    done = sum(of.done(digest) for digest in of.stages)
    stages = f"{done}" if done == len(of.stages) else f"{done} of {len(of.stages)} done"
    return {
        "study": spec.study,
        "scale": spec.scale,
        "arms": f"{len(frame.arms(spec))} × {model.plural(seeds, 'seed')}",
        "stages": stages,
        "time": f"{budget.stage_costs(of)[-1]['wall']} of work",
    }


def _plans(of: provenance.Provenance, anchors: dict[str, str]) -> dict[str, str]:
    """The picture of the plan as SVG, for a wide and for a narrow page."""
    states = {digest: "done" if of.done(digest) else notes.state_of(of.why.get(digest, "")) for digest in of.stages}
    nodes, edges = diagram.study_graph(of.stages, states, anchors)
    return {"wide": diagram.diagram_svg(nodes, edges, ACROSS), "narrow": diagram.diagram_svg(nodes, edges, ACROSS_PHONE)}


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
    found = [
        Gap(stages[digest]["label"], digest, stages[digest]["kind"], why[digest], sum(digest in of for of in waiting.values()))
        for digest in notes.missing_roots(stages, why)
    ]
    return sorted(found, key=lambda gap: notes.state_of(gap.why) != "failed")


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
            deps = behind.stages.get(at, {"deps": {}})["deps"]
            for name in sorted(deps, key=lambda role: (role not in ("model", "init"), role)):
                visit(deps[name], name, depth + 1)

    visit(digest, "evaluation", 0)
    return lines


def explain_command(spec: ReportSpec, table: str, cell: tables.Cell) -> str:
    """The command line that prints the same chain."""
    words = [spec.study, table, cell.row.replace("−", "-"), f"{cell.column}/{cell.metric}"]
    return f"interplay explain {shlex.join(words)} --scale {shlex.quote(spec.scale)}"


def _cell(spec: ReportSpec, table: str, cell: tables.Cell) -> dict[str, Any]:
    found, signed = cell.estimate, bool(cell.against)
    measure = measure_of(cell.metric)
    shown = bool(found.seeds)
    at: dict[int, list[str]] = {}  # the arm's evaluations by seed, then those of what it is compared with
    for row in [row for arm in (cell.arm, cell.against) for row in spec.arms if row.arm == arm]:
        at.setdefault(row.seed, []).extend(digest for digest in row.evaluations.values() if digest in found.digests)
    seeds = zip(found.seeds, found.per_seed, strict=True)
    return {
        "title": f"{cell.row}, {tables.column_label(cell.column, cell.metric)}",
        "value": f"{measure.shown(found.value, signed)} {measure.unit_of(signed)}" if shown else "missing",
        "interval": text.interval_text(found, signed, cell.metric, False) if shown else "",
        "over": found.over,
        "n": f"{found.n_prompts} prompts, {found.n_samples} samples each" if shown else "",
        "mde": "" if found.detectable != found.detectable else f"{measure.shown(found.detectable)} {measure.unit_of_differences}",
        "seeds": [(seed, measure.shown(number, signed), at.get(seed, [])) for seed, number in seeds],
        "missing": list(found.missing),
        "command": explain_command(spec, table, cell),
    }


def _stage(digest: str, behind: provenance.Provenance, anchors: dict[str, str]) -> tuple[str, str, str, str]:
    stage = behind.stages.get(digest, {"kind": "unknown"})
    why = "" if behind.done(digest) else behind.why.get(digest, "not available")
    name = provenance.name_of(stage)
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
    unit = measure.unit_of(signed)
    subject = tables.row_label(test.arm, test.against or "")
    what = f"{test.recorded}: {metric}" if test.recorded else tables.column_label(test.band, metric)
    return {
        "chip": CHIPS[item.verdict],
        "tested": f"{what} of {subject} {_range(*contrast.claimed_range(test), measure, unit)}",
        "picture": forest_svg(found, contrast.claimed_range(test), signed, measure),
        "estimate": measure.shown(found.value, signed) if found.seeds else "",
        "unit": unit,
        "interval": text.interval_text(found, signed, metric, False),
        "per_seed": text.per_seed(found, signed, metric),
        "detectable": measure.shown(found.detectable),
        "n": f"{found.models} runs" if test.recorded else f"{found.n_prompts} prompts, {found.n_samples} samples each",
    }


def _range(low: float, high: float, measure: Measure, unit: str) -> str:
    if high == float("inf"):
        return f"at least {_minus(measure.shown(low))} {unit}".rstrip()
    if low == -float("inf"):
        return f"at most {_minus(measure.shown(high))} {unit}".rstrip()
    return f"within {measure.shown(low)} to {measure.shown(high)} {unit}".rstrip()


def present_table(name: str, grid: tables.Grid) -> dict[str, Any]:
    """Blocks of (bands with their widths, metrics, rows of keys for the script and cells, prior)."""
    shown = []
    for block in tables.grid_blocks(grid):
        rows = [(row, [("/".join((name, row, *key)), grid.cells[row, *key]) for key in block]) for row in grid.rows]
        bands = [(tables.column_label(column), len(list(of))) for column, of in itertools.groupby(column for column, _ in block)]
        metrics = [tables.column_label("", metric) for _, metric in block]
        shown.append({"bands": bands, "metrics": metrics, "rows": rows, "prior": text.baseline_rows(grid, block)})
    # Values per seed and detectable effects are a click away here, and written out in the other forms of the table.
    unit, *others = text.grid_notes(grid)
    said = [unit.replace(" and under it the value at each seed", ""), *(note for note in others if not note.startswith("MDE"))]
    return {"name": name, "blocks": shown, "notes": said, "wide": len(grid.columns) > tables.WIDEST // 2}


def present_contrast(name: str, made: contrast.Comparison) -> dict[str, Any]:
    """Blocks of (caption, rows); a row is its cells, each lines of text, their keys for the script by their places where they
    have provenance, and the class of its verdict."""
    blocks = [
        (
            text.contrast_caption(block),
            [
                (text.contrast_cells(made, block, row), _contrast_keys(name, made, block, row), VERDICTS.get(row.verdict, ""))
                for row in block.rows
            ],
        )
        for block in made.blocks
    ]
    title = f"{name.removesuffix(contrast.SUFFIX).replace('_', ' ')}: differences to {made.lineup.against}, with the noise floor"
    heads, said = text.contrast_heads(made), text.contrast_notes(made)
    return {"name": name, "title": title, "heads": heads, "blocks": blocks, "notes": said}


def _contrast_keys(
    name: str, made: contrast.Comparison, block: contrast.ComparisonBlock, row: contrast.ComparisonRow
) -> dict[int, str]:
    at = 2 if made.contrast.tune else 1
    rows = {at: (row.chosen.arm, row.estimate), at + 1: (f"{row.chosen.arm} − {block.rows[0].chosen.arm}", row.gap)}
    return {place: "/".join((name, label, block.column, block.metric)) for place, (label, found) in rows.items() if found.seeds}


def _minus(text: str) -> str:
    """With the sign that is as wide as a plus."""
    return text.replace("-", "−")


# A claim as a picture: where its interval lies in the range that it claims.


WIDTH, HEIGHT, MIDDLE, DIGIT = 260, 34, 10, 6.5
"""Pixels; the last is what a character of a number takes."""


def forest_svg(found: estimate.Estimate, claimed: tuple[float, float], signed: bool, measure: Measure = SHARE) -> str:
    """The interval over the shaded range that the claim asserts; empty where there is no estimate.

    Values run over 0 to 100 %. Differences run as far to both sides of zero as the interval and the claim need."""
    if not found.seeds:
        return ""
    ends = [abs(number) for number in (found.low, found.high, found.value, *claimed) if math.isfinite(number)]
    reach = min(measure.support_of_differences[1], 1.15 * max([0.02, *ends]))
    low, high = (-reach, reach) if signed else (0.0, 1.0)

    def at(number: float) -> float:
        return round(4 + (WIDTH - 8) * (min(max(number, low), high) - low) / (high - low), 1)

    left, right = at(claimed[0]), at(claimed[1])
    marks = list(dict.fromkeys([*(number for number in claimed if math.isfinite(number)), *([0.0] if signed else [0.0, 1.0])]))
    parts = [
        f'<svg class="forest" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="interval">',
        f'<rect class="claimed" x="{left}" y="1" width="{max(right - left, 1.0):.1f}" height="18" rx="2"/>',
        f'<line class="axis" x1="4" x2="{WIDTH - 4}" y1="{MIDDLE + 9}" y2="{MIDDLE + 9}"/>',
        *(f'<line class="mark" x1="{at(mark)}" x2="{at(mark)}" y1="1" y2="22"/>' for mark in marks),
        f'<line class="interval" x1="{at(found.low)}" x2="{at(found.high)}" y1="{MIDDLE}" y2="{MIDDLE}"/>',
        f'<circle class="estimate" cx="{at(found.value)}" cy="{MIDDLE}" r="4"/>',
        *_labels(marks, at, lambda mark: _tick(mark, signed, measure)),
        "</svg>",
    ]
    return "".join(parts)


def _labels(marks: list[float], at: Callable[[float], float], written: Callable[[float], str]) -> list[str]:
    """The number of every mark, shifted where it would overlap the next."""
    shown = {written(mark): at(mark) for mark in sorted(marks)}
    halves = [(DIGIT * len(text) + 4) / 2 for text in shown]
    places, end = [], 0.0
    for x, half in zip(shown.values(), halves, strict=True):
        places.append(max(x, end + half))
        end = places[-1] + half
    end = float(WIDTH)
    for number in reversed(range(len(places))):
        places[number] = min(places[number], end - halves[number])
        end = places[number] - halves[number]
    return [f'<text x="{x:.1f}" y="32" text-anchor="middle">{text}</text>' for x, text in zip(places, shown, strict=True)]


def _tick(mark: float, signed: bool, measure: Measure) -> str:
    shown = round(measure.factor * mark, measure.decimals) + 0.0
    return f"+{shown:g}" if signed and shown > 0 else f"{shown:g}".replace("-", "−")
