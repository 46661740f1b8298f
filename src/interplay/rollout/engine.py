"""Who samples: `engine(name, decoder, how)` gives an object with `generate(requests, sampling) -> Rollouts`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from interplay.model.composed import Composed
from interplay.model.decoder import Decoder
from interplay.model.nucleus import Lagged
from interplay.rollout.native import Native
from interplay.rollout.request import Request, Rollouts, Sampling
from interplay.schema.base import UserError, nearest
from interplay.schema.run import Run
from interplay.store.environment import without_vllm

__all__ = ["Engine", "Request", "Rollouts", "Sampling", "engine"]

ENGINES = ("native", "hf", "vllm")


class Engine(Protocol):
    """What an engine does; all give the same tokens up to rounding, since their noise is the same."""

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions in the order of the requests and of the samples in each."""

    def close(self) -> None:
        """Let go of what it holds beside the decoder: memory, a server."""


def engine(
    name: str, decoder: Decoder | Composed | Lagged, how: Run, dtype: torch.dtype = torch.float32, source: Path | None = None
) -> Engine:
    """The engine called `name`, sampling from the present weights of `decoder` in `dtype`, on the decoder's device. `source`: the
    model folder that the decoder was loaded from, which `vllm` loads, too."""
    if name == "native":
        return Native(decoder, how, dtype)
    if isinstance(decoder, Composed | Lagged):
        pair = "an unlearnt one with an assistant" if isinstance(decoder, Composed) else "a policy in the nucleus of another"
        raise UserError(f"engine = {name!r}: samples from single models; {pair} wants 'native'")
    if name == "hf":
        from interplay.rollout.hf import HuggingFace  # brings transformers, 2 s to import

        return HuggingFace(decoder, how, dtype)
    if name == "vllm":
        return _vllm(decoder, how, dtype, source)
    raise UserError(f"engine = {name!r}: unknown{nearest(name, list(ENGINES))}")


def _vllm(decoder: Decoder, how: Run, dtype: torch.dtype, source: Path | None) -> Engine:
    """vLLM where the run block wants it."""
    if source is None:
        raise UserError("engine = 'vllm': samples from a model folder, and this model has none; write native")
    if missing := without_vllm():
        raise UserError(missing)
    if how.engine_server:
        from interplay.rollout.vllm.server import Server

        return Server(decoder, source, how, dtype)
    from interplay.rollout.vllm.local import Local

    return Local(decoder, source, how, dtype)


@contextmanager
def closing(*engines: Engine) -> Iterator[None]:
    """Close the engines at the end, however the block ends."""
    try:
        yield
    finally:
        for one in engines:
            one.close()
