"""Rollouts for people: what the model was asked, what it wrote, how that was judged, and what would have been right."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from interplay.store import artifact
from interplay.tasks.turns import MARK

PROBLEM = ["index", "prompt", "solution", "answer"]
SHOWN = ("step", "reward", "strict", "answer", "score", "error", "advantage", "truncated", "length")


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
