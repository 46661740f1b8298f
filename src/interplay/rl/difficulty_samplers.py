"""Samplers by difficulty: AdaRFT, edge of competence, easy to hard, hard first, retain hardest, length phases, single
stream, and the ladder of formats."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from interplay.core.model import PermanentError
from interplay.core.random import sum_in_order
from interplay.rl import sampler, sampler_spec as specs
from interplay.tasks.reformulated import chance

# AdaRFT (arXiv:2504.05520): draw what is nearest to a difficulty that rises with high rewards and falls with low ones.


class AdaRft(sampler.WeightedSampler):
    """Equally near prompts come in random order; sets without a share of the mix do not come, else difficulty alone decides."""

    name = "ada_rft"
    STATE = (*sampler.WeightedSampler.STATE, "target", "rewards")
    ARRAYS = ("drawn",)

    def __init__(self, spec: specs.AdaRftSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck)
        self.spec, self.target = spec, spec.target
        self.difficulty = _difficulty(spec, deck)
        self.drawn = np.zeros(len(deck), dtype=bool)
        """Of this pass over the prompts."""
        self.rewards: list[float] = []
        """Of this step's groups."""

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids."""
        ids: list[int] = []
        while len(ids) < m:
            left = np.flatnonzero((self.prior > 0) & ~self.drawn)
            if not len(left):
                self.drawn[:] = False
                continue
            near = np.lexsort((stream.permutation(len(left)), np.abs(self.difficulty[left] - self.target)))
            nearest = left[near[: m - len(ids)]]
            self.drawn[nearest] = True
            ids += nearest.tolist()
        return ids

    def observe(self, step: int, outcomes: Sequence[sampler.Outcome]) -> None:
        """Keep the groups for the end of the step."""
        self.rewards += [outcome.reward for outcome in outcomes]

    def learn(self, step: int) -> None:
        """Move the target; not where no group measured the policy on its bare prompt."""
        if not self.rewards:
            return
        mean = float(np.mean(self.rewards))
        pull = torch.tensor(self.spec.alpha * (mean - self.spec.beta), dtype=torch.float64)
        moved = self.target + self.spec.eta * (float(self.deck.by.tanh(pull)) if self.deck.by.exact else np.tanh(float(pull)))
        self.target, self.rewards = float(np.clip(moved, 0, 100)), []

    def metrics(self) -> dict[str, float]:
        """`target`: T as the next step will have it."""
        return {"target": self.target}


def _difficulty(spec: specs.AdaRftSampler, deck: sampler.PromptSource) -> np.ndarray:
    """(P,) in [0, 100]."""
    if spec.by == "op":
        ops = np.array([row.op for row in deck.rows], dtype=np.float64)
        return 100 * (ops - ops.min()) / max(np.ptp(ops), 1)
    return 100 * (1 - sampler.Tracker(len(deck), (0, 0), known=deck.offline).value())


# Edge of competence: prompts that pass about half of the time.


class EdgeOfCompetence(sampler.Tracked):
    """Candidates by the mix; of those that were never drawn a share, of the others those nearest to the target. Where one kind
    falls short, the other fills up."""

    name = "edge_of_competence"

    def __init__(self, spec: specs.EdgeSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck, sampler.Tracker(len(deck), (spec.prior, spec.prior), known=deck.offline))
        self.spec = spec

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m of the candidates, which come in random order: equally good ones are drawn uniformly."""
        untaken = int((self.prior > 0).sum()) - len(set(self.taken))
        wanted = untaken if self.spec.candidates is None else min(round(self.spec.candidates * m), untaken)
        candidates = np.array(list(dict.fromkeys(self.draw(stream, self.prior, max(wanted, m)))))
        known = self.tracker.seen[candidates]
        fresh, old = candidates[~known], candidates[known]
        old = old[np.argsort(self._distance(self.tracker.value()[old]), kind="stable")]
        explored = min(max(sampler.round_stochastic(stream, self.spec.explore * m), m - len(old)), len(fresh))
        chosen = [*fresh[:explored], *old[: m - explored]]
        return chosen if len(chosen) == m else [*chosen, *self.draw(stream, self.prior, m - len(chosen))]

    def _distance(self, rate: np.ndarray) -> np.ndarray:
        low, high = self.spec.band or (self.spec.target, self.spec.target)
        return np.maximum(np.maximum(low - rate, rate - high), 0.0)

    def observe(self, step: int, outcomes: Sequence[sampler.Outcome]) -> None:
        """Evidence ages by a step at the first observation of each."""
        if self.calls == 1 and self.spec.half_life is not None:
            self.tracker.fade(self.deck.by.power(0.5, 1 / self.spec.half_life))
        super().observe(step, outcomes)


