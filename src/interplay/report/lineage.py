"""Where the numbers come from: each arm's path with digests, settings and budgets, and overlaps of its problem sets."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from interplay.report import frame
from interplay.report.frame import Results
from interplay.schema.base import UserError
from interplay.schema.report import ReportArm

TRAINING = ["optimizer.name", "optimizer.learning_rate", "schedule.name", "batch_tokens", "dtype"]
SETTINGS = {
    "source": ["path", "hub_id", "revision"],
    "pretrain": ["model.architecture", "model.hidden_size", "model.num_hidden_layers", *TRAINING],
    "midtrain": TRAINING,
    "sft": TRAINING,
    "rl": [
        "method.paper",
        "reward.name",
        "reward.form",
        "method.sampler.name",
        "method.planner.num_generations",
        "method.advantage.name",
        "method.advantage.scale_rewards",
        "method.loss.loss_type",
        "method.loss.epsilon",
        "method.loss.beta",
        "prompts_per_step",
        "steps",
        "temperature",
        "optimizer.name",
        "optimizer.learning_rate",
    ],
    "evaluate": ["num_samples", "temperature", "top_p", "top_k", "max_completion_length"],
}
"""Kind -> the spec's keys worth a reader's glance; the record holds all."""
BUDGETS = ["tokens", "completions", "prompt_tokens", "completion_tokens", "optimizer_steps"]
"""Keys of a record's metrics that count what was spent."""
LEAST_ERROR = 0.0005
"""Share below which an error class is not worth a word: it would read 0.0 %."""


def arms(results: Results) -> list[dict[str, Any]]:
    """One entry per arm: the ops it was trained on, its stages (name, kind, settings, budget) and their digests per seed."""
    return [_arm(results, name) for name in frame.arms(results.spec)]


def _arm(results: Results, name: str) -> dict[str, Any]:
    rows = [item for item in results.spec.arms if item.arm == name]
    stages = [_stage(results, [_steps(row)[place] for row in rows]) for place in range(len(_steps(rows[0])))]
    trained = _ranges(results.spec.trained_ops.get(name, []))
    errors = _errors(results, list(dict.fromkeys(digest for row in rows for _, digest in sorted(row.evaluations.items()))))
    return {"name": name, "control": rows[0].control, "trained": trained, "stages": stages, "errors": errors}


def _steps(row: ReportArm) -> list[tuple[str, str, str]]:
    """(name, kind, digest) along the path, then the evaluations."""
    path = [(stage.name, stage.kind, stage.digest) for stage in row.path]
    return path + [(name, "evaluate", digest) for name, digest in sorted(row.evaluations.items())]


def _stage(results: Results, steps: list[tuple[str, str, str]]) -> dict[str, Any]:
    """A stage over the seeds: a digest that all seeds share stands once. Settings and budget are the first finished seed's."""
    name, kind, _ = steps[0]
    digests = list(dict.fromkeys(digest for _, _, digest in steps))
    records = [results.records[digest] for digest in digests if digest in results.records]
    settings = _settings(kind, records[0]["spec"]) if records else {}
    budget = {key: records[0]["metrics"][key] for key in BUDGETS if key in records[0]["metrics"]} if records else {}
    return {"name": name, "kind": kind, "digests": digests, "done": len(records), "settings": settings, "budget": budget}


def _settings(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    found = {key: _at(spec, key) for key in SETTINGS.get(kind, [])}
    return {key: value for key, value in found.items() if value is not None}


def _at(spec: Any, dotted: str) -> Any:
    """The value at a dotted key; None where a part of it is absent, as options of another member of a union are."""
    for key in dotted.split("."):
        spec = spec.get(key) if isinstance(spec, dict) else None
    return spec


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
    path = folder / "problems.parquet"
    try:
        return pd.read_parquet(path, columns=["op", "key"])
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as a problem set ({error}); remove {folder} to make it again") from None


def _per_op(rows: pd.DataFrame) -> dict[int, int]:
    return dict(sorted(Counter(rows["op"].tolist()).items()))


def _ranges(numbers: list[int]) -> str:
    """[2, 3, 4, 9] -> `2–4, 9`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs)
