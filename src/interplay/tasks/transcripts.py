"""Transcripts of episodes: the turns of a policy and the observations between them as one text, the verdict on one, and
environments of a tool, which is all that they need; and text without questions, documents and chats.

MARK separates the parts. No tokenizer of ours has MARK, and an episode removes it from what a model writes: training learns each
turn as a solution of its own (data.corpus), and an episode puts the end token in its place."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from interplay.tasks.family import Environment, Family, Rendered, Replies, Step, compact_json, from_json
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Verdict, extract_answer, first_error, is_answer_dump

P = TypeVar("P")
"""The problems of an environment."""
MARK = "\x1e"
"""Record separator."""
UNANSWERED = Verdict(False, False, 0.0, "truncated")
"""The verdict on an episode without an answer."""
TRANSCRIPT_ERRORS = ("truncated", "made_up", "answer", "process")
"""Error classes of `judge_transcript`."""
BROKEN = "error\n"
"""The reply to a turn that is no call of a tool."""


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


def move_line(move: str) -> str:
    """What the other seat of a game reads of a move."""
    return f"{move}\n"


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
    boxed = extract_answer(turns[-1]) if BOX in turns[-1] and not is_answer_dump(turns[-1]) else None
    right, genuine, share = boxed == answer, replies_match(text, reply), found_share(turns)
    error = first_error(truncated=boxed is None, made_up=not genuine, answer=not right, process=share < 1)
    return Verdict(error == "none", right, share * float(right), error, said=boxed or "")


def tool_environment(
    tool: str,
    call: re.Pattern[str],
    use: Callable[[P, str], str | None],
    prompt: Callable[[P], str],
    answer: Callable[[P], str],
    found_share: Callable[[P, list[str]], float] = lambda problem, turns: 1.0,
    **functions: Any,
) -> Environment[P, Any]:
    """The environment of a tool: a turn that matches `call` as a whole is replied to by `use(problem, its group)`, any other turn
    (or where that is None) by BROKEN, and a box ends the episode. Transcripts are judged by `judge_transcript`."""

    def reply(problem: P, turns: list[str]) -> Step:
        if BOX in turns[-1]:
            return Step("", done=True)
        found = call.fullmatch(turns[-1])
        said = use(problem, found[1]) if found else None
        return Step(BROKEN if said is None else said, tool=tool if found else "")

    def render(problem: P, task: Any) -> Rendered:
        return Rendered(prompt(problem), play(functions["expert"](problem), partial(reply, problem)), answer(problem))

    def verify(problem: P, completion: str, options: Verify) -> Verdict:
        return judge_transcript(completion, partial(reply, problem), answer(problem), partial(found_share, problem))

    return Environment(errors=TRANSCRIPT_ERRORS, reply=reply, render=render, verify=verify, **functions)


# Text without questions: documents and chats, of which no completion is right.


class Passage(NamedTuple):
    """A document, or a chat."""

    text: str
    """Of a document."""
    messages: tuple[tuple[str, str], ...] = ()
    """Of a chat: (role, content) in order."""
    licence: str = ""
    """Its own, where the file has none for all."""


DOCUMENT, CHAT = "document", "chat"
"""Modes of rows of text."""
ASSISTANT = "assistant"


def passage_row(passage: Passage) -> tuple[str, Rendered]:
    """Mode and texts of a row: a document is a solution without a prompt, a chat a transcript whose turns are the assistant's."""
    if not passage.messages:
        return DOCUMENT, Rendered("", passage.text, "")
    pieces = chat_pieces(
        passage.messages, lambda said: "".join(f"{role}: {content}\n" for role, content in said) + f"{ASSISTANT}: "
    )
    return CHAT, Rendered(pieces[0], MARK.join(pieces[1:]), "")


def chat_pieces(messages: Sequence[tuple[str, str]], render: Callable[[Sequence[tuple[str, str]]], str]) -> list[str]:
    """A chat cut into what is read and what the assistant says, by turns. `render`: messages -> their text up to where the
    assistant begins. Raises ValueError where the text of more messages does not begin with that of fewer."""
    pieces, before = list[str](), ""
    for place, (role, content) in enumerate(messages):
        if role == ASSISTANT:
            context = render(messages[:place])
            if not context.startswith(before):
                raise ValueError(f"message {place + 1}: the template alters the messages before it")
            pieces += [context[len(before) :], content]
            before = context + content
    return pieces


def dumps(passage: Passage) -> str:
    """What the gold column of a row holds: the messages, and the row's own licence; not the text of a document, which is the
    solution."""
    return compact_json(passage._replace(text="")._asdict())


TEXT = Family(
    name="text", errors=("truncated",), loads=from_json(Passage), verify=lambda passage, completion, options: UNANSWERED
)
