"""Samplers that follow an order: of difficulty, or of length."""

import itertools
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from interplay.schema.base import Count, Model, Positive, Share


class Paced(Model):
    """What an order needs: a measure of difficulty, and how fast the prompts are opened along it."""

    SCHEDULED: ClassVar[bool] = True
    by: Literal["op", "length", "pass_rate", "band"] = "op"
    """What makes a prompt hard: its `op`; its length in tokens; a low running pass rate (0.5 for prompts that were never
    drawn); or its band, by the order of `bands`."""
    bands: list[str] | None = None
    """By band: all bands of the prompts, from easy to hard."""
    pacing: Literal["linear", "root", "step"] = "root"
    """Share of the prompts that is open at progress t of the run, s being `start`: linear: s + (1 - s) t; root: the square root
    of s^2 + (1 - s^2) t, as competence-based curricula have it (arXiv:1903.09848, eq. 7); step: in `stages` equal jumps."""
    start: Share = 0.2
    """Share that is open at the first step."""
    until: Annotated[Share, Field(gt=0)] = 0.8
    """Share of the run after which all prompts are open."""
    stages: Annotated[Count, Field(ge=2)] = 4
    """Of the `step` pacing: levels, the first and the last one included."""

    @model_validator(mode="after")
    def _bands_are_ordered(self) -> "Paced":
        if (self.by == "band") != (self.bands is not None):
            raise ValueError("by: band needs bands: [easiest, ..., hardest], and nothing else does")
        if self.bands is not None and len(set(self.bands)) < max(2, len(self.bands)):
            raise ValueError(f"bands must name two bands at least, each once, not {self.bands}")
        return self


class EasyToHardSampler(Paced):
    """The easiest prompts first; harder ones are opened as the run goes on, and what is open is drawn by the mix, uniformly
    within a set (competence-based curriculum, arXiv:1903.09848). The mix decides which share of the draws is open."""

    name: Literal["easy_to_hard"] = "easy_to_hard"


class HardFirstSampler(Paced):
    """The hardest prompts first; easier ones are opened as the run goes on. The mix counts as for easy_to_hard."""

    name: Literal["hard_first"] = "hard_first"


class PhasesSampler(Model):
    """Phases by prompt length: phase k draws prompts longer than the (k-1)th bound and up to the kth, and carries hard ones of
    earlier phases along (QwenLong-L1, arXiv:2505.17667). The mix weighs the prompts within a phase."""

    SCHEDULED: ClassVar[bool] = True
    name: Literal["phases"] = "phases"
    bounds: Annotated[list[Positive], Field(min_length=1)] = [20_000, 60_000]
    """Longest prompt of each phase, rising. Prompts beyond the last are never drawn."""
    unit: Literal["tokens", "share"] = "tokens"
    """tokens: of the prompt; share: of the prompts in order of length, so that bounds of [0.5, 1] make two phases of equal
    size."""
    lengths: list[Positive] | None = None
    """Length of each phase in proportion to the others; null: equal."""
    carry: Literal["weighted", "unsolved", "none"] = "weighted"
    """What of earlier phases is drawn again. weighted: by 1 / mean reward over all that was seen of a prompt, as published;
    unsolved: those alone whose mean reward is 0, which is what the release does; none."""
    carried: Share = 0.25
    """Share of the draws that go to earlier phases; the publication gives none."""
    cap: Annotated[float, Field(ge=1)] = 8.0
    """Largest weight, that of a mean reward of 0 included. A prompt that was never drawn has a mean reward of 0.5."""

    @field_validator("bounds")
    @classmethod
    def _rising(cls, value: list[float]) -> list[float]:
        if any(low >= high for low, high in itertools.pairwise(value)):
            raise ValueError(f"bounds must rise from each phase to the next, not {value}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> "PhasesSampler":
        if self.unit == "share" and self.bounds[-1] > 1:
            raise ValueError(f"bounds in shares end at 1 at most, not at {self.bounds[-1]}")
        if self.lengths is not None and len(self.lengths) != len(self.bounds):
            raise ValueError(f"lengths must have one number per bound, {len(self.bounds)}, not {len(self.lengths)}")
        return self
