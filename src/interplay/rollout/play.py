"""What episodes are played with, and what they leave."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interplay.core.random import stream_key
from interplay.rollout.engine import Engine
from interplay.rollout.request import Request, Rollouts, Sampling
from interplay.tasks.environments.transcript import MARK, UNANSWERED, join_turns
from interplay.tasks.verdict import Row, Verdict


class Setting(NamedTuple):
    """What an episode has to do with."""

    engine: Engine
    sampling: Sampling
    encode: Callable[[Sequence[str]], list[list[int]]]
    """Texts in tokens. Raises UserError when the tokenizer lacks a character."""
    decode: Callable[[list[list[int]]], list[str]]
    """Tokens as texts, without special ones."""
    rows: Sequence[Row] = ()
    """The problem of each request."""
    verify: Callable[[Row, str], Verdict] = lambda row, text: UNANSWERED
    """What a text is worth as an answer to a problem."""
    problem: Callable[[Row], Any] = lambda row: None
    """The gold of a row."""
    stop: str | None = None
    """Text at which a turn ends, whatever was written behind it."""


class Turn(NamedTuple):
    """What the policy wrote in one go."""

    start: int
    end: int
    """Tokens start..end-1 of its row, end token included; an empty range where it stands in another row of the episode."""
    number: int
    """From 0."""
    judged: str
    """What `verdict` is about: the turn by itself, or the transcript up to it."""
    verdict: Verdict | None
    """None: the turn answers nothing."""


class Played(NamedTuple):
    """Rows of episodes, in the order of the requests and of the samples in each; N rows, T tokens of the longest."""

    rollouts: Rollouts
    """`tokens` hold all turns and what was read between them; logprobs of the latter are 0."""
    turns: list[list[Turn]] | None = None
    """Those of each row's episode, of its own seat; None: every row is one turn, which is yet to be judged."""
    observed: Tensor | None = None
    """(N,T) bool: tokens that the policy did not write."""
    prompts: list[list[int]] | None = None
    """What each row follows; None: the prompt of its request."""
    aside: Tensor | None = None
    """(N,) bool: rows of an episode that another row stands for in statistics; None: none."""
    seats: Tensor | None = None
    """(N,) int64: whose turns a row holds; None: there is one seat."""
    transcripts: list[str] | None = None
    """Each row's episode, written and read, as one text (tasks.environments.games); present where `turns` are."""


@dataclass
class Thread:
    """An episode, or one seat of it, as it is played."""

    request: int
    sample: int
    prompt: list[int]
    """What stands before the first turn."""
    said: list[str] = field(default_factory=list)
    """The text of each turn."""
    told: list[str] = field(default_factory=list)
    """What was read after each turn but the last."""
    written: list[list[int]] = field(default_factory=list)
    """Tokens of each turn, end token included."""
    logprobs: list[list[float]] = field(default_factory=list)
    read: list[list[int]] = field(default_factory=list)
    """Tokens of `told`."""
    verdicts: list[tuple[str, Verdict | None]] = field(default_factory=list)
    """Of each turn, what was judged, and how."""
    truncated: bool = False
    """The length limit cut the last turn."""

    def context(self, last: int | None = None) -> list[int]:
        """Tokens that the next turn follows: the prompt, and the `last` turns with what was read after each; None: all."""
        first = 0 if last is None else max(0, len(self.written) - last)
        pairs = zip(self.written[first:], self.read[first:], strict=True)
        return [*self.prompt, *(token for turn, read in pairs for token in (*turn, *read))]

    def tell(self, text: str, tokens: list[int]) -> None:
        """What is read next."""
        self.told.append(text)
        self.read.append(tokens)


def opened(setting: Setting, asked: Sequence[Request]) -> list[Thread]:
    """A thread for each sample, after its first turn: the very completions that an episode of one turn has."""
    first = setting.engine.generate(list(asked), setting.sampling)
    numbers = zip(first.request.tolist(), first.sample.tolist(), strict=True)
    threads = [Thread(request, sample, asked[request].prompt) for request, sample in numbers]
    _write(setting, threads, first)
    return threads


def go_on(setting: Setting, asked: Sequence[Request], threads: Sequence[Thread], turn: int, last: int | None = None) -> None:
    """One more turn, number `turn` of the episode, of each thread. Its noise is keyed by (seed, turn, prompt, sample, position),
    so that no turn repeats another's, whoever is still in play."""
    more = [Request(thread.context(last), asked[thread.request].key, thread.sample, 1) for thread in threads]
    sampling = setting.sampling._replace(seed=stream_key(setting.sampling.seed, "turn", turn)) if turn else setting.sampling
    _write(setting, threads, setting.engine.generate(more, sampling))


