"""What an arm gained over another: sharpening of what that one could already do, or capability that it did not have.

pass@k of a base is what its samples reach if one could pick the best; folding it into pass@1 is sharpening, and what lies beyond
it is capability (the question of arXiv:2504.13837 and of arXiv:2512.07783). Here both are measured prompt by prompt. Of a prompt
let c of n samples of the base and d of m samples of the arm be strictly right, and let the gain be d/m - c/n. Then, as means over
prompts,

    sharpening  = gain where c > 0, else 0          capability = gain where c = 0, else 0

which add up to the gain exactly. Their limit: the same samples choose the prompts and measure the base on them, and of prompts
chosen for c = 0 the true rate of the base is above 0. By this regression to the mean the base, sampled afresh, would show
capability above 0 and sharpening as far below. Samples of one number share their noise in both models, which takes part of that
away (a model against itself shows 0), and how much depends on how similar the models are.

Where the evaluations have several blocks of samples, `capability_split` has no such bias: the base's samples in one half of the
blocks choose, and the other half measures both models, once either way, each weighted by the samples that measure. Samples of
different numbers share no noise, so it estimates the gain on prompts that the base fails in so many samples without bias,
however similar the models. What a half never solves is more than what all never solve, so the two pairs answer slightly
different questions. With one block the counts per prompt do not show which samples chose, and the columns are left out.

`newly_solved@k` and `lost@k` are shares of prompts: k samples of the base all fail and one of k of the arm succeeds, and the
reverse. With k = n they are counts of prompts. With k < n they are products of unbiased pass@k of both (arXiv:2107.03374, eq. 1),
as if sampled independently, and for models so similar that they share successes both come out too high. Their difference is the
difference of pass@k exactly, for any k; each alone is above 0 between a model and itself sampled afresh."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from interplay.report.metric_spec import SHARE
from interplay.report.spec import Table
from interplay.report.stats import frame
from interplay.report.stats import notes as stats_notes
from interplay.report.stats.estimate import Estimate, paired_estimate
from interplay.report.write.tables import Cell, Grid, column_ops, expand_columns, trained_mark
from interplay.tasks.verdict import pass_at_k

SUFFIX = "_gain"
"""Suffix of the name of the table."""
PARTS = ("gain", "sharpening", "capability")
SPLIT = ("sharpening_split", "capability_split")
"""The same where other samples choose than measure."""
SHARES = ("newly_solved", "lost")


class Counts(NamedTuple):
    """Strictly right samples of P prompts and how many there are, each array (P,)."""

    right: np.ndarray
    n: np.ndarray
    right_head: np.ndarray | None = None
    """Of the first half of the blocks; None where there is one block."""
    n_head: np.ndarray | None = None


def gain_metrics(k: int, split: bool = True) -> list[str]:
    """Columns of a table of gains, in order."""
    return [*PARTS, *(SPLIT if split else ()), *(f"{name}@{k}" for name in SHARES)]


def per_prompt(base: Counts, arm: Counts, k: int) -> dict[str, np.ndarray]:
    """Each quantity of `metrics(k)` for each prompt (P,); NaN for the split ones where there is one block."""
    gain = arm.right / arm.n - base.right / base.n
    solved = base.right > 0
    capability = _capability_split(base, arm)
    solved_base, solved_arm = (pass_at_k(counts.n, counts.right, k) for counts in (base, arm))
    values = (gain, np.where(solved, gain, 0.0), np.where(solved, 0.0, gain), gain - capability, capability)
    shares = ((1 - solved_base) * solved_arm, solved_base * (1 - solved_arm))
    return dict(zip(gain_metrics(k), [*values, *shares], strict=True))


def _capability_split(base: Counts, arm: Counts) -> np.ndarray:
    """Capability (P,) with one half of the base's blocks choosing and the other half of both models measuring, both ways."""
    if base.right_head is None or base.n_head is None or arm.right_head is None or arm.n_head is None:
        return np.full(len(base.right), np.nan)
    base_tail, of_base = base.right - base.right_head, base.n - base.n_head
    arm_tail, of_arm = arm.right - arm.right_head, arm.n - arm.n_head
    by_head = np.where(base.right_head > 0, 0.0, arm_tail / of_arm - base_tail / of_base)
    by_tail = np.where(base_tail > 0, 0.0, arm.right_head / arm.n_head - base.right_head / base.n_head)
    return (of_base * by_head + base.n_head * by_tail) / base.n


def gain_grid(results: frame.Results, table: Table) -> Grid:
    """The gains of a table with `gain`: a row per arm except the one that they are compared with. The planner gave it a k."""
    assert table.gain is not None
    against, k = table.gain.against, table.gain.k or 1
    arms = [arm for arm in frame.arms(results.spec) if arm != against and (table.arms is None or arm in table.arms)]
    columns, shown = expand_columns(results, table.columns), gain_metrics(k, _halved(results, [*arms, against]))
    held = {column: column_ops(results, column) for column in columns}
    cells = {}
    for arm in arms:
        trained = frame.trained_ops(results, arm)
        for column in columns:
            for metric in shown:
                found = gain_estimate(results, arm, against, column, metric, k)
                cell = Cell(arm, against, column, metric, found, trained_mark(held[column], trained))
                cells[cell.row, column, metric] = cell
    rows = list(dict.fromkeys(key[0] for key in cells))
    said = (*gain_notes(against, k, SPLIT[0] in shown), *stats_notes.caveats_of(results, [*arms, against]))
    return Grid(rows, columns, shown, cells, {}, said)


def gain_estimate(results: frame.Results, arm: str, against: str, column: str, metric: str, k: int) -> Estimate:
    """One cell: the mean over prompts, with the interval that differences have."""

    def of(one: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
        found = per_prompt(_counts(other.loc[one.index]), _counts(one), k)
        return pd.Series(found[metric], index=one.index)

    share = metric.partition("@")[0] in SHARES
    support = SHARE.support if share else SHARE.support_of_differences
    return paired_estimate(results, arm, against, column, f"strict_pass@{k}", of, support)


def _counts(rows: pd.DataFrame) -> Counts:
    names = ("strict", "n", *(name for name in frame.HEAD if name in rows))
    return Counts(*(rows[name].to_numpy() for name in names))


def _halved(results: frame.Results, arms: list[str]) -> bool:
    """Whether every evaluation of these arms that is there has several blocks."""
    digests = [digest for row in results.spec.arms if row.arm in arms for digest in row.evaluations.values()]
    return all(set(frame.HEAD) <= set(results.prompts[digest].columns) for digest in digests if digest in results.prompts)


def gain_notes(against: str, k: int, split: bool) -> tuple[str, ...]:
    """What must be known to read the columns."""
    split_note = (
        "Columns marked split have no such bias: one half of the blocks of samples chooses, the other measures both, either way."
        if split
        else "With several blocks of samples (more than 32) the table also has columns without that bias."
    )
    return (
        f"Gain: strict pass@1 minus that of {against}. It is, exactly, sharpening (on prompts that some sample of {against} "
        f"solved) plus capability (on prompts that none did).",
        f"The same samples of {against} choose these prompts and measure it there, so that by regression to the mean {against} "
        f"sampled afresh would show capability above 0 and sharpening below. {split_note}",
        f"Newly solved@{k}: share of prompts that {against} fails in {k} samples and the arm solves in {k}; lost@{k}: the "
        f"reverse. Their difference is that of strict pass@{k}; chance alone puts each above 0.",
    )
