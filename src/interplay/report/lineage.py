"""Where the numbers come from: each arm's path and its errors, and overlaps of the problem sets."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from interplay.report import frame
from interplay.report.frame import Results
from interplay.report.ledger import steps
from interplay.schema.base import UserError

LEAST_ERROR = 0.0005
"""Share below which an error class is not worth a word: it would read 0.0 %."""


def arms(results: Results) -> list[dict[str, Any]]:
    """One entry per arm: its control, the ops it was trained on, its steps as (name, first seed's digest), its errors by band."""
    return [_arm(results, name) for name in frame.arms(results.spec)]


def _arm(results: Results, name: str) -> dict[str, Any]:
    rows = [item for item in results.spec.arms if item.arm == name]
    trained = ranges(results.spec.trained_ops.get(name, []))
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
    """How clean one test set is, by structural key (equal up to renaming of letters and reordering of definitions)."""

    digest: str
    size: int
    repeats: dict[int, int]
    """Op -> problems whose structure an earlier one of the set has."""
    shared: dict[int, int]
    """Op -> problems whose structure some problem in `against` has."""
    against: list[str]
    """Digests of the other problem sets among the report's inputs."""


def overlaps(results: Results) -> list[Overlap]:
    """One entry per test set among the inputs, checked against all problem sets among them that no evaluation uses."""
    kinds = {digest: record["kind"] for digest, record in results.records.items()}
    tests = {record["deps"]["data"] for record in results.records.values() if record["kind"] == "evaluate"}
    sets = {digest: _keys(results.folders[digest]) for digest in sorted(kinds) if kinds[digest] == "problems"}
    training = [digest for digest in sets if digest not in tests]
    seen = {key for digest in training for key in sets[digest]["key"]}
    found = []
    for digest in sorted(tests & sets.keys()):
        rows = sets[digest]
        repeats, shared = (_per_op(rows[mask]) for mask in (rows["key"].duplicated(), rows["key"].isin(seen)))
        found.append(Overlap(digest, len(rows), repeats, shared, training))
    return found


def _keys(folder: Path) -> pd.DataFrame:
    path = folder / "keys.parquet"
    path = path if path.exists() else folder / "problems.parquet"
    try:
        return pd.read_parquet(path, columns=["op", "key"])
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as a problem set ({error}); remove {folder} to make it again") from None


def _per_op(rows: pd.DataFrame) -> dict[int, int]:
    return dict(sorted(Counter(rows["op"].tolist()).items()))


def ranges(numbers: list[int]) -> str:
    """[2, 3, 4, 9] -> `2–4, 9`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs)
