"""Engines behind one interface, replicas that draw together, and sharding of requests over the processes of a stage."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch.nn.functional import pad

from interplay.core import execution, extension, metrics, model
from interplay.model.decoder import Decoder
from interplay.model.device import stacked
from interplay.model.folder import TransformersModel, config_json
from interplay.model.heads import Composed, Lagged
from interplay.optim import distributed
from interplay.rollout.native import Native
from interplay.rollout.request import Request, Rollouts, Sampling, assemble, draw_tokens, join, split, uniform_noise

# Replicas of a stage that samples, in one process: each runs as it would alone, but that all draw their completions together,
# from stacked weights and in batched products.
#
# A replica is a coroutine: a call in a thread of its own, of which one runs at a time, and only until it requests completions. So
# nothing that it calls has to be safe among threads, and what is drawn together depends on the replicas and not on their speed.
# A limit of time that needs the main thread's alarm (math-verify's, of problems of family qa) does not hold in them.


Outcome = dict[str, Any] | model.UserError | model.PermanentError
"""The metrics of a record, or why there is none."""
Flags = tuple[bool, bool]
"""Whether to stop, and whether to save."""


class Draw(NamedTuple):
    """Completions that a replica waits for."""

    decoder: Decoder
    dtype: torch.dtype
    requests: list[Request]
    sampling: Sampling


class Coroutine:
    """A replica's call, which runs while `resume` waits: until it asks for something, or ends with its outcome."""

    def __init__(self, function: Callable[["Coroutine"], dict[str, Any]]) -> None:
        self.function = function
        self.asks: Draw | Flags | None = None
        self.answer: Any = None
        self.outcome: dict[str, Any] | BaseException | None = None
        self.seconds, self.since = 0.0, 0.0
        """Of its own until it was resumed last, and when that was."""
        self.turn, self.caller = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.turn.acquire()
        try:
            self.outcome = self.function(self)
        except BaseException as error:
            self.outcome = error
        self.caller.release()

    def resume(self, answer: Any = None) -> None:
        """Go on with an answer, which is raised where it is an exception."""
        self.answer, self.since = answer, time.monotonic()
        self.turn.release()
        self.caller.acquire()
        self.seconds = self.clock()

    def ask(self, what: Draw | Flags) -> Any:
        """Within the call: wait for the answer. Torch's stream of random numbers is each replica's own."""
        stream, self.asks = torch.get_rng_state(), what
        self.caller.release()
        self.turn.acquire()
        torch.set_rng_state(stream)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def agree(self, flags: Flags) -> Flags:
        """Within the call: wait until all replicas are here; which flags one of them has."""
        return self.ask(flags)

    def clock(self) -> float:
        """Within the call: seconds that it took, with an equal part of what was drawn together."""
        return self.seconds + time.monotonic() - self.since


