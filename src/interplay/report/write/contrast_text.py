"""A contrast as text: CSV for programs, Markdown and LaTeX for reading, from the same rows."""

import csv
import io

import numpy as np

from interplay.report.metric_spec import measure_of
from interplay.report.stats.contrast import COMPARED, Block, Made, Row
from interplay.report.stats.estimate import Estimate
from interplay.report.write.tables import label
from interplay.report.write.text import OVER_PROMPTS, digits, interval, markdown, over_prompts, per_seed, tex

FIELDS = ["column", "cell", "name", "arm", "chosen", "tuning", "estimate", "low", "high", "over", "seeds", "per_seed"]
FIELDS += ["against", "difference", "difference_low", "difference_high", "difference_over", "floor", "floor_low", "floor_high"]
FIELDS += ["floor_arm", "floor_twin", "identical_sd", "identical_runs", "p", "p_adjusted", "correction", "tests", "verdict"]
FIELDS += ["evaluations", "missing"]


def heads(made: Made) -> list[str]:
    """Names of the columns."""
    tune = made.contrast.tune
    chosen = [f"{tune.axis.rpartition('.')[2].replace('_', ' ')} (best on {label(tune.band)})"] if tune else []
    adjusted = [f"p (Holm, of {made.tests})"] if made.contrast.correction == "holm" else []
    return ["", *chosen, "value", f"− {made.lineup.against}", "noise floor", "p", *adjusted, "verdict"]


def cells(made: Made, block: Block, row: Row) -> list[list[str]]:
    """What a row shows: a list of lines for each of `heads`."""
    first = row.verdict == COMPARED
    name = [row.chosen.name] + (["what the others are compared with"] if first else [])
    chosen = [[row.chosen.value or "–"]] if made.contrast.tune else []
    shown = told(row.estimate, block.metric) if row.estimate.seeds else ["missing"]
    gap = told(row.gap, block.metric, True) if row.gap.seeds else ["–"]
    floor = measure_of(block.metric).shown(block.floor.size)
    adjusted = [[p(row.adjusted)]] if made.contrast.correction == "holm" else []
    found = [name, *chosen, shown, gap, [floor], [p(row.p)], *adjusted, ["–" if first else row.verdict]]
    return [[line for line in lines if line] for lines in found]


def told(estimate: Estimate, metric: str, signed: bool = False) -> list[str]:
    """Value, interval and the value at each seed, in the unit of the metric."""
    value = measure_of(metric).shown(estimate.value, signed)
    return [value, interval(estimate, signed, metric), per_seed(estimate, signed, metric)]


def p(number: float) -> str:
    """`0.012`, `< 0.001`; a dash for none."""
    if np.isnan(number):
        return "–"
    return "< 0.001" if number < 0.001 else f"{number:.3f}"


def caption(block: Block) -> str:
    """What a block is about, with its noise floor."""
    floor = block.floor
    said = f"{label(block.column, block.metric)}."
    if np.isnan(floor.size):
        return f"{said} No noise floor: {'; '.join(floor.gap.missing) or 'no identical runs are there'}."
    unit = measure_of(block.metric)
    value, between, _ = told(floor.gap, block.metric, True)
    said += f" Noise floor {unit.shown(floor.size)}: {floor.arm} − {floor.twin}, which differ in their random stream alone, is "
    said += f"{value} {between} over {floor.gap.over}."
    if np.isnan(floor.deviation):
        return said
    return f"{said} Standard deviation of identical runs: {unit.shown(floor.deviation)} (pooled over {floor.runs} runs)."


