"""Problem sets: their files (`problems.parquet`, and `keys.parquet`, by which a report compares sets), their rows, and verdicts
on completions of their problems."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interplay.core import artifact, extension, model, random
from interplay.core.digest import canonical_json
from interplay.core.keys import largest_remainder
from interplay.tasks.families import add_own_family, judge_family, multihop_item, own_tasks
from interplay.tasks.spec import OwnTask, Verify
from interplay.tasks.verdict import Row, Statement, Verdict, fact_statements, last_unit

TEXTS = ("mode", "prompt", "solution", "answer", "graph", "key", "family", "origin")
FIRST = [("index", pa.int64()), ("band", pa.string()), ("op", pa.int32())]
COLUMNS = pa.schema([*FIRST, *((name, pa.string()) for name in TEXTS), ("transforms", pa.list_(pa.string()))])
"""One row per problem (tasks.verdict.Row). `origin` is empty where the row was first made in this set."""
OPTIONAL_COLUMNS = (pa.field("rejected", pa.string()), pa.field("rater", pa.string()))
"""Columns of sets of preference pairs, and of those whose pairs have raters; absent from the files of all other sets."""


def table_of_columns(columns: Sequence[Iterable[Any]]) -> pa.Table:
    """Columns in the order of COLUMNS as a table."""
    arrays = [pa.array(values, field.type) for values, field in zip(columns, COLUMNS, strict=True)]
    return pa.table(arrays, schema=COLUMNS)


def table_of_rows(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table, renumbered from 0."""
    named = [name for name in COLUMNS.names if name != "index"]
    made = table_of_columns([range(len(rows)), *([getattr(row, name) for row in rows] for name in named)])
    for field in OPTIONAL_COLUMNS:
        values = [getattr(row, field.name) for row in rows]
        if any(values):
            made = made.append_column(field, pa.array(values, field.type))
    return made


OWN_FAMILIES = b"interplay.families"
"""Metadata of `problems.parquet`: the tasks of families of the user's own, as JSON, by which their rows are judged."""


