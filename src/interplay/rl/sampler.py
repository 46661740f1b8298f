"""The sampler interface, uniform sampling, weighted draws, and running pass rates."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from interplay.core import model, random
from interplay.kernels import exact
from interplay.model.decoder import Decoder
from interplay.rl.sampler_spec import UniformSampler
from interplay.tasks.verdict import Row, Verdict

# Prompts as a model reads them: padded batches of bounded size.


Encode = Callable[[Sequence[int]], list[list[int]]]
"""Ids -> tokens of their prompts."""
SLICE = 1000
"""Prompts whose tokens are at hand at once: a list takes many bytes a token, and a deck may hold more tokens than memory."""


def prompt_slices(encode: Encode, count: int) -> Iterator[list[list[int]]]:
    """The tokens of prompts 0 to count - 1, some at a time."""
    for start in range(0, count, SLICE):
        yield encode(range(start, min(start + SLICE, count)))


def prompt_lengths(encode: Encode, count: int) -> list[int]:
    """Tokens of prompts 0 to count - 1."""
    return [len(prompt) for some in prompt_slices(encode, count) for prompt in some]


def length_batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """The numbers of all prompts in pieces of at most `tokens` tokens, padding counted (a prompt that exceeds that is alone);
    those of about one length meet."""
    cut: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not cut or (len(cut[-1]) + 1) * lengths[cut[-1][0]] > tokens:
            cut.append([])
        cut[-1].append(i)
    return cut


# What every sampler is: it selects ids, observes their results, and its state is saved with the checkpoint.
#
# An id is a row of the problem sets joined in the order of their roles.


@dataclass(frozen=True)
class PromptSource:
    """What a sampler may know of a run before its first step."""

    sizes: list[int]
    """Rows of each set."""
    mix: list[float]
    """Share of each set."""
    seed: int
    steps: int = 1
    """Steps of the run; schedules are functions of (step - 1) / steps."""
    rows: Sequence[Row] = field(default_factory=list)
    """All prompts, by id."""
    policy: Decoder | None = None
    """The model that is trained, with its weights at the moment of the call."""
    encode: Encode | None = None
    dtype: torch.dtype = torch.float32
    """Arithmetic of forward passes over prompts."""
    micro_batch_tokens: int = 8192
    """Most tokens in one such pass."""
    offline: Sequence["Outcome"] = ()
    """Results of prompts that were sampled before the first step, where the stage names such samples."""

    by: exact.Functions = exact.FAST
    """What samplers compute with."""

    def __len__(self) -> int:
        return sum(self.sizes)

    def random(self, *parts: int | str) -> np.random.Generator:
        """The stream for these labels."""
        return random.generator(self.seed, "sampler", *parts)


class Outcome(NamedTuple):
    """Results of one group."""

    id: int
    rewards: tuple[float, ...]
    strict: int
    """Completions that are strictly right."""
    answer: int
    """Completions with the right answer."""

    @property
    def n(self) -> int:
        """Completions."""
        return len(self.rewards)

    @property
    def reward(self) -> float:
        """Mean reward."""
        return random.sum_in_order(self.rewards) / len(self.rewards)


def outcome_of(i: int, rewards: Sequence[float], verdicts: Sequence[Verdict]) -> Outcome:
    """The outcome of prompt i from the rewards and verdicts of its completions."""
    return Outcome(i, tuple(rewards), sum(v.strict for v in verdicts), sum(v.answer for v in verdicts))


class Sampler:
    """Base of the members. `select` may be called several times in a step (dynamic sampling draws again), `observe` once after
    each; `learn` once, when the policy has been updated."""

    STATE: ClassVar[tuple[str, ...]] = ()
    """Attributes that are saved as JSON data: numbers, lists and small arrays."""
    ARRAYS: ClassVar[tuple[str, ...]] = ()
    """Attributes that are saved as tensors: arrays over all prompts."""
    tracker: "Tracker | None" = None
    """Pass rates that it keeps, which are saved, too."""

    def select(self, m: int, step: int) -> list[int]:
        """m ids; `step` counts from 1."""
        raise NotImplementedError

    def expected(self, ids: Sequence[int]) -> torch.Tensor | None:
        """(m,) float64: the pass rate that it expects of each of the prompts that it selected last; None: it expects nothing."""
        return None

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Learn from the groups that the last selection became; a prompt that was selected twice has two."""

    def learn(self, step: int) -> None:
        """What is done once at the end of a step."""

    def metrics(self) -> dict[str, float]:
        """What the last step is to be known by, logged as `sampler/<name>`; the same names at every step."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """JSON data, and all that `tensors` does not hold."""
        values = {name: getattr(self, name) for name in self.STATE}
        return {name: v.tolist() if isinstance(v, np.ndarray) else copy.deepcopy(v) for name, v in values.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """State that is large, by name."""
        own = {name: torch.from_numpy(getattr(self, name).copy()) for name in self.ARRAYS}
        return {**own, **(self.tracker.tensors() if self.tracker else {})}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go on where both were taken."""
        for name in self.STATE:
            value = copy.deepcopy(state[name])
            setattr(self, name, np.array(value) if isinstance(getattr(self, name), np.ndarray) else value)
        for name in self.ARRAYS:
            setattr(self, name, tensors[name].numpy().copy())
        if self.tracker:
            self.tracker.load(tensors)


