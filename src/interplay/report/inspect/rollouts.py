"""Completions of a stage for people: what the model was asked, what it wrote, how that was judged, and what was right: as text,
and in pages that are filtered by error class and step, each distinct completion once."""

import difflib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from interplay.core import artifact
from interplay.core.model import UserError, nearest_name
from interplay.tasks.transcripts import MARK

Row = dict[str, Any]

PROBLEM = ["index", "prompt", "solution", "answer"]
SHOWN = ("step", "reward", "strict", "answer", "score", "error", "advantage", "truncated", "length")


def gold_text(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Problems by (set, index) of the data that the artifact was made from, as far as they are on disk."""
    deps = artifact.read_json(folder / "stage.json")["deps"]
    roles = {role: 0 if role == "data" else int(role.removeprefix("data.")) for role in deps if role.split(".")[0] == "data"}
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for role, number in roles.items():
        for file in folder.parent.parent.glob(f"*/{deps[role]}/problems.parquet"):
            found |= {(number, row["index"]): row for row in pq.read_table(file, columns=PROBLEM).to_pylist()}
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


# -- as text -----------------------------------------------------------------------------------------------------------


def show_rollouts(folder: Path, failed: bool | None, limit: int, step: int | None = None, error: str | None = None) -> str:
    """The last `limit` distinct rollouts of an rl artifact, of a `step` or of all, or the first of an evaluate artifact spread
    over its problems; `failed`: only those not strictly right (True), only those that are (False), or all (None); `error`: only
    those of a class.

    Raises UserError when the folder holds neither rollouts nor samples, or not that step or class."""
    name = next((name for name in ("rollouts.parquet", "samples.parquet") if (folder / name).exists()), None)
    if name is None:
        raise UserError(f"{folder}: no rollouts.parquet or samples.parquet; give the digest of a finished rl or evaluate stage")
    rows = pq.read_table(folder / name).to_pylist()
    rows = rows if step is None else _of_step(rows, step, folder / name)
    rows = rows if error is None else _of_class(rows, error)
    chosen = _repeated([row for row in rows if failed is None or row["strict"] != failed])
    if not chosen:
        what = "" if failed is None else " failed" if failed else " passed"
        return f"none of {len(rows)} kept completions{what}{'' if step is None else f' at step {step}'}\n"
    spread = max(1, len(chosen) // max(limit, 1))
    picked = chosen[-limit:] if name == "rollouts.parquet" else chosen[::spread][:limit]
    problems = gold_text(folder)
    return "\n\n".join(_block(same, problems) for same in picked) + "\n"


def _of_step(rows: list[Row], step: int, file: Path) -> list[Row]:
    steps = sorted({row["step"] for row in rows if "step" in row})
    if not steps:
        raise UserError(f"--step = {step}: {file} has no steps; leave it out, or give the digest of an rl stage")
    if step not in steps:
        raise UserError(f"--step = {step}: {file} keeps no rollouts of it; it has {len(steps)} steps, {steps[0]} to {steps[-1]}")
    return [row for row in rows if row["step"] == step]


def _of_class(rows: list[Row], error: str) -> list[Row]:
    classes = [name for name, _ in Counter(row["error"] for row in rows).most_common()]
    if error not in classes:
        raise UserError(f"--error = {error}: no kept completion is of that class{nearest_name(error, classes)}")
    return [row for row in rows if row["error"] == error]


def _repeated(rows: list[Row]) -> list[list[Row]]:
    """The same completions of a prompt at a step together, in the order of their first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row.get("step"), row.get("set", 0), row["index"], row["completion"]), []).append(row)
    return list(found.values())


def _block(same: list[Row], problems: dict[tuple[int, int], Row]) -> str:
    first = same[0]
    head, _, rest = rollout_block(first, problems.get((first.get("set", 0), first["index"]), {})).partition("\n")
    return f"{head}{f', {len(same)} times the same' if len(same) > 1 else ''}\n{rest}"


# -- in pages ----------------------------------------------------------------------------------------------------------

FILES = ("rollouts.parquet", "samples.parquet")
PER_PAGE = 20
LAST_STEPS = 50
"""Steps of a running RL stage whose completions are read."""
WORDS = re.compile(r"\w+|\s+|[^\w\s]")
LONGEST = 4000
"""Characters of a text that is compared with the reference solution word by word; comparing takes its square."""


class Choice(NamedTuple):
    """Which completions a page shows."""

    error: str | None = None
    """Class of errors, `none` for those that are strictly right; None: all."""
    step: int | None = None
    problem: int | None = None
    page: int = 0


def browse_rollouts(folder: Path, choice: Choice) -> dict[str, Any]:
    """One page of the completions of an artifact: how many there are by error class and by step, and of the chosen ones the
    problem, the reference solution, and the parts of both texts in which they differ. Raises UserError without completions."""
    rows, whole = _light_rows(folder)
    steps = sorted({row["step"] for row in rows if "step" in row})
    wanted = [row for row in rows if choice.step in (None, row.get("step")) and choice.problem in (None, row["index"])]
    groups = _repeated([row for row in wanted if choice.error in (None, row["error"])])
    shown = groups[choice.page * PER_PAGE : (choice.page + 1) * PER_PAGE]
    problems = gold_text(folder) if shown else {}
    return {
        "errors": dict(Counter(row["error"] for row in wanted).most_common()),
        "steps": steps,
        "total": sum(map(len, groups)),
        "distinct": len(groups),
        "page": choice.page,
        "pages": -(-len(groups) // PER_PAGE),
        "rows": [_shown(whole(same[0]["at"]), len(same), problems) for same in shown],
    }


def _light_rows(folder: Path) -> tuple[list[Row], Callable[[int], Row]]:
    """All completions with what they are chosen by and their place `at`, and a function from the place to the whole row. Of an RL
    stage that runs those of its last steps."""
    path = next((folder / name for name in FILES if (folder / name).exists()), None)
    if path is not None:
        head = [name for name in ("step", "set", "index", "error", "completion") if name in pq.read_schema(path).names]
        table = pq.read_table(path)
        rows = table.select(head).to_pylist()
        return [{**row, "at": at} for at, row in enumerate(rows)], lambda at: table.slice(at, 1).to_pylist()[0]
    files = sorted((folder / "resume" / "steps").glob("*.json"), key=lambda file: int(file.stem))[-LAST_STEPS:]
    found = [row for file in files for row in artifact.read_json(file)["rollouts"]]
    if not found:
        raise UserError("no completions yet: an evaluation writes them at its end, RL with each step")
    return [{**row, "at": at} for at, row in enumerate(found)], lambda at: found[at]


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
