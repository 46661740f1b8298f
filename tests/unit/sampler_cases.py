"""Decks of prompts whose difficulty is their number, and hand-made histories, for tests of samplers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from interplay.rl import sampler_spec as samplers_spec
from interplay.rl.sampler import Outcome, PromptSource, Sampler
from interplay.rl.samplers import build_sampler as table_sampler
from interplay.tasks.verdict import Row

BANDS = ("low", "middle", "high")
SPEC: TypeAdapter[Any] = TypeAdapter(samplers_spec.Sampler)
"""Made once: it takes a hundred times as long as what it reads."""


def row(number: int, of_set: int, op: int) -> Row:
    return Row(
        set=of_set,
        index=number,
        band=BANDS[op % 3],
        op=op,
        mode="forward",
        prompt="x" * (3 * op + 1),
        solution="",
        answer="",
        graph="",
        key="0" * 16,
        family="op_dag",
        origin=f"o:{number}",
    )


def deck(
    sizes: Sequence[int] = (12,), mix: Sequence[float] = (1.0,), seed: int = 0, steps: int = 10, **more: Any
) -> PromptSource:
    """Prompt i of all sets has op i and 3 i + 1 tokens."""
    ids = range(sum(sizes))
    rows = [row(i, int(np.searchsorted(np.cumsum(sizes), i, side="right")), i) for i in ids]
    return PromptSource(
        list(sizes), list(mix), seed, steps, rows, encode=lambda some: [[0] * len(rows[i].prompt) for i in some], **more
    )


def made(name: str, given_deck: PromptSource | None = None, **options: Any) -> Sampler:
    return table_sampler(SPEC.validate_python({"name": name, **options}), given_deck or deck())


def outcome(i: int, *rewards: float) -> Outcome:
    return Outcome(i, rewards, sum(r >= 1 for r in rewards), sum(r >= 1 for r in rewards))


def frequencies(
    name: str, given_deck: PromptSource, history: Sequence[Outcome], draws: int, step: int, **options: Any
) -> np.ndarray:
    """How often each prompt is the only one drawn at `step`, over `draws` seeds, after one observation of `history`."""
    counts = np.zeros(len(given_deck))
    for seed in range(draws):
        one = PromptSource(**{**vars(given_deck), "seed": seed})
        made_one = made(name, one, **options)
        if history:
            made_one.observe(step - 1, history)
        counts[made_one.select(1, step)] += 1
    return counts


def rates(*passes: int, n: int = 8) -> list[Outcome]:
    """Prompt i passed passes[i] of n times."""
    return [outcome(i, *([1.0] * one + [0.0] * (n - one))) for i, one in enumerate(passes)]