# Easy to hard, and hard first: prompts in order of difficulty, more of them open as the run goes on.


def open_share(spec: specs.Paced, progress: float) -> float:
    """Share of the prompts that is open at `progress` of the run."""
    done = min(progress / spec.until, 1.0)
    if spec.pacing == "linear":
        return spec.start + (1 - spec.start) * done
    if spec.pacing == "root":
        square = spec.start * spec.start  # Python's ** is the C library's pow
        return float(np.sqrt(square + (1 - square) * done))
    level = min(int(done * (spec.stages - 1) + 1e-9), spec.stages - 1)
    return spec.start + (1 - spec.start) * level / (spec.stages - 1)


class PacedSampler(sampler.WeightedSampler):
    """Draws by the mix among the prompts that are open; which of equally hard prompts is opened first is drawn from the seed."""

    def __init__(self, spec: specs.EasyToHardSampler | specs.HardFirstSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck)
        self.spec, self.name = spec, spec.name
        self.ties = deck.random(self.name, "ties").permutation(len(deck))
        self.tracker = sampler.Tracker(len(deck), known=deck.offline) if spec.by == "pass_rate" else None

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m of the open prompts: the first in order, up to the share of the mix that is open."""
        order = self._order() if self.tracker else self._fixed_order
        mass = self.prior[order].cumsum()
        count = int(np.searchsorted(mass, max(open_share(self.spec, self.progress(step)) - 1e-9, 1e-12))) + 1
        weights = np.zeros(len(self.prior))
        weights[order[:count]] = self.prior[order[:count]]
        return self.draw(stream, weights, m)

    @cached_property
    def _fixed_order(self) -> np.ndarray:
        return self._order()

    def _order(self) -> np.ndarray:
        """Ids by difficulty, in the direction of the member."""
        hardness = self._hardness()
        return np.lexsort((self.ties, hardness if self.spec.name == "easy_to_hard" else -hardness))

    def _hardness(self) -> np.ndarray:
        if self.tracker:
            return 1 - self.tracker.value()
        if self.spec.by == "length":
            assert self.deck.encode is not None
            return np.array(sampler.prompt_lengths(self.deck.encode, len(self.deck)))
        if self.spec.bands is None:
            return np.array([row.op for row in self.deck.rows])
        places = {band: place for place, band in enumerate(self.spec.bands)}
        if unknown := sorted({row.band for row in self.deck.rows} - set(places)):
            raise PermanentError(f"{self.name}: bands {self.spec.bands} lack '{unknown[0]}', which some prompts have")
        return np.array([places[row.band] for row in self.deck.rows])

    def observe(self, step: int, outcomes: Sequence[sampler.Outcome]) -> None:
        """Only an order by pass rate learns."""
        if self.tracker:
            self.tracker.add(outcomes)


# Retain the hardest: fewer and fewer prompts, those that fail most.


class RetainHardest(sampler.Tracked):
    """Keeps the hardest of what the phase before kept when a phase begins (DRIVE, arXiv:2511.06307). A prompt that was
    never drawn counts as passing half of the time; which of equals stays is drawn from the seed."""

    name = "retain_hardest"
    STATE = (*sampler.WeightedSampler.STATE, "phase")
    ARRAYS = ("kept",)

    def __init__(self, spec: specs.RetainHardestSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck, sampler.Tracker(len(deck), (0.5, 0.5), spec.rho, deck.offline))
        self.spec = spec
        self.ties = deck.random(self.name, "ties").permutation(len(deck))
        self.phase = -1
        self.kept = self.prior > 0
        self.size = int(self.kept.sum())
        """Prompts that can be drawn at all."""

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m of the prompts that the phase keeps."""
        now = sampler.phase_at(self.progress(step), [part.steps for part in self.spec.schedule])
        if now != self.phase:
            self.phase, self.kept = now, self._hardest(self.spec.schedule[now].keep)
        return self.draw(stream, np.where(self.kept, self.prior, 0.0), m)

    def _hardest(self, keep: float) -> np.ndarray:
        """(P,) bool."""
        count = max(1, round(keep * self.size if keep <= 1 else keep))
        order = np.lexsort((self.ties, self.tracker.value(), ~self.kept))
        stays = np.zeros_like(self.kept)
        stays[order[: min(count, int(self.kept.sum()))]] = True
        return stays


