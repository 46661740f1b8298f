"""Rollouts for people: what the model was asked, what it wrote, how that was judged, and what would have been right."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from interplay.schema.base import UserError
from interplay.store import artifact
from interplay.tasks.turns import MARK

PROBLEM = ["index", "prompt", "solution", "answer"]
SHOWN = ("step", "reward", "strict", "answer", "score", "error", "advantage", "truncated", "length")


def show(folder: Path, failed: bool | None, limit: int) -> str:
    """The last `limit` rollouts of an rl artifact, or the first of an evaluate artifact spread over its problems; `failed`:
    only those not strictly right (True), only those that are (False), or all (None).

    Raises UserError when the folder holds neither rollouts nor samples."""
    for name in ("rollouts.parquet", "samples.parquet"):
        if (folder / name).exists():
            rows = pq.read_table(folder / name).to_pylist()
            break
    else:
        raise UserError(f"{folder}: no rollouts.parquet or samples.parquet; give the digest of a finished rl or evaluate stage")
    chosen = [row for row in rows if failed is None or row["strict"] != failed]
    chosen = chosen[-limit:] if name == "rollouts.parquet" else chosen[:: max(1, len(chosen) // max(limit, 1))][:limit]
    problems = gold(folder)
    return "\n\n".join(block(row, problems.get((row.get("set", 0), row["index"]), {})) for row in chosen) + "\n"


def gold(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Problems by (set, index) of the data that the artifact was made from, as far as they are on disk."""
    deps = artifact.read_json(folder / "stage.json")["deps"]
    roles = {role: 0 if role == "data" else int(role.removeprefix("data.")) for role in deps if role.split(".")[0] == "data"}
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for role, number in roles.items():
        for file in folder.parent.parent.glob(f"*/{deps[role]}/problems.parquet"):
            found |= {(number, row["index"]): row for row in pq.read_table(file, columns=PROBLEM).to_pylist()}
    return found


def block(row: dict[str, Any], problem: dict[str, Any]) -> str:
    """One rollout as lines of text."""
    facts = [
        f"{name} {row[name]:.4g}" if isinstance(row[name], float) else f"{name} {row[name]}" for name in SHOWN if name in row
    ]
    texts: dict[str, Any] = {
        "prompt": row.get("prompt") or problem.get("prompt"),
        "wrote": row["completion"].replace(MARK, "\n         "),
        "gold": problem.get("solution"),
    }
    return "\n".join(
        [", ".join([f"problem {row['index']}", *facts]), *(f"  {name:7}{text}" for name, text in texts.items() if text)]
    )
