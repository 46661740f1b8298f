"""What a run of teaching leaves beside the student: what its steps came to, and a sample of its proposals.

Each step writes one small file to `resume/steps/`; at the end they become `proposals.parquet`. A step that is done again after a
kill replaces its file by an equal one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from interplay.core.artifact import read_json, write_atomic
from interplay.core.metrics import round_values
from interplay.core.random import generator
from interplay.rl.advantages.group import spread
from interplay.rl.batch import Batch
from interplay.rl.teaching.proposals import Proposal
from interplay.rl.teaching.spec import TeachSpec
from interplay.rl.teaching.student import Asked, Lines

PROPOSALS = pa.schema(
    [
        ("step", pa.int32()),
        ("dataset", pa.int32()),
        ("text", pa.string()),
        ("flaw", pa.string()),
        ("op", pa.int32()),
        ("answer", pa.string()),
        ("reward", pa.float32()),
        ("advantage", pa.float32()),
    ]
)
"""`flaw`: why it is no problem, empty where it is one; `op` and `answer`: of a problem, else 0 and empty."""
TOTALS = ("completions", "prompt_tokens", "completion_tokens", "tokens", "optimizer_steps")
"""Values of a step that a record sums over the run."""
MEANS = ("valid", "distinct", "op", "reward", "reward_std", "probe_before", "probe_after", "probe_student", "student_reward")
"""Values whose means over the first and the last tenth of the run a record tells."""


class Spent:
    """What a step samples and trains on, as it goes along."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(TOTALS, 0.0)

    def asked(self, found: Asked, completions: int) -> None:
        """Completions that nothing is trained on."""
        self.sums["completions"] += completions
        self.sums["completion_tokens"] += found.tokens

    def learnt(self, lines: Lines) -> None:
        """A student's steps of RL."""
        for name in ("completions", "prompt_tokens", "completion_tokens", "optimizer_steps"):
            self.sums[name] += sum(line[name] for line in lines)
        self.sums["tokens"] += sum(line["completion_tokens"] for line in lines)

    def metrics(self, lessons: Sequence[Lines]) -> dict[str, float]:
        """All sums, and of the students' last steps `student_reward`, the mean reward, and `student_gain`, how much more that is
        than in their first; 0 where none was trained."""
        count = max(len(lessons), 1)
        last, first = (sum(lines[at]["reward"] for lines in lessons) / count for at in (-1, 0))
        return {**self.sums, "student_reward": last, "student_gain": last - first}


def of_rewards(rewards: Tensor, best: int | None) -> dict[str, float]:
    """`reward`, `reward_std` (Bessel-corrected) and `reward_best` of the datasets (g,), and whether a student was `promoted`."""
    return {
        "reward": float(rewards.mean()),
        "reward_std": float(spread(rewards)),
        "reward_best": float(rewards.max()),
        "promoted": float(best is not None),
    }


def of_batch(batch: Batch) -> dict[str, float]:
    """What RL logs of completions, of proposals: entropy per token in nats, tokens of each, share that the limit cut, and all
    tokens."""
    mask = batch.mask()
    return {
        "entropy": float(-(batch.logprobs * mask).sum(dtype=torch.float64) / mask.sum()),
        "length": float(batch.lengths.double().mean()),
        "truncated": float(batch.truncated.double().mean()),
        "completion_tokens": float(batch.lengths.sum()),
    }


def write_step(out: Path, step: int, spec: TeachSpec, proposals: Sequence[Proposal], rewards: Tensor, advantage: Tensor) -> None:
    """Keep `keep_rollouts` proposals, chosen by (seed, step). `rewards` and `advantage` (g * n,)."""
    order = generator(spec.seed, "keep", step).permutation(len(proposals))[: spec.keep_rollouts]
    kept = [_entry(step, spec, proposals[i], i, rewards, advantage) for i in np.sort(order).tolist()]
    write_atomic(out / "resume" / "steps" / f"{step}.json", json.dumps(kept).encode())


def _entry(step: int, spec: TeachSpec, one: Proposal, i: int, rewards: Tensor, advantage: Tensor) -> dict[str, Any]:
    return {
        "step": step,
        "dataset": i // spec.problems_per_dataset,
        "text": one.text,
        "flaw": one.flaw,
        "op": one.row.op if one.row else 0,
        "answer": one.row.answer if one.row else "",
        "reward": float(rewards[i]),
        "advantage": float(advantage[i]),
    }


def finish(out: Path, spec: TeachSpec) -> None:
    """Join the steps' files into the table."""
    rows = [row for step in range(1, spec.steps + 1) for row in read_json(out / "resume" / "steps" / f"{step}.json")]
    pq.write_table(pa.Table.from_pylist(rows, schema=PROPOSALS), out / "proposals.parquet")


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The record's metrics from the lines of metrics.jsonl: totals over the run, promotions, what the teacher wrote, and means
    over the first and the last tenth."""
    totals = {name: int(sum(line[name] for line in lines)) for name in TOTALS}
    written = int(sum(line.get("teacher/completion_tokens", 0) for line in lines))
    totals["tokens"] += written
    tenth = max(1, len(lines) // 10)
    ends = {"first": lines[:tenth], "last": lines[-tenth:]}
    means = {f"{name}_{end}": sum(line[name] for line in some) / len(some) for end, some in ends.items() for name in MEANS}
    counts = {"steps": len(lines), "promoted": int(sum(line["promoted"] for line in lines)), "proposal_tokens": written}
    return {**counts, **totals, **round_values(means)}
