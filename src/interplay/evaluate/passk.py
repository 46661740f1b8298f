"""From samples to numbers: pass@k, scores, baselines, error classes, and completions of several units."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from interplay.core.metrics import round_significant
from interplay.data import sets
from interplay.evaluate.spec import EvaluateSpec
from interplay.report.metric_spec import UNITS
from interplay.tasks.family import judge_family
from interplay.tasks.verdict import Row, pass_at_k, split_units

# From samples to numbers: pass@k, scores, baselines, error classes. P problems, n samples each.


class Samples(NamedTuple):
    """Judged samples, each array (P,n)."""

    strict: np.ndarray
    answer: np.ndarray
    score: np.ndarray
    """Of each, in [0, 1]."""
    truncated: np.ndarray
    length: np.ndarray
    error: np.ndarray
    """Error class of each, str."""


class Baselines(NamedTuple):
    """What knowing nothing of a problem earns on it, each array (P,)."""

    answer: np.ndarray
    """Chance that an answer drawn from the prior is right."""
    score: np.ndarray
    """Score of the trivial policy; NaN where the family names none."""


def powers(n: int) -> list[int]:
    """1, 2, 4, ... up to n."""
    return [1 << i for i in range(n.bit_length()) if 1 << i <= n]


def prior(rows: Sequence[Row]) -> np.ndarray:
    """For each problem the chance (P,) that an answer drawn from the gold answers of the other problems of its op and mode is
    right: what a model earns that knows how answers are distributed and does no arithmetic. 0 where there is no other
    problem."""
    count: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        count[row.op, row.mode][row.answer] += 1
    same = np.array([count[row.op, row.mode][row.answer] for row in rows])
    total = np.array([count[row.op, row.mode].total() for row in rows])
    return (same - 1) / np.maximum(total - 1, 1)


def trivial(rows: Sequence[Row]) -> np.ndarray:
    """For each problem the score (P,) of its family's trivial policy, such as citing every document; NaN for families without
    one."""
    found = []
    for row in rows:
        family = judge_family(row.family)
        found.append(family.trivial_score(family.loads(row.graph)) if family.trivial_score else np.nan)
    return np.array(found, dtype=float)


def summarise(
    rows: Sequence[Row], samples: Samples, nll: np.ndarray | None = None, further: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """The record's metrics: n_prompts, n_samples, and one `cell` for all problems (`all`) and for each band, op and mode; with
    `nll` (P,) of the gold solutions, and what `further` tells of samples, each (P,n), each cell has their mean too."""
    baselines = Baselines(prior(rows), trivial(rows))
    result: dict[str, Any] = {"n_prompts": len(rows), "n_samples": samples.strict.shape[1]}

    def of(chosen: np.ndarray) -> dict[str, Any]:
        told = nll is not None and not np.isnan(nll[chosen]).any()
        likelihood = {"nll": round_significant(nll[chosen].mean())} if nll is not None and told else {}
        means = {name: round_significant(values[chosen].mean(dtype=float)) for name, values in (further or {}).items()}
        return cell(samples, baselines, chosen) | likelihood | means

    result["all"] = of(np.ones(len(rows), dtype=bool))
    for axis in ("band", "op", "mode"):
        values = np.array([str(getattr(row, axis)) for row in rows])
        names = sorted(set(values), key=lambda name: (len(name), name) if axis == "op" else (0, name))
        result[axis] = {str(name): of(values == name) for name in names}
    return result


def cell(samples: Samples, baselines: Baselines, chosen: np.ndarray) -> dict[str, Any]:
    """Numbers over the `chosen` (P,) problems: strict_pass@k, answer_pass@k (unbiased, arXiv:2107.03374, eq. 1, mean over
    problems), prior_pass@k (k draws from the answer prior), mean score, baseline_score (of the trivial policies, where all of the
    problems have one), shares of error classes, share truncated, mean length in tokens."""
    n = samples.strict.shape[1]
    values: dict[str, Any] = {"n": int(chosen.sum())}
    for k in powers(n):
        values[f"strict_pass@{k}"] = round_significant(pass_at_k(n, samples.strict[chosen].sum(1), k).mean())
        values[f"answer_pass@{k}"] = round_significant(pass_at_k(n, samples.answer[chosen].sum(1), k).mean())
        values[f"prior_pass@{k}"] = round_significant((1 - (1 - baselines.answer[chosen]) ** k).mean())
    values["score"] = round_significant(samples.score[chosen].mean(dtype=float))
    if not np.isnan(baselines.score[chosen]).any():
        values["baseline_score"] = round_significant(baselines.score[chosen].mean())
    errors = Counter(samples.error[chosen].ravel().tolist())
    values["errors"] = {name: round_significant(count / errors.total()) for name, count in sorted(errors.items())}
    values["truncated"] = round_significant(samples.truncated[chosen].mean())
    values["length"] = round_significant(samples.length[chosen].mean())
    return values


# Samples of several units, judged as if they had been stopped after the first, the second, and so on (MinD, arXiv:2505.19788).
# A sample is drawn from left to right, so what stands before the end of a unit is what stopping there would have left.


def with_caps(table: pa.Table, rows: Sequence[Row], completions: Sequence[str], spec: EvaluateSpec) -> pa.Table:
    """The rows of `samples.parquet` with their number of units, and for each cap whether the last unit up to it is strictly
    right, and has the right answer; a sample that ended before keeps its last one."""
    units = [split_units(text, spec.verify.separator) for text in completions]
    judged = [
        [sets.judge_completion(spec.verify, row, unit) for unit in each[: spec.unit_caps]]
        for row, each in zip(rows, units, strict=True)
    ]
    table = table.append_column(UNITS, pa.array([len(each) for each in units], pa.int32()))
    for cap in range(1, spec.unit_caps + 1):
        stopped = [each[min(cap, len(each)) - 1] for each in judged]
        for kind in ("strict", "answer"):
            right = [bool(getattr(verdict, kind)) for verdict in stopped]
            table = table.append_column(f"{kind}_cap@{cap}", pa.array(right, pa.bool_()))
    return table


def of_samples(table: pa.Table, num_samples: int) -> dict[str, np.ndarray]:
    """Metric -> (P,n) of the columns of `with_caps`; empty where they are not there."""
    names = [name for name in table.column_names if name == UNITS or "_cap@" in name]
    return {name: table[name].to_numpy().reshape(-1, num_samples) for name in names}


def count_caps(prompts: pa.Table, told: Mapping[str, np.ndarray]) -> pa.Table:
    """`prompts.parquet` with the sum over samples of each."""
    for name, values in told.items():
        prompts = prompts.append_column(name, pa.array(values.sum(axis=1), pa.int64()))
    return prompts
