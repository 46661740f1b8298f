"""The files of a problem set, whichever kind made it: `problems.parquet`, and of it `keys.parquet`, by which a report compares
sets."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from interplay.core.artifact import read_json
from interplay.core.model import UserError
from interplay.core.random import generator
from interplay.core.references import largest_remainder
from interplay.tasks.verdict import Row

COLUMNS = pa.schema(
    [
        ("index", pa.int64()),
        ("band", pa.string()),
        ("op", pa.int32()),
        ("mode", pa.string()),
        ("prompt", pa.string()),
        ("solution", pa.string()),
        ("answer", pa.string()),
        ("graph", pa.string()),
        ("key", pa.string()),
        ("family", pa.string()),
        ("origin", pa.string()),
        ("transforms", pa.list_(pa.string())),
    ]
)
"""One row per problem (tasks.verdict.Row). `origin`: empty where the row was first made in this very set."""
REJECTED = pa.field("rejected", pa.string())
RATER = pa.field("rater", pa.string())
FURTHER = (REJECTED, RATER)
"""Further columns, of sets that hold pairs and of those whose pairs have raters; absent in all others, whose bytes know nothing
of them."""


def table(columns: Sequence[Iterable[Any]]) -> pa.Table:
    """Columns in the order of COLUMNS as a table."""
    arrays = [pa.array(values, field.type) for values, field in zip(columns, COLUMNS, strict=True)]
    return pa.table(arrays, schema=COLUMNS)


def of_rows(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table, numbered anew."""
    named = [name for name in COLUMNS.names if name != "index"]
    made = table([range(len(rows)), *([getattr(row, name) for row in rows] for name in named)])
    for field in FURTHER:
        values = [getattr(row, field.name) for row in rows]
        if any(values):
            made = made.append_column(field, pa.array(values, field.type))
    return made


def write(rows: pa.Table, out: Path) -> None:
    """Write the set's files."""
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, out / "problems.parquet", compression="zstd", row_group_size=1 << 16)
    pq.write_table(rows.select(["index", "op", "key", "origin"]), out / "keys.parquet", compression="zstd")


def load(path: Path, columns: list[str] | None = None) -> pa.Table:
    """The rows of an artifact, in order. Raises UserError when the file is absent or not Parquet."""
    file = path / "problems.parquet"
    try:
        return pq.read_table(file, columns=columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{file}: not readable as a problem set ({str(error).splitlines()[0]}); make the stage again") from None


def distinct(folders: Iterable[Path]) -> tuple[int, int]:
    """(problems, distinct structures) of sets taken together, as of the shards of one; from their keys alone, 8 bytes each."""
    keys = [pq.read_table(folder / "keys.parquet", columns=["key"])["key"].to_pylist() for folder in folders]
    numbers = np.concatenate([np.array([int(key, 16) for key in own], np.uint64) for own in keys])
    return len(numbers), len(np.unique(numbers))


def in_shares(sizes: Sequence[int], mix: list[float], *words: int | str) -> list[np.ndarray]:
    """Which rows of sets of these sizes are taken for a mix, in the order of each set; the set that is smallest for its share is
    used up, and which rows of the others are left out is drawn anew for other words."""
    most = min(size / share for size, share in zip(sizes, mix, strict=True) if share > 0)
    counts = largest_remainder(mix, int(most + 1e-9))
    return [
        np.sort(generator("shares", *words, number).permutation(size)[:count])
        for number, (size, count) in enumerate(zip(sizes, counts, strict=True))
    ]


def rows(folder: Path, number: int) -> list[Row]:
    """The rows of an artifact, as set `number` of those that are read together."""
    found = load(folder)
    known = (*COLUMNS.names, *(field.name for field in FURTHER))
    columns = {name: found[name].to_pylist() for name in found.column_names if name in known}
    digest = read_json(folder / "stage.json")["digest"]
    own = [f"{digest}:{index}" for index in columns["index"]]
    columns["origin"] = [origin or here for origin, here in zip(columns["origin"], own, strict=True)]
    columns["transforms"] = [tuple(names) for names in columns["transforms"]]
    return [Row(number, *row) for row in zip(*columns.values(), strict=True)]
