"""Where numbers come from: the stages behind a report, each arm's path, overlaps of problem sets."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from interplay.kinds.table import SETS
from interplay.report.stats import frame
from interplay.report.stats.frame import Results
from interplay.report.write.ledger import steps

LEAST_ERROR = 0.0005
"""Share below which an error class is not worth a word: it would read 0.0 %."""


def arms(results: Results) -> list[dict[str, Any]]:
    """One entry per arm: its control, the ops it was trained on, its steps as (name, first seed's digest), its errors by
    band."""
    return [_arm(results, name) for name in frame.arms(results.spec)]


def _arm(results: Results, name: str) -> dict[str, Any]:
    rows = [item for item in results.spec.arms if item.arm == name]
    ops = frame.trained_ops(results, name)
    unknown = "it starts from a model that was made elsewhere" if frame.adopted(results, name) else "its data are not here"
    trained = ranges(ops) if ops is not None else f"not known: {unknown}"
    errors = _errors(results, list(dict.fromkeys(digest for row in rows for _, digest in sorted(row.evaluations.items()))))
    path = [(step, digest) for step, _, digest in steps(rows[0])]
    return {"name": name, "control": rows[0].control, "trained": trained, "steps": path, "errors": errors}


def _errors(results: Results, evaluations: list[str]) -> dict[str, str]:
    """Band -> its error classes with their share of all samples, most frequent first, mean over the evaluations."""
    records = [results.records[digest]["metrics"] for digest in evaluations if digest in results.records]
    said = {}
    for band in frame.bands(results):
        shares = [metrics.get("band", {}).get(band, {}).get("errors", {}) for metrics in records]
        names = {name for share in shares for name in share} - {"none"}
        means = {name: sum(share.get(name, 0.0) for share in shares) / len(shares) for name in names}
        order = sorted(means, key=lambda name: (-means[name], name))
        said[band] = ", ".join(f"{name} {100 * means[name]:.1f} %" for name in order if means[name] >= LEAST_ERROR)
    return {band: text for band, text in said.items() if text}


class Overlap(NamedTuple):
    """How clean one test set is: by structural key (equal up to renaming of letters and reordering of definitions) and by
    origin (equal for all variants of one question)."""

    digest: str
    size: int
    repeats: dict[int, int]
    """Op -> problems whose structure an earlier one of the set has."""
    shared: dict[int, int]
    """Op -> problems whose structure, or that of the row that they were made of, is one in `against` or of what that was made
    of."""
    variants: dict[int, int]
    """Op -> problems that were made of the same row as some problem in `against`."""
    against: list[str]
    """Digests of the other problem sets among the report's inputs that something was trained on."""


class _Rows(NamedTuple):
    """A problem set as sets are compared, each column (P,)."""

    op: pd.Series
    key: pd.Series
    origin: pd.Series
    """`digest:index` of the row that it was first made as."""
    root: pd.Series
    """Structural key of that row; its own where the origin is not here."""


def overlaps(results: Results) -> list[Overlap]:
    """One entry per test set among the inputs, checked against the sets that arms were trained on as far as they are here;
    where the plan tells none, against all that no evaluation shown uses."""
    spec, records = results.spec, results.records
    shown = [digest for arm in spec.arms for digest in [*arm.evaluations.values(), *(rung.digest for rung in arm.rungs)]]
    tests = {records[digest]["deps"]["data"] for digest in shown if digest in records}
    sets = _Sets({digest: results.folders[digest] for digest in sorted(records) if records[digest]["kind"] in SETS})
    trained = {digest for of_arm in spec.trained_sets.values() for digest in of_arm}
    against = [digest for digest in sets.folders if (digest in trained if trained else digest not in tests)]
    rows = {digest: sets.rows(digest) for digest in sorted(tests & sets.folders.keys())}
    shared = {digest: np.zeros(len(own.op), bool) for digest, own in rows.items()}
    variants = {digest: np.zeros(len(own.op), bool) for digest, own in rows.items()}
    for digest in against if rows else []:  # one at a time: a corpus in shards has more keys than fit in memory
        other = sets.rows(digest)
        keys, origins = {*other.key, *other.root}, set(other.origin)
        for test, own in rows.items():
            shared[test] |= own.key.isin(keys) | own.root.isin(keys)
            variants[test] |= own.origin.isin(origins)
    return [
        Overlap(
            digest,
            len(own.op),
            _per_op(own.op[own.key.duplicated()]),
            _per_op(own.op[shared[digest]]),
            _per_op(own.op[variants[digest]]),
            against,
        )
        for digest, own in rows.items()
    ]


class _Sets:
    """Problem sets by digest, read when asked for."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders
        self._keys: dict[str, dict[int, str]] = {}

    def rows(self, digest: str) -> _Rows:
        """A row without an origin was first made in this very set; where the set of an origin is not here, the row's own key
        stands for that of its root."""
        table = frame.keys(self.folders[digest])
        origins, roots = [], []
        for index, key, origin in zip(table["index"].tolist(), table["key"], table["origin"], strict=True):
            first, _, place = origin.partition(":")
            origins.append(origin or f"{digest}:{index}")
            roots.append(self._of(first).get(int(place), key) if first in self.folders else key)
        return _Rows(table["op"], table["key"], pd.Series(origins), pd.Series(roots))

    def _of(self, digest: str) -> dict[int, str]:
        """Structural key by index; kept, since many rows ask."""
        if digest not in self._keys:
            table = frame.keys(self.folders[digest])
            self._keys[digest] = dict(zip(table["index"].tolist(), table["key"], strict=True))
        return self._keys[digest]


def _per_op(ops: pd.Series) -> dict[int, int]:
    return dict(sorted(Counter(ops.tolist()).items()))


def ranges(numbers: list[int]) -> str:
    """[2, 3, 4, 9] -> `2–4, 9`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs)
