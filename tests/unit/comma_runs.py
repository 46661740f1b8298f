"""Short RL runs of an untrained model that is paid for commas."""

from typing import Any

from interplay.core.execution import Run
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec

COMMAS = """
def commas(problems, completions, verdicts):
    return [min(1.0, 4 * c.count(",") / max(len(c), 1)) for c in completions]
"""
HOW = Run(engine_batch=32, micro_batch_tokens=400, save_minutes=0.0)


def spec_of(steps: int, prompts: int = 8, **method: Any) -> RLSpec:
    """A run of the method on one set."""
    return RLSpec(
        method=Method(paper="test", **method),
        reward=OwnReward(function="mine.py:commas", source=COMMAS),
        mix=[1.0],
        steps=steps,
        prompts_per_step=prompts,
        max_completion_length=12,
        optimizer=TuneOptimizer(learning_rate=5e-3),
    )
