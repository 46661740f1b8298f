"""Pictures of docs/findings/: the differences that each finding rests on, a dot for each base and the mean with its 95 % interval
over bases, read from the committed results. The numbers of those pages are checked with `difference` and `estimate`."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from interplay.core import artifact
from interplay.report.stats.intervals import t_interval
from interplay.report.write import summary
from tools.reference import overlays
from tools.reference.verdicts import BLUE, FAINT, ORANGE, WIDTH, drawn, text

FOLDER = "docs/images"
LEFT, RIGHT, ROW = 178, 14, 34
RANGE = (-100.0, 100.0)
"""Of a difference in points."""
PALE = "#e6eaee"
ONE, MANY = "strict_pass@1", "strict_pass@16"


class Row(NamedTuple):
    """`arm` minus `against` in a study, over what its seeds vary."""

    label: str
    study: str
    arm: str
    against: str
    column: str
    metric: str = ONE
    less: tuple[str, str] | None = None
    """Column and metric of which the same difference is subtracted."""
    of_runs: bool = False
    """Dots are RL runs of one base, which all seeds share."""


class Panel(NamedTuple):
    """Rows below a heading."""

    title: str
    rows: tuple[Row, ...]


ORDER, ENTROPY, CENTRAL = "conflicts.order.coffee", "conflicts.entropy.coffee", "interplay.central.laptop"
EDGE, CONTEXTS, CONTEXT_BASES = "edge.laptop", "interplay.contexts.laptop", "interplay.context_bases.laptop"
USUAL = (("SMR", "MSR"), ("RMS", "MSR"), ("MRS", "MSR"), ("RSM", "MSR"), ("SRM", "MSR"), ("RS", "SR"), ("RM", "MR"))
"""Orders, each with the order of the same stages in which RL is last."""
LAST = (("RL after M", "MR", "M"), ("RL before M", "RM", "M"), ("RL after S", "SR", "S"), ("RL before S", "RS", "S"))
ALL = (
    ("RL after M and S", "MSR", "MS"),
    ("RL between M and S", "MRS", "MS"),
    ("RL before M and S", "RMS", "MS"),
    ("RL after S and M", "SMR", "SM"),
    ("RL between S and M", "SRM", "SM"),
    ("RL before S and M", "RSM", "SM"),
)
TREATMENTS = {
    "RL at the edge": ("rl_edge", "rl_edge"),
    "RL within": ("rl_within", "rl_id"),
    "SFT on gold solutions": ("gold", "gold"),
    "mid-training, then RL": ("mid_rl", "mid_rl"),
}
"""Treatment -> its arm in the study of 24 bases and in that of one."""
LEVERS = (("price", "bonus"), ("bonus", "grpo"), ("price", "grpo"))
TRICKS, CURRICULA = "methods.tricks_replication.coffee", "curricula.showdown_replication.coffee"
SHOWDOWN = "methods.showdown_replication.coffee"
CHANGES = {
    "80/20": "top",
    "deviation of the batch": "batch",
    "means over sequences": "sequences",
    "raised clip": "raised_clip",
    "entropy bonus": "bonus",
    "entropy price": "price",
}
"""Change of GRPO's loss -> its arm."""
METHODS = {
    "another random stream": "again",
    "DisCO": "disco",
    "GSPO": "gspo",
    "DAPO": "dapo",
    "CISPO": "cispo",
    "RLOO": "rloo",
    "pass@k training": "pass_k",
}
"""Method that neither breaks nor is the one compared with -> its arm."""
SAMPLERS = {
    "another random stream": "again",
    "pass rates near a half": "edge",
    "the hardest first": "hard_first",
    "the hardest kept": "retain_hardest",
}
"""Change of what RL draws -> its arm."""
PICTURES: Mapping[str, tuple[str, tuple[Panel, ...]]] = {
    "order": (
        "The order of the same stages, six bases",
        (
            Panel("At the edge, one sample", tuple(Row(f"{a} − {b}", ORDER, a, b, "edge") for a, b in USUAL)),
            Panel("At the edge, 16 samples", tuple(Row(f"{a} − {b}", ORDER, a, b, "edge", MANY) for a, b in USUAL)),
            Panel(
                "What RL adds to the same supervision, one sample", tuple(Row(n, ORDER, a, b, "edge") for n, a, b in LAST + ALL)
            ),
        ),
    ),
    "entropy": (
        "Entropy paid for or charged for, eight bases",
        tuple(
            Panel(
                f"{arm} − {against.replace('grpo', 'GRPO')}",
                (
                    Row("one sample", ENTROPY, arm, against, "edge"),
                    Row("likeliest completion", ENTROPY, arm, against, "greedy"),
                    Row("the one less the other", ENTROPY, arm, against, "edge", less=("greedy", ONE)),
                    Row("32 samples", ENTROPY, arm, against, "edge", "strict_pass@32"),
                    Row("32 samples, beyond", ENTROPY, arm, against, "beyond", "strict_pass@32"),
                ),
            )
            for arm, against in LEVERS
        ),
    ),
    "methods": (
        "Changes of GRPO, draws, and whole methods, 48 bases",
        (
            Panel("At the edge, one sample, less GRPO", tuple(Row(n, TRICKS, a, "grpo", "edge") for n, a in CHANGES.items())),
            Panel("Beyond, 16 samples, less GRPO", tuple(Row(n, TRICKS, a, "grpo", "beyond", MANY) for n, a in CHANGES.items())),
            Panel(
                "At the edge, one sample, less uniform draws",
                tuple(Row(n, CURRICULA, a, "uniform", "edge") for n, a in SAMPLERS.items()),
            ),
            Panel(
                "Methods at the edge, one sample, less GRPO",
                tuple(Row(n, SHOWDOWN, a, "grpo", "edge") for n, a in METHODS.items()),
            ),
        ),
    ),
    "bases": (
        "Over bases, and over runs of one base",
        (
            *(
                Panel(
                    f"{name}: gain at the edge",
                    (
                        Row("24 bases", CENTRAL, over, "base", "edge"),
                        Row("3 runs of one base", EDGE, runs, "base", "edge", of_runs=True),
                    ),
                )
                for name, (over, runs) in TREATMENTS.items()
            ),
            Panel(
                "5 % of atoms, then RL: another context, 32 samples",
                (
                    Row("3 bases", CONTEXT_BASES, "some", "none", "b_high", "strict_pass@32"),
                    Row("3 runs of one base", CONTEXTS, "some", "none", "b_high", "strict_pass@32", of_runs=True),
                ),
            ),
        ),
    ),
}
"""Name of a picture -> its title and panels."""


