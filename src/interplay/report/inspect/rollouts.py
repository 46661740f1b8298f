"""Completions of a stage for people: what the model was asked, what it wrote, how that was judged, and what was right: as text,
and in pages that are filtered by error class and step, each distinct completion once."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc, parquet

from interplay.core import artifact
from interplay.core.model import UserError, nearest_name
from interplay.data.sets import PART, rows_at
from interplay.tasks.transcripts import MARK

Row = dict[str, Any]

PROBLEM = ["index", "prompt", "solution", "answer"]
SHOWN = ("step", "reward", "strict", "answer", "score", "error", "advantage", "truncated", "length")


def gold_text(folder: Path, rows: Iterable[Row]) -> dict[tuple[int, int], Row]:
    """The problems of rows by (set, index), as far as the data that the artifact was made from are on disk."""
    wanted = [("index", "in", {row["index"] for row in rows})]
    deps = artifact.read_json(folder / "stage.json")["deps"]
    roles = {role: 0 if role == "data" else int(role.removeprefix("data.")) for role in deps if role.split(".")[0] == "data"}
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for role, number in roles.items():
        for file in folder.parent.parent.glob(f"*/{deps[role]}/problems.parquet"):
            found |= {
                (number, row["index"]): row for row in parquet.read_table(file, columns=PROBLEM, filters=wanted).to_pylist()
            }
    return found


def rollout_block(row: dict[str, Any], problem: dict[str, Any]) -> str:
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


# -- which ones --------------------------------------------------------------------------------------------------------

FILES = ("rollouts.parquet", "samples.parquet")
LAST_STEPS = 50
"""Steps of a running RL stage whose completions are read."""


class Choice(NamedTuple):
    """Which completions are shown."""

    error: str | None = None
    """Class of errors, `none` for those that are strictly right; None: all."""
    step: int | None = None
    problem: int | None = None
    page: int = 0
    failed: bool | None = None
    """Only those not strictly right (True), only those that are (False), or all (None)."""


class Found(NamedTuple):
    """What a file holds of a choice. The same completions of a prompt at a step are one group."""

    steps: list[int]
    errors: Counter[str]
    """Completions by class, of those at the step and of the problem."""
    first: np.ndarray
    """Place in the file of the first of each group (G,), ascending."""
    size: np.ndarray
    """Completions of each group (G,)."""


def open_kept(folder: Path) -> parquet.ParquetFile | None:
    """The completions that an artifact keeps, unread; None where there is no file of them."""
    path = next((folder / name for name in FILES if (folder / name).exists()), None)
    return path and parquet.ParquetFile(path)


def find_groups(file: parquet.ParquetFile, choice: Choice) -> Found:
    """One pass over the columns by which completions are chosen. Of each that is chosen its place and a hash of 64 bits stay in
    memory, so that ten million take less than a gigabyte."""
    names = [name for name in ("step", "set", "index", "completion", "strict", "error") if name in file.schema_arrow.names]
    steps, errors, at = set[int](), Counter[str](), 0
    places, hashes = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    for part in file.iter_batches(PART, columns=names):
        here = pa.record_batch([*part.columns, pa.array(np.arange(at, at + len(part)))], [*names, "place"])
        steps.update(pc.unique(part["step"]).to_pylist() if "step" in names else [])
        at += len(part)
        here = _where(_where(here, "step", choice.step if "step" in names else None), "index", choice.problem)
        errors.update({one["values"]: one["counts"] for one in pc.value_counts(here["error"]).to_pylist()})
        here = _where(_where(here, "error", choice.error), "strict", None if choice.failed is None else not choice.failed)
        keys = zip(*(here[name].to_pylist() for name in ("step", "set", "index", "completion") if name in names), strict=True)
        hashes.append(np.fromiter(map(hash, keys), np.int64, len(here)))
        places.append(here["place"].to_numpy().astype(np.uint32))
    return Found(sorted(steps), errors, *_first_and_size(hashes, places))


def _first_and_size(hashes: list[np.ndarray], places: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each hash, ascending, and how many have it. Empties the lists: no array is in memory twice."""
    values = np.concatenate(hashes)
    hashes.clear()
    order = np.argsort(values, kind="stable").astype(np.uint32)
    values = values[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])).astype(np.uint32)
    del values
    size = np.diff(starts, append=np.uint32(len(order)))
    first = np.concatenate(places)[order[starts]]
    places.clear()
    del order, starts
    by_place = np.argsort(first)
    return first[by_place], size[by_place]


def _where(rows: pa.RecordBatch, column: str, value: Any) -> pa.RecordBatch:
    """The rows with that value; all where it is None."""
    return rows if value is None else rows.filter(pc.equal(rows[column], value))


# -- as text -----------------------------------------------------------------------------------------------------------


