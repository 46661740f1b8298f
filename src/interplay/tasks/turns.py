"""What several turns are made of, whatever the family.

A solution of several turns is one text: what the policy writes and what it reads, by turns, with MARK between them. No tokenizer
has MARK, so a model can neither write nor read it: training learns each turn as a solution of its own (data.corpus), and an
episode puts the end token in its place."""

from typing import NamedTuple

MARK = "\x1e"
"""Record separator."""


class Reply(NamedTuple):
    """What an environment says to a turn."""

    text: str
    """What the policy reads next."""
    done: bool
    """Whether the episode is over; then nobody reads the text."""


def said(transcript: str) -> list[str]:
    """The policy's turns of a transcript."""
    return transcript.split(MARK)[::2]


def told(transcript: str) -> list[str]:
    """What it read between them."""
    return transcript.split(MARK)[1::2]


def joined(said: list[str], told: list[str]) -> str:
    """The transcript of turns and of what was read after each but the last. Raises ValueError when their numbers differ by other
    than one."""
    pairs = zip(said, [*told, ""], strict=True)
    return MARK.join([piece for pair in pairs for piece in pair][:-1])
