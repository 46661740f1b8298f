"""The `curate` stage: mix the rows of problem sets, then apply each step; what a step reads and returns."""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from interplay.core import execution, model, random
from interplay.core.keys import largest_remainder
from interplay.data import sets, tokenizer, trajectory
from interplay.data.steps.spec import CurateSpec
from interplay.tasks.verdict import Row


class StepResult(NamedTuple):
    """The rows after a step, and its counts: rows dropped by reason, rows changed, and so on."""

    rows: list[Row]
    counts: dict[str, int]
    tables: Mapping[str, pa.Table] = MappingProxyType({})
    """Further files of the stage, by name without ending."""


@dataclass(frozen=True)
class StepInputs:
    """Artifacts that a step reads in addition to the rows, and its random streams."""

    number: int
    """Index of the step in its stage."""
    folders: dict[str, Path]
    """Artifacts by role."""
    seed: int

    def random(self, *parts: int | str) -> np.random.Generator:
        """The random stream of these labels, such as a row's origin, so that draws do not depend on other rows."""
        return random.generator(self.seed, *parts)

    @cached_property
    def count_tokens(self) -> Callable[[str], int]:
        """Tokens of a text, by the tokenizer of the `tokenizer` role."""
        return tokenizer.token_counter(tokenizer.load(self.folders["tokenizer"]))

    @cached_property
    def samples(self) -> dict[tuple[int, int], list[dict[str, Any]]]:
        """(set, index) of a source row -> its judged samples (columns of evaluate's samples.parquet, and the digest of the
        `evaluation`), in order; the completion of an episode as the transcript that a solution is."""
        found: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for numbers, folder in self._roles("samples"):
            for sample in trajectory.read_samples(folder):
                found.setdefault((numbers[1], sample["index"]), []).append(sample | {"evaluation": folder.name})
        return {row: sorted(drawn, key=lambda sample: sample["sample"]) for row, drawn in found.items()}

    @cached_property
    def against(self) -> list[Row]:
        """Rows of the sets that this step compares with; `set` is the number of the role."""
        return [row for numbers, folder in self._roles("against") for row in sets.read_rows(folder, numbers[1])]

    def row_name(self, row: Row) -> str:
        """`digest:index` of a row in its input set."""
        return f"{self.folders[f'data.{row.set}'].name}:{row.index}"

    def other_row_name(self, row: Row) -> str:
        """`digest:index` of a row of `against`."""
        return f"{self.folders[f'against.{self.number}.{row.set}'].name}:{row.index}"

    def _roles(self, word: str) -> list[tuple[list[int], Path]]:
        """(numbers of the role, folder) of the roles `word.<step>...` of this step, in the order of their numbers."""
        roles = [(role.split("."), folder) for role, folder in self.folders.items()]
        found = [([int(part) for part in parts[1:]], folder) for parts, folder in roles if parts[0] == word]
        return sorted((numbers, folder) for numbers, folder in found if numbers[0] == self.number)


def transform_row(row: Row, name: str, **columns: Any) -> Row:
    """The row with these columns replaced and the step's name added to its transforms."""
    return replace(row, transforms=(*row.transforms, name), **columns)


# The stage. Every row keeps its origin and the names of the steps that changed it; the record has the rows before and after each
# step, and its counts.


def curate_problems(spec: CurateSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet`. Raises PermanentError when no row is left."""
    rows = mix_rows([sets.read_rows(inputs[f"data.{i}"], i) for i in range(len(spec.mix))], spec)
    mixed, done = len(rows), []
    tables: dict[str, pa.Table] = {}
    for number, step in enumerate(spec.steps):
        given = StepInputs(number, inputs, random.stream_key("curate", spec.seed, number, step.name))
        made: StepResult = pkgutil.resolve_name(f"interplay.data.steps.{step.RUN}")(step, rows, given)
        done.append({"step": step.name, "given": len(rows), "left": len(made.rows), **made.counts})
        rows, tables = made.rows, {**tables, **made.tables}
        if not rows:
            raise model.PermanentError(
                f"curate: step {number} ({step.name}) leaves none of {done[-1]['given']} rows: {made.counts}"
            )
    sets.write_table(sets.table_of_rows(rows), out)
    for name, table in tables.items():
        pq.write_table(table, out / f"{name}.parquet", compression="zstd")
    return {"mixed": mixed, "size": len(rows), "steps": done}


def mix_rows(each: list[list[Row]], spec: CurateSpec) -> list[Row]:
    """Rows of the sets in their shares (counts by largest remainder), no row twice, in an order drawn from the seed. Raises
    PermanentError when a set has fewer rows than its share of `size`."""
    most = min(len(rows) / share for rows, share in zip(each, spec.mix, strict=True) if share > 0)
    counts = largest_remainder(spec.mix, spec.size or int(most + 1e-9))
    taken: list[Row] = []
    for number, (rows, count) in enumerate(zip(each, counts, strict=True)):
        if count > len(rows):
            raise model.PermanentError(f"curate: size = {spec.size}: data.{number} has {len(rows)} rows and should give {count}")
        order = random.generator("curate", spec.seed, "mix", number).permutation(len(rows))
        taken += [rows[i] for i in order[:count]]
    order = random.generator("curate", spec.seed, "order").permutation(len(taken))
    return [taken[i] for i in order]