def show_rollouts(folder: Path, failed: bool | None, limit: int, step: int | None = None, error: str | None = None) -> str:
    """The last `limit` distinct rollouts of an rl artifact, of a `step` or of all, or the first of an evaluate artifact spread
    over its problems; `failed`: only those not strictly right (True), only those that are (False), or all (None); `error`: only
    those of a class.

    Raises UserError when the folder holds neither rollouts nor samples, or not that step or class."""
    file = open_kept(folder)
    if file is None:
        raise UserError(f"{folder}: no rollouts.parquet or samples.parquet; give the digest of a finished rl or evaluate stage")
    with file:
        found = find_groups(file, Choice(error, step, failed=failed))
        known = found.steps
        if step is not None and not known:
            raise UserError(f"--step = {step}: {folder} has no steps; leave it out, or give the digest of an rl stage")
        if step is not None and step not in known:
            has = f"it has {len(known)} steps, {known[0]} to {known[-1]}"
            raise UserError(f"--step = {step}: {folder} keeps no rollouts of it; {has}")
        if error is not None and error not in found.errors:
            classes = [name for name, _ in found.errors.most_common()]
            raise UserError(f"--error = {error}: no kept completion is of that class{nearest_name(error, classes)}")
        spread = max(1, len(found.first) // max(limit, 1))
        picked = slice(-limit, None) if known else slice(0, spread * limit, spread)
        rows, counts = rows_at(file, found.first[picked]), found.size[picked]
        if not rows:
            among = found.errors.total() if error is None else found.errors[error]
            what = "" if failed is None else " failed" if failed else " passed"
            return f"none of {among} kept completions{what}{'' if step is None else f' at step {step}'}\n"
    problems = gold_text(folder, rows)
    return "\n\n".join(_block(row, int(count), problems) for row, count in zip(rows, counts, strict=True)) + "\n"


def _block(row: Row, count: int, problems: dict[tuple[int, int], Row]) -> str:
    head, _, rest = rollout_block(row, problems.get((row.get("set", 0), row["index"]), {})).partition("\n")
    return f"{head}{f', {count} times the same' if count > 1 else ''}\n{rest}"


# -- in pages ----------------------------------------------------------------------------------------------------------

PER_PAGE = 20
WORDS = re.compile(r"\w+|\s+|[^\w\s]")
LONGEST = 4000
"""Characters of a text that is compared with the reference solution word by word; comparing takes its square."""


def browse_rollouts(folder: Path, choice: Choice) -> dict[str, Any]:
    """One page of the completions of an artifact: how many there are by error class and by step, and of the chosen ones the
    problem, the reference solution, and the parts of both texts in which they differ. Of an RL stage that runs those of its last
    steps. Raises UserError without completions."""
    with open_kept(folder) or _of_last_steps(folder) as file:
        found = find_groups(file, choice)
        shown = slice(choice.page * PER_PAGE, (choice.page + 1) * PER_PAGE)
        rows = rows_at(file, found.first[shown])
    problems = gold_text(folder, rows)
    return {
        "errors": dict(found.errors.most_common()),
        "steps": found.steps,
        "total": int(found.size.sum()),
        "distinct": len(found.first),
        "page": choice.page,
        "pages": -(-len(found.first) // PER_PAGE),
        "rows": [_shown(row, int(count), problems) for row, count in zip(rows, found.size[shown], strict=True)],
    }


def _of_last_steps(folder: Path) -> parquet.ParquetFile:
    """What the last steps of an RL stage that runs left, as a file in memory."""
    files = sorted((folder / "resume" / "steps").glob("*.json"), key=lambda file: int(file.stem))[-LAST_STEPS:]
    found = [row for file in files for row in artifact.read_json(file)["rollouts"]]
    if not found:
        raise UserError("no completions yet: an evaluation writes them at its end, RL with each step")
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(found), sink)
    return parquet.ParquetFile(pa.BufferReader(sink.getvalue()))


def _shown(row: Row, count: int, problems: dict[tuple[int, int], Row]) -> dict[str, Any]:
    problem = problems.get((row.get("set", 0), row["index"]), {})
    wrote, gold = text_differences(row["completion"], problem.get("solution") or "")
    facts = {name: row[name] for name in SHOWN if name in row and name not in ("error", "strict")}
    return {
        "problem": row["index"],
        "prompt": row.get("prompt") or problem.get("prompt") or "",
        "error": row["error"],
        "count": count,
        "facts": {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in facts.items()},
        "wrote": wrote,
        "gold": gold,
    }


def text_differences(one: str, other: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Both texts in parts: (text, whether the other text lacks it)."""
    if not other or len(one) + len(other) > LONGEST:
        return [(one, False)], [(other, False)]
    words, against = WORDS.findall(one), WORDS.findall(other)
    here: list[tuple[str, bool]] = []
    there: list[tuple[str, bool]] = []
    for kind, i, k, j, m in difflib.SequenceMatcher(None, words, against, autojunk=False).get_opcodes():
        here += [("".join(words[i:k]), kind != "equal")] if k > i else []
        there += [("".join(against[j:m]), kind != "equal")] if m > j else []
    return here, there
