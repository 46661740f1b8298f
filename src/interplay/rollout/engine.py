"""Who samples: `engine(name, decoder, how)` gives an object with `generate(requests, sampling) -> Rollouts`."""

from typing import Protocol

import torch

from interplay.model.composed import Composed
from interplay.model.decoder import Decoder
from interplay.model.nucleus import Lagged
from interplay.rollout.native import Native
from interplay.rollout.request import Request, Rollouts, Sampling
from interplay.schema.base import UserError, nearest
from interplay.schema.run import Run

__all__ = ["Engine", "Request", "Rollouts", "Sampling", "engine"]

ENGINES = ("native", "hf")


class Engine(Protocol):
    """What an engine does; `native` and `hf` give the same tokens up to rounding, since their noise is the same."""

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions in the order of the requests and of the samples in each."""


def engine(name: str, decoder: Decoder | Composed | Lagged, how: Run, dtype: torch.dtype = torch.float32) -> Engine:
    """The engine called `name`, sampling from the present weights of `decoder` in `dtype`, on the decoder's device."""
    if name == "native":
        return Native(decoder, how, dtype)
    if isinstance(decoder, Composed | Lagged):
        pair = "an unlearnt one with an assistant" if isinstance(decoder, Composed) else "a policy in the nucleus of another"
        raise UserError(f"engine = {name!r}: samples from single models; {pair} wants 'native'")
    if name == "hf":
        from interplay.rollout.hf import HuggingFace  # brings transformers, 2 s to import

        return HuggingFace(decoder, how, dtype)
    raise UserError(f"engine = {name!r}: unknown{nearest(name, list(ENGINES))}")
