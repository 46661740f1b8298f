"""Curation: problem sets from problem sets."""

from typing import Annotated, get_args

from pydantic import Field, model_validator

from interplay.schema.base import Count, Model, Natural
from interplay.schema.mix import Mix
from interplay.schema.steps.chain import Citation, Keychain, LongContext, Needle
from interplay.schema.steps.chat import ChatTemplate
from interplay.schema.steps.conflict import ConflictPairs
from interplay.schema.steps.decompose import Atoms, Intervention, Subproblems, Units
from interplay.schema.steps.label import Difficulty, Label
from interplay.schema.steps.own import CustomStep
from interplay.schema.steps.rate import RatedPairs
from interplay.schema.steps.reformulate import Choice, Cloze, Ladder, TrueFalse
from interplay.schema.steps.sift import Contamination, Deduplicate, Length, PassRate, PreferencePairs, RejectionSampling, Take
from interplay.schema.steps.spoil import Poison
from interplay.schema.steps.step import StepModel

Sifting = Take | PassRate | Length | Deduplicate | Contamination | Label | Difficulty | Poison | CustomStep
Writing = Keychain | Needle | LongContext | Citation | ChatTemplate
Reforming = Choice | Cloze | TrueFalse | Ladder | Subproblems | Intervention | RejectionSampling | Atoms | Units
Pairing = PreferencePairs | RatedPairs | ConflictPairs
Step = Annotated[Sifting | Writing | Reforming | Pairing, Field(discriminator="name")]
STEPS: dict[str, type[StepModel]] = {kind.model_fields["name"].default: kind for kind in get_args(get_args(Step)[0])}
"""By name."""


class CurateSpec(Model):
    """A problem set made of others: their rows are mixed, then each step is done to all of them. Roles: `data.<i>`, one per
    share; for step number k, where it asks for them, `samples.<k>.<i>.<b>` (block b of an evaluation of set i) and
    `against.<k>.<j>` (problem sets to compare with); `tokenizer` where a step counts tokens."""

    mix: Mix
    """Share of each `data.<i>` role among the rows, in order; sums to 1."""
    size: Count | None = None
    """Rows that are mixed, before the steps; null: as many as the shares allow without using a row twice."""
    steps: list[Step] = []
    """What is done to the rows, in order."""
    seed: Natural = 0
    """Order of the rows, and all that the steps draw."""

    @model_validator(mode="after")
    def _samples_first(self) -> "CurateSpec":
        for number, step in enumerate(self.steps):
            changing = next((before.name for before in self.steps[:number] if not before.LEAVES_QUESTIONS), None)
            if step.READS_SAMPLES and changing:
                read = f"steps.{number} ({step.name}) reads samples of the rows as they came"
                raise ValueError(f"{read}; put it before {changing}, which changes them")
        return self

    @model_validator(mode="after")
    def _edits_last(self) -> "CurateSpec":
        for number, step in enumerate(self.steps):
            edit = next((before.name for before in self.steps[:number] if before.edits), None)
            if step.WRITES_ANEW and edit:
                written = f"steps.{number} ({step.name}) writes prompts or solutions anew"
                raise ValueError(f"{written}, which would undo {edit}; put it before {edit}")
        return self
