"""Where a stage computes."""

import torch

from interplay.model.decoder import EAGER, Decoder, compiled
from interplay.schema.run import Run


def device(how: Run) -> torch.device:
    """The GPU of a stage that was given one and finds it there, by its number, since threads differ in which is theirs; else the
    CPU."""
    if how.gpus and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def placed(decoder: Decoder, how: Run) -> Decoder:
    """The decoder where the stage computes, passing as its run block says."""
    decoder.share_prompts = how.share_prompts
    decoder.halves = compiled() if how.compile else EAGER
    return decoder.to(device(how))
