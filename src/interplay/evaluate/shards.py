"""The shards of an evaluation: runs of problems whose samples are made and judged together, each in a file of its own, so that a
killed evaluation does not make them again, with whatever batches and however many processes it goes on.

A file `<start>-<stop>.parquet` holds the samples of the problems start..stop-1 of the set."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interplay.store.artifact import write_atomic


def finished(folder: Path) -> list[range]:
    """The shards that lie in the folder, in the order of their problems."""
    names = (file.stem.split("-") for file in folder.glob("*-*.parquet"))
    return sorted((range(int(start), int(stop)) for start, stop in names), key=lambda shard: shard.start)


def left(folder: Path, problems: int, size: int) -> list[range]:
    """Shards of at most `size` problems for those of the set's `problems` that no shard in the folder holds."""
    gaps, start = [], 0
    for shard in [*finished(folder), range(problems, problems)]:
        gaps += [range(first, min(first + size, shard.start)) for first in range(start, shard.start, size)]
        start = shard.stop
    return gaps


def write(folder: Path, shard: range, samples: pa.Table) -> None:
    """Keep a shard's samples, whichever process of the stage made them."""
    sink = pa.BufferOutputStream()
    pq.write_table(samples, sink)
    write_atomic(_file(folder, shard), sink.getvalue().to_pybytes(), every_worker=True)


def read(folder: Path) -> pa.Table:
    """The samples of all shards, in the order of their problems."""
    return pa.concat_tables([pq.read_table(_file(folder, shard)) for shard in finished(folder)]).combine_chunks()


class Tally:
    """The share of right samples in all shards of a folder, whichever attempt or process made them; each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.right: dict[range, int] = {}
        self.samples: dict[range, int] = {}

    def strict(self) -> float:
        """Of the samples so far; nan where there is none."""
        for shard in finished(self.folder):
            if shard not in self.right:
                column = pq.read_table(_file(self.folder, shard), columns=["strict"])["strict"]
                self.right[shard], self.samples[shard] = pc.sum(column).as_py() or 0, len(column)
        samples = sum(self.samples.values())
        return sum(self.right.values()) / samples if samples else math.nan


def _file(folder: Path, shard: range) -> Path:
    return folder / f"{shard.start}-{shard.stop}.parquet"
