"""Planner seam: how many completions each prompt gets, from which text they are sampled, and to which they are credited."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from interplay.rl.now import Now
from interplay.schema.rl import FixedPlanner
from interplay.tasks.row import Row


class Ask(NamedTuple):
    """Completions to sample of one prompt. Asks of one slot make one group."""

    slot: int
    """Place of the prompt among those drawn."""
    n: int
    sampling: str
    """Text that the completions are sampled from."""
    training: str
    """Text that they are credited to. Where it is another, the rows are off policy."""


def fixed(spec: FixedPlanner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """The same group size for every prompt, and its own text."""
    return [Ask(slot, spec.num_generations, row.prompt, row.prompt) for slot, row in enumerate(rows)]


MEMBERS: dict[str, Callable[..., list[Ask]]] = {"fixed": fixed}


def plan(rows: Sequence[Row], now: Now) -> list[Ask]:
    """What the method's member asks of the prompts `rows` that the sampler drew, slot by slot."""
    spec = now.method.planner
    return MEMBERS[spec.name](spec, rows, now)
