"""Where a stage computes."""

import torch

from interplay.schema.run import Run


def device(how: Run) -> torch.device:
    """The GPU of a stage that was given one and finds it there; else the CPU."""
    return torch.device("cuda" if how.gpus and torch.cuda.is_available() else "cpu")
