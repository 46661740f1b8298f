"""Planner seam: how many completions each prompt gets, and which text the policy sees when it samples and when it learns."""

from collections.abc import Callable
from typing import NamedTuple

from interplay.schema.rl import FixedPlanner


class Context(NamedTuple):
    """Texts of one prompt: the one that completions are sampled from, and the one they are credited to."""

    sampling: str
    training: str


def fixed(spec: FixedPlanner, ids: list[int], step: int) -> list[int]:
    """The same group size for every prompt. Returns one count per id."""
    return [spec.num_generations] * len(ids)


def same_text(spec: FixedPlanner, prompt: str, step: int) -> Context:
    """Sample from and learn on the prompt as it stands."""
    return Context(sampling=prompt, training=prompt)


PLANS: dict[str, Callable[[FixedPlanner, list[int], int], list[int]]] = {"fixed": fixed}
CONTEXTS: dict[str, Callable[[FixedPlanner, str, int], Context]] = {"fixed": same_text}


def plan(spec: FixedPlanner, ids: list[int], step: int) -> list[int]:
    """Group size of each of the step's prompts."""
    return PLANS[spec.name](spec, ids, step)


def context(spec: FixedPlanner, prompt: str, step: int) -> Context:
    """Sampling and training text of a prompt."""
    return CONTEXTS[spec.name](spec, prompt, step)
