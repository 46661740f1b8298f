"""Transcripts of episodes: the turns of a policy and the observations between them as one text, and the verdict on one.

MARK separates the parts. No tokenizer of ours has MARK, and an episode removes it from what a model writes: training learns each
turn as a solution of its own (data.corpus), and an episode puts the end token in its place."""

from collections.abc import Callable, Sequence

from interplay.tasks.family import Replies
from interplay.tasks.verdict import BOX, Verdict, extract_answer, first_error, is_answer_dump

MARK = "\x1e"
"""Record separator."""
UNANSWERED = Verdict(False, False, 0.0, "truncated")
"""The verdict on an episode without an answer."""
ERRORS = ("truncated", "made_up", "answer", "process")
"""Error classes of `judge_transcript`."""


def policy_turns(transcript: str) -> list[str]:
    """The policy's turns of a transcript."""
    return transcript.split(MARK)[::2]


def observations(transcript: str) -> list[str]:
    """The observations between the turns."""
    return transcript.split(MARK)[1::2]


def join_turns(turns: Sequence[str], observed: Sequence[str]) -> str:
    """The transcript of n turns and the n - 1 observations between them. Raises ValueError for other numbers."""
    pairs = zip(turns, [*observed, ""], strict=True)
    return MARK.join([piece for pair in pairs for piece in pair][:-1])


def play(turns: Sequence[str], reply: Replies) -> str:
    """The transcript of these turns in an environment."""
    return join_turns(turns, [reply(list(turns[: n + 1])).text for n in range(len(turns) - 1)])


def is_final(turn: str) -> bool:
    """Whether a turn gives a final answer."""
    return BOX in turn


def replies_match(transcript: str, reply: Replies) -> bool:
    """Whether the observations are the environment's replies, and the episode did not end before its last turn."""
    turns = policy_turns(transcript)
    replies = [reply(turns[: n + 1]) for n in range(len(turns) - 1)]
    return observations(transcript) == [each.text for each in replies] and not any(each.done for each in replies)


def judge_transcript(
    text: str, reply: Replies, answer: str, found_share: Callable[[list[str]], float] = lambda turns: 1.0
) -> Verdict:
    """The verdict on a transcript that should end in the boxed answer. Never raises on account of the text.

    `found_share(turns)`, in [0, 1], is the share of the necessary observations that the turns obtained. Strict: the answer is
    right, the share is 1 and the replies are the environment's. Score: the share where the answer is right, else 0. Errors:
    `truncated` (no answer, or too many), `made_up` (a reply that is not the environment's), `answer`, `process` (right with a
    share below 1)."""
    turns = policy_turns(text)
    boxed = extract_answer(turns[-1]) if is_final(turns[-1]) and not is_answer_dump(turns[-1]) else None
    right, genuine, share = boxed == answer, replies_match(text, reply), found_share(turns)
    error = first_error(truncated=boxed is None, made_up=not genuine, answer=not right, process=share < 1)
    return Verdict(error == "none", right, share * float(right), error, said=boxed or "")
