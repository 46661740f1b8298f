"""The `report` stage and its self-contained page, also of an unfinished study.

The page is a view: it also shows what the digest does not determine (hours, hosts), so it is no payload and can be made again."""

import base64
import functools
import gzip
import itertools
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import markupsafe

from interplay.core import artifact, execution, metrics as surroundings, model
from interplay.report import claim_spec
from interplay.report.draw import diagram
from interplay.report.inspect import chain
from interplay.report.metric_spec import measure_of
from interplay.report.spec import ReportSpec
from interplay.report.stats import budget, contrast, frame, notes, provenance
from interplay.report.write import answers, examples, headline, tables, text
from interplay.results import state

PAGE = "report.html"
MOST_BYTES = 1_400_000
TEMPLATES = Path(__file__).parent.parent / "templates"
MATCHES = {"matched": "yes", "not matched": "no", "not judged": "none"}
ACROSS, ACROSS_PHONE = 8, 3
"""Boxes side by side in the picture of the plan."""
MOST_DIFFERENCES = 10
"""Arms whose differences are shown at once; a table of more is folded, since it is pages long."""


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
    inputs = answers.inputs_by_digest(inputs)
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


TERMS: tuple[str, ...] = ("op", "band", "edge", "strict", "answer", "pass@k", "arm", "replicate", "seed", "control", "gold")
TERMS += ("digest", "twin", "claim", "noise floor", "answer prior", "trivial policy", "hacked", "nll", "error class")
TERMS += ("no information", "indicated", "not tested", "not judged", "reproduced", "same sign", "contradicted", "equivalent")
TERMS += ("verifier", "scale", "budget", "rollout", "sharpening", "capability", "MDE")
"""Terms of the glossary that the page explains where they first occur in a section."""
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


class Glossary:
    """Marks terms in texts of the page, each where it first occurs after `fresh`, and lists those that were marked."""

    def __init__(self) -> None:
        known = artifact.read_json(TEMPLATES / "glossary.json")
        self.known = {term: known[term] for term in TERMS}
        words = "|".join(re.escape(term).replace("pass@k", r"pass@(?:k|\d+)") for term in sorted(TERMS, key=len, reverse=True))
        self.pattern = re.compile(rf"(?<![\w-])({words})(s?)(?![\w-])", re.IGNORECASE)
        self.seen: set[str] = set()
        self.used: set[str] = set()

    def fresh(self) -> str:
        """A new section begins, in which terms are marked again."""
        self.seen = set()
        return ""

    def mark(self, text: str) -> markupsafe.Markup:
        """The text as HTML, with its terms and its arXiv numbers as links."""
        html = self.pattern.sub(self._link, str(markupsafe.escape(text)))
        return markupsafe.Markup(ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv:\1</a>', html))

    def _link(self, found: re.Match[str]) -> str:
        term = "pass@k" if found[1].startswith("pass@") else next(term for term in TERMS if term.lower() == found[1].lower())
        if term in self.seen:
            return found[0]
        self.seen.add(term)
        self.used.add(term)
        return f'<a class="term" href="#term-{term.replace(" ", "-")}">{found[0]}</a>'

    def terms(self) -> list[tuple[str, str]]:
        """Those that were marked so far, with what they mean."""
        return [
            (term, meaning) for term, meaning in sorted(self.known.items(), key=lambda item: item[0].lower()) if term in self.used
        ]


def page_environment() -> jinja2.Environment:
    """The templates of a page with their filters, for one rendering: `terms` remembers what it has marked."""
    loader = jinja2.PackageLoader("interplay.report")
    strict: dict[str, Any] = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment, words = jinja2.Environment(loader=loader, autoescape=True, **strict), Glossary()
    environment.globals |= {"cell_lines": text.cell_lines, "glossary": words.terms, "fresh": words.fresh}
    environment.filters |= {"minus": headline.minus, "terms": words.mark, "error_words": text.error_words}
    environment.filters |= {"slim_svg": slim_svg, "packed": packed, "base64": lambda content: base64.b64encode(content).decode()}
    return environment


def render_page(made: answers.Answer, of: provenance.Provenance, gaps: list[Gap]) -> str:
    """The page: style, scripts, data and figures inside it, no request to anywhere. Of one that would be too large the largest
    PDFs of figures are left out; the report's folder has figures as PNG and SVG."""
    page = _render(made, of, gaps)
    size = len(page.encode())
    for link in sorted(re.findall(r'<a class="pdf"[^>]*>PDF</a>\n', page), key=len, reverse=True):
        if size > MOST_BYTES:
            page, size = page.replace(link, "", 1), size - len(link)
    return page


def packed(data: Any) -> str:
    """JSON as base64 of gzip, for the page's script: provenance says the same of many cells and takes a tenth of its size so."""
    return base64.b64encode(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)).decode()


