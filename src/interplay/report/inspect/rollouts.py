"""Completions of a finished stage, and the prompts on which two evaluations differ."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.kinds.table import SETS
from interplay.report.metric_spec import lower_is_better
from interplay.report.stats import frame
from interplay.report.stats.frame import Results
from interplay.rl.records import gold_text, rollout_block

# Prompts on which two evaluations part: how many, and the ones that changed most with what both wrote and what was right.


Pairs = list[tuple[int, str, str]]
"""(seed, evaluation of a, evaluation of b)."""


class Flip(NamedTuple):
    """One prompt at one seed: strictly right samples of a and of b, of n each."""

    seed: int
    prompt: int
    """Its index in the problem set."""
    digests: tuple[str, str]
    right: tuple[int, int]
    n: tuple[int, int]

    @property
    def change(self) -> float:
        """Rate of b minus that of a."""
        return self.right[1] / self.n[1] - self.right[0] / self.n[0]

    @property
    def majority(self) -> bool:
        """Whether most samples are right on one side and most are wrong on the other."""
        rates = [right / n for right, n in zip(self.right, self.n, strict=True)]
        return (rates[0] - 0.5) * (rates[1] - 0.5) < 0


def count_flips(read: Results, pairs: Pairs, column: str | None, metric: str) -> tuple[int, int, int]:
    """(Prompt, seed) pairs on which b scores better, worse and the same."""
    better = worse = equal = 0
    for _, a, b in pairs:
        one, other = (frame.scores(frame.of_column(read.prompts[d], column, read.by_ops), metric) for d in (a, b))
        change = one - other if lower_is_better(metric) else other - one
        better, worse, equal = better + int((change > 0).sum()), worse + int((change < 0).sum()), equal + int((change == 0).sum())
    return better, worse, equal


def flipped_items(
    read: Results, pairs: Pairs, folders: dict[str, Path], results: Path, column: str | None, number: int
) -> list[list[str]]:
    """Blocks of text: the count of flips, then the `number` largest gains and losses, at most one seed of a prompt."""
    found = [flip for seed, a, b in pairs for flip in _flips(read, seed, a, b, column)]
    gains, losses = (sum(flip.majority and sign * flip.change > 0 for flip in found) for sign in (1, -1))
    head = [f"flipped, most samples wrong in a and right in b: {gains}; right in a and wrong in b: {losses}"]
    blocks = [head]
    for name, sign in (("gain", 1), ("loss", -1)):
        ordered = sorted((flip for flip in found if sign * flip.change > 0), key=lambda f: (-sign * f.change, f.prompt, f.seed))
        largest = list({flip.prompt: flip for flip in reversed(ordered)}.values())[::-1][:number]
        largest.sort(key=lambda f: (-sign * f.change, f.prompt))
        blocks += [_told(flip, name, read, folders, results) for flip in largest]
    return blocks


def _flips(read: Results, seed: int, a: str, b: str, column: str | None) -> list[Flip]:
    one, other = (frame.of_column(read.prompts[digest], column, read.by_ops) for digest in (a, b))
    both = one[["strict", "n"]].join(other[["strict", "n"]], rsuffix="_b", how="inner")
    return [
        Flip(seed, int(i), (a, b), (int(s), int(t)), (int(n), int(m))) for i, s, n, t, m in both.itertuples() if s * m != t * n
    ]


def _told(flip: Flip, what: str, read: Results, folders: dict[str, Path], results: Path) -> list[str]:
    row = read.prompts[flip.digests[0]].loc[flip.prompt]
    rates = " -> ".join(f"{right} of {n}" for right, n in zip(flip.right, flip.n, strict=True))
    lines = [f"{what}: problem {flip.prompt}, {row['band']}, op {row['op']}, seed {flip.seed}: {rates} strictly right"]
    problem = _problem(read.records[flip.digests[0]]["deps"]["data"], flip.prompt, results)
    lines += [f"  {key:7}{problem[key]}" for key in ("prompt",) if problem]
    for side, digest in zip("ab", flip.digests, strict=True):
        completion, count, error = _typical([folders[block] for block in read.spec.blocks_of(digest)], flip.prompt)
        judged = "right" if error == "none" else error
        lines.append(f"  {side:7}{completion}  ({count}x, {judged})")
    return [*lines, f"  {'gold':7}{problem['solution'] if problem else 'not here: the problem set has no payload'}"]


def _problem(digest: str, index: int, results: Path) -> dict[str, Any]:
    paths = (artifact.folder(results, kind, digest) / "problems.parquet" for kind in SETS)
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return {}
    rows = pq.read_table(path, columns=["index", "prompt", "solution"], filters=[("index", "==", index)]).to_pylist()
    return rows[0] if rows else {}


def _typical(blocks: list[Path], index: int) -> tuple[str, int, str]:
    """The completion that most samples of the prompt share, how many do, and its error class; of all blocks of samples."""
    columns, only = ["index", "completion", "error"], [("index", "==", index)]
    rows = pd.concat([pd.read_parquet(folder / "samples.parquet", columns=columns, filters=only) for folder in blocks])
    (completion, error), count = Counter(zip(rows["completion"], rows["error"], strict=True)).most_common(1)[0]
    return str(completion), count, str(error)


# Completions of a finished stage for people: some of them, chosen by step and verdict, each distinct one once.


Row = dict[str, Any]


def show_rollouts(folder: Path, failed: bool | None, limit: int, step: int | None = None) -> str:
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
    problems = gold_text(folder)
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
    head, _, rest = rollout_block(first, problems.get((first.get("set", 0), first["index"]), {})).partition("\n")
    return f"{head}{f', {len(alike)} times the same' if len(alike) > 1 else ''}\n{rest}"
