"""Spec of pairwise comparisons in a table: baseline, noise floor, tuning."""

from typing import Any, Literal

from pydantic import Field, field_validator

from interplay.core.model import Model


class Tune(Model):
    """A sweep within each arm of the study: of the combinations that differ only in the axis, the best on the tuning column, in
    the mean over seeds and by the table's first cell, stands for the arm. Each arm has as many values to choose from."""

    axis: str
    """The axis, `stage.key`, such as rl.optimizer.learning_rate."""
    band: str
    """Column to choose by: a band of the evaluations that is none of the table's columns, so that nothing is judged by the
    prompts that it was chosen by."""


class Contrast(Model):
    """A table of differences to one arm, each beside the difference that chance alone makes."""

    against: str
    """The arm that the others are compared with: one of the study's, or a combination of one with axes."""
    among: list[str] | None = None
    """Arms (or combinations) that are compared with it; null: all but those of `noise`."""
    noise: list[str] = Field(min_length=1)
    """Arms, one or a list, each of which repeats one of the others with another random stream: `set: {rl.seed: 100}` adds 100 to
    the seed of stage rl. Their differences are the noise floor."""
    correction: Literal["holm", "none"] = "holm"
    """holm: the p-values of all comparisons that the table makes are adjusted together (Holm, 1979)."""
    tune: Tune | None = None
    """A sweep that each arm was given; null: combinations stand for themselves."""

    @field_validator("noise", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class Try(Model):
    """One arm that may stand for a contender."""

    arm: str
    value: str = ""
    """Value of the tuned axis; empty without tuning."""


class Contender(Model):
    """A row of a contrast."""

    name: str
    tries: list[Try]
    """In the order of the arms; one without tuning."""


class Lineup(Model):
    """Who is compared in one table, as the planner found it."""

    against: str
    """A contender."""
    contenders: list[Contender]
    twins: dict[str, str]
    """Arm that repeats another with another random stream -> the other."""
