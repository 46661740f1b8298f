"""The gallery: a page for each study that docs/papers.md places, with its question, its verdicts, the main table as a figure, and
what each paper published, all from docs/results/."""

import html
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interplay.report.metric_spec import measure_of
from interplay.report.write import summary
from tools.reference import committed, lists, numbers, papers, verdicts
from tools.reference.lists import Paper
from tools.site.drawing import Interval, axis_range, panel, strip

MOST_ROWS = 16
"""Arms in a figure; what is beyond them is in the tables."""
LISTED = re.compile(r"(?:^- \*\*.*$\n?){4,}", re.MULTILINE)
"""Verdicts in a paper's section: claims, which the page shows above, and contrasts."""
ORDER = (
    "supported",
    "reproduced",
    "same sign",
    "equivalent",
    "refuted",
    "contradicted",
    "indicated",
    "indicated against",
    "inconclusive",
    "no information",
    "not tested",
    "not judged",
    "withdrawn",
)


def files(root: Path) -> dict[Path, str]:
    """Every page, with its text."""
    listed = papers_by_study(root)
    folder = root / "docs" / "gallery"
    made = {folder / f"{papers.page_name(study)}.md": _page(root, study, about) for study, about in listed.items()}
    return {folder / "index.md": _index(root, listed), **made}


def papers_by_study(root: Path) -> dict[str, list[Paper]]:
    """Study -> the papers that it asks about, in the order of the groups of the index."""
    found: dict[str, list[Paper]] = {}
    for paper in lists.papers(root):
        found.setdefault(paper.study, []).append(paper)
    return dict(sorted(found.items(), key=lambda item: _group(root, item[0])))


def _group(root: Path, study: str) -> int:
    """Place in GROUPS, by the result on the most bases."""
    found = committed.results(root, study).values()
    return min((int(committed.has_one_base(result)) for result in found), default=len(verdicts.GROUPS))


def _index(root: Path, listed: Mapping[str, list[Paper]]) -> str:
    parts = ["# Gallery", lists.TEXTS["gallery"]]
    for place, group in enumerate(verdicts.GROUPS):
        cards = [card for study in listed if _group(root, study) == place for card in _card(root, study)]
        parts += [f"## {group}", '<div class="gallery">', *cards, "</div>"]
    rest = [f"- [{study}]({papers.page_name(study)}.md)" for study in listed if not committed.results(root, study)]
    parts += ["## Asked, not run at this commit", "\n".join(rest)]
    return "\n\n".join(parts) + "\n"


def _card(root: Path, study: str) -> Iterator[str]:
    for result in committed.results(root, study).values():
        counts = Counter(claim["verdict"] for claim in result["claims"])
        counts += Counter(
            entry["verdict"]
            for fight in result.get("contrasts", {}).values()
            for entry in fight.values()
            if entry["adjusted"] is not None
        )
        chips = " ".join(f'<span class="chip {_css(verdict)}">{count} {verdict}</span>' for verdict, count in _ordered(counts))
        yield (
            f'<a class="card" href="{papers.page_name(study)}.html"><strong>{html.escape(study)}</strong>'
            f"<span>{html.escape(result['question'])}</span><span>{chips}</span></a>"
        )


def _ordered(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER))