# Phases of growing prompt length, with retrospective sampling.


class Phases(sampler.Tracked):
    """Phase k draws prompts with L_(k-1) < length <= L_k, and a share from earlier phases by 1 / mean reward (QwenLong-L1,
    arXiv:2505.17667). Raises PermanentError when a phase has no prompts."""

    name = "phases"

    def __init__(self, spec: specs.PhasesSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck, sampler.Tracker(len(deck), (0.0, 0.0), known=deck.offline))
        self.spec = spec
        self.lengths = spec.lengths or [1.0] * len(spec.bounds)
        assert deck.encode is not None
        tokens = np.array(sampler.prompt_lengths(deck.encode, len(deck)))
        usable = np.sort(tokens[self.prior > 0])
        bounds = spec.bounds if spec.unit == "tokens" else [usable[_last(share, len(usable))] for share in spec.bounds]
        self.place = np.where(self.prior > 0, np.searchsorted(bounds, tokens), len(bounds))
        """(P,) phase of each prompt; the number of phases for those that none has."""
        for number in range(len(bounds)):
            if not (self.place == number).any():
                found = f"prompts have {usable[0]} to {usable[-1]} tokens"
                raise PermanentError(
                    f"phases: none in phase {number + 1}, up to {bounds[number]:g} tokens: {found}; change bounds"
                )

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids: of the phase, and carried ones."""
        now = sampler.phase_at(self.progress(step), self.lengths)
        weights = np.where(self.place < now, self.prior * self._carried(), 0.0)
        count = sampler.round_stochastic(stream, self.spec.carried * m) if weights.any() else 0
        old = self.draw(stream, weights, count) if count else []
        return [*old, *self.draw(stream, np.where(self.place == now, self.prior, 0.0), m - count)]

    def _carried(self) -> np.ndarray:
        """(P,) weight of each prompt in later phases."""
        mean = self.tracker.value()
        if self.spec.carry == "weighted":
            return 1 / np.maximum(mean, 1 / self.spec.cap)
        return ((self.spec.carry == "unsolved") & self.tracker.seen & (mean == 0)).astype(float)


def _last(share: float, count: int) -> int:
    """Place of the last of the first `share` of `count` things."""
    return max(0, int(np.ceil(share * count - 1e-9)) - 1)


# The prioritised sampler of single-stream policy optimisation.


class SingleStream(sampler.Tracked):
    """Weight sqrt(v (1 - v)) + floor over all prompts (SPO, arXiv:2509.13232; its release, which unlike the paper does not
    divide by a power of the effective count)."""

    name = "single_stream"

    def __init__(self, spec: specs.SingleStreamSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck, sampler.Tracker(len(deck), (0.5, 0.5), spec.rho))
        self.spec = spec
        # a + b begins at 1 / (1 - rho), which is where a prompt that is visited again and again settles.
        total = 1 / (1 - spec.rho)
        for outcome in deck.offline:
            passed = sum_in_order(min(max(reward, 0.0), 1.0) for reward in outcome.rewards)
            self.tracker.a[outcome.id] = total * (passed + 0.5) / (outcome.n + 1)
            self.tracker.b[outcome.id] = total * (outcome.n - passed + 0.5) / (outcome.n + 1)

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids by weight, without replacement."""
        rate = self.tracker.value()
        return self.draw(stream, self.prior * (np.sqrt(rate * (1 - rate)) + self.spec.floor), m)


# Every question in the format that it has climbed to (Cog-DRIFT, arXiv:2604.04767).


