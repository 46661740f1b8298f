"""Samplers that learn what to draw: from the value of a prompt (PCL, arXiv:2510.01135), angles of token states (GAIN-RL,
arXiv:2506.02281), or what kinds of prompts teach (SEC, arXiv:2505.14970); and the table of samplers, by the `name` of their
spec."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from interplay.core.random import sum_in_order
from interplay.data import batches
from interplay.model.decoder import Decoder
from interplay.rl import advantage_spec, advantages, custom, difficulty_samplers, group_advantages, sampler, sampler_spec

# Cosine similarity of the states of a prompt's tokens (GAIN-RL, arXiv:2506.02281), by spans of tokens.
#
# The released code cuts the block of the question out of the cosine matrix by slicing it twice along its rows, and at positions
# that belong to one template. Here the fixed prefix is what all prompts begin with, and the question is the rest.


def common_prefix(prompts: Sequence[list[int]]) -> int:
    """Number of first tokens that all prompts share, each keeping at least one that is its own."""
    first, last = min(prompts), max(prompts)  # lists in order of their tokens: what these two share all share
    most = min(len(prompt) for prompt in prompts) - 1
    return next((i for i in range(most) if first[i] != last[i]), most)


def angles(states: torch.Tensor, prefix: int) -> tuple[float, float]:
    """Of the states (T, D) of a prompt whose first `prefix` tokens are fixed: the mean cosine over the pairs i < j of tokens of
    the question, and over all pairs of one token of the question and one of the prefix. 0 where there is no pair.

    No matrix is needed: with unit vectors u, sum over i < j of u_i u_j = (|sum u|^2 - n) / 2."""
    unit = torch.nn.functional.normalize(states.double(), dim=-1)
    fixed, question = unit[:prefix].sum(0), unit[prefix:].sum(0)
    n = len(states) - prefix
    within = float((question @ question - n) / (n * (n - 1))) if n > 1 else 0.0
    across = float(question @ fixed / (n * prefix)) if n and prefix else 0.0
    return within, across


def score_all(decoder: Decoder, encode: sampler.Encode, count: int, tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """(P, 2) float64: `angles` of each of `count` prompts' states where they enter the last layer's MLP, in passes of `tokens`
    tokens. Prompts are encoded again for their pass, so that never all tokens are at hand."""
    sizes: list[int] = []
    ends: list[list[int]] = []  # of each slice first, last and shortest: what `common_prefix` looks at
    for some in sampler.prompt_slices(encode, count):
        sizes += map(len, some)
        ends += [min(some), max(some), min(some, key=len)]
    prefix, device = common_prefix(ends), decoder.head().device
    found = torch.zeros(count, 2, dtype=torch.float64)
    with torch.no_grad():
        for piece in sampler.length_batches(sizes, tokens):
            ids, lengths = batches.pad_completions(encode(piece), device)
            states = decoder.mlp_input(ids, torch.arange(ids.shape[1], device=device)[None], dtype)
            for row, i in enumerate(piece):
                found[i] = torch.tensor(angles(states[row, : lengths[row]], prefix), dtype=torch.float64)
    return found


# Prompts by the angles of their token states, from the most similar on (GAIN-RL, arXiv:2506.02281).


FAINTEST = 1e-200
"""Share of the largest weight that no prompt falls below: however far mu moved on, there are always m prompts to draw."""


class GainRl(sampler.WeightedSampler):
    """Draws around rank mu of the scores that the initial policy gives. They are made before the first step and saved: the policy
    that a resumed run finds is no longer the initial one."""

    name = "gain_rl"
    STATE = (*sampler.WeightedSampler.STATE, "mu", "mu_before")

    def __init__(self, spec: sampler_spec.GainRlSampler, deck: sampler.PromptSource) -> None:
        super().__init__(deck)
        self.spec = spec
        self.scale = len(deck) / spec.reference if spec.reference else 1.0
        self.mu = self.mu_before = spec.mu * self.scale
        self.known: torch.Tensor | None = None
        self.outcomes: list[sampler.Outcome] = []
        self.logged: dict[str, float] = {}

    def angles(self) -> torch.Tensor:
        """(P, 2) float64: mean cosines within the question, and between question and prefix."""
        if self.known is None:
            if self.deck.policy is None or self.deck.encode is None:
                raise ValueError("gain_rl needs the deck's policy and encode")
            tokens, dtype = self.deck.micro_batch_tokens, self.deck.dtype
            self.known = score_all(self.deck.policy, self.deck.encode, len(self.deck), tokens, dtype)
        return self.known

    def ranks(self) -> np.ndarray:
        """(P,) place of each prompt by its score, the highest first; equal scores in the order of ids."""
        within, across = self.angles().numpy().T
        ranks = np.empty(len(within))
        ranks[np.argsort(-(within + self.spec.weight * across), kind="stable")] = np.arange(len(within))
        return ranks

    def weights(self) -> np.ndarray:
        """(P,) exp(-((rank - mu) / sigma)^2 / 2) times the prompt's chance by the mix, as shares of the largest."""
        centre = self.mu if self.spec.lag == "new" else self.mu_before
        exponents = -0.5 * ((self.ranks() - centre) / (self.spec.sigma * self.scale)) ** 2
        return np.maximum(np.exp(exponents - exponents.max()), FAINTEST) * self.prior

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m ids, without replacement."""
        return self.draw(stream, self.weights(), m)

    def observe(self, step: int, outcomes: Sequence[sampler.Outcome]) -> None:
        """Keep the groups for the end of the step."""
        self.outcomes += outcomes

    def learn(self, step: int) -> None:
        """Move mu on, but where no group measured the policy on its bare prompt. The angle of a step is the mean within its
        questions, as the initial policy saw them."""
        spec = self.spec
        if not self.outcomes:
            self.mu_before, self.logged = self.mu, {"mu": self.mu, "angle": 0.0}
            return
        reward = float(np.mean([min(max(outcome.reward, 0.0), 1.0) for outcome in self.outcomes]))
        angle = float(np.mean([float(self.angles()[outcome.id, 0]) for outcome in self.outcomes]))
        rise = spec.step * (math.tanh(spec.alpha * (reward - spec.beta)) + math.tanh(spec.alpha * angle))
        self.logged = {"mu": self.mu, "angle": angle}
        self.mu_before, self.mu = self.mu, self.mu + self.scale * min(max(rise, spec.least), spec.most)
        self.outcomes = []

    def metrics(self) -> dict[str, float]:
        """Of the last step: `mu` before its move, and `angle`, the mean cosine within the questions drawn."""
        return self.logged

    def tensors(self) -> dict[str, torch.Tensor]:
        """The angles, once they are known."""
        return {} if self.known is None else {"angles": self.known}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go on where both were taken."""
        super().load_state_dict(state, tensors)
        self.known = tensors.get("angles")