def slim_svg(svg: bytes) -> str:
    """As base64, without comments and metadata, with places to two decimals, which no eye misses; factors below 1 stay."""
    text = re.sub(rb"<!--.*?-->|<metadata>.*?</metadata>", b"", svg, flags=re.DOTALL)
    text = re.sub(rb"\b([1-9]\d*\.\d{2})\d+", rb"\1", text)
    return base64.b64encode(re.sub(rb"\s*\n\s*", b"\n", text)).decode()


def _render(made: answers.Answer, of: provenance.Provenance, gaps: list[Gap]) -> str:
    spec, lead = made.results.spec, headline.make_headline(made)
    entries = provenance.stage_entries(spec, of)
    anchors = provenance.entry_anchors(entries)
    compared = {name: contrast.comparison_grid(one) for name, one in made.contrasts.items()}
    pair = examples.lead_pair(made, lead)
    titled = [(name, text.figure_title(spec.figures[name]), drawing) for name, drawing in made.drawings.items()]
    drawn = [one for one in titled if one[2].svg]
    key = next((one for one in drawn if one[0] == spec.key_figure), next(iter(drawn), None))
    few = any(contrast.lacks_bases(item.estimate) for item in made.judged)
    return (
        page_environment()
        .get_template("page.html.jinja")
        .render(
            spec=spec,
            gaps=gaps,
            headline=lead,
            caveats=(
                *notes.caveats_of(made.results, spec.arm_names()),
                *provenance.two_contents(made.results.folders.values()),
                *answers.repetition_lines(made.results),
            ),
            facts=_facts(made, of),
            claims=headline.forest_rows(made),
            controls=answers.control_rows(made),
            registration=answers.registration_lines(spec),
            few=f"A verdict needs {claim_spec.LEAST_BASES} bases: list the stage of the base under seeds.vary." if few else "",
            key=key,
            worked=examples.worked_problem(made, *pair) if pair else None,
            next=headline.next_commands(made, pair, [(gap.label, gap.digest) for gap in gaps]),
            plans=_plans(of, anchors),
            reuse=provenance.stage_reuse(spec, of),
            budgets=budget.arm_costs(spec, of),
            matches=[{"chip": MATCHES[item.verdict], **item._asdict()} for item in made.budgets],
            figures=[one for one in titled if one is not key],
            tables=[present_table(name, grid, _table_title(spec, name, grid), of) for name, grid in made.grids.items()],
            contrasts=[present_contrast(name, one) for name, one in made.contrasts.items()],
            absent=examples.absent_payloads(made.results),
            rollouts=examples.rollouts(made, pair[:2] if pair else ()),
            provenance=provenance_data(spec, made.grids | compared, of, anchors),
            spent=provenance.stage_costs(of),
            where=provenance.where_and_when(of),
            entries=entries,
            most=provenance.MOST_MEMBERS,
            anchors=anchors,
            arms=chain.arm_rows(made.results),
            overlaps=chain.set_overlaps(made.results),
            environment=surroundings.versions(),
            numerics=provenance.numerics_lines(of),
        )
    )


