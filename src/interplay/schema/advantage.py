"""Members of the advantage seam."""

from typing import Annotated, Literal

from pydantic import Field

from interplay.schema.base import Model


class GroupAdvantage(Model):
    """Reward minus the group's mean, scaled (GRPO, arXiv:2402.03300; Dr. GRPO, arXiv:2503.20783; Lite PPO, arXiv:2508.08221)."""

    name: Literal["group"] = "group"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide by the group's standard deviation, by the batch's, or not at all."""


class SpanAdvantage(Model):
    """Each span's reward less the mean, over the standard deviation; tokens of a span get its advantage, those outside all spans
    0 (SCRL, arXiv:2605.22074). Needs a reward that judges spans, such as `subproblems`, and a loss per token."""

    name: Literal["spans"] = "spans"
    normalise: Literal["per_position", "pooled"] = "per_position"
    """per_position: mean and deviation of the spans at one position of a group, as published; pooled: of all spans of a group."""


Advantage = Annotated[GroupAdvantage | SpanAdvantage, Field(discriminator="name")]
