"""Engines behind one interface, and sharding of requests over the processes of a stage."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from torch.nn.functional import pad

from interplay.core import execution, extension, metrics, model
from interplay.model.decoder import Decoder
from interplay.model.heads import Composed, Lagged
from interplay.optim import distributed
from interplay.rollout.native import Native
from interplay.rollout.request import Request, Rollouts, Sampling, join
from interplay.rollout.stack import Coroutine, StackedEngine

# Who samples: `engine(name, decoder, how)` gives an object with `generate(requests, sampling) -> Rollouts`.


__all__ = ["Engine", "Request", "Rollouts", "Sampling", "engine"]

ENGINES = ("native", "hf", "vllm")


class Engine(Protocol):
    """What an engine does; all give the same tokens up to rounding, since their noise is the same."""

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions in the order of the requests and of the samples in each."""

    def close(self) -> None:
        """Let go of what it holds in addition to the decoder: memory, a server."""


def engine(
    name: str | extension.Extension,
    decoder: Decoder | Composed | Lagged,
    how: execution.Run,
    dtype: torch.dtype = torch.float32,
    source: Path | None = None,
    stack: Coroutine | None = None,
) -> Engine:
    """The engine called `name`, sampling from the present weights of `decoder` in `dtype`, on the decoder's device. `source`: the
    model folder that the decoder was loaded from, which `vllm` loads, too. `stack`: the replica that samples, of a stack; a
    decoder that decodes side by side with another samples by itself there."""
    if isinstance(name, extension.Extension):
        return cast(Engine, extension.call(name, decoder, how, dtype))
    if name == "native":
        if stack is not None and isinstance(decoder, Decoder):
            return StackedEngine(stack, decoder, dtype)
        return Native(decoder, how, dtype)
    if isinstance(decoder, Composed | Lagged):
        pair = "an unlearnt one with an assistant" if isinstance(decoder, Composed) else "a policy in the nucleus of another"
        raise model.UserError(f"engine = {name!r}: samples from single models; {pair} wants 'native'")
    if name == "hf":
        from interplay.rollout.hf import HuggingFace  # brings transformers, 2 s to import

        return HuggingFace(decoder, how, dtype)
    if name == "vllm":
        return _vllm(decoder, how, dtype, source)
    raise model.UserError(f"engine = {name!r}: unknown{model.nearest_name(name, list(ENGINES))}")


def _vllm(decoder: Decoder, how: execution.Run, dtype: torch.dtype, source: Path | None) -> Engine:
    """vLLM where the run block wants it."""
    if source is None:
        raise model.UserError("engine = 'vllm': samples from a model folder, and this model has none; write native")
    if missing := metrics.without_vllm():
        raise model.UserError(missing)
    from interplay.rollout.vllm import engines

    return (engines.Server if how.engine_server else engines.Local)(decoder, source, how, dtype)


@contextmanager
def closing(*engines: Engine) -> Iterator[None]:
    """Close the engines at the end, however the block ends."""
    try:
        yield
    finally:
        for one in engines:
            one.close()


# Rollouts by several processes: each samples its share of the requests, and all receive the rollouts of every one.


class ShardedEngine(NamedTuple):
    """An engine with its like in every process of the stage. Since noise is keyed by what a token is, the completions are those
    of one process, but for what batches of other sizes round otherwise."""

    own: Engine

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests, the same in every process."""
        places = distributed.shard_round_robin(range(len(requests)))
        made = self.own.generate([requests[i] for i in places], sampling) if places else None
        parts = [distributed.all_gather_rows(value) for value in _even(made, torch.tensor(places), sampling)]
        each = [Rollouts(*(part[rank] for part in parts)) for rank in range(execution.world_size())]
        everything = join([one for one in each if len(one.request)], sampling)
        order = everything.request.argsort(stable=True)
        return Rollouts(*(value[order] for value in everything))

    def close(self) -> None:
        """Let go of what the own engine holds."""
        self.own.close()


def shard_engine(engine: Engine) -> Engine:
    """The engine of a stage, however many processes it has."""
    return ShardedEngine(engine) if execution.world_size() > 1 else engine


def _even(made: Rollouts | None, places: torch.Tensor, sampling: Sampling) -> Rollouts:
    """What one process made, with the numbers of the requests among all, in arrays as wide as completions may be."""
    longest = sampling.max_completion_length
    if made is None:
        none = torch.zeros(0, dtype=torch.int64)
        return Rollouts(none, none, none.view(0, 1).expand(0, longest), none, torch.zeros(0, longest), none.bool())
    return made._replace(
        request=places[made.request],
        tokens=pad(made.tokens, (0, longest - made.tokens.shape[1]), value=sampling.pad),
        logprobs=pad(made.logprobs, (0, longest - made.logprobs.shape[1])),
    )
