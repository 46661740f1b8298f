"""A grid as text: CSV in long form, Markdown and LaTeX for reading, all from the same cells."""

import csv
import io
import re

import numpy as np

from interplay.report.metric_spec import BASELINES, METRICS, SHARE, find, measure_of, metric_row
from interplay.report.stats.estimate import Estimate
from interplay.report.write.tables import MARKS, PARTLY, UNTRAINED, Cell, Grid, blocks, label

FIELDS = ["arm", "against", "column", "cell", "estimate", "low", "high", "over", "n_prompts", "n_samples", "seeds", "per_seed"]
FIELDS += ["deviation", "detectable", "trained", "evaluations", "missing"]
OVER_PROMPTS = "ᵖ"
LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "†": r"$^\dagger$", "‡": r"$^\ddagger$"}
LATEX |= {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "^": r"\^{}", "~": r"\~{}"}
ELEMENT = re.compile(r"<(?=[A-Za-z/!?])")
"""What begins an element of HTML."""
LATEX |= {"−": "$-$", "–": "--", "·": r"$\cdot$", "<": "$<$", OVER_PROMPTS: "$^p$"}


def percent(number: float, signed: bool = False) -> str:
    """A fraction as percent with one decimal; a dash for NaN. Never `-0.0`."""
    return SHARE.shown(number, signed)


def interval(estimate: Estimate, signed: bool, metric: str) -> str:
    """`[38.0, 44.4]` in the unit of the metric, marked where it is uncertain over prompts and not over seeds."""
    low, high = (measure_of(metric).shown(end, signed) for end in (estimate.low, estimate.high))
    return f"[{low}, {high}]{OVER_PROMPTS if over_prompts(estimate) else ''}"


def over_prompts(estimate: Estimate) -> bool:
    """Whether the interval is a bootstrap over prompts."""
    return "prompts" in estimate.over


def per_seed(estimate: Estimate, signed: bool, metric: str) -> str:
    """Each seed's value in the unit of the metric; empty where one model stands for all, since it would repeat the estimate."""
    if estimate.models < 2:
        return ""
    return " · ".join(measure_of(metric).shown(number, signed) for number in estimate.per_seed)


def as_csv(grid: Grid) -> str:
    """Long form, one line per cell, fractions to 7 significant digits; the baselines are the arms `answer prior` and `trivial
    policy`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_csv_row(cell) for cell in grid.cells.values())
    for (column, metric), score in grid.prior.items():
        below = metric_row(metric).baseline
        writer.writerow({"arm": below.name if below else "", "column": column, "cell": metric, "estimate": digits(score)})
    return text.getvalue()


def _csv_row(cell: Cell) -> dict[str, str | int]:
    found = cell.estimate
    return {
        "arm": cell.arm,
        "against": cell.against,
        "column": cell.column,
        "cell": cell.metric,
        "estimate": digits(found.value),
        "low": digits(found.low),
        "high": digits(found.high),
        "over": found.over,
        "n_prompts": found.n_prompts,
        "n_samples": found.n_samples,
        "seeds": ";".join(str(seed) for seed in found.seeds),
        "per_seed": ";".join(digits(number) for number in found.per_seed),
        "deviation": digits(found.deviation),
        "detectable": digits(found.detectable),
        "trained": {UNTRAINED: "none", PARTLY: "some"}.get(cell.mark, "all"),
        "evaluations": ";".join(found.digests),
        "missing": "; ".join(found.missing),
    }


def digits(number: float) -> str:
    """7 significant digits; empty for NaN."""
    return "" if np.isnan(number) else f"{number:.7g}"


def baselines(grid: Grid, block: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Rows (name, cells) of what knowing nothing scores in a block's columns, a dash where it has no such row; only rows that
    have a number."""
    found = []
    for one in BASELINES:
        shown = [
            percent(grid.prior[key] if key in grid.prior and metric_row(key[1]).baseline is one else np.nan) for key in block
        ]
        found += [(one.name, shown)] if set(shown) != {"–"} else []
    return found


def lines(cell: Cell) -> list[str]:
    """What a cell shows, a line each: estimate, interval, values per seed, and for differences the detectable effect."""
    found, signed = cell.estimate, bool(cell.against)
    if np.isnan(found.value):
        return ["missing"]
    number = measure_of(cell.metric).shown
    intervals = [form(found, signed, cell.metric) for form in (interval, per_seed)]
    shown = [number(found.value, signed) + cell.mark, *intervals]
    if not np.isnan(found.detectable):
        shown.append(f"MDE {number(found.detectable)}")
    return [line for line in shown if line]


