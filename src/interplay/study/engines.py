"""Whether the engine of a stage can sample from its model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interplay.schema.base import UserError
from interplay.schema.engine import vllm_misfit
from interplay.schema.model import Shape
from interplay.schema.train import PretrainSpec
from interplay.schema.unlearn import UnlearnSpec
from interplay.store.artifact import split_ref

if TYPE_CHECKING:
    from interplay.study.plan import Stage

ROLES = ("model", "init")


def check(stage: "Stage", stages: Mapping[str, "Stage"], where: str) -> None:
    """Raises UserError where an engine is to sample from a pair of models that is not `native`, or `vllm` from a shape that
    it does not compute. A model that was made elsewhere is looked at when the stage begins."""
    engine = getattr(stage.spec, "engine", "native")
    digest = next((split_ref(stage.deps[role])[0] for role in ROLES if role in stage.deps), "")
    model = stages.get(digest)
    if engine == "native" or model is None:
        return
    if isinstance(model.spec, UnlearnSpec) and model.spec.objective == "uld":
        raise UserError(
            f"{where}.engine = {engine}: the model is one and an assistant (objective uld), side by side; write native"
        )
    shape = _shape(model, stages) if engine == "vllm" else None
    if shape is not None and (why := vllm_misfit(shape, not stage.run.gpus)):
        raise UserError(f"{where}.engine = vllm: {why}; write native")


def _shape(model: "Stage", stages: Mapping[str, "Stage"]) -> Shape | None:
    """That which a model's first stage was given; None where it was made elsewhere."""
    while not isinstance(model.spec, PretrainSpec):
        before = stages.get(split_ref(model.deps.get("init", ""))[0])
        if before is None:
            return None
        model = before
    return model.spec.model
