"""The critic; advantages of seats, spans and segments, GAE, and the table of advantages: `(spec, batch, context) -> (N,T)
float32`."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch

from interplay.core import random
from interplay.kernels import exact
from interplay.model import decoder, heads
from interplay.model.spec import Numerics
from interplay.model.trainer_spec import Optimizer
from interplay.optim import distributed, optimizer
from interplay.rl import advantage_spec as specs, custom, group_advantages, turn_credit
from interplay.rl.batch import Batch, StepContext
from interplay.rl.policy import shard_rows, states

# Advantages over what a seat of a game usually earns (SPIRAL, arXiv:2506.24119).


BASELINES = "role.baselines"
"""Name in the memory: `<family>.<seat>` -> the baseline of that seat."""


def role(spec: specs.RoleAdvantage, batch: Batch, now: StepContext) -> torch.Tensor:
    """r - b, b the baseline of the row's game and seat as it was before this step."""
    known = now.memory.notes.get(BASELINES, {})
    baselines = torch.tensor([known.get(name, 0.0) for name in roles(batch, now)], dtype=torch.float64)
    return group_advantages.over_tokens(batch.rewards - baselines, batch)


def update_baselines(spec: specs.Advantage, batch: Batch, now: StepContext) -> None:
    """Of the advantage `role`, once those of the batch that a step learns from were taken: b <- decay b + (1 - decay) r for each
    row, in order. The others remember nothing."""
    if not isinstance(spec, specs.RoleAdvantage):
        return
    known = now.memory.notes.setdefault(BASELINES, {})
    for name, reward in zip(roles(batch, now), batch.rewards.tolist(), strict=True):
        known[name] = spec.decay * known.get(name, 0.0) + (1 - spec.decay) * reward


def roles(batch: Batch, now: StepContext) -> list[str]:
    """The game and seat of each row."""
    assert batch.seats is not None
    pairs = zip(batch.ids.tolist(), batch.seats.tolist(), strict=True)
    return [f"{now.rows[i].family}.{seat}" for i, seat in pairs]


# Advantages of parts of completions.


def by_spans(spec: specs.SpanAdvantage, batch: Batch, now: StepContext) -> torch.Tensor:
    """A^(j) = (r^(j) - mean r^(j)) / sd r^(j) over the spans at position j of a group, malformed rows included (SCRL,
    arXiv:2605.22074), or over all spans of a group; 0 outside all spans. With credit for what follows, A_t is the sum of A^(j)
    over the spans that end behind t (arXiv:2402.03300, section 4.1.3). Raises ValueError without spans."""
    if batch.spans is None:
        raise ValueError("the advantage `spans` needs a reward that judges spans")
    positions = [[span.position for span in row] for row in batch.spans] if spec.normalise == "per_position" else None
    advantages = turn_credit.compared(batch, [[span.value for span in row] for row in batch.spans], positions)
    return turn_credit.placed(batch, advantages, spec.credit == "following")


# Advantages from a critic's values.


def by_critic(spec: specs.GaeAdvantage, batch: Batch, now: StepContext) -> torch.Tensor:
    """Generalised advantage estimates (arXiv:1506.02438, eq. 16), centred and scaled over the batch's tokens where `whiten` says
    so."""
    assert batch.values is not None
    found = gae(batch.values.double(), batch, spec.gamma, spec.lam, spec.rewards, now.by, spec.gamma_turn)
    return (group_advantages.whitened_over(found, batch.mask(), now.by) if spec.whiten else found).float()


def gae(
    values: torch.Tensor,
    batch: Batch,
    gamma: float,
    lam: float,
    rewards: specs.Rewarded = "outcome",
    by: exact.Functions = exact.FAST,
    gamma_turn: float | None = None,
) -> torch.Tensor:
    """(N,T) float64: sum_l (gamma lam)^l delta_{t+l}, delta_t = r_t + gamma V_{t+1} - V_t, r what tokens earn; behind a row's
    last token V is 0. A row that goes on in a later step has no reward yet, and V behind its last token is that before it
    (T-PPO, arXiv:2506.15050). Places outside the mask are passed over, as if their neighbours stood side by side. At the last
    token of a turn the discount is `gamma_turn`, where that is given."""
    mask, paid = batch.mask(), group_advantages.earned(batch, by, rewards)
    later = torch.where(batch.finished(), 0.0, values[torch.arange(len(values)), batch.last()])
    found, running = torch.zeros_like(values), torch.zeros(len(values), dtype=values.dtype)
    discount = torch.full_like(values, gamma)
    if gamma_turn is not None:
        for row, spans in enumerate(turn_credit.of_turns(batch)):
            discount[row, [span.end - 1 for span in spans if span.end]] = gamma_turn
    for t in reversed(range(values.shape[1])):
        delta = paid[:, t] + discount[:, t] * later - values[:, t]
        running = torch.where(mask[:, t], delta + discount[:, t] * lam * running, running)
        later = torch.where(mask[:, t], values[:, t], later)
        found[:, t] = torch.where(mask[:, t], running, 0.0)
    return found


