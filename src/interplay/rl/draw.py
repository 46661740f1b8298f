"""Groups of completions: what the planner asks for, sampled by the episode and judged by the reward."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from interplay.data import pool as pools
from interplay.data import tokenizer as text
from interplay.data.pool import Pool
from interplay.rl.batch import Batch, join
from interplay.rl.critic import Critic
from interplay.rl.episode import episode, requests
from interplay.rl.now import Memory, Now
from interplay.rl.planners.ask import Ask
from interplay.rl.planners.table import again, plan
from interplay.rl.rewards.table import score
from interplay.rl.samplers.sampler import Outcome, Sampler
from interplay.rl.shaping.table import shaped
from interplay.rl.spans import Span, to_tokens
from interplay.rollout.engine import Engine
from interplay.rollout.request import Sampling
from interplay.schema.reward import ProcessReward
from interplay.schema.rl import RLSpec
from interplay.schema.verify import Verify
from interplay.store.random import key


@dataclass
class World:
    """What the steps of a run share. Sampler, memory and critic have state that is saved with every checkpoint."""

    spec: RLSpec
    pool: Pool
    tokenizer: Tokenizer
    special: text.Special
    tokenizer_files: Path
    """The folder whose files go into every model that is saved."""
    engine: Engine
    sampler: Sampler
    memory: Memory
    critic: Critic | None = None


class Drawn(NamedTuple):
    """What came of some asks."""

    batch: Batch
    slots: Tensor
    """(N,) int64: place of each row's prompt among those drawn."""
    plain: Tensor
    """(N,) bool: rows that tell how the policy does on the bare prompt."""


def draw(world: World, ids: list[int], now: Now, seen: Counter[int]) -> Batch:
    """The groups of further prompts, sampled, judged and shaped; the sampler learns what came of the bare prompts. `seen` counts
    this step's samples by noise key."""
    rows = [world.pool.rows[i] for i in ids]
    expected = world.sampler.expected(ids)
    parts = [sample(world, ids, plan(rows, now), now, seen)]
    batch = parts[0].batch
    while asks := again(rows, batch, len(parts) - 1, now):
        parts.append(sample(world, ids, asks, now, seen))
        batch = join([part.batch for part in parts], world.special.pad, same_groups=True)
    slots = torch.cat([part.slots for part in parts])
    world.sampler.observe(now.step, outcomes(ids, batch, slots, torch.cat([part.plain for part in parts])))
    if expected is not None:
        batch = replace(batch, expected=expected[slots])
    return shaped(batch, now)


def sample(world: World, ids: list[int], asks: list[Ask], now: Now, seen: Counter[int]) -> Drawn:
    """The completions that are asked for, each judged against the gold of its prompt."""
    spec, pool = world.spec, world.pool
    keys = [pools.noise_key(pool.rows[ids[ask.slot]]) for ask in asks]
    asked = requests(pools.encode(world.tokenizer, [ask.sampling for ask in asks]), keys, [ask.n for ask in asks], seen)
    how = sampling(spec, now.step, world.special, asks[0].limit)
    rollouts = episode(spec.method.episode, world.engine, asked, how)
    prompts = pools.encode(world.tokenizer, [ask.training for ask in asks])
    made_by, longest = rollouts.request.tolist(), int(rollouts.lengths.max())
    of_row = [asks[number] for number in made_by]
    row_ids = [ids[ask.slot] for ask in of_row]
    written = [t[:n] for t, n in zip(rollouts.tokens.tolist(), rollouts.lengths.tolist(), strict=True)]
    completions = world.tokenizer.decode_batch(written)
    whole = [ask.given + completion for ask, completion in zip(of_row, completions, strict=True)]
    options = spec.reward.verify if isinstance(spec.reward, ProcessReward) else Verify()
    verdicts = pools.verify(pool, row_ids, whole, options)
    rewards = score(spec.reward, [pool.rows[i] for i in row_ids], whole, verdicts)
    foreign = torch.tensor([ask.sampling != ask.training for ask in of_row], dtype=torch.bool)
    going_on = torch.tensor([ask.goes_on for ask in of_row], dtype=torch.bool) & rollouts.truncated
    batch = Batch(
        row=torch.arange(len(of_row)),
        ids=torch.tensor(row_ids),
        groups=torch.tensor([ask.slot if ask.group is None else ask.group for ask in of_row]),
        prompts=[prompts[number] for number in made_by],
        tokens=rollouts.tokens[:, :longest],
        lengths=rollouts.lengths,
        logprobs=rollouts.logprobs[:, :longest],
        truncated=rollouts.truncated,
        completions=whole,
        verdicts=verdicts,
        rewards=torch.tensor(rewards.sequence, dtype=torch.float64),
        parts={name: torch.tensor(values, dtype=torch.float64) for name, values in rewards.parts.items()},
        spans=in_tokens(world.tokenizer, written, completions, rewards.spans),
        off_policy=foreign if foreign.any() else None,
        unfinished=going_on if going_on.any() else None,
    )
    bare = torch.tensor([ask.own or (ask.group is None and not ask.given) for ask in of_row], dtype=torch.bool)
    bare &= ~foreign & ~going_on
    return Drawn(batch, torch.tensor([ask.slot for ask in of_row]), bare)


def gold(world: World, i: int) -> tuple[str, list[int]]:
    """Text and tokens of the gold solution of a prompt, with the end token."""
    text_of = world.pool.rows[i].solution
    return text_of, [*pools.encode(world.tokenizer, [text_of])[0], world.special.eos]


def in_tokens(
    tokenizer: Tokenizer, tokens: list[list[int]], completions: list[str], spans: list[list[Span]] | None
) -> list[list[Span]] | None:
    """The spans of all completions, in tokens."""
    if spans is None:
        return None
    return [to_tokens(tokenizer, *row) for row in zip(tokens, completions, spans, strict=True)]


def outcomes(ids: list[int], batch: Batch, slots: Tensor, plain: Tensor) -> list[Outcome]:
    """What came of each prompt's `plain` (N,) bool rows; `slots` (N,) gives each row's place in `ids`. Prompts without such rows
    are left out."""
    members: list[list[int]] = [[] for _ in ids]
    for row in plain.nonzero()[:, 0].tolist():
        members[int(slots[row])].append(row)
    return [_outcome(i, batch, rows) for i, rows in zip(ids, members, strict=True) if rows]


def _outcome(i: int, batch: Batch, rows: Sequence[int]) -> Outcome:
    verdicts = [batch.verdicts[row] for row in rows]
    rewards = tuple(float(batch.rewards[row]) for row in rows)
    return Outcome(i, rewards, sum(v.strict for v in verdicts), sum(v.answer for v in verdicts))


def sampling(spec: RLSpec, step: int, special: text.Special, limit: int | None = None) -> Sampling:
    """The policy itself at the method's temperature: RL's gradient is of the distribution that was sampled, so nothing is cut
    off. `limit`: tokens at most, where that is not the run's."""
    return Sampling(
        temperature=spec.temperature,
        top_p=1.0,
        top_k=0,
        max_completion_length=limit or spec.max_completion_length,
        seed=key(spec.seed, "rollout", step),
        eos=special.eos,
        pad=special.pad,
    )