def _facts(made: answers.Answer, of: provenance.Provenance) -> list[str]:
    """The line over the question: what this is, how large, how dear."""
    spec = made.results.spec
    seeds = len({arm.seed for arm in spec.arms})
    done = sum(of.done(digest) for digest in of.stages)
    stages = model.plural(done, "stage") if done == len(of.stages) else f"{done} of {len(of.stages)} stages done"
    arms = f"{model.plural(len(spec.arm_names()), 'arm')} × {model.plural(seeds, 'replicate')}"
    spent = [f"{provenance.stage_costs(of)[-1]['wall']} of work"] if of.telemetry else []
    return [spec.study, f"scale {spec.scale}", arms, stages, *spent]


def _table_title(spec: ReportSpec, name: str, grid: tables.Grid) -> str:
    if grid.title:
        return grid.title
    base = next((key for key in sorted(spec.tables, key=len, reverse=True) if name.startswith(key)), name)
    return tables.table_title(grid, name.removeprefix(base)) + (f" ({base.replace('_', ' ')})" if len(spec.tables) > 1 else "")


def _plans(of: provenance.Provenance, anchors: dict[str, str]) -> dict[str, str]:
    """The picture of the plan as SVG, for a wide and for a narrow page."""
    states = {digest: "done" if of.done(digest) else state.reason_state(of.why.get(digest, "")) for digest in of.stages}
    nodes, edges = diagram.study_graph(of.stages, states, anchors)
    return {"wide": diagram.diagram_svg(nodes, edges, ACROSS), "narrow": diagram.diagram_svg(nodes, edges, ACROSS_PHONE)}


# The page of an unfinished study: what is there, and what is missing and why. A view in `by-name`, never an artifact.


def render_partial(spec: ReportSpec, stages: Mapping[str, Mapping[str, Any]], results: Path, out: Path) -> Path:
    """Write tables, figures, claims and page into `out`; returns the page. `stages`: the plan as JSON, dependencies first."""
    shutil.rmtree(out, ignore_errors=True)
    why = state.missing_reasons(stages, results, results.parent / "logs")
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
        deps = [artifact.ref_digest(ref) for ref in stage["deps"].values()]
        waiting[digest] = {dep for dep in deps if dep in why}.union(*(waiting[dep] for dep in deps))
    waiting = {digest: of for digest, of in waiting.items() if stages[digest]["kind"] != "report"}
    found = [
        Gap(stages[digest]["label"], digest, stages[digest]["kind"], why[digest], sum(digest in of for of in waiting.values()))
        for digest in state.missing_roots(stages, why)
    ]
    return sorted(found, key=lambda gap: state.reason_state(gap.why) != "failed")


# What a click on a cell of the page shows: n, interval, seeds, and the digests from the evaluations down to the data.


def provenance_data(
    spec: ReportSpec, grids: dict[str, tables.Grid], behind: provenance.Provenance, anchors: dict[str, str]
) -> dict[str, Any]:
    """What the page's script reads: `cells` by table/row/column/metric; `chains` by evaluation, lines of [depth, role, digest]
    from the evaluation down; `stages` by digest: [kind, name, anchor, why it is missing or '']."""
    made = functools.cache(lambda digests: "; ".join(map(", ".join, provenance.made_with(digests, behind))))
    cells = {
        "/".join((name, *key)): {**_cell(spec, name, cell), "made": made(cell.estimate.digests)}
        for name, grid in grids.items()
        for key, cell in grid.cells.items()
    }
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

    visit(digest, "evaluation" if behind.stages.get(digest, {}).get("kind") in ("evaluate", None) else "curve", 0)
    return lines


def _cell(spec: ReportSpec, table: str, cell: tables.Cell) -> dict[str, Any]:
    found, signed = cell.estimate, bool(cell.against)
    measure = measure_of(cell.metric)
    shown = bool(found.seeds)
    at: dict[int, list[str]] = {}  # the arm's evaluations by seed, then those of what it is compared with
    for row in [*spec.rows_of(cell.arm), *spec.rows_of(cell.against)]:
        at.setdefault(row.seed, []).extend(row.among(found.digests))
    seeds = zip(found.seeds, found.per_seed, strict=True)
    return {
        "title": f"{cell.row}, {tables.column_label(cell.column, cell.metric)}",
        "value": f"{measure.shown(found.value, signed)} {measure.unit_of(signed)}" if shown else "missing",
        "interval": text.interval_text(found, signed, cell.metric, False) if shown else "",
        "over": found.over,
        "n": text.counted(found) if shown else "",
        "mde": "" if found.detectable != found.detectable else f"{measure.shown(found.detectable)} {measure.unit_of_differences}",
        "seeds": [(seed, measure.shown(number, signed), at.get(seed, [])) for seed, number in seeds],
        "missing": list(found.missing),
        "command": headline.explain_command(spec, table, cell),
    }


