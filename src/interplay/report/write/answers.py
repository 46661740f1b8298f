"""A study's answers from its results: tables, figures, claims, and the small summary files that can be committed."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

from interplay.core import artifact
from interplay.core import metrics as core_metrics
from interplay.core.artifact import write_atomic, write_json
from interplay.core.metrics import read_telemetry, round_significant
from interplay.core.model import UserError
from interplay.report.draw import figures
from interplay.report.spec import Figure, ReportSpec
from interplay.report.stats import budget, claims, contrast, frame, gain
from interplay.report.stats.estimate import plain
from interplay.report.stats.frame import Results
from interplay.report.write import contrast_text, tables, text
from interplay.results import kept
from interplay.results.catalog import report_spec
from interplay.study.plan import Plan

# What a study answers with, worked out from its results and written down: tables, figures and verdicts.


class Answer(NamedTuple):
    """All of it, in the order in which it is shown."""

    results: Results
    judged: list[claims.Judged]
    grids: dict[str, tables.Grid]
    """By table; the differences and the gains of a table are each one of their own."""
    drawings: dict[str, figures.Drawing]
    budgets: list[budget.Judged]
    contrasts: dict[str, contrast.Made]
    """By table with the suffix of contrasts; their differences are among the grids too, for those who look behind a number."""


def answer_study(results: Results) -> Answer:
    """Judge every claim, fill every table, draw every figure."""
    spec = results.spec
    grids = {}
    for name, table in sorted(spec.tables.items(), key=lambda item: ("op" in item[1].columns, item[0])):
        grids[name] = tables.values(results, table)
        if table.against is None and tables.contrasts(results, table):
            grids[f"{name}_differences"] = tables.differences(results, table)
        if table.gain is not None:
            grids[f"{name}{gain.SUFFIX}"] = gain.grid(results, table)
    contrasts = {f"{name}{contrast.SUFFIX}": contrast.make(results, name) for name in contrast.names(results)}
    drawings = {name: figures.draw(results, figure) for name, figure in sorted(spec.figures.items(), key=_figure_order)}
    judged = [claims.judge(results, claim) for claim in spec.claims]
    return Answer(results, judged, grids, drawings, budget.judge_all(results), contrasts)


def write_answers(made: Answer, out: Path) -> None:
    """`claims.json`, `tables/`, `figures/` (of those that foretell also what came of it, as text) and, where arms share budgets,
    `budgets.json`: determined by the results alone."""
    write_json(out / "claims.json", claims.as_json(made.judged))
    if made.budgets:
        write_json(out / "budgets.json", budget.as_json(made.budgets))
    forms = {name: (text.as_csv(grid), *_for_readers(text, grid, name, made)) for name, grid in made.grids.items()}
    forms |= {n: (contrast_text.as_csv(one), *_for_readers(contrast_text, one, n, made)) for n, one in made.contrasts.items()}
    for name, written in forms.items():
        for ending, content in zip(("csv", "md", "tex"), written, strict=True):
            write_atomic(out / "tables" / f"{name}.{ending}", content.encode())
    for name, drawing in made.drawings.items():
        if drawing.svg:
            write_atomic(out / "figures" / f"{name}.png", drawing.png)
            write_atomic(out / "figures" / f"{name}.svg", drawing.svg)
        if drawing.notes:
            write_atomic(out / "figures" / f"{name}.txt", "".join(f"{note}\n" for note in drawing.notes).encode())


def _for_readers(form: Any, table: Any, name: str, made: Answer) -> tuple[str, str]:
    """A table in Markdown and LaTeX, by the module that writes its like."""
    title = f"{name.replace('_', ' ')}: {made.results.spec.question}"
    return form.as_markdown(table, title), form.as_latex(table, title)


def metrics(made: Answer) -> dict[str, Any]:
    """For the record: the verdicts and every table's numbers."""
    found = {name: _fight(one) for name, one in made.contrasts.items()}
    return {
        "claims": [{"says": item.claim.says, "verdict": item.verdict, "reason": _why(item)} for item in made.judged],
        "tables": {name: _numbers(grid) for name, grid in made.grids.items()},
        **({"contrasts": found} if found else {}),
    }


def _why(item: claims.Judged) -> str:
    return f"{item.reason}; beware: {item.caveat}" if item.caveat else item.reason


def _figure_order(item: tuple[str, Figure]) -> tuple[int, str]:
    return (["k", "op", "band", "step"].index(item[1].x), item[0])


def _numbers(grid: tables.Grid) -> dict[str, list[Any]]:
    """`row/column/metric` -> [estimate, low, high], null where missing."""
    found = {"/".join(key): plain(cell.estimate) for key, cell in grid.cells.items()}
    return {key: [item["value"], item["low"], item["high"]] for key, item in found.items()}


