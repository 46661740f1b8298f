"""What a run leaves beside the model: a sample of its rollouts and the success history of its prompts.

Each step writes one small file to `resume/steps/`; at the end they become `rollouts.parquet` and `history.parquet`. A step that
is done again after a kill replaces its file by an equal one."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from interplay.data.pool import Pool
from interplay.rl.batch import Batch, take
from interplay.store import worker
from interplay.store.artifact import read_json, write_atomic
from interplay.store.generator import generator

ROLLOUTS = [
    ("step", pa.int32()),
    ("set", pa.int32()),
    ("index", pa.int64()),
    ("prompt", pa.string()),
    ("completion", pa.string()),
    ("reward", pa.float32()),
    ("strict", pa.bool_()),
    ("answer", pa.bool_()),
    ("score", pa.float32()),
    ("error", pa.string()),
    ("advantage", pa.float32()),
    ("truncated", pa.bool_()),
    ("length", pa.int32()),
]
"""`set`: number of the `data.<i>` role, `index`: the problem's index in it; advantage: mean over the completion's tokens, 0
where an edit dropped the row. Then `turns`, where episodes may have several, and one column `reward/<part>` for each part of the
reward."""
HISTORY = [("step", pa.int32()), ("set", pa.int32()), ("index", pa.int64()), ("n", pa.int32()), ("passes", pa.int32())]
"""Per group: completions and strictly right ones."""


def write_step(out: Path, step: int, seed: int, keep: int, pool: Pool, drawn: Batch, advantage: Tensor) -> None:
    """Keep `keep` rows of what the step drew, chosen by (seed, step), and the results of every group. `advantage` (N,): mean
    per row."""
    order = generator(seed, "keep", step).permutation(len(drawn))
    kept = [_rollout(step, pool, drawn, advantage, int(i)) for i in np.sort(order[:keep])]
    data = json.dumps({"rollouts": kept, "history": history(step, pool, drawn)})
    write_atomic(out / "resume" / "steps" / f"{step}.json", data.encode())


def _rollout(step: int, pool: Pool, drawn: Batch, advantage: Tensor, i: int) -> dict[str, Any]:
    row, verdict = pool.rows[int(drawn.ids[i])], drawn.verdicts[i]
    return {
        "step": step,
        "set": row.set,
        "index": row.index,
        "prompt": row.prompt,
        "completion": drawn.completions[i],
        "reward": float(drawn.rewards[i]),
        "strict": bool(verdict.strict),
        "answer": bool(verdict.answer),
        "score": float(verdict.score),
        "error": verdict.error,
        "advantage": float(advantage[i]),
        "truncated": bool(drawn.truncated[i]),
        "length": int(drawn.written()[i]),
        **({"turns": len(drawn.turns[i])} if drawn.turns is not None else {}),
        **{f"reward/{name}": float(values[i]) for name, values in drawn.parts.items()},
    }


def history(step: int, pool: Pool, drawn: Batch) -> list[dict[str, int]]:
    """One entry per group, in the order drawn."""
    entries: dict[int, dict[str, int]] = {}
    whole = drawn if drawn.aside is None else take(drawn, drawn.counted().nonzero()[:, 0])
    for group, prompt, verdict in zip(whole.groups.tolist(), whole.ids.tolist(), whole.verdicts, strict=True):
        row = pool.rows[prompt]
        entry = entries.setdefault(group, {"step": step, "set": row.set, "index": row.index, "n": 0, "passes": 0})
        entry["n"] += 1
        entry["passes"] += bool(verdict.strict)
    return list(entries.values())


def finish(out: Path, steps: int) -> None:
    """Join the steps' files into the two tables. Of several processes of a stage the first alone does, here and in `keep`."""
    if not worker.first():
        return
    files = [read_json(out / "resume" / "steps" / f"{step}.json") for step in range(1, steps + 1)]
    rollouts = [row for file in files for row in file["rollouts"]]
    parts = sorted({name for row in rollouts for name in row if name.startswith("reward/")})
    own = [("turns", pa.int32())] if rollouts and "turns" in rollouts[0] else []
    columns = ROLLOUTS + own + [(name, pa.float32()) for name in parts]
    pq.write_table(pa.Table.from_pylist(rollouts, schema=pa.schema(columns)), out / "rollouts.parquet")
    entries = [row for file in files for row in file["history"]]
    pq.write_table(pa.Table.from_pylist(entries, schema=pa.schema(HISTORY)), out / "history.parquet")


def keep(out: Path) -> None:
    """Put the steps' files beside the final state: a longer run's tables begin with them."""
    if worker.first():
        shutil.copytree(out / "resume" / "steps", out / "state" / "steps", dirs_exist_ok=True)