def write_table(rows: pa.Table, out: Path) -> None:
    """Write the files of a set. Families of the user's own, which its rows are judged by, travel with it."""
    out.mkdir(parents=True, exist_ok=True)
    if own := own_tasks(rows["family"].unique().to_pylist()):
        rows = rows.replace_schema_metadata({OWN_FAMILIES: canonical_json(own).encode()})
    pq.write_table(rows, out / "problems.parquet", compression="zstd", row_group_size=1 << 16)
    pq.write_table(rows.select(["index", "op", "key", "origin"]), out / "keys.parquet", compression="zstd")


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """The rows of an artifact, in order. Raises UserError when the file is absent or not Parquet."""
    file = path / "problems.parquet"
    try:
        found = pq.read_table(file, columns=columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise model.UserError(
            f"{file}: not readable as a problem set ({str(error).splitlines()[0]}); make the stage again"
        ) from None
    for task in json.loads((found.schema.metadata or {}).get(OWN_FAMILIES, b"[]")):
        add_own_family(OwnTask.model_validate(task))
    return found


def read_problems(
    folder: Path, wanted: Iterable[int], columns: Sequence[str] = ("prompt", "solution", "answer")
) -> dict[int, dict[str, Any]]:
    """Index -> columns of the wanted problems of a set; {} where its file is not here."""
    file = folder / "problems.parquet"
    if not file.exists():
        return {}
    rows = pq.read_table(file, columns=["index", *columns], filters=[("index", "in", set(wanted))]).to_pylist()
    return {row["index"]: row for row in rows}


def read_rows(folder: Path, number: int) -> list[Row]:
    """The rows of an artifact; `number` is that of the set among those read together."""
    found = read_table(folder)
    known = (*COLUMNS.names, *(field.name for field in OPTIONAL_COLUMNS))
    columns = {name: found[name].to_pylist() for name in found.column_names if name in known}
    digest = artifact.read_json(folder / "stage.json")["digest"]
    own = [f"{digest}:{index}" for index in columns["index"]]
    columns["origin"] = [origin or here for origin, here in zip(columns["origin"], own, strict=True)]
    columns["transforms"] = [tuple(names) for names in columns["transforms"]]
    return [Row(number, *row) for row in zip(*columns.values(), strict=True)]


def draw_shares(sizes: Sequence[int], mix: list[float], *key: int | str) -> list[np.ndarray]:
    """Row numbers to take from sets of these sizes for a mix, ascending within each set. The set that is smallest for its share
    is used up; which rows of the others are left out is drawn from the stream of `key`."""
    most = min(size / share for size, share in zip(sizes, mix, strict=True) if share > 0)
    counts = largest_remainder(mix, int(most + 1e-9))
    return [
        np.sort(random.generator("shares", *key, number).permutation(size)[:count])
        for number, (size, count) in enumerate(zip(sizes, counts, strict=True))
    ]


# Problems to be sampled from, and verdicts on completions (rl, evaluate).


class Pool(NamedTuple):
    """Rows of several sets, in the order of the sets. The id of a problem is the number of its row."""

    rows: list[Row]
    sizes: list[int]
    """Rows of each set."""


def load_pool(folders: Sequence[Path]) -> Pool:
    """Read problem sets. Raises UserError when one is damaged."""
    each = [read_rows(folder, number) for number, folder in enumerate(folders)]
    return Pool([row for rows in each for row in rows], [len(rows) for rows in each])


def noise_key(row: Row) -> int:
    """Key of the sampling noise of a problem: its prompt's text, so that a problem is sampled equally in every set."""
    return random.stream_key("prompt", row.prompt)


def problem_of(row: Row) -> Any:
    """The gold problem of a row, as its family parses it; cached, since every turn of an episode needs it."""
    return _parse_problem(row.family, row.graph)


@lru_cache(maxsize=1024)
def _parse_problem(family: str, graph: str) -> Any:
    return judge_family(family).loads(graph)


def judge_completion(options: Verify, row: Row, text: str) -> Verdict:
    """The verdict on one completion (its last unit, where it has several) against the gold of a row."""
    said = last_unit(text, options.separator)
    verdict = judge_family(row.family).verify(problem_of(row), said, options)
    if options.own is None:
        return verdict
    made = extension.call(options.own, row, said, verdict)
    if not isinstance(made, Verdict):
        raise model.UserError(f"{options.own.function}: must return a Verdict, not {type(made).__name__}")
    return made


def judge_completions(rows: Sequence[Row], completions: Sequence[str], options: Verify) -> list[Verdict]:
    """The verdict on each completion against the gold of its row."""
    return [judge_completion(options, row, completion) for row, completion in zip(rows, completions, strict=True)]


def statements_of(row: Row, completion: str) -> list[Statement]:
    """What a completion states, in order. Raises UserError for a family whose traces are not read."""
    family, item = judge_family(row.family), multihop_item(row)
    if read := family.statements:
        return read(family.loads(row.graph), completion)
    if item is None:
        raise model.UserError(f"evaluate: traces of {row.family} are not read as statements; take behaviours and probe away")
    return fact_statements(item.steps, item.question, completion)


# Rows of other people's files (data/formats.py and data/foreign.py make problems of them), each with its place in the file.


Reason = Literal["broken", "missing_field", "unanswerable", "duplicate_id", "near_empty"]


class ItemError(Exception):
    """A defect of an item. `id` names the item where its own id (`item_name`) does not."""

    def __init__(self, reason: Reason, message: str, id: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.id = reason, message, id


def json_kind(value: Any) -> str:
    """The type of a JSON value in words."""
    words = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "text"}
    return words.get(type(value), "null")


_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_BLANK = re.compile(r"\s*")


JsonItem = tuple[str, dict[str, Any] | ItemError]
"""The place of an object in a file, `line 3` or `item 3`, from 1; and the object, or its defect."""


def read_lines(path: Path) -> Iterator[JsonItem]:
    """The objects of a file with one per line; blank lines are skipped."""
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                yield f"line {number}", _line(line.removeprefix(b"\xef\xbb\xbf"))


def _line(line: bytes) -> dict[str, Any] | ItemError:
    try:
        value = json.loads(line.decode())
    except json.JSONDecodeError as error:
        return ItemError("broken", f"not JSON ({error.msg}, column {error.colno})")
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        coded = isinstance(error, UnicodeDecodeError)
        return ItemError("broken", "not text in UTF-8: unpack or convert it" if coded else f"not JSON ({error})")
    return value if isinstance(value, dict) else ItemError("broken", f"is {json_kind(value)} and should be an object")


def read_members(path: Path) -> Iterator[JsonItem]:
    """The objects of a file that holds one list of them, each parsed separately: after one that is not JSON, parsing resumes
    after its closing bracket. Raises UserError where the file is no list, ends within it, or has text after it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise model.UserError(f"{path}: not text in UTF-8 (byte {error.start})") from None
    at, number = _skip_blanks(text, 0), 0
    if text[at : at + 1] != "[":
        raise model.UserError(f"{path}: {_line_and_column(text, at)}: should be a JSON list that starts with '['")
    at = _skip_blanks(text, at + 1)
    while text[at : at + 1] != "]":
        number += 1
        raw, end = _member(text, at)
        if isinstance(raw, ItemError) and end < 0:
            raise model.UserError(f"{path}: item {number}: {raw.message}; it is not closed; correct the file there")
        yield f"item {number}", raw
        at = _skip_blanks(text, end)
        if text[at : at + 1] == ",":
            at = _skip_blanks(text, at + 1)
        elif text[at : at + 1] != "]":
            raise model.UserError(f"{path}: {_line_and_column(text, at)}: after item {number} should be ',' or ']'")
    if _skip_blanks(text, at + 1) != len(text):
        raise model.UserError(f"{path}: {_line_and_column(text, at + 1)}: text after the end of the list")


def _member(text: str, at: int) -> tuple[dict[str, Any] | ItemError, int]:
    """The object that starts at an offset, and the offset after it; -1 where it is not closed."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except json.JSONDecodeError as error:
        return ItemError("broken", f"not JSON ({error.msg}, {_line_and_column(text, error.pos)})"), _end_of_brackets(text, at)
    except (RecursionError, ValueError) as error:
        return ItemError("broken", f"not JSON ({error})"), _end_of_brackets(text, at)
    return (value if isinstance(value, dict) else ItemError("broken", f"is {json_kind(value)} and should be an object")), end


def _end_of_brackets(text: str, at: int) -> int:
    """The offset after the bracket that closes the one at `at`; -1 where there is none."""
    depth = 0
    if text[at : at + 1] not in ("{", "["):
        return -1
    for found in _STRING_OR_BRACKET.finditer(text, at):
        depth += (found[0] in "{[") - (found[0] in "}]")
        if not depth:
            return found.end()
    return -1


def _skip_blanks(text: str, at: int) -> int:
    """The offset after the blanks at `at`."""
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _line_and_column(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def read_parquet(path: Path) -> Iterator[JsonItem]:
    """Rows of a Parquet file, from 1. Raises UserError where it is none."""
    try:
        file, number = pq.ParquetFile(path), 0
        for batch in file.iter_batches(1024):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
    except (OSError, pa.ArrowException) as error:
        raise model.UserError(f"{path}: not readable as Parquet ({str(error).splitlines()[0]}); name its format") from None


def read_csv(path: Path) -> Iterator[JsonItem]:
    """Rows of a CSV file with a line of names, by the lines on which they end; empty cells are left out. Raises UserError."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            rows = csv.DictReader(handle, strict=True)
            for row in rows:
                if None in row or None in row.values():
                    fields = len(rows.fieldnames or ())
                    raise model.UserError(f"{path}: line {rows.line_num}: not {fields} cells, as the first line has; correct it")
                yield f"line {rows.line_num}", {name: cell for name, cell in row.items() if cell}
    except (csv.Error, UnicodeDecodeError) as error:
        raise model.UserError(f"{path}: line {rows.line_num}: not CSV in UTF-8 ({error}); correct it") from None


def read_any(path: Path) -> Iterator[JsonItem]:
    """Rows of a file of JSONL, or of Parquet by its ending."""
    return read_parquet(path) if path.suffix == ".parquet" else read_lines(path)


# Completions of problems, as RL stages, evaluations and stages of kind generate keep them (data/trajectory.py): read in parts.

PART = 1 << 15
"""Rows of a large file that are in memory at once."""
FILES = ("rollouts.parquet", "samples.parquet")


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


def kept_file(folder: Path) -> Path | None:
    """The file of the completions that an artifact keeps; None where there is none."""
    return next((folder / name for name in FILES if (folder / name).exists()), None)


def open_kept(folder: Path) -> pq.ParquetFile | None:
    """That file, unread."""
    path = kept_file(folder)
    return path and pq.ParquetFile(path)


def find_groups(file: pq.ParquetFile, choice: Choice) -> Found:
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


def rows_at(file: pq.ParquetFile, places: Iterable[int]) -> list[dict[str, Any]]:
    """The rows at these places of the file, in their order there. Row groups without one are not read."""
    wanted, start, found = np.array(sorted(places), np.int64), 0, list[dict[str, Any]]()
    for group in range(file.num_row_groups):
        stop = start + file.metadata.row_group(group).num_rows
        if ((wanted >= start) & (wanted < stop)).any():
            at = start
            for part in file.iter_batches(PART, row_groups=[group]):
                found += part.take(wanted[(wanted >= at) & (wanted < at + len(part))] - at).to_pylist()
                at += len(part)
        start = stop
    return found