# V(x): the mean reward of a prompt, predicted from the prompt alone.


class NetworkValue(advantages.ValueNetwork):
    """A network that starts as the policy and makes one step of AdamW on the mean squared error for each step of the run."""

    def __init__(self, spec: sampler_spec.ModelValue, deck: sampler.PromptSource, start: float) -> None:
        if deck.policy is None or deck.encode is None:
            raise ValueError("a value model needs the deck's policy and encode")
        super().__init__(deck.policy, spec.learning_rate, start)
        self.encode, self.dtype, self.tokens = deck.encode, deck.dtype, deck.micro_batch_tokens

    def predict(self, ids: Sequence[int]) -> np.ndarray:
        """(n,) float64."""
        prompts = self.encode(ids)
        values = torch.zeros(len(ids), dtype=torch.float64)
        with torch.no_grad():
            for piece in sampler.length_batches([len(prompt) for prompt in prompts], self.tokens):
                values[piece] = self._values([prompts[i] for i in piece]).double().cpu()
        return values.numpy()

    def learn(self, outcomes: Sequence[sampler.Outcome]) -> None:
        """One step on the mean over groups of (V(x) - mean reward)^2. The paper has the sum, for which Adam makes the same
        steps."""
        prompts = self.encode([outcome.id for outcome in outcomes])
        wanted = torch.tensor([outcome.reward for outcome in outcomes], device=self.network.head.weight.device)
        for piece in sampler.length_batches([len(prompt) for prompt in prompts], self.tokens):
            values = self._values([prompts[i] for i in piece])
            ((values - wanted[piece]) ** 2).sum().div(len(outcomes)).backward()
        self.apply_gradients()

    def _values(self, prompts: Sequence[list[int]]) -> torch.Tensor:
        """V (n,) float32 of n prompts, from the state of the last token."""
        ids, lengths = batches.pad_completions(prompts, self.network.head.weight.device)
        states = self.network.decoder.hidden(ids, torch.arange(ids.shape[1], device=ids.device)[None], dtype=self.dtype)
        return self.network(states[torch.arange(len(ids), device=ids.device), lengths.to(ids.device) - 1])


