"""The tables of shapings, by the `name` of their spec: `(spec, batch, now) -> (N,) float64`, what is added to the rewards; or, of
the turns of an episode, a term for each turn of each row. All read the rewards as they were; a member may write to
`now.memory`."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.rl.shaping.content import entropy_rank, gap, gcpo, repetition
from interplay.rl.shaping.length import hapo_length, kimi_length, overlong, units
from interplay.rl.shaping.turns import attempts, improvement

MEMBERS: dict[str, Callable[..., Tensor]] = {
    "overlong": overlong,
    "repetition": repetition,
    "hapo_length": hapo_length,
    "kimi_length": kimi_length,
    "gcpo": gcpo,
    "units": units,
    "entropy_rank": entropy_rank,
    "gap": gap,
}
OF_TURNS: dict[str, Callable[..., list[list[float]]]] = {"attempts": attempts, "improvement": improvement}


def shaped(batch: Batch, now: Now) -> Batch:
    """The batch with the terms of the method's shapings added to its rewards, and each kept among their parts. Where episodes
    have turns, a turn earns its own terms, and the last one those of the whole episode, too."""
    if not now.method.shaping:
        return batch
    terms: dict[str, Tensor] = {}
    of_turns: list[list[list[float]]] = []
    for spec in now.method.shaping:
        if spec.name in OF_TURNS:
            of_turns.append(OF_TURNS[spec.name](spec, batch, now))
            terms[spec.name] = torch.tensor([sum(row) for row in of_turns[-1]], dtype=torch.float64)
        else:
            terms[spec.name] = MEMBERS[spec.name](spec, batch, now)
            if batch.turns is not None:
                of_turns.append(at_the_end(terms[spec.name], [len(row) for row in batch.turns]))
    rewards = batch.rewards + torch.stack(list(terms.values())).sum(0)
    found = replace(batch, rewards=rewards, parts={**batch.parts, **terms})
    if batch.turns is None or batch.spans is None:
        return found
    paid = [
        [span._replace(value=span.value + sum(each)) for span, *each in zip(spans, *rows, strict=True)]
        for spans, *rows in zip(batch.spans, *of_turns, strict=True)
    ]
    return replace(found, spans=paid)


def at_the_end(terms: Tensor, counts: list[int]) -> list[list[float]]:
    """Terms (N,) of whole rows as terms of their `counts` turns: the last one's."""
    return [[0.0] * (n - 1) + [term] for term, n in zip(terms.tolist(), counts, strict=True)]
