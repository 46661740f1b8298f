"""What a sampler may learn from before the first step."""

from pathlib import Path

import pyarrow.parquet as pq

from interplay.data import pool as pools
from interplay.data.pool import Pool
from interplay.rl.rewards.table import score
from interplay.rl.samplers.sampler import Outcome
from interplay.schema.rl import RLSpec


def offline(spec: RLSpec, pool: Pool, inputs: dict[str, Path]) -> list[Outcome]:
    """One outcome for each prompt that was sampled, in the order of ids: the samples of the roles `offline.<set>.<part>`, judged
    and rewarded as the run's own completions are."""
    place = {(row.set, row.index): i for i, row in enumerate(pool.rows)}
    completions: dict[int, list[str]] = {}
    for role in sorted(role for role in inputs if role.startswith("offline.")):
        of_set = int(role.split(".")[1])
        table = pq.read_table(inputs[role] / "samples.parquet", columns=["index", "completion"])
        for index, completion in zip(table["index"].to_pylist(), table["completion"].to_pylist(), strict=True):
            completions.setdefault(place[of_set, index], []).append(completion)
    return [_outcome(spec, pool, i, completions[i]) for i in sorted(completions)]


def _outcome(spec: RLSpec, pool: Pool, i: int, completions: list[str]) -> Outcome:
    verdicts = pools.verify(pool, [i] * len(completions), completions, spec.verify())
    rewards = score(spec.reward, [pool.rows[i]] * len(completions), completions, verdicts).sequence
    return Outcome(i, tuple(rewards), sum(v.strict for v in verdicts), sum(v.answer for v in verdicts))
