"""The table of samplers, by the `name` of their spec."""

from collections.abc import Callable
from typing import Any

from interplay.rl import custom
from interplay.rl.samplers.sampler import Deck, Sampler
from interplay.rl.samplers.uniform import Uniform

MEMBERS: dict[str, Callable[[Any, Deck], Sampler]] = {"uniform": Uniform, "custom": custom.Sampler}


def sampler(spec: Any, deck: Deck) -> Sampler:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, deck)
