"""Selection: which of the checkpoints that a stage keeps goes on. The choice is a stage of its own, so that the graph is the same
before it is made and after: a dry run shows every candidate."""

from typing import Annotated, Literal

from pydantic import model_validator

from interplay.schema.base import Model, Since

ENTROPY = "entropy"
"""What `by` names, of an RL run's records or, with an evaluation, of samples."""


class SelectSpec(Model):
    """The best of the models of one stage: those of its kept checkpoints, and the one at its end. Roles: `init` (that stage) and,
    where it is judged by samples, `evaluation.<i>.<j>`: block j of the evaluation of candidate i."""

    by: str
    """A key of metrics.jsonl at the candidates' steps, such as loss, eval_loss/<band> or entropy (of RL: measured on the rollouts
    of that step, so before its update); or strict_pass@k, answer_pass@k or entropy (nats per token of the samples, by which
    Ring-lite chooses where RL starts), with `evaluate: NAME` beside it in the study, an evaluate stage over a validation set that
    is run for every candidate."""
    mode: Literal["min", "max", "nearest"]
    """Whether the least value wins, the greatest, or the nearest to `target`. Among equals the earliest step does; one that is no
    number never wins."""
    target: Annotated[float | None, Since(None)] = None
    """The value to come near to."""
    band: str | None = None
    """Of a pass rate: the problems that count; null: all."""
    candidates: list[int] = []
    """Steps of the kept checkpoints; the planner fills it in from the stage before. The end always competes."""

    @model_validator(mode="after")
    def _target_of_the_nearest(self) -> "SelectSpec":
        if (self.mode == "nearest") != (self.target is not None):
            raise ValueError("target: belongs to mode: nearest, which needs it")
        return self
