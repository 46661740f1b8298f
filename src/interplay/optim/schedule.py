"""The learning rate over a run, as a factor on the peak."""

import math

from interplay.schema.model import Schedule


def factor(spec: Schedule, step: int, steps: int) -> float:
    """Factor for `step` of 1..steps: linear warm-up to 1, hold, then decay to `min_ratio` at the last step.

    The warm-up takes round(warmup_ratio * steps) steps, and its last has factor 1; the decay takes round(decay_ratio * steps),
    at most what the warm-up leaves."""
    warmup = round(spec.warmup_ratio * steps)
    if step <= warmup:
        return step / warmup
    decay = min(round(spec.decay_ratio * steps), steps - warmup)
    passed = step - (steps - decay)
    if spec.name == "constant" or passed <= 0:
        return 1.0
    left = 1 - passed / decay
    shape = left if spec.name == "linear" else (1 - math.cos(math.pi * left)) / 2
    return spec.min_ratio + (1 - spec.min_ratio) * shape
