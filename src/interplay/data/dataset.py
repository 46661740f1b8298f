"""The `dataset` stage: the items of a file in a published format, as problems."""

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, execution, model, random
from interplay.data import sets
from interplay.data.formats import FORMATS, Entry, ItemError, Reader
from interplay.data.spec import DatasetSpec, Defects, split_of
from interplay.tasks import multihop, qa
from interplay.tasks.verdict import Row

PUNCTUATION = re.compile(r"""[?"']|(?<!\d)!|(?<!\d),|,(?!\d{1,2}\b)""")
"""Punctuation that does not change a question: not the comma of `(1,2)`, the mark of `5!` or other signs of arithmetic."""
REMEDY = "correct the file, or declare defects: {{{reason}: skip}}"


class FileContent(NamedTuple):
    """The items of a file."""

    entries: list[Entry]
    skipped: Counter[str]
    """Skipped items by reason."""


def read_dataset(spec: DatasetSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet`. Metrics: items `read`, `kept` and `skipped` by reason, rows (`size`), rows by
    op. Raises UserError when the file is absent or has changed since the plan, at a defect that the spec refuses, and where
    no item or fewer than `size` remain."""
    path = find_file(spec, how)
    reader = FORMATS[spec.format]
    entries, skipped = read_items(path, reader, spec.defects)
    rows = choose_rows(spec, [row_of_entry(spec, entry, reader) for entry in entries], path)
    sets.write_table(sets.table_of_rows(rows), out)
    ops = Counter(row.op for row in rows)
    return {
        "read": len(entries) + skipped.total(),
        "kept": len(entries),
        "skipped": dict(sorted(skipped.items())),
        "size": len(rows),
        "ops": {str(op): ops[op] for op in sorted(ops)},
    }


def find_file(spec: DatasetSpec, how: execution.Run) -> Path:
    """The path of the file. Raises UserError where it does not exist or its checksum is not that of the plan."""
    if how.path is None:
        raise model.UserError(
            f"dataset: the {spec.format} file with sha256 {spec.sha256} has no path; name its `file` in the study"
        )
    path = Path(how.path)
    if not path.is_file():
        raise model.UserError(f"{path}: no such file; put the {spec.format} file with sha256 {spec.sha256} there")
    found = artifact.checksum(path)
    if found != spec.sha256:
        raise model.UserError(
            f"{path}: has sha256 {found}; put the {spec.format} file with sha256 {spec.sha256} there, or plan again"
        )
    return path


def read_items(path: Path, reader: Reader, defects: Defects) -> FileContent:
    """All items of a file in order, without skipped ones. Raises UserError at a defect that `defects` refuses."""
    entries: list[Entry] = []
    skipped: Counter[str] = Counter()
    seen: dict[str, str] = {}
    for where, raw in reader.split(path):
        try:
            entries.append(_new_entry(reader, raw, where, seen))
        except ItemError as defect:
            if getattr(defects, defect.reason) == "refuse":
                ident = f" (id {defect.id[:80]!r})" if defect.id else ""
                remedy = REMEDY.format(reason=defect.reason)
                raise model.UserError(f"{path}: {where}{ident}: {defect.message}; {remedy}") from None
            skipped[defect.reason] += 1
    return FileContent(entries, skipped)


def _new_entry(reader: Reader, raw: dict[str, Any] | ItemError, where: str, seen: dict[str, str]) -> Entry:
    """The entry of an object. Raises ItemError where it is a defect, or an earlier entry has its id (its question, where it has
    no id)."""
    if isinstance(raw, ItemError):
        raise raw
    found = reader.parse(raw, where)
    ident = found.id or question_of(found)
    if ident in seen:
        raise ItemError("duplicate_id", f"{seen[ident]} has the same id", ident)
    seen[ident] = where
    return found


def question_of(entry: Entry) -> str:
    """The question of an entry."""
    return entry.problem.question if isinstance(entry.problem, qa.Problem) else entry.problem.item.question


def normal_question(text: str) -> str:
    """A question in normal form: lower case, single blanks, without punctuation that cannot change it. Signs are kept: 12 + 3 and
    12 - 3 are two questions."""
    return " ".join(PUNCTUATION.sub("", text.lower()).split()).rstrip(". ")


def row_of_entry(spec: DatasetSpec, entry: Entry, reader: Reader) -> Row:
    """The entry as a row; its key hashes the normal form of the question, so that spelling variants are in the same split."""
    if isinstance(entry.problem, qa.Problem):
        mode, graph = "open", qa.dumps(entry.problem)
        prompt, solution, answer = qa.render(entry.problem)
    else:
        mode, graph = "plain", multihop.dumps(entry.problem)
        prompt, solution, answer = multihop.render(entry.problem, "published")
    structure = hashlib.sha256(normal_question(question_of(entry)).encode()).hexdigest()[:16]
    return Row(0, 0, spec.band, entry.op, mode, prompt, solution, answer, graph, structure, reader.family, "")


def choose_rows(spec: DatasetSpec, rows: list[Row], path: Path) -> list[Row]:
    """`size` rows of the split, in an order drawn from the seed. Raises UserError where there are fewer, or none."""
    mine = [row for row in rows if spec.split is None or split_of(row.key) == spec.split]
    part = f"of split '{spec.split}'" if spec.split else "in all"
    if not mine or (spec.size and spec.size > len(mine)):
        raise model.UserError(
            f"{path}: size = {spec.size}: the file has {model.plural(len(mine), 'item')} {part}; ask for no more than it has"
        )
    ordered = sorted(mine, key=lambda row: (random.stream_key("dataset", spec.seed, row.key), row.graph))
    return ordered[: spec.size]