# What samplers share that draw by weight: a random stream for each call, and draws without replacement.
#
# The mix is a prior: a prompt weighs the share of its set over the set's size, and a member multiplies that by what it knows.


def prompt_prior(deck: PromptSource) -> np.ndarray:
    """(P,) float64, sums to 1: chance of each prompt when the sets are drawn by the mix and prompts uniformly within a set."""
    each = [share / size if size else 0.0 for share, size in zip(deck.mix, deck.sizes, strict=True)]
    return np.repeat(each, deck.sizes)


def draw_weighted(stream: np.random.Generator, weights: np.ndarray, m: int, by: exact.Functions = exact.FAST) -> list[int]:
    """m places (fewer where fewer weigh anything), drawn one after another without replacement, each in proportion to `weights`
    (P,). The m smallest of E / weight with E exponential are just that (Efraimidis and Spirakis, 2006)."""
    waits = np.full(len(weights), np.inf)
    some = weights > 0
    drawn = -by.log(torch.from_numpy(1.0 - stream.random(len(weights)))).numpy() if by.exact else None
    waits[some] = (stream.standard_exponential(len(weights)) if drawn is None else drawn)[some] / weights[some]
    count = min(m, int(some.sum()))
    first = np.argpartition(waits, count - 1)[:count] if count else np.empty(0, dtype=np.int64)
    return [int(i) for i in first[np.argsort(waits[first], kind="stable")]]


def phase_at(progress: float, lengths: Sequence[float]) -> int:
    """Which of the phases, whose lengths are in proportion to the run, holds `progress` in [0, 1)."""
    ends = np.cumsum(lengths) / sum(lengths)
    return min(int(np.searchsorted(ends, progress + 1e-9, side="right")), len(lengths) - 1)


def round_stochastic(stream: np.random.Generator, count: float) -> int:
    """A whole number whose mean is `count`: shares also hold where a call asks for one prompt."""
    return int(count + stream.random())


