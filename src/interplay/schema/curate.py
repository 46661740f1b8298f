"""Curation: problem sets from problem sets."""

from typing import Annotated

from pydantic import Field, field_validator

from interplay.schema.base import Count, Model, Natural
from interplay.schema.mix import check_mix
from interplay.schema.steps.chain import Keychain
from interplay.schema.steps.reformulate import Choice
from interplay.schema.steps.sift import Take
from interplay.schema.steps.step import StepModel

Step = Annotated[Keychain | Choice | Take, Field(discriminator="name")]
STEPS: dict[str, type[StepModel]] = {kind.model_fields["name"].default: kind for kind in (Keychain, Choice, Take)}
"""By name."""


class CurateSpec(Model):
    """A problem set made of others: their rows are mixed, then each step is done to all of them. Roles: `data.<i>`, one per share;
    for step number k, where it asks for them, `samples.<k>.<i>` (an evaluation of set i) and `against.<k>.<j>` (problem sets to
    compare with); `tokenizer` where a step counts tokens."""

    mix: list[float]
    """Share of each `data.<i>` role among the rows, in order; sums to 1."""
    size: Count | None = None
    """Rows that are mixed, before the steps; null: as many as the shares allow without using a row twice."""
    steps: list[Step] = []
    """What is done to the rows, in order."""
    seed: Natural = 0
    """Order of the rows, and all that the steps draw."""

    @field_validator("mix")
    @classmethod
    def _sums(cls, value: list[float]) -> list[float]:
        check_mix(dict(enumerate(value)), "a mix")
        return value
