"""What an arm gained over another: sharpening of what that one could already do, or capability that it did not have.

pass@k of a base is what its samples reach if one could pick the best; folding it into pass@1 is sharpening, and what lies beyond
it is capability (the question of arXiv:2504.13837 and of arXiv:2512.07783). Here both are measured prompt by prompt. Of a prompt
let c of n samples of the base and d of m samples of the arm be strictly right, and let the gain be d/m - c/n. Then, as means over
prompts,

    sharpening  = gain where c > 0, else 0          capability = gain where c = 0, else 0

which add up to the gain exactly. Their limit: the same samples choose the prompts and measure the base on them, and of prompts
chosen for c = 0 the true rate of the base is above 0. By this regression to the mean alone, the base sampled once more would
show capability above 0 and sharpening as far below. `capability_split` has no such bias: j = min(k, n // 2) of the base's samples
choose and the others measure, averaged over all ways to choose them,

    C(n-c, j) / C(n, j) * d/m  -  C(n-c, j) / C(n, j) * c / (n-j)

which estimates (1-p)^j (q-p) without bias for true rates p of the base and q of the arm (a U-statistic: of the splits in which
no chooser is right, all c right ones are among the n-j that measure). `sharpening_split` is the gain less that. Further blocks of
samples are counted in n and make both sharper. What j samples never solve is more than what n never solve, so the two pairs
answer slightly different questions.

`newly_solved@k` and `lost@k` are shares of prompts: the chance that k samples of the base all fail and one of k of the arm
succeeds, and the reverse, from unbiased pass@k of both (arXiv:2107.03374, eq. 1; the two are sampled independently, so products
of unbiased estimates are unbiased). With k = n they are counts of prompts. Their difference is the difference of pass@k exactly;
each alone is above 0 even between a model and itself."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from interplay.report import frame, measure
from interplay.report.estimate import Estimate, paired
from interplay.report.frame import Results
from interplay.report.tables import Cell, Grid, column_ops, expand_columns, trained_mark
from interplay.schema.report import Table
from interplay.tasks.score import pass_at_k

SUFFIX = "_gain"
"""Behind the name of the table whose gains they are."""
PARTS = ("gain", "sharpening", "capability", "sharpening_split", "capability_split")
SHARES = ("newly_solved", "lost")


class Counts(NamedTuple):
    """Strictly right samples of P prompts, by the base and by the arm, each array (P,)."""

    base: np.ndarray
    of_base: np.ndarray
    """Samples of the base."""
    arm: np.ndarray
    of_arm: np.ndarray


def metrics(k: int) -> list[str]:
    """Columns of a table of gains, in order."""
    return [*PARTS, *(f"{name}@{k}" for name in SHARES)]


def is_gain(metric: str) -> bool:
    """Whether this names a column of a table of gains."""
    return metric in PARTS or metric.partition("@")[0] in SHARES


def per_prompt(counts: Counts, k: int) -> dict[str, np.ndarray]:
    """Each quantity of `metrics(k)` for each prompt (P,); NaN for the split ones where the base has one sample."""
    rate, base_rate = counts.arm / counts.of_arm, counts.base / counts.of_base
    gain = rate - base_rate
    solved = counts.base > 0
    choosing = min(k, int(counts.of_base.min()) // 2)
    if choosing:
        missed = 1 - pass_at_k(counts.of_base, counts.base, choosing)
        capability = missed * (rate - counts.base / (counts.of_base - choosing))
    else:
        capability = np.full(len(gain), np.nan)
    solved_base, solved_arm = (
        pass_at_k(n, right, k) for right, n in ((counts.base, counts.of_base), (counts.arm, counts.of_arm))
    )
    values = (gain, np.where(solved, gain, 0.0), np.where(solved, 0.0, gain), gain - capability, capability)
    shares = ((1 - solved_base) * solved_arm, solved_base * (1 - solved_arm))
    return dict(zip(metrics(k), [*values, *shares], strict=True))


def grid(results: Results, table: Table) -> Grid:
    """The gains of a table that asks for them: a row per arm but the one that they are compared with. The planner gave it a k."""
    assert table.gain is not None
    against, k = table.gain.against, table.gain.k or 1
    arms = [arm for arm in frame.arms(results.spec) if arm != against and (table.arms is None or arm in table.arms)]
    columns = expand_columns(results, table.columns)
    held = {column: column_ops(results, column) for column in columns}
    cells = {}
    for arm in arms:
        trained = frame.trained_ops(results, arm)
        for column in columns:
            for metric in metrics(k):
                found = estimate(results, arm, against, column, metric, k)
                cell = Cell(arm, against, column, metric, found, trained_mark(held[column], trained))
                cells[cell.row, column, metric] = cell
    rows = list(dict.fromkeys(key[0] for key in cells))
    return Grid(rows, columns, metrics(k), cells, {}, notes(against, k))


def estimate(results: Results, arm: str, against: str, column: str, metric: str, k: int) -> Estimate:
    """One cell: the mean over prompts, with the interval that differences have."""

    def of(one: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
        base = other.loc[one.index]
        counts = Counts(*(rows[name].to_numpy() for rows in (base, one) for name in ("strict", "n")))
        return pd.Series(per_prompt(counts, k)[metric], index=one.index)

    share = metric.partition("@")[0] in SHARES
    support = measure.SHARE.support if share else measure.SHARE.support_of_differences
    return paired(results, arm, against, column, f"strict_pass@{k}", of, support)


def notes(against: str, k: int) -> tuple[str, ...]:
    """What must be known to read the columns."""
    return (
        f"Gain: strict pass@1 minus that of {against}. It is, exactly, sharpening (on prompts that some sample of {against} "
        f"solved) plus capability (on prompts that none did).",
        f"Split: the same samples of {against} choose these prompts and measure it there, so that by regression to the mean "
        f"{against} sampled again would show capability above 0 and sharpening below. In the columns marked split, up to half of "
        f"its samples choose and the others measure, averaged over all ways to choose: no such bias.",
        f"Newly solved@{k}: share of prompts that {against} fails in {k} samples and the arm solves in {k}; lost@{k}: the "
        f"reverse. Their difference is that of strict pass@{k}; chance alone puts each above 0.",
    )
