"""What stages take from outside the graph: files of data sets, models that were made elsewhere, an engine of one's own choice."""

from collections.abc import Iterable

from interplay.schema.base import UserError
from interplay.schema.data import SourceSpec
from interplay.schema.dataset import DatasetSpec
from interplay.store.environment import without_vllm
from interplay.study.plan import Stage


def check(stages: Iterable[Stage]) -> None:
    """Raises UserError with one line for all of these stages, which are to be made, whose file is not in its place or differs,
    whose model has no place, or whose engine is not installed: who has to fetch three files learns of three. A model's folder was
    read by the plan already."""
    missing = dict.fromkeys(error for stage in stages if (error := _missing(stage)))
    if missing:
        raise UserError("; ".join(missing))


def _missing(stage: Stage) -> str | None:
    try:
        if isinstance(stage.spec, DatasetSpec):
            from interplay.data.dataset import the_file  # NumPy and pyarrow, for studies that read files alone

            the_file(stage.spec, stage.run)
        elif isinstance(stage.spec, SourceSpec) and stage.spec.sha256 and not stage.run.path:
            from interplay.model.source import place  # torch, for the one line alone

            place(stage.spec, stage.run)
        elif getattr(stage.spec, "engine", None) == "vllm":
            return without_vllm()
    except UserError as error:
        return str(error)
    return None
