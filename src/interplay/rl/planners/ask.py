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
    """What a completion is judged to begin with, though the policy did not write it; it ends both texts."""
    group: int | None = None
    """Number of its group; None: that of the slot. Asks of one number make one group."""


def plain(slot: int, n: int, text: str) -> Ask:
    """Completions sampled from the text that they are credited to."""
    return Ask(slot, n, text, text)