def _fight(made: contrast.Made) -> dict[str, dict[str, Any]]:
    """`name/column/metric` -> what was chosen, difference, its interval, noise floor, p-values, verdict; null where missing."""
    found = {}
    for block in made.blocks:
        for row in block.rows:
            gap = plain(row.gap)
            numbers = {"floor": block.floor.size, "p": row.p, "adjusted": row.adjusted}
            found["/".join((row.chosen.name, block.column, block.metric))] = {
                "arm": row.chosen.arm,
                "value": plain(row.estimate)["value"],
                "difference": [gap["value"], gap["low"], gap["high"]],
                **{key: None if number != number else round_significant(number) for key, number in numbers.items()},
                "verdict": row.verdict,
            }
    return found


# A finished study's answers as small files that can be committed. `STUDY.SCALE.json`: verdicts and the numbers behind them, the
# digests of the report and of every stage, seeds, and what it was made with; `docs/papers.md` is made from these. Beside it, in
# `STUDY.SCALE/`, its tables in Markdown and its figures as SVG that a text editor can read.


SHOWN = ("value", "low", "high", "over", "n_prompts", "n_samples")
"""What is kept of the estimate behind a claim."""
FORMS = (".md", ".svg")
"""Of the files beside the summary."""


def write_summary(plan: Plan, results: Path, out: Path) -> None:
    """Write the summary to `out`, and tables and figures into the folder of that name without `.json`, which then holds nothing
    else. Raises UserError when the study is not finished, or the folder holds what no export writes."""
    report = artifact.folder(results, "report", plan.report)
    if not artifact.done(report):
        command = f"snakemake all --config study={plan.study} scale={plan.scale}"
        raise UserError(f"{report}: {plan.study} is not finished; run `{command}`")
    artifact.check(report)
    beside = out.with_suffix("")
    strange = next((path for path in sorted(beside.rglob("*")) if path.suffix not in FORMS), None)
    if strange:
        raise UserError(
            f"{strange}: not of an export; name another file, beside which {beside.name}/ is new or an older export's"
        )
    kept.write_folder(beside, {**_tables(report), **_figures(report_spec(plan), plan, results)})
    artifact.write_atomic(out, (json.dumps(of_report(plan, results), indent=1, ensure_ascii=False) + "\n").encode())


def of_report(plan: Plan, results: Path) -> dict[str, Any]:
    """The summary as JSON data; determined by the report's digest but for `environments` and `exported`."""
    report = artifact.folder(results, "report", plan.report)
    claims = [
        {
            **{key: claim[key] for key in ("says", "source", "verdict", "caveat", "test") if key in claim},
            "estimate": {key: claim["estimate"][key] for key in SHOWN},
        }
        for claim in artifact.read_json(report / "claims.json")
    ]
    spec = report_spec(plan)
    return {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "question": spec.question,
        "claims": claims,
        "contrasts": artifact.record(report)["metrics"].get("contrasts", {}),
        "seeds": sorted({arm.seed for arm in spec.arms}),
        "stages": _stages(plan),
        "environments": _environments(plan, results),
        "exported": core_metrics.current_environment(),
    }


def _stages(plan: Plan) -> dict[str, str]:
    """Kind -> the digests of its stages, in the order of the plan."""
    found: dict[str, list[str]] = {}
    for digest, stage in plan.stages.items():
        found.setdefault(stage.kind, []).append(digest)
    return {kind: " ".join(digests) for kind, digests in found.items()}


def _environments(plan: Plan, results: Path) -> list[dict[str, Any]]:
    """Each environment in which stages were made, and how many; one of which nothing is known but the number, for stages that
    came without telemetry or from before it told that."""
    told = (read_telemetry(artifact.folder(results, stage.kind, digest)) for digest, stage in plan.stages.items())
    counts = Counter(json.dumps(each.get("environment", {}), sort_keys=True) for each in told)
    return [{"stages": count, **json.loads(known)} for known, count in counts.most_common()]


def _tables(report: Path) -> dict[str, kept.Content]:
    return {path.name: path for path in sorted((report / "tables").glob("*.md"))}


def _figures(spec: ReportSpec, plan: Plan, results: Path) -> dict[str, kept.Content]:
    """What the study found, without the curves of its trainings: they show how it went, and are the largest."""
    inputs = {digest: artifact.folder(results, plan.stages[digest].kind, digest) for digest in plan.stages[plan.report].deps}
    chosen = {name: figure for name, figure in spec.figures.items() if figure.x != "step" or figure.along()}
    if not chosen:
        return {}
    read = frame.read(spec, inputs)
    found: dict[str, kept.Content] = {}
    for name, figure in chosen.items():
        with matplotlib.rc_context({"svg.fonttype": "none"}):  # words as words: half the size, and a diff can be read
            drawing = figures.draw(read, figure)
        if drawing.svg:
            found[f"{name}.svg"] = small(drawing.svg.decode()).encode()
    return found


def small(svg: str) -> str:
    """The picture with coordinates to a tenth of a point, and without metadata, indents and rotations by nothing. What is written
    in it, such as -0.003 nats or the rate in an arm's name, stays as it is."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{2,}", _tenth, tag[0]), svg)
    return re.sub(r"\n\s+", "\n", svg)


def _tenth(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 1):g}"
