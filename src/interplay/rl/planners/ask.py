"""What a planner asks for."""

from typing import NamedTuple


class Ask(NamedTuple):
    """Completions to sample of one prompt."""

    slot: int
    """Place of the prompt among those drawn."""
    n: int
    sampling: str
    """Text that the completions are sampled from."""
    training: str
    """Text that they are credited to. Where it is another, the rows are off policy."""
    given: str = ""
    """What a completion is judged to begin with and is not learnt with it; it ends both texts."""
    group: int | None = None
    """Number of its group; None: that of the slot. Asks of one number make one group."""
    own: bool = False
    """Whether the policy itself wrote what is given, so that the whole tells how it does on the bare prompt."""
    limit: int | None = None
    """Tokens after which these completions are cut; None: the run's limit. The asks of a round have one limit."""
    goes_on: bool = False
    """Whether what is cut is gone on with later, so that nothing is known of it yet."""
    shown: float | None = None
    """Reward of the own attempt that stands last in the texts; None: none does."""


def plain(slot: int, n: int, text: str) -> Ask:
    """Completions sampled from the text that they are credited to."""
    return Ask(slot, n, text, text)
