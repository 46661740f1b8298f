"""What every step of a `curate` stage is given, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from interplay.core.random import generator
from interplay.data import sets, tokenizer
from interplay.tasks.verdict import Row


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

    def random(self, *parts: int | str) -> np.random.Generator:
        """The stream for these labels, such as a row's origin: rows draw apart, whatever stands before them."""
        return generator(self.seed, *parts)

    @cached_property
    def count_tokens(self) -> Callable[[str], int]:
        """Tokens of a text, by the tokenizer of the `tokenizer` role."""
        encoder = tokenizer.load(self.folders["tokenizer"])
        return lambda text: len(encoder.encode_batch_fast([text], add_special_tokens=False)[0])

    @cached_property
    def samples(self) -> dict[tuple[int, int], list[dict[str, Any]]]:
        """(set, index) of a source row -> its judged samples (columns of evaluate's samples.parquet), by number of the sample."""
        found: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for numbers, folder in self._roles("samples"):
            for sample in pq.read_table(folder / "samples.parquet").to_pylist():
                found.setdefault((numbers[1], sample["index"]), []).append(sample)
        return {row: sorted(drawn, key=lambda sample: sample["sample"]) for row, drawn in found.items()}

    @cached_property
    def against(self) -> list[Row]:
        """Rows of the sets that this step compares with; `set` is the number of their role."""
        return [row for numbers, folder in self._roles("against") for row in sets.rows(folder, numbers[1])]

    def name(self, row: Row) -> str:
        """`digest:index` of the row in the set that it came in."""
        return f"{self.folders[f'data.{row.set}'].name}:{row.index}"

    def other(self, row: Row) -> str:
        """`digest:index` of a row of `against`."""
        return f"{self.folders[f'against.{self.number}.{row.set}'].name}:{row.index}"

    def _roles(self, word: str) -> list[tuple[list[int], Path]]:
        """(numbers of the role, folder) of the roles `word.<step>...` of this step, in the order of their numbers."""
        roles = [(role.split("."), folder) for role, folder in self.folders.items()]
        found = [([int(part) for part in parts[1:]], folder) for parts, folder in roles if parts[0] == word]
        return sorted((numbers, folder) for numbers, folder in found if numbers[0] == self.number)


def changed(row: Row, name: str, **columns: Any) -> Row:
    """The row with other columns, and with the step's name among its transforms."""
    return replace(row, transforms=(*row.transforms, name), **columns)