class FormatLadder(sampler.Sampler):
    """Questions are drawn as the uniform sampler draws prompts; each has a rung, which is one of its rows. Rows of one origin are
    one question, of the set that has its first row."""

    STATE = ("rung", "history", "promoted")

    def __init__(self, spec: specs.FormatLadderSampler, deck: sampler.PromptSource) -> None:
        """Raises PermanentError when a question has two rows in one format, or several of which one is in none of `formats`; and
        when a set that has a share of the mix has no question of its own."""
        self.spec, self.deck = spec, deck
        sets: list[dict[str, list[int]]] = [{} for _ in deck.sizes]
        home: dict[str, int] = {}
        numbers = [number for number, size in enumerate(deck.sizes) for _ in range(size)]
        for i, (number, row) in enumerate(zip(numbers, deck.rows, strict=True)):
            sets[home.setdefault(row.origin, number)].setdefault(row.origin, []).append(i)
        self.questions = [(origin, self._ladder(ids)) for of_set in sets for origin, ids in of_set.items()]
        for number, (share, of_set) in enumerate(zip(deck.mix, sets, strict=True)):
            if share > 0 and not of_set:
                own = f"data.{number} has share {share:g} of the mix and no question that an earlier set lacks"
                raise PermanentError(f"format_ladder: {own}; join the sets into one, for instance with the step ladder")
        self.rung = [0] * len(self.questions)
        self.history: list[list[float]] = [[] for _ in self.questions]
        self.uniform = sampler.Uniform(specs.UniformSampler(), replace(deck, sizes=[len(of_set) for of_set in sets]))
        self.of_id = {i: number for number, (_, ids) in enumerate(self.questions) for i in ids}
        self.promoted = 0

    def _ladder(self, ids: list[int]) -> list[int]:
        """The rows of one question, from easy to hard."""
        if len(ids) == 1:
            return ids
        modes = [self.deck.rows[i].mode for i in ids]
        if odd := [mode for mode in modes if mode not in self.spec.formats or modes.count(mode) > 1]:
            must = f"each must be one of {self.spec.formats}, once; not {odd[0]}"
            raise PermanentError(f"format_ladder: a question has rows of the modes {modes}; {must}")
        rank = {str(format): place for place, format in enumerate(self.spec.formats)}
        return sorted(ids, key=lambda i: rank[self.deck.rows[i].mode])

    def select(self, m: int, step: int) -> list[int]:
        """The next m questions, each as its current row."""
        return [self.questions[number][1][self.rung[number]] for number in self.uniform.select(m, step)]

    def observe(self, step: int, outcomes: Sequence[sampler.Outcome]) -> None:
        """Note each question's mean over the batch, and promote."""
        groups: dict[int, list[sampler.Outcome]] = {}
        for outcome in outcomes:
            groups.setdefault(self.of_id[outcome.id], []).append(outcome)
        for number, found in groups.items():
            self.history[number] = [*self.history[number], self._score(found)][-self.spec.window :]
        chosen = self._chosen(step, list(groups))
        for number in chosen:
            self.rung[number] += 1
            self.history[number] = []
        self.promoted += len(chosen)

    def _score(self, found: list[sampler.Outcome]) -> float:
        """Mean over the completions to one question."""
        count = sum(outcome.n for outcome in found)
        if self.spec.promote_on == "reward":
            return sum_in_order(sum_in_order(outcome.rewards) for outcome in found) / count
        return sum(outcome.answer for outcome in found) / count

    def _chosen(self, step: int, seen: list[int]) -> list[int]:
        """Who moves, among the step's questions that have a next format."""
        able = [number for number in seen if self.rung[number] + 1 < len(self.questions[number][1])]
        if self.spec.promotion == "fixed":
            return []
        if self.spec.promotion == "adaptive":
            return [number for number in able if self._passes(number)]
        drawn = {number: self.deck.random("promotion", self.questions[number][0], step).random() for number in able}
        if self.spec.rate is not None:
            return [number for number in able if drawn[number] < self.spec.rate]
        return sorted(able, key=lambda number: (drawn[number], number))[: sum(map(self._passes, able))]

    def _passes(self, number: int) -> bool:
        """Whether the rolling mean exceeds the threshold."""
        scores = self.history[number]
        if len(scores) < self.spec.window:
            return False
        mean = sum_in_order(scores) / len(scores)
        row = self.deck.rows[self.questions[number][1][self.rung[number]]]
        guessing = chance(row) if self.spec.chance_correction else 0.0
        return mean - guessing > self.spec.threshold * (1 - guessing)

    def metrics(self) -> dict[str, float]:
        """Questions promoted so far, and the share of questions at each format."""
        now = Counter(self.deck.rows[ids[rung]].mode for rung, (_, ids) in zip(self.rung, self.questions, strict=True))
        shares = {f"share_{mode}": now[mode] / len(self.questions) for mode in self.spec.formats}
        return {"promoted": float(self.promoted), **shares}

    def state_dict(self) -> dict[str, Any]:
        """Also where the order of questions is."""
        return {**super().state_dict(), "uniform": self.uniform.state_dict()}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        super().load_state_dict(state, tensors)
        self.uniform.load_state_dict(state["uniform"], {})
