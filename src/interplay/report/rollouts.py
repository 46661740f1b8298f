"""Completions of a finished stage for people: some of them, chosen by step and verdict, each distinct one once."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from interplay.rl.show import block, gold
from interplay.schema.base import UserError

Row = dict[str, Any]


def shown(folder: Path, failed: bool | None, limit: int, step: int | None = None) -> str:
    """The last `limit` distinct rollouts of an rl artifact, of a `step` or of all, or the first of an evaluate artifact spread
    over its problems; `failed`: only those not strictly right (True), only those that are (False), or all (None).

    Raises UserError when the folder holds neither rollouts nor samples, or not that step."""
    name = next((name for name in ("rollouts.parquet", "samples.parquet") if (folder / name).exists()), None)
    if name is None:
        raise UserError(f"{folder}: no rollouts.parquet or samples.parquet; give the digest of a finished rl or evaluate stage")
    rows = pq.read_table(folder / name).to_pylist()
    rows = rows if step is None else _of_step(rows, step, folder / name)
    chosen = _alike([row for row in rows if failed is None or row["strict"] != failed])
    if not chosen:
        what = "" if failed is None else " failed" if failed else " passed"
        return f"none of {len(rows)} kept completions{what}{'' if step is None else f' at step {step}'}\n"
    spread = max(1, len(chosen) // max(limit, 1))
    picked = chosen[-limit:] if name == "rollouts.parquet" else chosen[::spread][:limit]
    problems = gold(folder)
    return "\n\n".join(_block(alike, problems) for alike in picked) + "\n"


def _of_step(rows: list[Row], step: int, file: Path) -> list[Row]:
    steps = sorted({row["step"] for row in rows if "step" in row})
    if not steps:
        raise UserError(f"--step = {step}: {file} has no steps; leave it out, or give the digest of an rl stage")
    if step not in steps:
        raise UserError(f"--step = {step}: {file} keeps no rollouts of it; it has {len(steps)} steps, {steps[0]} to {steps[-1]}")
    return [row for row in rows if row["step"] == step]


def _alike(rows: list[Row]) -> list[list[Row]]:
    """The same completions of a prompt at a step together, in the order of their first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row.get("step"), row.get("set", 0), row["index"], row["completion"]), []).append(row)
    return list(found.values())


def _block(alike: list[Row], problems: dict[tuple[int, int], Row]) -> str:
    first = alike[0]
    head, _, rest = block(first, problems.get((first.get("set", 0), first["index"]), {})).partition("\n")
    return f"{head}{f', {len(alike)} times the same' if len(alike) > 1 else ''}\n{rest}"