class WeightedSampler(Sampler):
    """Base of the members that draw by weight. What a step has taken it takes again only when nothing else is left."""

    name: str
    STATE: ClassVar[tuple[str, ...]] = ("step", "calls", "taken")

    def __init__(self, deck: PromptSource) -> None:
        self.deck, self.prior = deck, prompt_prior(deck)
        self.step, self.calls = 0, 0
        self.taken: list[int] = []

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids, by a stream that no other call sees."""
        raise NotImplementedError

    def select(self, m: int, step: int) -> list[int]:
        """m ids in an order that says nothing. The stream is keyed by (seed, name, step, number of the call in the step)."""
        if step != self.step:
            self.step, self.calls, self.taken = step, 0, []
        self.calls += 1
        stream = self.deck.random(self.name, step, self.calls)
        ids = [int(i) for i in stream.permutation(self.choose(m, step, stream))]
        self.taken += ids
        return ids

    def draw(self, stream: np.random.Generator, weights: np.ndarray, m: int) -> list[int]:
        """m ids in proportion to `weights` (P,), without replacement within the step as long as there are any; then round
        again. Raises PermanentError when nothing weighs anything."""
        if not weights.any():
            raise model.PermanentError(f"{self.name}: no prompt can be drawn at step {self.step}; look at the sampler's options")
        left = weights.copy()
        left[self.taken] = 0
        ids: list[int] = []
        while len(ids) < m:
            ids += draw_weighted(stream, left, m - len(ids), self.deck.by)
            left = weights
        return ids

    def progress(self, step: int) -> float:
        """Share of the run that lies behind: 0 at the first step."""
        return (step - 1) / self.deck.steps


# A running estimate of how often each prompt passes.


class Tracker:
    """Per prompt a Beta(a, b) whose mean is the pass rate. Rewards count as shares of a pass, clipped to [0, 1].

    A visit discounts what was known and adds its completions: a <- rho a + sum r, b <- rho b + sum (1 - r), which for one
    completion is SPO's rule (arXiv:2509.13232). `known`: outcomes from before the first step."""

    def __init__(
        self, size: int, prior: tuple[float, float] = (0.5, 0.5), rho: float = 1.0, known: Sequence[Outcome] = ()
    ) -> None:
        self.start, self.rho = prior, rho
        self.a, self.b = np.full(size, float(prior[0])), np.full(size, float(prior[1]))
        self.seen = np.zeros(size, dtype=bool)
        self.add(known)

    def value(self) -> np.ndarray:
        """(P,) estimates; 0.5 where nothing is known, not even a prior."""
        total = self.a + self.b
        return np.divide(self.a, total, out=np.full(len(total), 0.5), where=total > 0)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """One visit for each outcome, in order."""
        for outcome in outcomes:
            passed = random.sum_in_order(min(max(reward, 0.0), 1.0) for reward in outcome.rewards)
            self.a[outcome.id] = self.rho * self.a[outcome.id] + passed
            self.b[outcome.id] = self.rho * self.b[outcome.id] + outcome.n - passed
            self.seen[outcome.id] = True

    def fade(self, factor: float) -> None:
        """Draw all evidence back towards the prior, by a factor: old news count less, visited or not."""
        for values, start in ((self.a, self.start[0]), (self.b, self.start[1])):
            values += (factor - 1) * (values - start)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All of it, as copies."""
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in ("a", "b", "seen")}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on where `tensors` was called."""
        self.a, self.b, self.seen = (tensors[name].numpy().copy() for name in ("a", "b", "seen"))


# Base of the members that choose by running pass rates.


class Tracked(WeightedSampler):
    """Feeds a tracker with what is observed."""

    tracker: Tracker

    def __init__(self, deck: PromptSource, tracker: Tracker) -> None:
        super().__init__(deck)
        self.tracker = tracker

    def expected(self, ids: Sequence[int]) -> torch.Tensor | None:
        """The tracker's means."""
        return torch.from_numpy(self.tracker.value()[list(ids)])

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """One visit for each outcome."""
        self.tracker.add(outcomes)


# Every prompt of a set once per epoch.


class Uniform(Sampler):
    """Every prompt of a set once per epoch, in an order drawn from (seed, set, epoch); sets interleave by their shares of the
    mix."""

    STATE = ("taken",)

    def __init__(self, spec: UniformSampler, deck: PromptSource) -> None:
        """Raises PermanentError when a set that has a share of the mix has no prompt."""
        for number, (share, size) in enumerate(zip(deck.mix, deck.sizes, strict=True)):
            if share > 0 and not size:
                raise model.PermanentError(f"uniform: data.{number} has share {share:g} of the mix and no prompt; take it out")
        self.deck, self.sizes, self.mix = deck, deck.sizes, deck.mix
        self.starts = np.cumsum([0, *self.sizes[:-1]])
        self.taken = [0] * len(self.sizes)
        self.orders: dict[int, tuple[int, np.ndarray]] = {}

    def select(self, m: int, step: int) -> list[int]:
        """The next m ids."""
        return [self._next(self._owed()) for _ in range(m)]

    def _owed(self) -> int:
        """The set that lags furthest behind its share: any run of draws matches the mix to within one prompt per set."""
        drawn = sum(self.taken) + 1
        return int(np.argmax([share * drawn - taken for share, taken in zip(self.mix, self.taken, strict=True)]))

    def _next(self, which: int) -> int:
        epoch, place = divmod(self.taken[which], self.sizes[which])
        self.taken[which] += 1
        if self.orders.get(which, (-1,))[0] != epoch:
            self.orders[which] = (epoch, self.deck.random(which, epoch).permutation(self.sizes[which]))
        return int(self.starts[which] + self.orders[which][1][place])