# Advantages of segments, from the rewards of further completions of the text before and after them.


def by_segments(spec: specs.SegmentAdvantage, batch: Batch, now: StepContext) -> torch.Tensor:
    """V(end) - V(start) for each token of a segment, V the mean reward of `samples` completions of the prompt and all text
    before, and at the end of the row its reward (SPO-chain, arXiv:2505.23564)."""
    starts = borders(spec, batch, now)
    places = [(row, start) for row, of_row in enumerate(starts) for start in of_row]
    worth = dict(zip(places, now.continued(batch, places, spec.samples).tolist(), strict=True))
    found = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    for row, of_row in enumerate(starts):
        end, length = float(batch.rewards[row]), int(batch.lengths[row])
        for start, stop in pairwise([*of_row, length]):
            later = end if stop == length else worth[row, stop]
            found[row, start:stop] = later - worth[row, start]
    if spec.whiten:
        unlikely = batch.mask() & (now.by.exp(batch.logprobs) < spec.threshold)
        return group_advantages.whitened_over(found, unlikely, now.by).float()
    return (found * batch.mask()).float()


def borders(spec: specs.SegmentAdvantage, batch: Batch, now: StepContext) -> list[list[int]]:
    """For each row where its segments begin."""
    if spec.separator is None:
        probabilities = zip(now.by.exp(batch.logprobs).tolist(), batch.lengths.tolist(), strict=True)
        return [cuts(row[:length], spec.threshold, spec.cutpoint_interval) for row, length in probabilities]
    rows = zip(batch.written(), batch.completions, strict=True)
    return [ends(now.offsets(tokens, text), text, spec.separator) for tokens, text in rows]


def cut_segments(spec: specs.Advantage, batch: Batch, now: StepContext) -> Batch:
    """The batch with the number of the segment that each token belongs to, where the advantage is of segments."""
    if not isinstance(spec, specs.SegmentAdvantage):
        return batch
    found = torch.zeros(batch.tokens.shape, dtype=torch.int64)
    for row, starts in enumerate(borders(spec, batch, now)):
        found[row, [start for start in starts if start]] = 1  # what lies before a first cut-point is none of its segment
    return replace(batch, steps=found.cumsum(1))


def ends(offsets: list[int], text: str, separator: str) -> list[int]:
    """Where the steps of a text begin: at the first token, and behind each token in which a separator ends. `offsets`: first
    character of each token."""
    starts, place = {0}, text.find(separator)
    while place >= 0:
        starts.add(bisect_right(offsets, place + len(separator) - 1))
        place = text.find(separator, place + len(separator))
    return sorted(start for start in starts if start < max(len(offsets), 1))


def cuts(probabilities: list[float], threshold: float, interval: int) -> list[int]:
    """Where segments begin: at the first cut-point, that is, token less probable than the threshold, and at each `interval`-th
    one behind it, as in SPO's release; tokens before the first are in none."""
    return [place for place, probability in enumerate(probabilities) if probability < threshold][::interval]


# The table of advantages, by the `name` of their spec: `(spec, batch, now) -> (N,T) float32`, zero where the batch's mask is. A
# member reads `now.memory` and does not write it: dynamic sampling asks for advantages of batches that are thrown away.


MEMBERS: dict[str, Callable[..., torch.Tensor]] = {
    "group": group_advantages.group,
    "spans": by_spans,
    "turn_returns": turn_credit.by_turns,
    "turns": turn_credit.by_turns,
    "role": role,
    "igpo": turn_credit.by_turns,
    "leave_one_out": group_advantages.leave_one_out,
    "whitened": group_advantages.whitened,
    "length_baseline": group_advantages.length_baseline,
    "remax": group_advantages.remax,
    "gdpo": group_advantages.gdpo,
    "grpo_passk": group_advantages.grpo_passk,
    "optimal_token_baseline": group_advantages.optimal_token_baseline,
    "pass_k": group_advantages.pass_k,
    "a_grae": group_advantages.a_grae,
    "copo": group_advantages.copo,
    "tracked": group_advantages.tracked,
    "xrpo": group_advantages.xrpo,
    "gtpo_entropy": group_advantages.gtpo_entropy,
    "gae": by_critic,
    "segments": by_segments,
    "custom": custom.own_advantage,
}


def advantages(spec: specs.Advantage, batch: Batch, now: StepContext) -> torch.Tensor:
    """The member that `spec` names, applied to all rows of a step."""
    return MEMBERS[spec.name](spec, batch, now)


# The critic of a run: the value of each state of a batch, and how it learns from what came.
#
# The value of a token's place is that of the state before the token: of prompt and completion up to it.


