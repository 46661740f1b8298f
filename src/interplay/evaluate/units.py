"""Samples of several units, judged as if they had been stopped after the first, the second, and so on (MinD, arXiv:2505.19788).
A sample is drawn from left to right, so what stands before the end of a unit is what stopping there would have left."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from interplay.data import pool as pools
from interplay.schema.evaluate import EvaluateSpec
from interplay.schema.metric import UNITS
from interplay.tasks.row import Row
from interplay.tasks.units import split


def with_caps(table: pa.Table, rows: Sequence[Row], completions: Sequence[str], spec: EvaluateSpec) -> pa.Table:
    """The rows of `samples.parquet` with their number of units, and for each cap whether the last unit up to it is strictly
    right, and has the right answer; a sample that ended before keeps its last one."""
    units = [split(text, spec.verify.separator) for text in completions]
    judged = [
        [pools.judged(spec.verify, row, unit) for unit in each[: spec.unit_caps]] for row, each in zip(rows, units, strict=True)
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


def counted(prompts: pa.Table, told: Mapping[str, np.ndarray]) -> pa.Table:
    """`prompts.parquet` with the sum over samples of each."""
    for name, values in told.items():
        prompts = prompts.append_column(name, pa.array(values.sum(axis=1), pa.int64()))
    return prompts