def _css(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _page(root: Path, study: str, about: list[Paper]) -> str:
    found = committed.results(root, study)
    parts = [f"# {study}"]
    for scale, result in found.items():
        file = committed.result_path(root, study, scale)
        older = result.get("superseded")
        parts += [
            f"**{result['question']}**",
            f"Scale {scale}, {sum(result['stages'].values())} stages, {len(result['seeds'])} seeds."
            + (
                f" The result is of an earlier plan ({older.because}), and the study was not run again since {older.date}."
                if older
                else ""
            ),
            *_claims(result),
            *_figure(file, result),
        ]
    parts.append(f"The study: [`configs/study/{study}.yaml`](../../configs/study/{study}.yaml).")
    parts.append(f"```\n{_commands(root, study, found)}\n```")
    for paper in about:
        section = papers.section(root, paper).replace("](results/", "](../results/").replace("](log/", "](../log/")
        parts.append(LISTED.sub(_folded, section))
    return "\n\n".join(parts) + "\n"


def _folded(listed: re.Match[str]) -> str:
    """A long list of verdicts, closed."""
    count = listed[0].count("- **")
    return f'<details markdown="1"><summary>{count} verdicts</summary>\n\n{listed[0].rstrip()}\n\n</details>\n'


def _commands(root: Path, study: str, found: Mapping[str, Any]) -> str:
    lines = [f"interplay run {study} --scale {scale}" for scale in found or ("laptop",)]
    for scale in found:
        path = committed.result_path(root, study, scale).relative_to(root)
        lines.append(
            f"interplay export --from {path} -o {papers.page_name(study)}   # all tables and figures, from the committed numbers"
        )
    return "\n".join(lines)


def _claims(result: Mapping[str, Any]) -> Iterator[str]:
    """Each claim with its verdict and its interval next to the range that it asks for; claims of one unit share an axis."""
    if not result["claims"]:
        return
    drawn = [(claim, _interval(claim), _wanted(claim)) for claim in result["claims"]]
    shared: dict[str, list[Interval]] = {}
    for claim, one, wanted in drawn:
        if one:
            edges = [edge for edge in wanted or () if math.isfinite(edge)]
            shared.setdefault(_axis(claim), []).extend([one, *(Interval("", edge, edge, edge) for edge in edges)])
    ends = {axis: axis_range(found) for axis, found in shared.items()}
    rows = []
    for claim, one, wanted in drawn:
        bar = strip(one, ends[_axis(claim)], wanted) if one else "<span></span>"
        gone = f" <small>{html.escape(claim['withdrawn'].because)}</small>" if "withdrawn" in claim else ""
        rows.append(
            f'<div class="claim"><span class="chip {_css(claim["verdict"])}">{claim["verdict"]}</span>'
            f"<span>{html.escape(claim['says'])}{gone}</span>{bar}"
            f"<small>{html.escape(numbers.estimate(claim))}</small></div>"
        )
    yield f'<div class="claims">{"".join(rows)}</div>'
    said = "; ".join(f"{axis} from {low:.3g} to {high:.3g}" for axis, (low, high) in ends.items())
    yield (
        "<small>Dot and line: the estimate with its 95 % interval. Shaded: what is claimed. Vertical line: zero. "
        f"Claims of one unit share an axis: {html.escape(said)}.</small>"
    )


def _test_metric(claim: Mapping[str, Any]) -> str:
    return str(claim["test"].get("value") or claim["test"].get("difference"))


def _interval(claim: Mapping[str, Any]) -> Interval | None:
    """The estimate in its unit; None where the claim has no number or no interval."""
    found, factor = claim["estimate"], measure_of(_test_metric(claim)).factor
    if None in (found["value"], found["low"], found["high"]):
        return None
    return Interval(numbers.of_claim(claim), *(factor * found[key] for key in ("value", "low", "high")))


def _axis(claim: Mapping[str, Any]) -> str:
    """`differences in points`, `values in %`: claims of which may be drawn on one axis."""
    signed = "difference" in claim["test"]
    unit = measure_of(_test_metric(claim)).unit_of(signed) or _test_metric(claim).replace("_", " ")
    return f"{'differences' if signed else 'values'} in {unit}"


def _wanted(claim: Mapping[str, Any]) -> tuple[float, float] | None:
    test, factor = claim["test"], measure_of(_test_metric(claim)).factor
    if "within" in test:
        return factor * test["within"][0], factor * test["within"][1]
    if "at_least" in test or "at_most" in test:
        return factor * test.get("at_least", -math.inf), factor * test.get("at_most", math.inf)
    return None


def _figure(path: Path, result: Mapping[str, Any]) -> Iterator[str]:
    """The first metric of the main table, a panel a column."""
    grids = summary.read_grids(result)
    name = "main" if "main" in grids else next(iter(grids), "")
    if not name:
        return
    grid = grids[name]
    metric = grid.metrics[0]
    measure = measure_of(metric)
    panels: dict[str, list[Interval]] = {}
    for column in grid.columns:
        cells = [(row, grid.cells[row, column, metric].estimate) for row in grid.rows if (row, column, metric) in grid.cells]
        panels[column] = [
            Interval(row, *(measure.factor * end for end in (one.value, one.low, one.high))) for row, one in cells if one.seeds
        ][:MOST_ROWS]
    support = tuple(measure.factor * end for end in measure.support)
    ends = axis_range([one for rows in panels.values() for one in rows], *support)
    drawn = [panel(column, rows, ends, measure.unit) for column, rows in panels.items() if rows]
    yield f"## {metric.replace('_', ' ').capitalize()} by arm"
    yield f'<div class="panels">{"".join(drawn)}</div>'
    more = f" {rest} more arms are in the table." if (rest := len(grid.rows) - MOST_ROWS) > 0 else ""
    yield f"Table `{name}`; lines: 95 % intervals.{more} Numbers: [{path.name}](../results/{path.name})."
