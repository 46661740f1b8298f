"""What a state is worth by sampling on from it (VinePPO, arXiv:2410.01679; SPO, arXiv:2505.23564)."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from interplay.data import pool as pools
from interplay.rl.batch import Batch
from interplay.rl.draw import World, sampling
from interplay.rl.rewards.table import score
from interplay.rollout.request import Request
from interplay.store.random import key


def continued(world: World, step: int, seen: Counter[int], batch: Batch, places: Sequence[tuple[int, int]], n: int) -> Tensor:
    """(M,) float64: mean reward of `n` completions of each place (row, tokens of it that stand); equal states are sampled once.
    `seen` counts this step's samples by noise key. The whole is cut at the run's limit, as a completion is."""
    state = [(tuple(batch.prompts[row]), tuple(batch.tokens[row, :kept].tolist())) for row, kept in places]
    first = {one: number for number, one in reversed(list(enumerate(state)))}
    distinct = sorted(first.values())
    values = dict(zip(distinct, _worth(world, step, seen, batch, [places[i] for i in distinct], n), strict=True))
    return torch.tensor([values[first[one]] for one in state], dtype=torch.float64)


def _worth(world: World, step: int, seen: Counter[int], batch: Batch, places: list[tuple[int, int]], n: int) -> list[float]:
    """The mean rewards of different states."""
    spec, pool = world.spec, world.pool
    stems = [batch.tokens[row, :kept].tolist() for row, kept in places]
    requests = []
    for (row, _), stem in zip(places, stems, strict=True):
        noise = key("continued", pools.noise_key(pool.rows[int(batch.ids[row])]), *stem)
        requests.append(Request(batch.prompts[row] + stem, noise, seen[noise], n))
        seen[noise] += n
    found = world.engine.generate(requests, sampling(world, step))
    made_by = found.request.tolist()
    lengths = zip(found.lengths.tolist(), made_by, strict=True)
    ends = [min(length, spec.max_completion_length - len(stems[i])) for length, i in lengths]
    tokens = [stems[i] + row[:end] for i, row, end in zip(made_by, found.tokens.tolist(), ends, strict=True)]
    ids = [int(batch.ids[places[i][0]]) for i in made_by]
    texts = world.tokenizer.decode_batch(tokens)
    rewards = score(spec.reward, [pool.rows[i] for i in ids], texts, pools.verify(pool, ids, texts, spec.verify())).sequence
    sums = [0.0] * len(places)
    for i, reward in zip(made_by, rewards, strict=True):
        sums[i] += reward
    return [total / n for total in sums]
