"""The report stage: tables, figures, claims and one self-contained page that shows them."""

import base64
import importlib.metadata
import importlib.resources
import platform
from pathlib import Path
from typing import Any

import jinja2

from interplay.report import claims, figures, frame, lineage, tables, text
from interplay.report.estimate import plain
from interplay.report.frame import Results
from interplay.schema.report import Figure, ReportSpec
from interplay.schema.run import Run
from interplay.store.artifact import write_atomic, write_json

LIBRARIES = ["interplay", "torch", "transformers", "numpy", "scipy", "pandas", "pyarrow", "matplotlib"]
CHIPS = {"supported": "yes", "refuted": "no", "inconclusive": "open", "not judged": "none"}
"""Verdict -> class of its chip."""


def run(spec: ReportSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write the report of a study. `inputs` maps the digest of every stage it may read to that stage's artifact.

    Returns the verdicts and every table's numbers."""
    results = frame.read(spec, inputs)
    judged = [claims.judge(results, claim) for claim in spec.claims]
    grids = {}
    for name, table in sorted(spec.tables.items(), key=lambda item: ("op" in item[1].columns, item[0])):
        grids[name] = tables.values(results, table)
        if tables.contrasts(results):
            grids[f"{name}_differences"] = tables.differences(results, table)
    drawings = {name: figures.draw(results, figure) for name, figure in sorted(spec.figures.items(), key=_figure_order)}
    write_json(out / "claims.json", claims.as_json(judged))
    for name, grid in grids.items():
        write_table(out / "tables", name, grid, f"{name.replace('_', ' ')}: {spec.question}")
    for name, drawing in drawings.items():
        if drawing.svg:
            write_atomic(out / "figures" / f"{name}.png", drawing.png)
            write_atomic(out / "figures" / f"{name}.svg", drawing.svg)
    write_atomic(out / "report.html", html(results, judged, grids, drawings).encode())
    return {
        "claims": [{"says": item.claim.says, "verdict": item.verdict, "reason": item.reason} for item in judged],
        "tables": {name: numbers(grid) for name, grid in grids.items()},
    }


def _figure_order(item: tuple[str, Figure]) -> tuple[int, str]:
    return (["k", "op", "step"].index(item[1].x), item[0])


def write_table(folder: Path, name: str, grid: tables.Grid, title: str) -> None:
    """One table in its three forms."""
    write_atomic(folder / f"{name}.csv", text.as_csv(grid).encode())
    write_atomic(folder / f"{name}.md", text.as_markdown(grid, title).encode())
    write_atomic(folder / f"{name}.tex", text.as_latex(grid, title).encode())


def numbers(grid: tables.Grid) -> dict[str, list[Any]]:
    """`row/column/metric` -> [estimate, low, high], null where missing."""
    found = {"/".join(key): plain(cell.estimate) for key, cell in grid.cells.items()}
    return {key: [item["value"], item["low"], item["high"]] for key, item in found.items()}


def html(
    results: Results, judged: list[claims.Judged], grids: dict[str, tables.Grid], drawings: dict[str, figures.Drawing]
) -> str:
    """The page: style and figures inside it, no request to anywhere."""
    source = importlib.resources.files("interplay.report").joinpath("templates", "page.html.jinja").read_text()
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source).render(
        spec=results.spec,
        summary=summary(results, judged),
        claims=[_claim(item) for item in judged],
        tables=[_table(name, grid) for name, grid in grids.items()],
        figures=[_figure(name, drawing) for name, drawing in drawings.items()],
        arms=lineage.arms(results),
        overlaps=lineage.overlaps(results),
        environment=versions(),
    )


def summary(results: Results, judged: list[claims.Judged]) -> str:
    """`Of 3 claims 2 are supported and 1 is inconclusive. 6 arms, 3 seeds, study edge at scale laptop.`"""
    spec = results.spec
    counts = {verdict: sum(item.verdict == verdict for item in judged) for verdict in CHIPS}
    parts = [f"{count} {'is' if count == 1 else 'are'} {verdict}" for verdict, count in counts.items() if count]
    verdicts = f"Of {_count(len(judged), 'claim')} {_listed(parts)}. " if judged else "The study makes no claim. "
    seeds = len({arm.seed for arm in spec.arms})
    return f"{verdicts}{_count(len(frame.arms(spec)), 'arm')}, {_count(seeds, 'seed')}, study {spec.study} at scale {spec.scale}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _claim(item: claims.Judged) -> dict[str, Any]:
    test, found = item.claim.test, item.estimate
    signed = test.difference is not None
    subject = f"{test.arm} − {test.against}" if signed else test.arm
    return {
        "says": item.claim.says,
        "source": item.claim.source,
        "verdict": item.verdict,
        "chip": CHIPS[item.verdict],
        "reason": item.reason,
        "tested": f"{tables.label(test.band, str(test.value or test.difference))} of {subject} {_range(*claims.bounds(test))}",
        "estimate": text.percent(found.value, signed) if found.seeds else "",
        "unit": "points" if signed else "%",
        "interval": text.interval(found, signed).removesuffix(text.OVER_PROMPTS),
        "per_seed": text.per_seed(found, signed),
        "detectable": text.percent(found.detectable),
        "n": f"{found.n_prompts} prompts, {found.n_samples} samples each",
        "digests": found.digests,
    }


def _range(low: float, high: float) -> str:
    if high == float("inf"):
        return f"at least {text.percent(low)} points"
    if low == -float("inf"):
        return f"at most {text.percent(high)} points"
    return f"within {text.percent(low)} to {text.percent(high)} %"


def _table(name: str, grid: tables.Grid) -> dict[str, Any]:
    """Blocks of (header, rows, prior) with the cells' lines."""
    shown = []
    for block in tables.blocks(grid):
        rows = [(row, [text.lines(grid.cells[row, *key]) for key in block]) for row in grid.rows]
        head = [(tables.label(column), tables.label("", metric)) for column, metric in block]
        shown.append({"head": head, "rows": rows, "prior": text.prior_row(grid, block)})
    wide = len(grid.columns) > tables.WIDEST // 2
    return {"name": name, "title": name.replace("_", " "), "blocks": shown, "notes": text.notes(grid), "wide": wide}


def _figure(name: str, drawing: figures.Drawing) -> dict[str, str]:
    """The SVG as a data URI: inlined as an image, so that the ids inside two figures cannot clash."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawing.svg).decode()}" if drawing.svg else ""
    return {"name": name, "title": name.replace("_", " "), "caption": drawing.caption, "source": source}


def versions() -> dict[str, str]:
    """Python and the libraries that made the page."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
