"""Where a row comes from, for people: the set that it was first made in, what was done to it, and its text before and after."""

import difflib
from pathlib import Path

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.data import sets
from interplay.kinds.table import SETS
from interplay.tasks.verdict import Row

TEXTS = ("prompt", "solution", "answer", "band", "mode", "op", "family")
"""Columns that a step may change."""
LONG = 400
"""Characters of a text from which on what changed is shown as differences of lines or sentences, and not whole twice."""


def listing(folder: Path, changed: str | None, most: int) -> str:
    """One line for each of the first rows, or of those that the step `changed` changed."""
    rows = _rows(folder)
    chosen = [row for row in rows if changed is None or changed in row.transforms]
    if not chosen:
        steps = sorted({step for row in rows for step in row.transforms})
        known = f"; changed by {', '.join(steps)}" if steps else "; no step changed any row"
        raise UserError(f"{folder}: no row that {changed} changed{known}")
    lines = [
        f"{row.index:6}  {row.band}  op {row.op}  {row.mode}  from {row.origin}{'  ' if row.transforms else ''}"
        f"{' > '.join(row.transforms)}  {_brief(row.prompt)} -> {_brief(row.answer)}"
        for row in chosen[:most]
    ]
    return "\n".join([*lines, f"{len(chosen)} rows" if len(chosen) <= most else f"{most} of {len(chosen)} rows"]) + "\n"


def way(folder: Path, index: int) -> str:
    """One row: its origin, the steps that changed it, and each of its columns before and after."""
    row = _at(folder, index)
    digest, _, number = row.origin.partition(":")
    lines = [f"row {folder.name}:{index}", f"  made in   {_source(folder, digest)}, as its row {number}"]
    lines.append(f"  changed   {' > '.join(row.transforms) or 'by no step'}")
    first = _origin(folder, row)
    if first is None:
        lines.append("  before    its origin is not in results/")
    for name in TEXTS:
        after = str(getattr(row, name))
        before = after if first is None else str(getattr(first, name))
        lines += [f"  {name:9} {after}"] if before == after else _difference(name, before, after)
    return "\n".join(lines) + "\n"


def _difference(name: str, before: str, after: str) -> list[str]:
    if len(before) + len(after) < LONG:
        return [f"  {name:9} - {before}", f"  {'':9} + {after}"]
    old, new = (text.replace(". ", ".\n").splitlines() for text in (before, after))
    marked = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
    return [f"  {name:9} {len(before)} -> {len(after)} characters", *(f"  {'':9} {line}" for line in marked)]


def _source(folder: Path, digest: str) -> str:
    """`dataset 3f2a... data.hotpot`."""
    try:
        stage = artifact.read_json(artifact.find(folder.parent.parent, digest) / "stage.json")
    except UserError:
        return f"{digest}, which is not in results/"
    return " ".join(filter(None, [stage["kind"], digest, stage.get("label", "")]))


def _origin(folder: Path, row: Row) -> Row | None:
    """The row as it was first made; None where that set is not here."""
    digest, _, number = row.origin.partition(":")
    try:
        return _at(artifact.find(folder.parent.parent, digest), int(number))
    except UserError:
        return None


def _at(folder: Path, index: int) -> Row:
    rows = _rows(folder)
    found = next((row for row in rows if row.index == index), None)
    if found is None:
        raise UserError(f"{folder}: has no row {index}; `interplay rows {folder.name}` lists some of its {len(rows)}")
    return found


def _rows(folder: Path) -> list[Row]:
    if folder.parent.name not in SETS:
        raise UserError(f"{folder}: a {folder.parent.name} stage has no rows; give the digest of a {', '.join(SETS)} stage")
    return sets.read_rows(folder, 0)


def _brief(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
