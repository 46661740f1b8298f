"""The `dataset` stage: the items of a file in a published format, as problems."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from interplay.schema.base import UserError
from interplay.schema.dataset import DatasetSpec
from interplay.schema.run import Run
from interplay.tasks.row import Row

FORMATS: dict[str, Callable[[DatasetSpec, Path], Iterator[Row]]] = {}


def run(spec: DatasetSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet`. Raises UserError when the file is absent or has changed since the plan."""
    raise UserError(f"dataset: format = {spec.format!r}: no reader")