def files(root: Path) -> Mapping[Path, str]:
    """The pictures."""
    return {root / FOLDER / f"finding_{name}.svg": _drawn(root, title, panels) for name, (title, panels) in PICTURES.items()}


def difference(root: Path, row: Row) -> np.ndarray:
    """By seed, in points (n,)."""
    if row.less:
        column, metric = row.less
        return difference(root, row._replace(less=None)) - difference(root, row._replace(column=column, metric=metric, less=None))
    known = scores(root, row.study)
    return known[row.arm, row.column, row.metric] - known[row.against, row.column, row.metric]


def estimate(values: np.ndarray) -> tuple[float, float, float]:
    """Mean of differences (n,) in points, with Student's 95 % interval over them: prompts are held fixed."""
    return (float(values.mean()), *t_interval(values, RANGE))


def stated(values: np.ndarray) -> str:
    """The estimate as pages have it."""
    mean, low, high = (round(end, 1) + 0.0 for end in estimate(values))
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


@lru_cache(maxsize=16)
def scores(root: Path, name: str) -> dict[tuple[str, str, str], np.ndarray]:
    """(arm, column, metric) -> points by seed of the study (n,). Without what lacks a seed: rows are compared seed by seed."""
    result = artifact.read_json(root / "docs" / "results" / f"{name}.json.gz")
    cells = [cell for grid in summary.read_grids(result).values() for cell in grid.cells.values() if not cell.against]
    complete = [cell for cell in cells if len(cell.estimate.per_seed) == len(result["seeds"])]
    return {(one.arm, one.column, one.metric): 100 * np.array(one.estimate.per_seed) for one in complete}


def _drawn(root: Path, title: str, panels: Sequence[Panel]) -> str:
    """The file: panels below each other on one axis."""
    every = {row: difference(root, row) for panel in panels for row in panel.rows}
    ends = [end for values in every.values() for end in (*values, *estimate(values)[1:])]
    low, high = 10 * np.floor(min(ends) / 10), 10 * np.ceil(max(ends) / 10)
    span = (WIDTH - LEFT - RIGHT) / (high - low)

    def x(points: float) -> float:
        return round(LEFT + span * (points - low), 1)

    ticks = overlays.ticks(low, high)
    marks, top = [text(8, 18, title, 14, 600), text(8, 36, "Dots: bases, or runs. Bars: mean, 95 % interval over them.", 11)], 46
    for panel in panels:
        start = top + 26
        marks.append(text(8, start, panel.title, 12, 600))
        below = start + 8 + ROW * len(panel.rows)
        marks += [_line(x(tick), start + 8, x(tick), below, FAINT if tick == 0 else PALE) for tick in ticks]
        marks += [text(x(tick), below + 13, f"{tick:.0f}".replace("-", "−"), 10, anchor="middle") for tick in ticks]
        for place, row in enumerate(panel.rows):
            marks += _row(row, every[row], x, start + 8 + ROW * place + ROW / 2)
        top = below + 16
    return drawn(top + 10, marks)


def _row(row: Row, values: np.ndarray, x: overlays.Scale, y: float) -> list[str]:
    """A row's label with its numbers, its dots, and the bar above them."""
    mean, low, high = estimate(values)
    color = ORANGE if row.of_runs else BLUE
    said = stated(values).replace("-", "−")
    return [
        text(LEFT - 10, y - 3, row.label, 11, anchor="end"),
        text(LEFT - 10, y + 10, said, 10, anchor="end"),
        _line(x(low), y - 6, x(high), y - 6, color, 2),
        f'<rect x="{x(mean) - 2}" y="{y - 10}" width="4" height="8" fill="{color}"/>',
        *(f'<circle cx="{x(one)}" cy="{y + 6}" r="3" fill="{color}" fill-opacity="0.45"/>' for one in values),
    ]


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: int = 1) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="{width}"/>'
