"""Tables of a paper in LaTeX: heads in groups, intervals as macros that the author may redefine, and as many columns side by side
as fit. Where they do not fit, intervals go beneath their values, then columns into panels one below the other."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from interplay.core.model import join_names
from interplay.report.metric_spec import BASELINES, find_metric, measure_of, metric_row
from interplay.report.shown_spec import SHARE, readable
from interplay.report.stats import contrast, estimate
from interplay.report.write import tables, text

MACROS = r"""% A value with its 95 % interval, within the line or beneath it; the best of a column; better and worse by the test.
\providecommand{\ci}[3]{#1\,{\scriptsize[#2,\,#3]}}
\providecommand{\cistacked}[3]{\begin{tabular}[t]{@{}r@{}}#1\\[-3pt]{\fontsize{6}{6}\selectfont[#2,\,#3]}\end{tabular}}
\providecommand{\best}[1]{\textbf{#1}}
\providecommand{\better}[1]{#1\rlap{$^{+}$}}
\providecommand{\worse}[1]{#1\rlap{$^{-}$}}
\providecommand{\marked}[1]{\rlap{$^{#1}$}}
"""
MARKS = {tables.UNTRAINED: r"\dagger", tables.PARTLY: r"\ddagger", text.FOR_BASE: "b"}
CELL, INTERVAL, BELOW, GAP = 8.0, 7.0, 6.0, 8.0
"""Points: type of a cell, of an interval within the line and of one beneath a value; the room between two columns."""
LINE, STACKED, HEADS, CAPTION = 10.5, 20.0, 34.0, 11.0
"""Points: the height of a row, of one with intervals beneath, of the heads of a panel, and of a line of a caption, about."""
OTHER_COLUMNS = 230.0
"""Points of the columns of claims next to their sentences."""
TOP = r"""\centering\footnotesize\setlength{\tabcolsep}{4pt}"""


class Cell(NamedTuple):
    """What a place in a table shows: a value, its interval where it has one, and marks."""

    value: str
    low: str = ""
    high: str = ""
    mark: str = ""
    """In mathematics, as a superscript."""
    dress: str = ""
    """A macro around it: best, better, worse."""

    def latex(self, stacked: bool) -> str:
        """As LaTeX."""
        value = rf"\{self.dress}{{{self.value}}}" if self.dress else self.value
        mark = rf"\marked{{{self.mark}}}" if self.mark else ""
        if not self.low or stacked:
            value, mark = value + mark, ""  # else an interval follows in the line, which the mark would lie on
        return rf"\ci{'stacked' if stacked else ''}{{{value}}}{{{self.low}}}{{{self.high}}}{mark}" if self.low else value

    def width(self, stacked: bool) -> float:
        """Points, about."""
        value = text.text_width(self.value, CELL) + (0.5 * CELL if self.mark or self.dress else 0)
        between = f"[{self.low},{self.high}] " if self.low else ""
        return max(value, text.text_width(between, BELOW)) if stacked else value + text.text_width(between, INTERVAL)


class Group(NamedTuple):
    """Columns under one title."""

    title: str
    heads: list[str]
    rows: list[list[Cell]]
    """By row of the table, a cell for each head."""
    below: Mapping[str, list[str]] = {}
    """Rows beneath the table, such as what knowing nothing scores, by their names."""

    def width(self, stacked: bool) -> float:
        """Points, about."""
        columns = zip(*self.rows, strict=True)
        widths = (max(cell.width(stacked) for cell in column) for column in columns)
        each = [max(width, text.text_width(head, CELL)) + GAP for width, head in zip(widths, self.heads, strict=True)]
        return max(sum(each), text.text_width(self.title, CELL) + GAP)


class Room(NamedTuple):
    """Widths of a paper in points."""

    column: float
    page: float
    height: float = 648.0
    """Of the text of a page."""


REPORT = Room(396.0, 396.0)
"""Of a report's own tables, where no layout of a paper is chosen: lines of 5.5 inches."""


class Float(NamedTuple):
    """A table for a paper."""

    name: str
    caption: str
    names: Sequence[tuple[str, ...]]
    """First cells of each row; a name `group[setting]` is listed under the name of its group."""
    heads: tuple[str, ...]
    groups: list[Group]


def breakable_text(said: str) -> str:
    """Escaped, with room for a line break within the names of combinations."""
    return re.sub(r"([\[,=])(?=\S)", r"\1\\allowbreak{}", text.latex_text(said))


# What a table holds.


def grid_float(name: str, grid: tables.Grid) -> Float:
    """Values or differences of arms: columns by metric, strict ones before those of answers alone."""
    metrics = sorted(grid.metrics, key=lambda metric: metric.startswith("answer_"))
    mixed = len({text.for_base(cell.estimate) for cell in grid.cells.values() if cell.estimate.over}) > 1
    against = {cell.against for cell in grid.cells.values()}
    single = len(against) == 1
    rows = {row: next(cell for key, cell in grid.cells.items() if key[0] == row) for row in grid.rows}
    groups = [
        Group(
            tables.column_label("", metric),
            [tables.column_label(column).removeprefix("op ") for column in grid.columns],
            [[_cell(grid.cells.get((row, column, metric)), metric, mixed) for column in grid.columns] for row in grid.rows],
            _baselines(grid, metric),
        )
        for metric in metrics
    ]
    names = [(grid.grouped_label(cell.arm if single else row),) for row, cell in rows.items()]
    caption = _grid_caption(grid, metrics, against.pop() if single else "")
    said = " ".join([*([f"{grid.title}."] if grid.title else []), grid.caption, caption]).strip()
    return Float(name, " ".join(said.split()), names, ("",), groups)


def _cell(cell: tables.Cell | None, metric: str, mixed: bool) -> Cell:
    if cell is None or math.isnan(cell.estimate.value):
        return Cell("--")
    marks = [cell.mark, text.FOR_BASE if mixed and text.for_base(cell.estimate) else ""]
    return _interval(cell.estimate, metric, bool(cell.against))._replace(mark=" ".join(MARKS[mark] for mark in marks if mark))


def _interval(found: estimate.Estimate, metric: str, signed: bool) -> Cell:
    value, low, high = (text.latex_text(measure_of(metric).shown(one, signed).replace("-", "−")) for one in found[:3])
    return Cell(value) if math.isnan(found.low) else Cell(value, low, high)


def _baselines(grid: tables.Grid, metric: str) -> dict[str, list[str]]:
    wanted = metric_row(metric).baseline if find_metric(metric) else None
    shown = [SHARE.shown(grid.prior[column, metric]) if (column, metric) in grid.prior else "--" for column in grid.columns]
    return {one.name: shown for one in BASELINES if one is wanted and set(shown) != {"--"}}


def _grid_caption(grid: tables.Grid, metrics: Sequence[str], against: str) -> str:
    named = join_names([tables.column_label("", metric) for metric in metrics])
    signed = any(cell.against for cell in grid.cells.values())
    units = join_names(list(dict.fromkeys(measure_of(metric).unit_of(signed) for metric in metrics)))
    by = "op" if all(column.startswith("op:") for column in grid.columns) else "band"
    what = f"Difference to {against} in {named}" if against else f"Differences in {named}" if signed else named
    found = [cell.estimate for cell in grid.cells.values()]
    said = [f"{what[:1].upper()}{what[1:]} by {by} ({units}).", *_over(found)]
    marks = {cell.mark for cell in grid.cells.values()}
    said += [f"${MARKS[mark]}$: {meaning}." for mark, meaning in tables.MARKS.items() if mark in marks]
    of_column = {
        tables.column_label(cell.column): cell.estimate.n_prompts for cell in grid.cells.values() if cell.estimate.n_prompts
    }
    counts: dict[int, list[str]] = {}
    for column, count in ((column, count) for column, count in of_column.items() if count):
        counts.setdefault(count, []).append(column)
    each = " each" if len(grid.columns) > 1 else ""
    sizes = [f"{count}{each if len(counts) == 1 else ' in ' + join_names(of)}" for count, of in counts.items()]
    samples = join_names([str(count) for count in sorted({one.n_samples for one in found if one.n_samples})])
    said += [f"Problems: {join_names(sizes)}; {samples} samples of each."] if sizes else []
    said += [one.note for one in BASELINES if any(metric_row(metric).baseline is one for _, metric in grid.prior)]
    return " ".join([*said, *grid.notes])


def _over(found: Sequence[estimate.Estimate]) -> list[str]:
    """What the intervals of a table are uncertain over."""
    over = {one.over: text.for_base(one) for one in found if one.over}
    every, one_base = ([name for name, is_one in over.items() if is_one == wanted] for wanted in (False, True))
    marked = f"; $b$: for {join_names(one_base)}" if every and one_base else ""
    return [f"Brackets: 95 % intervals for {join_names(every or one_base)}{marked}."] if over else []


def contrast_float(name: str, made: contrast.Comparison) -> Float:
    """Contenders, what was chosen for each, and by column value, difference and adjusted p."""
    rows = made.blocks[0].rows if made.blocks else []
    tuned, single = made.contrast.tune, len({block.metric for block in made.blocks}) == 1
    names = [(made.label(row.chosen.name), *([row.chosen.value or "–"] if tuned else [])) for row in rows]
    groups = []
    for block in made.blocks:
        leading = contrast.leading_rows(block)
        cells = []
        for row in block.rows:
            value = _interval(row.estimate, block.metric, False)
            dress = "best" if row.chosen.name in leading else ""
            gap = _interval(row.gap, block.metric, True) if row.gap.seeds else Cell("--")
            gap = gap._replace(dress=row.verdict if row.verdict in ("better", "worse") else "")
            p = row.p if made.contrast.correction == "none" else row.adjusted
            shown = "--" if math.isnan(p) else "$<$.01" if p < 0.01 else f"{p:.2f}"
            cells.append([Cell(value.value if row.estimate.seeds else "--", dress=dress), gap, Cell(shown)])
        columns = [measure_of(block.metric).unit, r"$\Delta$", "$p$"]
        groups.append(Group(tables.column_label(block.column, "" if single else block.metric), columns, cells))
    heads = ("", *([tuned.axis.rpartition(".")[2].replace("_", " ")] if tuned else []))
    return Float(name, _contrast_caption(made), names, heads, groups)


def _contrast_caption(made: contrast.Comparison) -> str:
    against, tune = made.lineup.against, made.contrast.tune
    metrics = join_names(list(dict.fromkeys(tables.column_label("", block.metric) for block in made.blocks)))
    found = [row.gap for block in made.blocks for row in block.rows]
    said = [f"Comparison with {against} by {metrics}: value, difference $\\Delta$ in points, and $p$.", *_over(found)]
    method = made.contrast.correction.capitalize()
    tests = f" (adjusted by {method}'s method for {made.tests} comparisons)" if method != "None" else ""
    floor = "" if made.fight else ", and a difference beyond that of identical runs with other random streams"
    how = "of the interval" if not made.fight else "with one variance for all arms, on the same bases"
    said.append(
        f"$+$, $-$: better or worse than {against}: $p < 0.05$ in the t test {how}{tests}{floor}. All else is no information"
        f"{' or equivalent' if made.fight else ''}."
    )
    if tune is not None:
        tries = len(made.lineup.contenders[0].tries)
        axis = tune.axis.rpartition(".")[2].replace("_", " ")
        said.append(f"Each had {tries} values of {axis} to choose from, by the mean on {tables.column_label(tune.band)}.")
    if any(contrast.leading_rows(block) for block in made.blocks):
        said.append("Bold: the best of a column as far as these tests show.")
    return " ".join([*said, *made.caveats])


# How it is set.


def table_latex(made: Float, room: Room) -> str:
    """The float, in a column where it fits and across the page where it does not; several where it is taller than a page."""
    rows, head = _row_names(made)
    if not rows:
        return f"% {made.name}: no row of it is there.\n"
    spaced = [[one.replace("  ", "–––") for one in row] for row in [*rows, head]]  # an indent is an em, and estimates run short
    first = sum(max(text.text_width(row[at], CELL) for row in spaced) + GAP for at in range(len(head)))
    stacked, wide, panels = _fit(made.groups, first, room)
    kind = "table*" if wide and room.page > room.column else "table"
    line = STACKED if stacked else LINE
    height = room.height - CAPTION * (3 + text.text_width(made.caption, 9.0) / (room.page if wide else room.column))
    most = max(1, int((height - HEADS - LINE * 4) / line))
    each = -(-len(rows) // -(-len(rows) // most))
    starts = range(0, len(rows), each)
    together = max(1, int(height / (HEADS + line * each + LINE * 4)))
    pages = [panels[at : at + together] for at in range(0, len(panels), together)]
    parts = [(range(start, min(start + each, len(rows))), page) for page in pages for start in starts]
    return f"% Needs \\usepackage{{booktabs}}.\n{MACROS}" + "".join(
        _one_float(made, kind, stacked, part, page, at) for at, (part, page) in enumerate(parts)
    )


def _one_float(made: Float, kind: str, stacked: bool, rows: range, panels: list[list[Group]], number: int) -> str:
    """The panels with these rows; of several floats the first has the caption."""
    lines = [rf"\begin{{{kind}}}[htbp]", TOP]
    caption = rf"Table~\ref{{tab:{made.name}}}, continued." if number else caption_text(made.caption)
    lines += [rf"\caption{{{caption}}}", rf"\label{{tab:{made.name}{f'-{number + 1}' if number else ''}}}"]
    columns = max(sum(len(group.heads) for group in panel) for panel in panels)
    lines += [rf"\begin{{tabular}}{{@{{}}{'l' * len(made.heads)}{'r' * columns}@{{}}}}", r"\toprule"]
    parts = [_panel(made, panel, rows, stacked) for panel in panels]
    lines += list(itertools.chain.from_iterable([*([r"\midrule"] if at else []), *part] for at, part in enumerate(parts)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", f"\\end{{{kind}}}"]) + "\n"


def caption_text(said: str) -> str:
    """Escaped but for mathematics between dollars."""
    parts = said.split("$")
    if len(parts) % 2 == 0:
        return text.latex_text(said)
    return "".join(f"${part}$" if at % 2 else text.latex_text(part) for at, part in enumerate(parts))


def _fit(groups: list[Group], first: float, room: Room) -> tuple[bool, bool, list[list[Group]]]:
    """Whether intervals go beneath values, whether the page is needed, and the groups of each panel."""
    for wide, stacked in itertools.product((False, True), (False, True)):
        if first + sum(group.width(stacked) for group in groups) <= (room.page if wide else room.column):
            return stacked, wide, [groups]
    narrow, across = (_stack_panels(groups, first, width) for width in (room.column, room.page))
    return (True, True, across) if len(across) < len(narrow) else (True, False, narrow)


def _stack_panels(groups: list[Group], first: float, width: float) -> list[list[Group]]:
    """The groups in panels that are no wider than `width`, as many in each where that fits."""
    panels: list[list[Group]] = [[]]
    for group in (part for one in groups for part in _split(one, width - first)):
        used = first + sum(other.width(True) for other in panels[-1])
        if panels[-1] and used + group.width(True) > width:
            panels.append([])
        panels[-1].append(group)
    parts = list(itertools.chain.from_iterable(panels))
    ends = [[parts[place] for place in of] for of in np.array_split(np.arange(len(parts)), len(panels))]
    fits = all(first + sum(group.width(True) for group in panel) <= width for panel in ends)
    return ends if fits else panels


def _split(group: Group, room: float) -> list[Group]:
    """The group in as few parts as fit."""
    for parts in range(1, len(group.heads) + 1):
        ends = np.array_split(np.arange(len(group.heads)), parts)
        made = [_part(group, int(of[0]), int(of[-1]) + 1) for of in ends]
        if all(one.width(True) <= room for one in made):
            break
    return made


def _part(group: Group, start: int, end: int) -> Group:
    below = {name: shown[start:end] for name, shown in group.below.items()}
    return Group(group.title, group.heads[start:end], [row[start:end] for row in group.rows], below)


def _row_names(made: Float) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The first cells of rows, those of an arm's grid under the name of the arm."""
    names = [one[0] for one in made.names]
    heads = [name.partition("[")[0] if name.endswith("]") else "" for name in names]
    grouped = {head for head in heads if head and heads.count(head) > 1 and head not in names}
    shown = [
        (f"  {readable(name).partition(': ')[2]}" if head in grouped else readable(name), *one[1:])
        for name, head, one in zip(names, heads, made.names, strict=True)
    ]
    return shown, made.heads


def _panel(made: Float, groups: list[Group], places: range, stacked: bool) -> list[str]:
    """Heads and rows of the groups side by side."""
    rows, head = _row_names(made)
    first = len(head)
    titles, rules, at = [], [], first + 1
    for group in groups:
        span = len(group.heads)
        titles.append(rf"\multicolumn{{{span}}}{{c}}{{{text.latex_text(group.title)}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + span - 1}}}")
        at += span
    lead = [text.latex_text(one) for one in head]
    lines = [rf"{' & '.join([''] * first + titles)} \\", " ".join(rules)]
    heads = [one if one.startswith("$") else text.latex_text(one) for group in groups for one in group.heads]
    lines += [rf"{' & '.join([*lead, *heads])} \\", r"\midrule"]
    under = ""
    for place in places:
        names = rows[place]
        indented = names[0].startswith("  ")
        group_name = made.names[place][0].partition("[")[0] if indented else ""
        if group_name and group_name != under:
            lines.append(rf"{text.latex_text(group_name)} \\")
        under = group_name
        label = rf"\quad {text.latex_text(names[0][2:])}" if indented else text.latex_text(names[0])
        cells = [cell.latex(stacked) for group in groups for cell in group.rows[place]]
        lines.append(rf"{' & '.join([label, *map(text.latex_text, names[1:]), *cells])} \\{'[2pt]' if stacked else ''}")
    below = dict.fromkeys(name for group in groups for name in group.below)
    for name in below:
        cells = [shown for group in groups for shown in group.below.get(name, [""] * len(group.heads))]
        lines += [r"\midrule"] if name == next(iter(below)) else []
        lines.append(rf"{' & '.join([name, *([''] * (first - 1)), *cells])} \\")
    return lines


def claims_latex(claims: Sequence[Mapping[str, Any]], cite: Callable[[str], str], room: Room) -> str:
    """The claims with what was found and their verdicts, across the page; `cite` makes references of a source."""
    lines = [f"% Needs \\usepackage{{array,booktabs}}.\n{MACROS}\\begin{{table*}}[htbp]", TOP]
    lines += [r"\caption{Claims of the study and what was found: estimates with 95\,\% intervals.}", r"\label{tab:claims}"]
    ragged = rf">{{\raggedright\arraybackslash}}p{{{room.page - OTHER_COLUMNS:g}pt}}"
    lines += [rf"\begin{{tabular}}{{@{{}}{ragged}rrl@{{}}}}", r"\toprule"]
    lines += [r"claim & claimed & found & verdict \\", r"\midrule"]
    for claim in claims:
        test, found = claim["test"], claim["estimate"]
        metric, signed = test.get("difference") or test["value"], "difference" in test
        place = tables.column_label(test.get("band") or test["recorded"])
        what = f"{tables.column_label('', metric)}, {place}: {test['arm']}" + (f" − {test['against']}" if signed else "")
        value, low, high = (math.nan if found[key] is None else float(found[key]) for key in ("value", "low", "high"))
        shown = "--" if math.isnan(value) else _interval(estimate.Estimate(value, low, high), metric, signed).latex(False)
        said = text.latex_text(claim["says"]) + cite(claim.get("source", ""))
        bound = text.latex_text(_bound(claim, metric, signed))
        said += rf"\newline{{\scriptsize {breakable_text(what)}}}"
        lines.append(rf"{said} & {bound} & {shown} & {claim['verdict']} \\ \addlinespace[3pt]")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"


def _bound(claim: Mapping[str, Any], metric: str, signed: bool) -> str:
    measure, test = measure_of(metric), claim["test"]
    if "effect" in claim:
        return f"published {claim['effect']:+g}".replace("-", "−")
    if test.get("at_least") is test.get("at_most") is None and "margin" in test:
        return f"within ±{measure.shown(test['margin'])}"
    if test.get("within") is not None:
        return " to ".join(measure.shown(one) for one in test["within"])
    sign, key = ("≥", "at_least") if test.get("at_least") is not None else ("≤", "at_most")
    return f"{sign} {measure.shown(test[key], signed)}".replace("-", "−") + measure.tie(test.get("margin"))
