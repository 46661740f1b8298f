"""Samplers over mixtures and formats, and the table of samplers by the `name` of their spec."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from interplay.core.model import PermanentError
from interplay.core.random import sum_in_order
from interplay.rl import advantage_spec, custom, difficulty_samplers, group_advantages, model_samplers, sampler, sampler_spec
from interplay.tasks.reformulated import chance

# A mixture over kinds of prompts that is learned by a bandit.


class LearnedMixture(sampler.WeightedSampler):
    """Q(c) <- alpha r(c) + (1 - alpha) Q(c), from 0; p(c) is softmax(Q / temperature) (SEC, arXiv:2505.14970, and its
    release). It learns after every call, of which a step with dynamic sampling has several."""

    name = "learned_mixture"
    STATE = (*sampler.WeightedSampler.STATE, "value", "mean")

    def __init__(self, spec: sampler_spec.LearnedMixtureSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck)
        self.spec = spec
        labels = [getattr(row, spec.by) for row in deck.rows]
        self.kinds = sorted({label for label, mass in zip(labels, self.prior, strict=True) if mass > 0})
        places = {kind: place for place, kind in enumerate(self.kinds)}
        self.place = np.array([places.get(label, -1) for label in labels])
        """(P,) place of each prompt's kind in `kinds`; -1 where the mix draws none of it."""
        self.value = np.zeros(len(self.kinds))
        self.mean: list[float | None] = [None] * len(self.kinds)
        """Mean reward of each kind when it was last drawn."""

    def chances(self) -> np.ndarray:
        """(K,) of each kind."""
        heat = np.exp((self.value - self.value.max()) / self.spec.temperature)
        return heat / heat.sum()

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids: the kinds are drawn anew for each, the prompts of a kind by the mix and without replacement."""
        counts = stream.multinomial(m, self.chances())
        each = [(np.where(self.place == kind, self.prior, 0.0), int(count)) for kind, count in enumerate(counts) if count]
        return [i for weights, count in each for i in self.draw(stream, weights, count)]

    def observe(self, step: int, outcomes: Sequence[sampler.Outcome]) -> None:
        """Move Q towards what the kinds were worth."""
        worth = self._advantage(outcomes) if self.spec.reward == "advantage" else self._progress(outcomes)
        alpha = self.spec.alpha
        if self.spec.undrawn == "decay":
            worth = {kind: worth.get(kind, 0.0) for kind in range(len(self.kinds))}
        for kind, value in worth.items():
            self.value[kind] = alpha * value + (1 - alpha) * self.value[kind]

    def _advantage(self, outcomes: Sequence[sampler.Outcome]) -> dict[int, float]:
        """Kind -> mean |advantage| of its completions."""
        rewards = torch.tensor([reward for outcome in outcomes for reward in outcome.rewards], dtype=torch.float64)
        groups = torch.tensor([number for number, outcome in enumerate(outcomes) for _ in outcome.rewards])
        scaled = advantage_spec.GroupAdvantage(scale_rewards=self.spec.scale_rewards)
        size = group_advantages.compared(scaled, rewards, groups).float().abs()
        kinds = self.place[[outcomes[number].id for number in groups.tolist()]]
        return {int(kind): float(size[torch.from_numpy(kinds == kind)].mean()) for kind in np.unique(kinds)}

    def _progress(self, outcomes: Sequence[sampler.Outcome]) -> dict[int, float]:
        """Kind -> |change of its mean reward|, for kinds that were drawn before."""
        rewards: dict[int, list[float]] = {}
        for outcome in outcomes:
            rewards.setdefault(int(self.place[outcome.id]), []).extend(outcome.rewards)
        changes = {}
        for kind, found in rewards.items():
            mean, before = sum_in_order(found) / len(found), self.mean[kind]
            self.mean[kind] = mean
            if before is not None:
                changes[kind] = abs(mean - before)
        return changes

    def metrics(self) -> dict[str, float]:
        """Of each kind, Q after the last step and the chance to be drawn next."""
        chances = self.chances()
        found: dict[str, float] = {}
        for place, kind in enumerate(self.kinds):
            found |= {f"value/{kind}": float(self.value[place]), f"chance/{kind}": float(chances[place])}
        return found


# Every question in the format that it has climbed to (Cog-DRIFT, arXiv:2604.04767).


class FormatLadder(sampler.Sampler):
    """Questions are drawn as the uniform sampler draws prompts; each has a rung, which is one of its rows. Rows of one origin are
    one question, of the set that has its first row."""

    STATE = ("rung", "history", "promoted")

    def __init__(self, spec: sampler_spec.FormatLadderSampler, deck: sampler.PromptSource) -> None:
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
        self.uniform = sampler.Uniform(sampler_spec.UniformSampler(), replace(deck, sizes=[len(of_set) for of_set in sets]))
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


# The table of samplers, by the `name` of their spec.


MEMBERS: dict[str, Callable[[Any, sampler.PromptSource], sampler.Sampler]] = {
    "uniform": sampler.Uniform,
    "easy_to_hard": difficulty_samplers.PacedSampler,
    "hard_first": difficulty_samplers.PacedSampler,
    "edge_of_competence": difficulty_samplers.EdgeOfCompetence,
    "single_stream": difficulty_samplers.SingleStream,
    "retain_hardest": difficulty_samplers.RetainHardest,
    "phases": difficulty_samplers.Phases,
    "learned_mixture": LearnedMixture,
    "pcl": model_samplers.Pcl,
    "gain_rl": model_samplers.GainRl,
    "ada_rft": difficulty_samplers.AdaRft,
    "format_ladder": FormatLadder,
    "custom": custom.own_sampler,
}


def build_sampler(spec: Any, deck: sampler.PromptSource) -> sampler.Sampler:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, deck)
