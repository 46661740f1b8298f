"""Members of the advantage seam."""

from typing import Literal

from interplay.schema.base import Model


class GroupAdvantage(Model):
    """Reward minus the group's mean, scaled (GRPO, arXiv:2402.03300; Dr. GRPO, arXiv:2503.20783; Lite PPO, arXiv:2508.08221)."""

    name: Literal["group"] = "group"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide by the group's standard deviation, by the batch's, or not at all."""


Advantage = GroupAdvantage
