"""What every step of a `curate` stage is given, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from interplay.data import sets, tokenizer
from interplay.store.random import key
from interplay.tasks.row import Row


class Made(NamedTuple):
    """The rows after a step, and what it counted: rows dropped by reason, rows changed, and so on."""

    rows: list[Row]
    counts: dict[str, int]


@dataclass(frozen=True)
class Inputs:
    """What else a step may read, and its random streams."""

    number: int
    """Place of the step in its stage."""
    folders: dict[str, Path]
    """Artifacts by role."""
    seed: int

    @classmethod
    def of(cls, number: int, folders: dict[str, Path], seed: int) -> "Inputs":
        """Inputs of step `number`."""
        return cls(number, folders, seed)

    def random(self, *parts: int | str) -> np.random.Generator:
        """The stream for these labels, such as a row's origin: rows draw apart, whatever stands before them."""
        return np.random.Generator(np.random.PCG64(key(self.seed, *parts)))

    @cached_property
    def count_tokens(self) -> Callable[[str], int]:
        """Tokens of a text, by the tokenizer of the `tokenizer` role."""
        encoder = tokenizer.load(self.folders["tokenizer"])
        return lambda text: len(encoder.encode(text, add_special_tokens=False).ids)

    @cached_property
    def samples(self) -> dict[tuple[int, int], list[dict]]:
        """(set, index) of a source row -> its judged samples (columns of evaluate's samples.parquet), in order."""
        found: dict[tuple[int, int], list[dict]] = {}
        for role, folder in self.folders.items():
            if role.startswith(f"samples.{self.number}."):
                number = int(role.split(".")[2])
                for sample in pq.read_table(folder / "samples.parquet").to_pylist():
                    found.setdefault((number, sample["index"]), []).append(sample)
        return found

    @cached_property
    def against(self) -> list[Row]:
        """Rows of the sets that this step compares with."""
        roles = sorted(role for role in self.folders if role.startswith(f"against.{self.number}."))
        return [row for place, role in enumerate(roles) for row in sets.rows(self.folders[role], place)]


def changed(row: Row, name: str, **columns: Any) -> Row:
    """The row with other columns, and with the step's name among its transforms."""
    return replace(row, transforms=(*row.transforms, name), **columns)
