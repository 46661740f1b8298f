"""What several turns are made of, whatever the family.

A solution of several turns is one text: what the policy writes and what it reads, by turns, with MARK between them. No tokenizer
of ours has MARK, and an episode takes it out of what a model writes: training learns each turn as a solution of its own
(data.corpus), and an episode puts the end token in its place."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from interplay.tasks.answer import BOX, dumped, extract
from interplay.tasks.verdict import Verdict

MARK = "\x1e"
"""Record separator."""


class Reply(NamedTuple):
    """What an environment says to a turn."""

    text: str
    """What the policy reads next."""
    done: bool
    """Whether the episode is over; then nobody reads the text."""


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins."""

    prompt: str
    solution: str
    """The transcript of a scripted expert."""
    answer: str


UNANSWERED = Verdict(False, False, 0.0, "truncated")
"""Of an episode that answered nothing."""
Replies = Callable[[list[str]], Reply]
"""An environment with its problem: the policy's turns so far -> the reply to the last one."""


def said(transcript: str) -> list[str]:
    """The policy's turns of a transcript."""
    return transcript.split(MARK)[::2]


def told(transcript: str) -> list[str]:
    """What it read between them."""
    return transcript.split(MARK)[1::2]


def joined(said: Sequence[str], told: Sequence[str]) -> str:
    """The transcript of turns and of what was read after each but the last. Raises ValueError when their numbers differ by other
    than one."""
    pairs = zip(said, [*told, ""], strict=True)
    return MARK.join([piece for pair in pairs for piece in pair][:-1])


def transcript(turns: Sequence[str], reply: Replies) -> str:
    """What these turns and an environment make."""
    return joined(turns, [reply(list(turns[: n + 1])).text for n in range(len(turns) - 1)])


def ended(turn: str) -> bool:
    """Whether a turn gives a final answer."""
    return BOX in turn


def honest(text: str, reply: Replies) -> bool:
    """Whether a transcript's replies are those of the environment, which said nothing of an end before its last turn."""
    turns = said(text)
    replies = [reply(turns[: n + 1]) for n in range(len(turns) - 1)]
    return told(text) == [each.text for each in replies] and not any(each.done for each in replies)


def worth(text: str, reply: Replies, answer: str, earned: Callable[[list[str]], float] = lambda turns: 1.0) -> Verdict:
    """A transcript that should end in the boxed answer. `earned(turns)`, in [0, 1]: how much of what leads to it was found out.
    Strict: the answer is right, all that leads to it was found out, and the replies are the environment's. Score: what was found
    out where the answer is right, else 0. Errors: `truncated` (no answer, or too many), `made_up` (a reply that was none),
    `answer`, `process` (right, and not all that was to be found out was). Never raises on account of the text."""
    turns = said(text)
    boxed = extract(turns[-1]) if ended(turns[-1]) and not dumped(turns[-1]) else None
    right, true, share = boxed == answer, honest(text, reply), earned(turns)
    error = (
        "truncated" if boxed is None
        else "made_up" if not true
        else "answer" if not right
        else "process" if share < 1
        else "none"
    )  # fmt: skip
    return Verdict(error == "none", right, share * float(right), error, said=boxed or "")