def notes(grid: Grid) -> list[str]:
    """What must be known to read the numbers: unit, n, what intervals are uncertain over, marks, what is missing."""
    cells = list(grid.cells.values())
    said = [f"{_unit(grid)}, with the 95 % interval in brackets and under it the value at each seed.", *grid.notes]
    used = {found.note for metric in grid.metrics if (found := find(metric))}
    said += [note for note in dict.fromkeys(each.note for each in METRICS) if note in used]
    said += [one.note for one in BASELINES if any(metric_row(metric).baseline is one for _, metric in grid.prior)]
    if any(not np.isnan(cell.estimate.detectable) for cell in cells):
        said.append("MDE: the smallest true difference that this number of seeds would find with 80 % power at the 5 % level.")
    said += [f"{mark}: {MARKS[mark]}." for mark in MARKS if any(cell.mark == mark for cell in cells)]
    over = dict.fromkeys(cell.estimate.over for cell in cells if cell.estimate.over and not over_prompts(cell.estimate))
    if over:
        said.append(f"Intervals are uncertain over {' or '.join(over)}, with the test prompts held fixed.")
    if any(over_prompts(cell.estimate) for cell in cells):
        said.append(f"{OVER_PROMPTS}: uncertain over prompts alone, since there is one model or all seeds agree exactly.")
    counts = {label(cell.column): cell.estimate.n_prompts for cell in cells if cell.estimate.n_prompts}
    samples = sorted({cell.estimate.n_samples for cell in cells if cell.estimate.n_samples})
    said.append(f"Prompts: {', '.join(f'{count} in {column}' for column, count in counts.items())}.")
    said.append(f"Samples per prompt: {', '.join(map(str, samples))}.")
    gaps = dict.fromkeys(reason for cell in cells for reason in cell.estimate.missing)
    return said + [f"Missing: {reason}." for reason in gaps]


def _unit(grid: Grid) -> str:
    """What the numbers are in: percent, or another unit by metric where there is one."""
    others = [metric for metric in grid.metrics if measure_of(metric) is not SHARE]
    whole = [] if len(others) == len(grid.metrics) else ["percent"]
    said = ", ".join([*whole, *(f"{label('', metric)} in {measure_of(metric).unit}" for metric in others)])
    return said[:1].upper() + said[1:]


def markdown(text: str) -> str:
    """A name within a Markdown table: neither an element of HTML nor the end of a cell."""
    return ELEMENT.sub("&lt;", " ".join(text.split())).replace("|", "\\|")


def as_markdown(grid: Grid, title: str) -> str:
    """One Markdown table per block, with the notes beneath."""
    parts = [f"# {markdown(title)}", ""]
    for block in blocks(grid):
        parts.append(f"| | {' | '.join(label(*key) for key in block)} |")
        parts.append("|---|" + "---|" * len(block))
        for row in grid.rows:
            shown = ("<br>".join(lines(grid.cells[row, *key])) for key in block)
            parts.append(f"| {markdown(row)} | {' | '.join(shown)} |")
        parts += [f"| {name} | {' | '.join(row)} |" for name, row in baselines(grid, block)]
        parts.append("")
    return "\n".join(parts + [f"- {markdown(note)}" for note in notes(grid)]) + "\n"


def as_latex(grid: Grid, title: str) -> str:
    """One tabular per block (booktabs), with the notes as comments."""
    said = [f"{title}. Needs \\usepackage{{booktabs}}.", *notes(grid)]
    parts = [f"% {' '.join(line.split())}" for line in said]
    for block in blocks(grid):
        parts += [rf"\begin{{tabular}}{{l{'r' * len(block)}}}", r"\toprule"]
        parts.append(" & ".join(["", *(_stack(label(column), label("", metric)) for column, metric in block)]) + r" \\")
        parts.append(r"\midrule")
        for row in grid.rows:
            parts.append(" & ".join([tex(row), *(_stack(*lines(grid.cells[row, *key])) for key in block)]) + r" \\")
        below = [" & ".join([name, *map(tex, row)]) + r" \\" for name, row in baselines(grid, block)]
        parts += [r"\midrule", *below] if below else []
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)


def _stack(*shown: str) -> str:
    first, *rest = (tex(line) for line in shown)
    stacked = r" \\ ".join([first, *(rf"{{\scriptsize {line}}}" for line in rest)])
    return rf"\shortstack[r]{{{stacked}}}"


def tex(text: str) -> str:
    """Escaped for LaTeX."""
    return "".join(LATEX.get(character, character) for character in text)
