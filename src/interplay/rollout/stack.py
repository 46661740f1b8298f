"""Replicas of a stage that samples, in one process: each runs as it would alone, but that all draw their completions together,
from stacked weights and in batched products.

A replica is a coroutine: a call in a thread of its own, of which one runs at a time, and only until it wants completions. So
nothing that it calls has to be safe among threads, and what is drawn together depends on the replicas and not on their speed.
A limit of time that needs the main thread's alarm (math-verify's, of problems of family qa) does not hold in them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from interplay.core import execution, model
from interplay.model import decoder
from interplay.rollout.native import Native
from interplay.rollout.request import Request, Rollouts, Sampling

Outcome = dict[str, Any] | model.UserError | model.PermanentError
"""The metrics of a record, or why there is none."""
Flags = tuple[bool, bool]
"""Whether to stop, and whether to save."""


class Draw(NamedTuple):
    """Completions that a replica waits for."""

    decoder: decoder.Decoder
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
    decoder: decoder.Decoder
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
            whole = decoder.stacked([draw.decoder for draw in draws])
            self.members, self.engine = members, Native(whole, self.how, draws[0].dtype)
        made = self.engine.generate_each([draw.requests for draw in draws], [draw.sampling for draw in draws])
        share = (time.monotonic() - started) / len(draws)
        for one, rollouts in zip(members, made, strict=True):
            one.seconds += share
            one.resume(rollouts)