class ValueNetwork:
    """A value head that begins as the policy with the value `start`, and its own AdamW."""

    def __init__(self, policy: decoder.Decoder, learning_rate: float, start: float = 0.0) -> None:
        self.network = heads.ValueHead(policy, start)
        self.options = Optimizer(name="adamw", learning_rate=learning_rate, weight_decay=0.0)
        self.by: exact.Functions = exact.EXACT if policy.sums else exact.FAST
        numerics: Numerics = "exact" if policy.sums else "fast"
        self.optimizers = optimizer.build_optimizers(self.options, self.network.named_parameters(), numerics=numerics)

    def apply_gradients(self) -> None:
        """One step with the gradient that was accumulated."""
        optimizer.apply_gradients(self.optimizers, list(self.network.parameters()), self.options.max_grad_norm)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and the optimiser's state."""
        return distributed.training_tensors(self.network, self.optimizers)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on where `tensors` was called."""
        distributed.restore_training(tensors, self.network, self.optimizers)


class Critic(ValueNetwork):
    """Values of the states of rollouts."""

    def __init__(self, spec: specs.ValueHead, policy: decoder.Decoder, dtype: torch.dtype, micro_batch_tokens: int) -> None:
        super().__init__(policy, spec.learning_rate)
        self.spec, self.dtype, self.tokens = spec, dtype, micro_batch_tokens

    def values(self, batch: Batch) -> torch.Tensor:
        """(N,T) float32 without a gradient, 0 past a completion."""
        found = torch.zeros(batch.tokens.shape)
        with torch.no_grad():
            for rows in shard_rows(self.network.decoder, batch, torch.arange(len(batch)), self.tokens):
                found[rows] = self._values(batch, rows)
        return distributed.all_reduce_sum(found)

    def learn(
        self,
        batch: Batch,
        rewards: specs.Rewarded = "outcome",
        weights: torch.Tensor | None = None,
        targets: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> dict[str, float]:
        """`num_iterations` steps towards the lambda-returns of a batch whose `values` are known, on its finished rows, with
        `weights` (N,T) of tokens; None: all are equal. `targets`: other returns (N,T), and the tokens that have one, (N,T) bool.
        Returns the loss, the mean value and the share of the returns' variance that the values explained, over tokens."""
        assert batch.values is not None
        old, mask = batch.values.double(), batch.mask() & batch.finished()[:, None]
        if targets is None:
            returns = gae(old, batch, self.spec.gamma, self.spec.lam, rewards, self.by, self.spec.gamma_turn) + old
        else:
            returns, mask = targets[0], mask & targets[1]
        measured = _measure(old[mask], returns[mask], self.by)
        losses = []
        for _ in range(self.spec.num_iterations if mask.any() else 0):
            loss = 0.0
            with distributed.accumulate_gradient(self.network):
                for rows in shard_rows(self.network.decoder, batch, mask.any(1).nonzero()[:, 0], self.tokens):
                    per_token = value_loss(self._values(batch, rows), old[rows], returns[rows], self.spec.cliprange_value)
                    if self.by.exact:
                        part = per_token * (mask[rows] / mask.sum() if weights is None else weights[rows])
                        part.backward(torch.ones_like(part))
                    else:
                        whole = (per_token * mask[rows]).sum() / mask.sum()
                        part = whole if weights is None else (per_token * weights[rows]).sum()
                        part.backward()
                    loss += float(self.by.total(part.detach()))
            self.apply_gradients()
            losses.append(distributed.all_reduce_dict({"loss": loss})["loss"])
        return {"critic/loss": random.sum_in_order(losses) / max(len(losses), 1), **measured}

    def _values(self, batch: Batch, rows: torch.Tensor) -> torch.Tensor:
        """(n,T) of some rows."""
        found, where = states(self.network.decoder, batch, rows, self.dtype)
        return torch.zeros(where.shape).masked_scatter(where, self.network(found).cpu())


def critic(named: specs.ValueHead | None, policy: decoder.Decoder, dtype: str, micro_batch_tokens: int) -> Critic | None:
    """The run's critic, where its method has one."""
    return Critic(named, policy, getattr(torch, dtype), micro_batch_tokens) if named else None


def value_loss(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, cliprange: float) -> torch.Tensor:
    """(n,T) 0.5 max((v - R)^2, (clip(v, old - c, old + c) - R)^2), as the reference implementation of PPO has it; c = 0:
    0.5 (v - R)^2."""
    plain = (values - returns) ** 2
    if not cliprange:
        return 0.5 * plain
    clipped = torch.minimum(torch.maximum(values, old - cliprange), old + cliprange)
    return 0.5 * torch.maximum(plain, (clipped - returns) ** 2)


def _measure(values: torch.Tensor, returns: torch.Tensor, by: exact.Functions) -> dict[str, float]:
    """Of (M,) tokens."""
    if len(values) < 2:
        return {"critic/value": 0.0, "critic/explained_variance": 0.0}
    spread = float(by.variance(returns))
    explained = 1 - float(by.variance(returns - values)) / spread if spread else 0.0
    return {"critic/value": float(by.mean(values)), "critic/explained_variance": explained}