def notes(made: Made) -> list[str]:
    """What must be known to read the numbers."""
    against, tune, seeds = made.lineup.against, made.contrast.tune, made.blocks[0].rows[0].estimate.seeds if made.blocks else ()
    rows = [row for block in made.blocks for row in block.rows]
    said = [f"Percent; differences to {against} in points, with the 95 % interval in brackets and the value at each seed."]
    said.append(
        f"Better or worse: p{', adjusted,' if made.contrast.correction == 'holm' else ''} is below 0.05 and the difference is "
        f"larger "
        "than the noise floor. All else is no information: these runs do not separate the two, which does not make them equal."
    )
    said.append(
        "p: the paired t test over seeds"
        + (f"; {OVER_PROMPTS}: the bootstrap over prompts" if any(over_prompts(row.gap) for row in rows) else "")
        + (
            f". Adjusted by Holm's method for all {made.tests} comparisons of this table"
            if made.contrast.correction == "holm"
            else ""
        )
        + "."
    )
    if tune is not None:
        tries = len(made.lineup.contenders[0].tries)
        said.append(
            f"Each had {tries} values of {tune.axis} to choose from; the best mean over seeds on {label(tune.band)}, which is "
            f"not "
            "judged here, stands for it."
        )
    said += made.caveats
    if len(seeds) == 1:
        said.append("One seed: verdicts are about these models, not about the methods that made them.")
    gaps = dict.fromkeys(reason for row in rows for found in (row.estimate, row.gap) for reason in found.missing)
    return said + [f"Missing: {reason}." for reason in gaps]


def as_csv(made: Made) -> str:
    """One line per row and block, fractions to 7 significant digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_csv_row(made, block, row) for block in made.blocks for row in block.rows)
    return text.getvalue()


def _csv_row(made: Made, block: Block, row: Row) -> dict[str, str | int]:
    found, gap, floor = row.estimate, row.gap, block.floor
    return {
        "column": block.column,
        "cell": block.metric,
        "name": row.chosen.name,
        "arm": row.chosen.arm,
        "chosen": row.chosen.value,
        "tuning": ";".join(digits(number) for number in row.chosen.tuning),
        "estimate": digits(found.value),
        "low": digits(found.low),
        "high": digits(found.high),
        "over": found.over,
        "seeds": ";".join(str(seed) for seed in found.seeds),
        "per_seed": ";".join(digits(number) for number in found.per_seed),
        "against": block.rows[0].chosen.arm,
        "difference": digits(gap.value),
        "difference_low": digits(gap.low),
        "difference_high": digits(gap.high),
        "difference_over": gap.over,
        "floor": digits(floor.size),
        "floor_low": digits(floor.gap.low),
        "floor_high": digits(floor.gap.high),
        "floor_arm": floor.arm,
        "floor_twin": floor.twin,
        "identical_sd": digits(floor.deviation),
        "identical_runs": floor.runs,
        "p": digits(row.p),
        "p_adjusted": digits(row.adjusted),
        "correction": made.contrast.correction,
        "tests": made.tests,
        "verdict": row.verdict,
        "evaluations": ";".join(dict.fromkeys((*found.digests, *gap.digests))),
        "missing": "; ".join(dict.fromkeys((*found.missing, *gap.missing))),
    }


def as_markdown(made: Made, title: str) -> str:
    """One Markdown table per block, with the notes beneath."""
    parts = [f"# {markdown(title)}", ""]
    for block in made.blocks:
        names = heads(made)
        parts += [markdown(caption(block)), "", f"| {' | '.join(map(markdown, names))} |", "|" + "---|" * len(names)]
        parts += [
            f"| {' | '.join('<br>'.join(map(markdown, lines)) for lines in cells(made, block, row))} |" for row in block.rows
        ]
        parts.append("")
    return "\n".join(parts + [f"- {markdown(note)}" for note in notes(made)]) + "\n"


def as_latex(made: Made, title: str) -> str:
    """One tabular per block (booktabs), with captions and notes as comments."""
    said = [f"{title}. Needs \\usepackage{{booktabs}}.", *notes(made)]
    parts = [f"% {' '.join(line.split())}" for line in said]
    for block in made.blocks:
        names = heads(made)
        parts += [f"% {caption(block)}", rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}", r"\toprule"]
        parts += [" & ".join(map(tex, names)) + r" \\", r"\midrule"]
        for row in block.rows:
            parts.append(" & ".join(tex(" ".join(lines[:2])) for lines in cells(made, block, row)) + r" \\")
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)