class StackedEngine(NamedTuple):
    """The native engine of a replica."""

    stack: Coroutine
    decoder: Decoder
    dtype: torch.dtype

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions in the order of the requests and of the samples in each."""
        return self.stack.ask(Draw(self.decoder, self.dtype, requests, sampling))

    def close(self) -> None:
        """Nothing is held."""


def run_replicas(
    function: Callable[..., dict[str, Any]], replicas: Sequence[execution.Replica], how: execution.Run
) -> Iterator[tuple[int, Outcome]]:
    """Call `function(spec, inputs, out, how, coroutine)` for each replica. Gives (number, outcome) of each when it ends. Raises
    StoppedError after a signal, once all have saved."""
    torch.set_num_threads(how.threads)
    running = {number: Coroutine(partial(function, *replica, how)) for number, replica in enumerate(replicas)}
    drawn, stopped = Drawn(how), None
    with execution.defer_signals():
        for one in running.values():
            one.resume()
        while running:
            for number in [number for number, one in running.items() if one.outcome is not None]:
                outcome = running.pop(number).outcome
                if isinstance(outcome, execution.StoppedError):
                    stopped = outcome
                elif isinstance(outcome, dict | model.UserError | model.PermanentError):
                    yield number, outcome
                elif outcome is not None:
                    raise outcome
            waiting = [(one, one.asks) for one in running.values() if isinstance(one.asks, Draw)]
            if waiting:
                drawn.answer(waiting)
            else:
                flags = tuple(map(any, zip(*(one.asks for one in running.values()), strict=True)))
                for one in running.values():
                    one.resume(flags)
    if stopped:
        raise stopped


class Drawn:
    """What replicas draw together."""

    def __init__(self, how: execution.Run) -> None:
        self.how = how
        self.members: list[Coroutine] = []
        """Of the stack that drew last."""
        self.engine: Native | None = None

    def answer(self, waiting: list[tuple[Coroutine, Draw]]) -> None:
        """Draw what these wait for, then let one after the other go on."""
        members, draws = [one for one, _ in waiting], [draw for _, draw in waiting]
        started = time.monotonic()
        if self.engine is None or members != self.members:
            whole = stacked([draw.decoder for draw in draws])
            self.members, self.engine = members, Native(whole, self.how, draws[0].dtype)
        made = self.engine.generate_each([draw.requests for draw in draws], [draw.sampling for draw in draws])
        share = (time.monotonic() - started) / len(draws)
        for one, rollouts in zip(members, made, strict=True):
            one.seconds += share
            one.resume(rollouts)


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
    if isinstance(decoder, Decoder) and decoder.by_rows and name != "hf":
        raise model.UserError(f"engine = {name!r}: transformers computes this model, and samples from it; write engine: hf")
    if name == "native":
        if stack is not None and isinstance(decoder, Decoder):
            return StackedEngine(stack, decoder, dtype)
        return Native(decoder, how, dtype)
    if isinstance(decoder, Composed | Lagged):
        pair = "an unlearnt one with an assistant" if isinstance(decoder, Composed) else "a policy in the nucleus of another"
        raise model.UserError(f"engine = {name!r}: samples from single models; {pair} needs 'native'")
    if name == "hf":
        return HuggingFace(decoder, how, dtype)
    if name == "vllm":
        return _vllm(decoder, how, dtype, source)
    raise model.UserError(f"engine = {name!r}: unknown{model.nearest_name(name, list(ENGINES))}")


def _vllm(decoder: Decoder, how: execution.Run, dtype: torch.dtype, source: Path | None) -> Engine:
    """vLLM where the run block names it."""
    if source is None:
        raise model.UserError("engine = 'vllm': samples from a model folder, and this model has none; write native")
    if missing := metrics.without_extra("vllm"):
        raise model.UserError(missing)
    from interplay.rollout import vllm

    return (vllm.Server if how.engine_server else vllm.Local)(decoder, source, how, dtype)


@contextmanager
def closing(*engines: Engine) -> Iterator[None]:
    """Close the engines at the end, however the block ends."""
    try:
        yield
    finally:
        for one in engines:
            one.close()


# transformers' own model and `generate`, with this project's noise: slow, the reference for `native`.


class _Draw:
    """A logits processor that draws the next tokens itself and leaves `generate`, which is greedy, no other choice."""

    def __init__(self, noise: torch.Tensor, sampling: Sampling) -> None:
        self.noise, self.sampling = noise, sampling
        self.logprobs: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens, logprobs = draw_tokens(scores.float(), self.noise[:, len(self.logprobs)], self.sampling)
        self.logprobs.append(logprobs)
        return torch.full_like(scores, float("-inf")).scatter_(1, tokens[:, None], 0.0)


class HuggingFace:
    """Samples from transformers' model of the decoder's shape, with the decoder's weights as they are at each call."""

    def __init__(self, decoder: Decoder, how: execution.Run, dtype: torch.dtype) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM  # 2 s to import

        self.decoder, self.rows = decoder, how.engine_batch
        none: dict[str, int | None] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        settings = (
            decoder.hf.config if isinstance(decoder, TransformersModel) else AutoConfig.for_model(**config_json(decoder, none))
        )
        model = AutoModelForCausalLM.from_config(settings, trust_remote_code=False)
        self.model = model.to(decoder.head().device, dtype).eval()

    @torch.inference_mode()
    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests; the same requests give the same bits."""
        trained = self.decoder.merged() if isinstance(self.decoder, TransformersModel) else self.decoder
        self.model.load_state_dict(trained.state_dict(), strict=not self.decoder.shape.tie_word_embeddings)
        return join([self._complete(batch, sampling) for batch in split(requests, self.rows)], sampling)

    def close(self) -> None:
        """Nothing is held."""

    def _complete(self, batch: list[tuple[int, Request]], sampling: Sampling) -> Rollouts:
        from transformers import LogitsProcessorList

        device = self.model.device
        rows = [(r.prompt, r.key, r.first + i) for _, r in batch for i in range(r.count)]
        longest = max(len(prompt) for prompt, _, _ in rows)
        ids = torch.tensor([[sampling.pad] * (longest - len(p)) + p for p, _, _ in rows], device=device)
        seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p, _, _ in rows], device=device)
        length = sampling.max_completion_length
        noise = uniform_noise(sampling.seed, [key for _, key, _ in rows], [sample for _, _, sample in rows], length)
        drawing = _Draw(torch.from_numpy(noise).to(device), sampling)
        output = self.model.generate(
            input_ids=ids,
            attention_mask=seen,
            do_sample=False,
            max_new_tokens=length,
            eos_token_id=sampling.eos,
            pad_token_id=sampling.pad,
            logits_processor=LogitsProcessorList([drawing]),
        )
        return assemble(batch, output[:, longest:], torch.stack(drawing.logprobs, 1), sampling)


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
