"""What a study answers with, worked out from its results and written down: tables, figures and verdicts."""

from pathlib import Path
from typing import Any, NamedTuple

from interplay.report import budget, claims, figures, tables, text
from interplay.report.estimate import plain
from interplay.report.frame import Results
from interplay.schema.report import Figure
from interplay.store.artifact import write_atomic, write_json


class Answer(NamedTuple):
    """All of it, in the order in which it is shown."""

    results: Results
    judged: list[claims.Judged]
    grids: dict[str, tables.Grid]
    """By table; the differences of a table are one of their own."""
    drawings: dict[str, figures.Drawing]
    budgets: list[budget.Judged]


def answer(results: Results) -> Answer:
    """Judge every claim, fill every table, draw every figure."""
    spec = results.spec
    grids = {}
    for name, table in sorted(spec.tables.items(), key=lambda item: ("op" in item[1].columns, item[0])):
        grids[name] = tables.values(results, table)
        if tables.contrasts(results, table):
            grids[f"{name}_differences"] = tables.differences(results, table)
    drawings = {name: figures.draw(results, figure) for name, figure in sorted(spec.figures.items(), key=_figure_order)}
    judged = [claims.judge(results, claim) for claim in spec.claims]
    return Answer(results, judged, grids, drawings, budget.judge_all(results))


def write(made: Answer, out: Path) -> None:
    """`claims.json`, `tables/`, `figures/` and, where arms share budgets, `budgets.json`: determined by the results alone."""
    write_json(out / "claims.json", claims.as_json(made.judged))
    if made.budgets:
        write_json(out / "budgets.json", budget.as_json(made.budgets))
    for name, grid in made.grids.items():
        title = f"{name.replace('_', ' ')}: {made.results.spec.question}"
        write_atomic(out / "tables" / f"{name}.csv", text.as_csv(grid).encode())
        write_atomic(out / "tables" / f"{name}.md", text.as_markdown(grid, title).encode())
        write_atomic(out / "tables" / f"{name}.tex", text.as_latex(grid, title).encode())
    for name, drawing in made.drawings.items():
        if drawing.svg:
            write_atomic(out / "figures" / f"{name}.png", drawing.png)
            write_atomic(out / "figures" / f"{name}.svg", drawing.svg)


def metrics(made: Answer) -> dict[str, Any]:
    """For the record: the verdicts and every table's numbers."""
    return {
        "claims": [{"says": item.claim.says, "verdict": item.verdict, "reason": item.reason} for item in made.judged],
        "tables": {name: _numbers(grid) for name, grid in made.grids.items()},
    }


def _figure_order(item: tuple[str, Figure]) -> tuple[int, str]:
    return (["k", "op", "step"].index(item[1].x), item[0])


def _numbers(grid: tables.Grid) -> dict[str, list[Any]]:
    """`row/column/metric` -> [estimate, low, high], null where missing."""
    found = {"/".join(key): plain(cell.estimate) for key, cell in grid.cells.items()}
    return {key: [item["value"], item["low"], item["high"]] for key, item in found.items()}
