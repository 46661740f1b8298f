"""A grid as text: CSV in long form and Markdown for reading, from the same cells; text escaped for LaTeX."""

import re
import unicodedata

import numpy as np
import pandas as pd

from interplay.core import model
from interplay.report import metric_spec as metrics
from interplay.report.shown_spec import SHARE
from interplay.report.spec import Figure
from interplay.report.stats.contrast import COMPARED, HERE, Comparison, ComparisonBlock, ComparisonRow
from interplay.report.stats.estimate import Estimate
from interplay.report.write.tables import MARKS, PARTLY, UNTRAINED, Cell, Grid, column_label, grid_blocks

CONTRAST_FIELDS = ["column", "cell", "name", "arm", "chosen", "tuning", "estimate", "low", "high", "over", "seeds", "per_seed"]
CONTRAST_FIELDS += ["against", "difference", "difference_low", "difference_high", "difference_over", "floor", "floor_low"]
CONTRAST_FIELDS += ["floor_high", "floor_arm", "floor_twin", "identical_sd", "identical_runs", "p", "p_adjusted", "correction"]
CONTRAST_FIELDS += ["tests", "verdict", "evaluations", "missing"]
FOR_BASE = "ᵇ"
ESCAPES = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "†": r"$^\dagger$", "‡": r"$^\ddagger$"})
ESCAPES |= str.maketrans({"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "^": r"\^{}", "~": r"\~{}"})
ESCAPES |= str.maketrans({"−": "$-$", "–": "--", "·": r"$\cdot$", "<": "$<$", FOR_BASE: "$^b$"})
GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon phi chi psi"
LETTERS = {chr(0x3B1 + place): rf"$\{name}$" for place, name in enumerate([*GREEK.split(), "omega"]) if name != "o"}
LETTERS |= {">": "$>$", "|": "$|$", '"': "''", "≥": r"$\geq$", "≤": r"$\leq$", "×": r"$\times$", "±": r"$\pm$", "→": r"$\to$"}
LETTERS |= {"Δ": r"$\Delta$", "≈": r"$\approx$", "∞": r"$\infty$", "…": r"\dots{}", "’": "'", "“": "``", "”": "''", "—": "---"}
ESCAPES |= str.maketrans(LETTERS)
WIDTHS = {**dict.fromkeys(".,:;|' ", 0.26), **dict.fromkeys("[]()-ijlt", 0.32), **dict.fromkeys("−+=<>", 0.57), "%": 0.83}
"""Of characters of Times in units of the type; others are about half of it."""
QUAD = "mm"
"""As wide as an indent."""
ELEMENT = re.compile(r"<(?=[A-Za-z/!?])")
"""What begins an element of HTML."""


def interval_text(estimate: Estimate, signed: bool, metric: str, marked: bool = True) -> str:
    """`[38.0, 44.4]` in the unit of the metric, `marked` where it is for one base alone."""
    low, high = (metrics.measure_of(metric).shown(end, signed) for end in (estimate.low, estimate.high))
    return f"[{low}, {high}]{FOR_BASE if marked and for_base(estimate) else ''}"


def counted(found: Estimate) -> str:
    """What an estimate was made from: prompts and samples, or runs."""
    return f"{found.n_prompts} prompts, {found.n_samples} samples each" if found.n_prompts else f"{found.models} runs"


def for_base(estimate: Estimate) -> bool:
    """Whether the interval is for one base alone; in results of before these words, over its prompts."""
    return estimate.over.startswith("this base") or "prompts (" in estimate.over


def per_seed(estimate: Estimate, signed: bool, metric: str) -> str:
    """Each seed's value in the unit of the metric; empty where one model stands for all, since it would repeat the estimate."""
    if estimate.models < 2:
        return ""
    return " · ".join(metrics.measure_of(metric).shown(number, signed) for number in estimate.per_seed)


def as_csv(grid: Grid) -> str:
    """Long form, one line per cell, fractions to 7 significant digits; the baselines are the arms `answer prior` and `trivial
    policy`."""
    rows = [_csv_row(cell) for cell in grid.cells.values()]
    for (column, metric), score in grid.prior.items():
        below = metrics.metric_row(metric).baseline
        rows.append({"arm": below.name if below else "", "column": column, "cell": metric, "estimate": number_text(score)})
    return _csv(list(_csv_row(Cell("", "", "", "", Estimate(), ""))), rows)


def _csv(fields: list[str], rows: list[dict[str, str | int]]) -> str:
    return str(pd.DataFrame(rows, columns=fields, dtype=object).to_csv(index=False, lineterminator="\n"))


def _csv_row(cell: Cell) -> dict[str, str | int]:
    found = cell.estimate
    return {
        "arm": cell.arm,
        "against": cell.against,
        "column": cell.column,
        "cell": cell.metric,
        **_interval_fields(found, "estimate"),
        "n_prompts": found.n_prompts,
        "n_samples": found.n_samples,
        **_seed_fields(found),
        "deviation": number_text(found.deviation),
        "detectable": number_text(found.detectable),
        "trained": {UNTRAINED: "none", PARTLY: "some"}.get(cell.mark, "all"),
        "evaluations": ";".join(found.digests),
        "missing": "; ".join(found.missing),
    }


def _interval_fields(found: Estimate, name: str, prefix: str = "") -> dict[str, str | int]:
    numbers = {name: found.value, f"{prefix}low": found.low, f"{prefix}high": found.high}
    return {**{key: number_text(number) for key, number in numbers.items()}, f"{prefix}over": found.over}


def _seed_fields(found: Estimate) -> dict[str, str | int]:
    return {"seeds": ";".join(map(str, found.seeds)), "per_seed": ";".join(map(number_text, found.per_seed))}


def number_text(number: float) -> str:
    """7 significant digits; empty for NaN."""
    return "" if np.isnan(number) else f"{number:.7g}"


def baseline_rows(grid: Grid, block: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Rows (name, cells) of what knowing nothing scores in a block's columns, a dash where it has no such row; only rows that
    have a number."""
    found = []
    for one in metrics.BASELINES:
        of = [key if key in grid.prior and metrics.metric_row(key[1]).baseline is one else None for key in block]
        found += [(one.name, [SHARE.shown(grid.prior[key]) if key else "–" for key in of])] if any(of) else []
    return found


def cell_lines(cell: Cell) -> list[str]:
    """What a cell shows, a line each: estimate, interval, values per seed, and for differences the detectable effect."""
    found, signed = cell.estimate, bool(cell.against)
    if np.isnan(found.value):
        return ["missing"]
    value, *others = estimate_lines(found, cell.metric, signed)
    effect = "" if np.isnan(found.detectable) else f"MDE {metrics.measure_of(cell.metric).shown(found.detectable)}"
    return [line for line in (value + cell.mark, *others, effect) if line]


ERROR_WORDS = {"none": "right", "value": "wrong value", "dependency": "wrong dependency", "missing_node": "missing step"}
ERROR_WORDS |= {"parse": "unreadable", "answer": "wrong answer", "truncated": "cut off"}


def error_words(name: str) -> str:
    """A class of errors in words."""
    return ERROR_WORDS.get(name, name.replace("_", " "))


FIGURE_TITLES = {"k": "{} as samples are added", "op": "{} by difficulty", "band": "{} by band", "step": "{} during training"}


def figure_title(figure: Figure) -> str:
    """What a figure shows, in words: the study's own, where it has some."""
    if figure.title:
        return figure.title
    if figure.y == metrics.ERROR:
        return "What goes wrong, by band"
    name = metrics.metric_heading(figure.y) if figure.x != "step" or figure.along() else figure.y.replace("_", " ")
    name = f"{name}@k" if figure.x == "k" else name
    axis = figure.x.rpartition(".")[2].replace("_", " ")
    said = FIGURE_TITLES.get(figure.x, f"{{}} against {axis}").format(name)
    said += f" and {figure.by.rpartition('.')[2].replace('_', ' ')}" if figure.by != "arm" else ""
    return f"{said[:1].upper()}{said[1:]}{f', compared with {figure.against}' if figure.against else ''}"


def grid_notes(grid: Grid) -> list[str]:
    """What must be known to read the numbers: unit, n, what intervals are uncertain over, marks, what is missing."""
    cells = list(grid.cells.values())
    said = [f"{_units(grid.metrics)}, with the 95 % interval in brackets and under it the value at each seed.", *grid.notes]
    used = {found.note for metric in grid.metrics if (found := metrics.find_metric(metric))}
    said += [note for note in dict.fromkeys(each.note for each in metrics.METRICS) if note in used]
    said += [one.note for one in metrics.BASELINES if any(metrics.metric_row(metric).baseline is one for _, metric in grid.prior)]
    if any(not np.isnan(cell.estimate.detectable) for cell in cells):
        said.append("MDE: the smallest true difference that these bases and prompts would find with 80 % power at the 5 % level.")
    said += [f"{mark}: {MARKS[mark]}." for mark in MARKS if any(cell.mark == mark for cell in cells)]
    over = dict.fromkeys(cell.estimate.over for cell in cells if cell.estimate.over and not for_base(cell.estimate))
    said += [f"Intervals are for {' or '.join(over)}."] if over else []
    of_base = dict.fromkeys(cell.estimate.over for cell in cells if for_base(cell.estimate))
    said += [f"{FOR_BASE}: for {' or '.join(of_base)}; another base may differ by more."] if of_base else []
    counts = {column_label(cell.column): cell.estimate.n_prompts for cell in cells if cell.estimate.n_prompts}
    samples = sorted({cell.estimate.n_samples for cell in cells if cell.estimate.n_samples})
    said += [f"Prompts: {', '.join(f'{count} in {column}' for column, count in counts.items())}."] if counts else []
    said += [f"Samples per prompt: {', '.join(map(str, samples))}."] if samples else []
    gaps = dict.fromkeys(reason for cell in cells for reason in cell.estimate.missing)
    return said + [f"Missing: {reason}." for reason in gaps]


def _units(names: list[str]) -> str:
    """What the numbers of metrics are in: percent, or another unit by metric where there is one."""
    others = [name for name in names if metrics.measure_of(name) is not SHARE]
    whole = [] if len(others) == len(names) else ["percent"]
    said = ", ".join([*whole, *(f"{column_label('', name)} {metrics.measure_of(name).in_unit}" for name in others)])
    return said[:1].upper() + said[1:]


def markdown_text(text: str) -> str:
    """A name within a Markdown table: neither an element of HTML nor the end of a cell."""
    return ELEMENT.sub("&lt;", " ".join(text.split())).replace("|", "\\|")


def as_markdown(grid: Grid, title: str) -> str:
    """One Markdown table per block, with the notes beneath."""
    blocks = []
    for block in grid_blocks(grid):
        head = f"| | {' | '.join(column_label(*key) for key in block)} |"
        rows = [
            [markdown_text(grid.label(row)), *("<br>".join(cell_lines(grid.cells[row, *key])) for key in block)]
            for row in grid.rows
        ]
        rows += [[name, *shown] for name, shown in baseline_rows(grid, block)]
        blocks.append([head, *_markdown_rows(rows, len(block) + 1)])
    return _markdown(title, blocks, grid_notes(grid), grid.caption)


def _markdown(title: str, blocks: list[list[str]], notes: list[str], caption: str = "") -> str:
    body = [line for block in blocks for line in (*block, "")]
    head = [f"# {markdown_text(title)}", "", *([markdown_text(caption), ""] if caption else [])]
    return "\n".join([*head, *body, *(f"- {markdown_text(note)}" for note in notes)]) + "\n"


def _markdown_rows(rows: list[list[str]], width: int) -> list[str]:
    """The line beneath the head of a table, and its rows."""
    return ["|" + "---|" * width, *(f"| {' | '.join(row)} |" for row in rows)]


def latex_text(said: str) -> str:
    """Escaped for pdfLaTeX, which has no letters beyond Latin and Greek ones; others are written as [U+4E2D]."""

    def known(character: str) -> str:
        if character.isascii() or ord(character) in ESCAPES or ord(character) < 0x180:
            return character
        plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
        return plain or f"[U+{ord(character):04X}]"

    return "".join(map(known, said)).translate(ESCAPES)


def text_width(said: str, size: float) -> float:
    """Points of a line of text, about."""
    return size * sum(
        WIDTHS.get(character, 0.5) for character in said.replace("$-$", "−").replace("$<$", "<").replace("  ", QUAD)
    )


# A contrast as text, from the same rows.


def contrast_heads(made: Comparison) -> list[str]:
    """Names of the columns."""
    tune = made.contrast.tune
    chosen = [f"{tune.axis.rpartition('.')[2].replace('_', ' ')} (best on {column_label(tune.band)})"] if tune else []
    floor = [] if made.fight else ["noise floor"]
    adjusted = [] if made.contrast.correction == "none" else [f"p ({made.contrast.correction.capitalize()}, of {made.tests})"]
    return ["", *chosen, "value", f"− {made.label(made.lineup.against)}", *floor, "p", *adjusted, "verdict"]


def contrast_cells(made: Comparison, block: ComparisonBlock, row: ComparisonRow) -> list[list[str]]:
    """What a row shows: a list of lines for each of `heads`."""
    first = row.verdict == COMPARED
    name = [made.label(row.chosen.name)] + (["baseline"] if first else [])
    chosen = [[row.chosen.value or "–"]] if made.contrast.tune else []
    shown = estimate_lines(row.estimate, block.metric) if row.estimate.seeds else ["missing"]
    gap = estimate_lines(row.gap, block.metric, True) if row.gap.seeds else ["–"]
    floor = [] if made.fight else [[metrics.measure_of(block.metric).shown(block.floor.size)]]
    adjusted = [] if made.contrast.correction == "none" else [[p_text(row.adjusted)]]
    found = [name, *chosen, shown, gap, *floor, [p_text(row.p)], *adjusted, ["–" if first else row.verdict]]
    return [[line for line in lines if line] for lines in found]


def estimate_lines(estimate: Estimate, metric: str, signed: bool = False) -> list[str]:
    """Value, interval and the value at each seed, in the unit of the metric."""
    value = metrics.measure_of(metric).shown(estimate.value, signed)
    return [value, interval_text(estimate, signed, metric), per_seed(estimate, signed, metric)]


def p_text(number: float) -> str:
    """`0.012`, `< 0.001`; a dash for none."""
    if np.isnan(number):
        return "–"
    return "< 0.001" if number < 0.001 else f"{number:.3f}"


def contrast_caption(made: Comparison, block: ComparisonBlock) -> str:
    """What a block is about, with its noise floor; of a fight with the pooled deviation."""
    floor = block.floor
    said = f"{column_label(block.column, block.metric)}."
    if made.fight:
        deviation = metrics.measure_of(block.metric).shown(floor.deviation)
        least = max((row.gap.detectable for row in block.rows if not np.isnan(row.gap.detectable)), default=np.nan)
        found = f"found with 80 % power: {metrics.measure_of(block.metric).shown(least)}"
        said += f" Standard deviation of an arm around its base, pooled over {floor.runs} runs: {deviation}; {found}."
        return said if floor.runs else f"{said.partition('.')[0]}."
    if np.isnan(floor.size):
        return f"{said} No noise floor: {'; '.join(floor.gap.missing) or 'no identical runs are there'}."
    unit = metrics.measure_of(block.metric)
    value, between, _ = estimate_lines(floor.gap, block.metric, True)
    said += f" Noise floor {unit.shown(floor.size)}: {floor.arm} − {floor.twin}, identical runs with other random streams, is "
    said += f"{value} {between} over {floor.gap.over}."
    if np.isnan(floor.deviation):
        return said
    return f"{said} Standard deviation of identical runs: {unit.shown(floor.deviation)} (pooled over {floor.runs} runs)."


def contrast_notes(made: Comparison) -> list[str]:
    """What must be known to read the numbers."""
    against, tune, seeds = made.lineup.against, made.contrast.tune, made.blocks[0].rows[0].estimate.seeds if made.blocks else ()
    level = f"{100 * (1 - made.look.level):.4g} %" if made.look else "95 %"
    rows, used = [row for block in made.blocks for row in block.rows], list(dict.fromkeys(one.metric for one in made.blocks))
    points = " in points" if all(metrics.measure_of(name) is SHARE for name in used) else ""
    points += "".join(f", of {metrics.metric_heading(name)} less is better" for name in used if metrics.lower_is_better(name))
    of_base = f"; {FOR_BASE}: for this base alone" if any(for_base(row.gap) for row in rows) else ""
    here = " Here: fewer than three bases." if any(row.verdict.endswith(HERE) for row in rows) else ""
    said = [
        f"{_units(used)}; differences to {against}{points}, with the {level} interval in brackets and the value at each seed.",
        *(_fight_rules(made, of_base, here) if made.fight else _floor_rules(made, of_base, here)),
    ]
    if tune is not None:
        tries, pilot = len(made.lineup.contenders[0].tries), ", ".join(map(str, tune.bases))
        over = f"the bases {pilot} of a pilot, which are judged nowhere," if pilot else "seeds"
        said.append(
            f"Each had {tries} values of {tune.axis} to choose from; it is represented by the best mean over {over} on "
            f"{column_label(tune.band)}, which is not judged here."
        )
    said += made.caveats
    said += ["One seed: verdicts are about these models, not about the methods that made them."] if len(seeds) == 1 else []
    gaps = dict.fromkeys(reason for row in rows for found in (row.estimate, row.gap) for reason in found.missing)
    return said + [f"Missing: {reason}." for reason in gaps]


def _floor_rules(made: Comparison, of_base: str, here: str) -> list[str]:
    holm = made.contrast.correction == "holm"
    adjusted = f". Adjusted by Holm's method for all {made.tests} comparisons of this table" if holm else ""
    return [
        f"Better or worse: p{', adjusted,' if holm else ''} is below 0.05 and the difference is larger than the noise floor. All "
        f"else is no information: these runs show no difference, which does not make the two equal.{here}",
        f"p: the t test of the interval, paired by seed and prompt{of_base}{adjusted}.",
    ]


def _fight_rules(made: Comparison, of_base: str, here: str) -> list[str]:
    margin = "" if made.contrast.margin is None else f"Equivalent: it lies within ±{100 * made.contrast.margin:g} points. "
    return [
        f"One outcome, {model.plural(made.tests, 'contender')}. The intervals hold together: a mixed model on the same "
        "bases and prompts, with one variance for all arms (an arm that varies more from base to base than the others keeps its "
        f"own), and the quantiles of Dunnett (1955){of_base}.",
        f"{margin}Better or worse: it leaves out 0. All else is no information.{here}",
        "p: the t test of the same model, and adjusted for all contenders.",
    ]


def contrast_csv(made: Comparison) -> str:
    """One line per row and block, fractions to 7 significant digits."""
    return _csv(CONTRAST_FIELDS, [_contrast_csv_row(made, block, row) for block in made.blocks for row in block.rows])


def _contrast_csv_row(made: Comparison, block: ComparisonBlock, row: ComparisonRow) -> dict[str, str | int]:
    found, gap, floor = row.estimate, row.gap, block.floor
    return {
        "column": block.column,
        "cell": block.metric,
        "name": row.chosen.name,
        "arm": row.chosen.arm,
        "chosen": row.chosen.value,
        "tuning": ";".join(map(number_text, row.chosen.tuning)),
        **_interval_fields(found, "estimate"),
        **_seed_fields(found),
        "against": block.rows[0].chosen.arm,
        **_interval_fields(gap, "difference", "difference_"),
        "floor": number_text(floor.size),
        "floor_low": number_text(floor.gap.low),
        "floor_high": number_text(floor.gap.high),
        "floor_arm": floor.arm,
        "floor_twin": floor.twin,
        "identical_sd": number_text(floor.deviation),
        "identical_runs": floor.runs,
        "p": number_text(row.p),
        "p_adjusted": number_text(row.adjusted),
        "correction": made.contrast.correction,
        "tests": made.tests,
        "verdict": row.verdict,
        "evaluations": ";".join(dict.fromkeys((*found.digests, *gap.digests))),
        "missing": "; ".join(dict.fromkeys((*found.missing, *gap.missing))),
    }


def contrast_markdown(made: Comparison, title: str) -> str:
    """One Markdown table per block, with the notes beneath."""
    names, blocks = contrast_heads(made), []
    for block in made.blocks:
        cells = [contrast_cells(made, block, row) for row in block.rows]
        rows = [["<br>".join(map(markdown_text, lines)) for lines in row] for row in cells]
        head = f"| {' | '.join(map(markdown_text, names))} |"
        blocks.append([markdown_text(contrast_caption(made, block)), "", head, *_markdown_rows(rows, len(names))])
    return _markdown(title, blocks, contrast_notes(made))