def _write(setting: Setting, threads: Sequence[Thread], made: Rollouts) -> None:
    lengths, chances = made.lengths.tolist(), made.logprobs.tolist()
    written = [tokens[:n] for tokens, n in zip(made.tokens.tolist(), lengths, strict=True)]
    texts = setting.decode(written)
    for i, thread in enumerate(threads):
        stopped = setting.stop is not None and setting.stop in texts[i]
        kept, text = _up_to(setting, written[i]) if stopped else (lengths[i], texts[i])
        thread.written.append(written[i][:kept])
        thread.logprobs.append(chances[i][:kept])
        thread.said.append(text.replace(MARK, ""))
        thread.truncated = bool(made.truncated[i]) and not stopped


def _up_to(setting: Setting, tokens: list[int]) -> tuple[int, str]:
    """How many of the tokens there are up to the first that completes the text to stop at, and what they say."""
    heads = setting.decode([tokens[: n + 1] for n in range(len(tokens))])
    return next((n + 1, head) for n, head in enumerate(heads) if (setting.stop or "") in head)


class Line(NamedTuple):
    """One row of what is left."""

    thread: Thread
    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    observed: list[bool]
    turns: list[Turn]
    truncated: bool
    aside: bool


def whole(thread: Thread) -> Line:
    """A thread as one row: its turns and what was read between them."""
    tokens: list[int] = []
    logprobs: list[float] = []
    observed: list[bool] = []
    turns = []
    for number, written in enumerate(thread.written):
        turns.append(Turn(len(tokens), len(tokens) + len(written), number, *thread.verdicts[number]))
        read = thread.read[number] if number + 1 < len(thread.written) else []
        tokens += [*written, *read]
        logprobs += [*thread.logprobs[number], *[0.0] * len(read)]
        observed += [*[False] * len(written), *[True] * len(read)]
    return Line(thread, thread.prompt, tokens, logprobs, observed, turns, thread.truncated, False)


def apart(thread: Thread, last: int) -> list[Line]:
    """A thread as a row for each turn, which follows the `last` ones before it. The last row counts in statistics; each knows all
    turns of the episode, those of other rows as empty ones."""
    made = []
    count = len(thread.written)
    for number, written in enumerate(thread.written):
        turns = [Turn(0, len(written) if other == number else 0, other, *thread.verdicts[other]) for other in range(count)]
        before = Thread(0, 0, thread.prompt, written=thread.written[:number], read=thread.read[:number])
        cut = thread.truncated and number + 1 == count
        last_row = number + 1 < count
        prompt = before.context(last)
        made.append(Line(thread, prompt, written, thread.logprobs[number], [False] * len(written), turns, cut, last_row))
    return made


def left(lines: Sequence[Line], pad: int, own_prompts: bool, seats: Sequence[int] | None = None) -> Played:
    """Rows as arrays."""
    width = max((len(line.tokens) for line in lines), default=0)

    def filled(name: str, filler: Any, dtype: torch.dtype) -> Tensor:
        rows = [[*getattr(line, name), *[filler] * (width - len(line.tokens))] for line in lines]
        return torch.tensor(rows, dtype=dtype).view(len(lines), width)

    aside = torch.tensor([line.aside for line in lines], dtype=torch.bool)
    return Played(
        rollouts=Rollouts(
            request=torch.tensor([line.thread.request for line in lines], dtype=torch.int64),
            sample=torch.tensor([line.thread.sample for line in lines], dtype=torch.int64),
            tokens=filled("tokens", pad, torch.int64),
            lengths=torch.tensor([len(line.tokens) for line in lines], dtype=torch.int64),
            logprobs=filled("logprobs", 0.0, torch.float32),
            truncated=torch.tensor([line.truncated for line in lines], dtype=torch.bool),
        ),
        turns=[line.turns for line in lines],
        observed=filled("observed", False, torch.bool),
        prompts=[line.prompt for line in lines] if own_prompts else None,
        aside=aside if aside.any() else None,
        seats=None if seats is None else torch.tensor(seats, dtype=torch.int64),
        transcripts=[join_turns(line.thread.said, line.thread.told[: len(line.thread.said) - 1]) for line in lines],
    )