def _stage(digest: str, behind: provenance.Provenance, anchors: dict[str, str]) -> tuple[str, str, str, str]:
    stage = behind.stages.get(digest, {"kind": "unknown"})
    why = "" if behind.done(digest) else behind.why.get(digest, "not available")
    name = provenance.name_of(stage)
    return stage["kind"], "" if name == stage["kind"] else name, anchors.get(digest, ""), why


# Claims, tables and figures as the page's templates take them: text, already rounded and signed.


VERDICTS = {
    "better": "yes",
    "worse": "no",
    "no information": "none",
    "missing": "open",
    "better here": "open",
    "worse here": "open",
    "equivalent": "yes",
    "equivalent here": "open",
    "not tested": "open",
}
"""Verdict of a contrast -> class of its chip."""


def present_table(name: str, grid: tables.Grid, title: str, behind: provenance.Provenance) -> dict[str, Any]:
    """Blocks of (bands with their widths, metrics, rows of keys for the script and cells, prior)."""
    shown = []
    for block in tables.grid_blocks(grid):
        rows = [(grid.label(row), [("/".join((name, row, *key)), grid.cells[row, *key]) for key in block]) for row in grid.rows]
        bands = [(tables.column_label(column), len(list(of))) for column, of in itertools.groupby(column for column, _ in block)]
        metrics = [tables.column_label("", metric) for _, metric in block]
        shown.append({"bands": bands, "metrics": metrics, "rows": rows, "prior": text.baseline_rows(grid, block)})
    # Values per seed and detectable effects are a click away here, and written out in the other forms of the table.
    unit, *others = text.grid_notes(grid)
    said = [unit.replace(" and under it the value at each seed", ""), *(note for note in others if not note.startswith("MDE"))]
    said += provenance.mixed_machines({digest for cell in grid.cells.values() for digest in cell.estimate.digests}, behind)
    folded = len(grid.columns) > tables.WIDEST // 2 or _many_differences(grid)
    return {"name": name, "title": title, "caption": grid.caption, "blocks": shown, "notes": said, "folded": folded}


def _many_differences(grid: tables.Grid) -> bool:
    return len({cell.arm for cell in grid.cells.values() if cell.against}) > MOST_DIFFERENCES


def present_contrast(name: str, made: contrast.Comparison) -> dict[str, Any]:
    """Blocks of (caption, rows); a row is its cells, each lines of text, their keys for the script by their places where they
    have provenance, and the class of its verdict."""
    blocks = [
        (
            text.contrast_caption(made, block),
            [
                (text.contrast_cells(made, block, row), _contrast_keys(name, made, block, row), VERDICTS.get(row.verdict, ""))
                for row in block.rows
            ],
        )
        for block in made.blocks
    ]
    what = "a fight" if made.fight else "with the noise floor"
    title = f"{name.removesuffix(contrast.SUFFIX).replace('_', ' ')}: differences to {made.lineup.against}, {what}"
    heads, said = text.contrast_heads(made), text.contrast_notes(made)
    return {"name": name, "title": title, "heads": heads, "blocks": blocks, "notes": said}


def _contrast_keys(
    name: str, made: contrast.Comparison, block: contrast.ComparisonBlock, row: contrast.ComparisonRow
) -> dict[int, str]:
    at = 2 if made.contrast.tune else 1
    rows = {at: (row.chosen.arm, row.estimate), at + 1: (f"{row.chosen.arm} − {block.rows[0].chosen.arm}", row.gap)}
    return {place: "/".join((name, label, block.column, block.metric)) for place, (label, found) in rows.items() if found.seeds}
