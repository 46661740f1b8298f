"""Samplers that follow what came of the prompts so far. All count rewards as shares of a pass, clipped to [0, 1]."""

import itertools
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from interplay.schema.base import Model, Positive, Share


class EdgeSampler(Model):
    """Prompts whose running pass rate is nearest to a target, and a share that was never drawn. The candidates come by the
    mix."""

    name: Literal["edge_of_competence"] = "edge_of_competence"
    target: Share = 0.5
    """Pass rate that is sought: groups have the most to say at one half (arXiv:2510.01135)."""
    band: tuple[Share, Share] | None = None
    """In place of the target: lowest and highest pass rate, between which all are alike."""
    explore: Share = 0.25
    """Share of the draws that go to prompts which were never drawn, as long as there are any."""
    candidates: Annotated[float, Field(ge=1)] | None = 4.0
    """Candidates per prompt that is wanted; null: all prompts."""
    prior: Positive = 0.5
    """Pseudo-counts of a pass and of a failure that every estimate starts with."""
    half_life: Positive | None = 20.0
    """Steps in which evidence halves: an old estimate drifts back to one half, and the prompt is tried again; null: never."""

    @model_validator(mode="after")
    def _ordered(self) -> "EdgeSampler":
        if self.band is not None and self.band[0] > self.band[1]:
            raise ValueError(f"band must be [lowest, highest], not {list(self.band)}")
        return self


class SingleStreamSampler(Model):
    """Prioritised sampling of single-stream policy optimisation (SPO, arXiv:2509.13232): weight sqrt(v (1 - v)) + floor, v
    being the mean of a Beta(a, b), without replacement over all prompts. The mix multiplies the weights. It begins at a = b =
    0.5, or, where the stage names samples under `offline`, at a = (passes + 0.5) / (n + 1) / (1 - rho) and b likewise."""

    name: Literal["single_stream"] = "single_stream"
    rho: Annotated[float, Field(ge=0.875, le=0.96)] = 0.875
    """What remains of the evidence on a prompt at each visit, within the published clamp; 0.875 is the published constant
    mode. (The mode that reads rho off the drift of the policy is not there.)"""
    floor: Positive = 0.05
    """Weight of a prompt that always passes or never does."""


class Retain(Model):
    """One phase of retain_hardest."""

    steps: Positive
    """Its length, in proportion to the other phases."""
    keep: Positive
    """At most 1: share of all prompts that stay; above: their number."""


class RetainHardestSampler(Model):
    """Phases that each keep the hardest prompts of the phase before, by the running pass rate when the phase begins, and draw
    those uniformly (DRIVE, arXiv:2511.06307). The mix weighs the prompts that are kept; it does not enter who is."""

    SCHEDULED: ClassVar[bool] = True
    name: Literal["retain_hardest"] = "retain_hardest"
    schedule: Annotated[list[Retain], Field(min_length=1)] = [
        Retain(steps=32, keep=1.0),
        Retain(steps=64, keep=72 / 175),
        Retain(steps=32, keep=50 / 175),
        Retain(steps=32, keep=25 / 175),
    ]
    """Phases in order. As published: 32 steps of all prompts (there of another set), then the hardest 72, 50 and 25 of 175."""
    rho: Share = 0.5
    """What remains of the evidence on a prompt at each visit: 1 averages over the run, 0 keeps the last group alone."""

    @field_validator("schedule")
    @classmethod
    def _falling(cls, value: list[Retain]) -> list[Retain]:
        keeps = [phase.keep for phase in value]
        for early, late in itertools.pairwise(keeps):
            if (early <= 1) == (late <= 1) and late > early:
                raise ValueError(f"a phase keeps some of what the one before kept, so keep cannot rise, as it does in {keeps}")
        return value


class LearnedMixtureSampler(Model):
    """A bandit over kinds of prompts: Q <- alpha r + (1 - alpha) Q for each kind that was drawn, and kinds are drawn by
    softmax(Q / temperature) (SEC, arXiv:2505.14970). The shares of the mix weigh prompts within a kind; those between kinds are
    learned."""

    name: Literal["learned_mixture"] = "learned_mixture"
    by: Literal["band", "set", "op"] = "band"
    """What a kind is. By set, the mix must be equal shares, since it says nothing."""
    reward: Literal["advantage", "progress"] = "advantage"
    """r. advantage: mean |advantage| of the kind's completions, as published; progress: |change of its mean reward since it was
    last drawn| (the release takes the change with its sign)."""
    scale_rewards: Literal["group", "none"] = "group"
    """Whether that advantage is over the standard deviation of its group."""
    alpha: Annotated[Share, Field(gt=0)] = 0.5
    """Weight of the latest r."""
    temperature: Positive = 1.0
    """Of the softmax; released commands have 1.0 (Countdown), 0.4 (mathematics) and 0.2 (puzzles)."""
    undrawn: Literal["keep", "decay"] = "keep"
    """Q of a kind that was not drawn: keep: stays; decay: as if r were 0, which is what the release does."""