class TrackedValue(sampler.Tracker):
    """The mean of a Beta distribution per prompt, each group counting as much as its completions."""

    def predict(self, ids: Sequence[int]) -> np.ndarray:
        """(n,) float64; 0.5 for a prompt that was never drawn."""
        return self.value()[list(ids)]

    def learn(self, outcomes: Sequence[sampler.Outcome]) -> None:
        """Count the step's groups."""
        self.add(outcomes)


# Prompt curriculum learning (PCL, arXiv:2510.01135): draw what V(x) puts nearest to a threshold.


class Pcl(sampler.Sampler):
    """Of `candidates` * m prompts, drawn as the uniform sampler draws them, the m with the smallest |V(x) - tau|."""

    def __init__(self, spec: sampler_spec.PclSampler, deck: sampler.PromptSource) -> None:
        self.spec = spec
        self.pool = sampler.Uniform(sampler_spec.UniformSampler(), deck)
        self.value: NetworkValue | TrackedValue
        if isinstance(spec.value, sampler_spec.ModelValue):
            self.value = NetworkValue(spec.value, deck, spec.tau)
        else:
            self.value = TrackedValue(len(deck), rho=spec.value.rho)
        self.predicted: dict[int, float] = {}
        """V of this step's candidates."""
        self.outcomes: list[sampler.Outcome] = []
        """Of this step's groups."""
        self.logged: dict[str, float] = {}

    def select(self, m: int, step: int) -> list[int]:
        """m ids, the nearest to tau first and equal ones in the order drawn. No prompt twice, unless a set that is smaller than
        the candidates leaves fewer than m."""
        candidates = list(dict.fromkeys(self.pool.select(self.spec.candidates * m, step)))
        order = np.argsort(np.abs(self._predict(candidates) - self.spec.tau), kind="stable")
        return [candidates[order[place % len(order)]] for place in range(m)]

    def _predict(self, ids: list[int]) -> np.ndarray:
        values = self.value.predict(ids)
        self.predicted |= dict(zip(ids, values.tolist(), strict=True))
        return values

    def expected(self, ids: Sequence[int]) -> torch.Tensor | None:
        """V, also of prompts that a continuation brought."""
        if new := [i for i in ids if i not in self.predicted]:
            self._predict(new)
        return torch.tensor([self.predicted[i] for i in ids], dtype=torch.float64)

    def observe(self, step: int, outcomes: Sequence[sampler.Outcome]) -> None:
        """Keep the groups for the end of the step."""
        self.outcomes += outcomes

    def learn(self, step: int) -> None:
        """Teach V the step's rewards: it predicts those of the next step as they were under the policy of this one."""
        self.logged = self._measure()
        if self.outcomes:
            self.value.learn(self.outcomes)
        self.predicted, self.outcomes = {}, []

    def _measure(self) -> dict[str, float]:
        value = float(np.mean(list(self.predicted.values())))
        if not self.outcomes:
            return {"value": value, "error": 0.0, "explained_variance": 0.0}
        rewards = np.array([outcome.reward for outcome in self.outcomes])
        errors = rewards - [self.predicted[outcome.id] for outcome in self.outcomes]
        spread = rewards.var()
        return {
            "value": value,
            "error": float(np.sqrt((errors**2).mean())),
            "explained_variance": float(1 - errors.var() / spread) if spread else 0.0,
        }

    def metrics(self) -> dict[str, float]:
        """Of the last step: `value`, mean V of the candidates; of the groups drawn, `error`, root mean square of reward - V, and
        `explained_variance`, 1 - var(reward - V) / var(reward). The groups are those whose V is nearest to tau, among which V
        hardly varies: a V that predicts well shows in a small error there and in explained variance at its start only."""
        return self.logged

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return self.pool.state_dict()

    def tensors(self) -> dict[str, torch.Tensor]:
        """What V learnt."""
        return self.value.tensors()

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go on where both were taken."""
        self.pool.load_state_dict(state, {})
        self.value.load(tensors)


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
    "pcl": Pcl,
    "gain_rl": GainRl,
    "ada_rft": difficulty_samplers.AdaRft,
    "format_ladder": difficulty_samplers.FormatLadder,
    "custom": custom.own_sampler,
}


def build_sampler(spec: Any, deck: sampler.PromptSource) -> sampler.Sampler:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, deck)
