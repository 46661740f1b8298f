"""Members of the reward seam."""

from typing import Annotated, Literal

from pydantic import Field

from interplay.schema.base import Model, Share
from interplay.schema.custom import Custom
from interplay.schema.verify import Verify


class OutcomeReward(Model):
    """1 when the answer is right, else 0."""

    name: Literal["outcome"] = "outcome"


class ProcessReward(Model):
    """Rewards that read the steps (arXiv:2512.07783, section 6; its released code where named)."""

    name: Literal["process"] = "process"
    form: Literal["strict", "blend", "blend_released", "dense"] = "strict"
    """strict: 1 when every step and the answer are right; blend: alpha * outcome + (1 - alpha) * step accuracy, as published;
    blend_released: the released code, a node may be charged twice, extras cost, and a wrong answer gives 0; dense: released step
    score without that answer gate."""
    alpha: Share = 0.2
    """Weight of the outcome in the blends."""
    verify: Verify = Verify()


Reward = Annotated[OutcomeReward | ProcessReward | Custom, Field(discriminator="name")]
