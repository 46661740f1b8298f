"""The turns of an episode: how they are written, what follows them, and how they become rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from interplay.core import random
from interplay.core.model import UserError
from interplay.data.steps.turns import Library
from interplay.data.trajectory import Kind, Segment
from interplay.rollout.engine import Engine
from interplay.rollout.request import Kept, Request, Rollouts, Sampling, select_rows
from interplay.tasks.family import World
from interplay.tasks.transcripts import MARK, UNANSWERED
from interplay.tasks.verdict import Row, Verdict

# What an episode is given and returns, and how its turns are put together.


class Setting(NamedTuple):
    """What an episode has to do with."""

    engine: Engine
    sampling: Sampling
    encode: Callable[..., list[list[int]]]
    """(texts, special=True) -> their tokens; special: a text that spells a special token is that token. Raises UserError when the
    tokenizer lacks a character."""
    decode: Callable[[list[list[int]]], list[str]]
    """Tokens as texts, without special ones."""
    rows: Sequence[Row] = ()
    """The problem of each request."""
    verify: Callable[[Row, str], Verdict] = lambda row, text: UNANSWERED
    """What a text is worth as an answer to a problem."""
    problem: Callable[[Row], Any] = lambda row: None
    """The gold of a row."""
    stop: str | None = None
    """Text at which a turn ends, regardless of text after it."""
    reply: Callable[..., str] = lambda role, text, ended: text
    """(role, text, whether the turn before has its end token) -> what a chat model reads after a turn."""
    others: Mapping[str, Engine] = MappingProxyType({})
    """The engines of the models of other seats, by role, and of past policies."""
    past: Sequence[str] = ()
    """Names of past policies among them, the earliest first."""
    library: Library | None = None
    """Entries that contexts find."""


class Turn(NamedTuple):
    """What the policy wrote in one go."""

    start: int
    end: int
    """Tokens start..end-1 of its row, end token included; an empty range where it is in another row of the episode."""
    number: int
    """From 0."""
    judged: str
    """What `verdict` is about: the turn by itself, or the transcript up to it."""
    verdict: Verdict | None
    """None: the turn answers nothing."""
    paid: float | None = None
    """By the environment; None: nothing by itself."""


class Played(NamedTuple):
    """Rows of episodes, in the order of the requests and of the samples in each; N rows, T tokens of the longest."""

    rollouts: Rollouts
    """`tokens` hold all turns and what was read between them; logprobs of the latter are 0."""
    turns: list[list[Turn]] | None = None
    """Those of each row's episode, of its own seat; None: every row is one turn, which is yet to be judged."""
    observed: torch.Tensor | None = None
    """(N,T) bool: tokens that the policy did not write."""
    prompts: list[list[int]] | None = None
    """What each row follows; None: the prompt of its request."""
    excluded: torch.Tensor | None = None
    """(N,) bool: rows of an episode that another row stands for in statistics; None: none."""
    seats: torch.Tensor | None = None
    """(N,) int64: whose turns a row holds; None: there is one seat."""
    seat_names: Sequence[str] = ()
    """Of all seats, in the order of their numbers."""
    segments: list[tuple[Segment, ...]] | None = None
    """Each row's episode, written and read; present where `turns` are."""
    learnt: torch.Tensor | None = None
    """(N,) bool: rows that are learnt from; others are there for what they are worth. None: all."""
    policy: torch.Tensor | None = None
    """(N,) bool: rows of seats that the policy plays; None: all."""
    credit: list[list[float]] | None = None
    """(S,S): what the reward of seat j counts in that of seat i; None: each has its own."""
    trees: torch.Tensor | None = None
    """(N,) int64: sample of the episode from the prompt that a row is, or branched off, where such are groups; None: they are
    not."""


@dataclass
class Thread:
    """An episode, or one seat of it, as it is played."""

    request: int
    sample: int
    prompt: list[int]
    """Tokens before the first turn."""
    seat: int | None = None
    """In an episode of several."""
    segments: list[Segment] = field(default_factory=list)
    """What was written and read so far, tokens included; contexts are part of `prompt`."""
    verdicts: list[tuple[str, Verdict | None]] = field(default_factory=list)
    """Of each turn, what was judged, and how."""
    truncated: bool = False
    """The length limit cut the last turn."""
    overrun: bool = False
    """The turns were used up before the end."""
    world: World | None = None
    """The environment, once the first turn is written."""
    parts: list[tuple[list[int], int]] = field(default_factory=list)
    """Where the history was replaced: what was read in its place, and the number of the first segment behind it."""
    notes: set[int] = field(default_factory=set)
    """Turns that are notes."""
    tree: int = 0
    """The sample of the episode from the prompt that it is, or branched off."""
    kept: Kept = field(default_factory=Kept)
    """What the engine kept of the turns before, all of which are by one model."""

    @property
    def said(self) -> list[str]:
        """The text of each turn."""
        return [one.text for one in self.segments if one.kind == "action"]

    def context(self, last: int | None = None, turns: int | None = None) -> list[int]:
        """Tokens that the next turn follows, or the one after so many turns: the prompt, and the `last` turns before it with what
        was read after each; None: all."""
        if self.parts:
            prompt, start = self.parts[-1]
            return [*prompt, *(token for one in self.segments[start:] for token in one.tokens or ())]
        turns = len(self.said) + 1 if turns is None else turns  # what is asked for a note has the number of the note
        first = 0 if last is None else max(0, min(turns, len(self.said)) - last)
        seen = (one for one in self.segments if one.kind != "context" and first <= one.turn < turns)
        return [*self.prompt, *(token for one in seen for token in one.tokens or ())]

    def observe(self, text: str, tokens: list[int], **marks: Any) -> None:
        """What is read next: behind the prompt before the first turn, else behind the last turn."""
        turn = len(self.said) - 1
        if turn < 0:
            self.prompt = [*self.prompt, *tokens]
        kind: Kind = "context" if turn < 0 else "observation"
        self.segments.append(Segment(kind, text, max(turn, 0), tokens=tokens, **marks))

    def replace_history(self, tokens: list[int], text: str) -> None:
        """What the next turn follows in place of all before it."""
        self.parts = self.parts or [(self.prompt, 0)] * bool(self.said)
        self.segments.append(Segment("context", text, len(self.said), tokens=()))
        self.parts.append((tokens, len(self.segments)))

    def episode(self) -> tuple[Segment, ...]:
        """All up to the last turn, each turn with its verdict."""
        verdicts = [verdict for _, verdict in self.verdicts]
        return tuple(
            one if one.kind != "action" or (known := verdicts[one.turn]) is None else one._replace(answer=bool(known.answer))
            for one in without_last_observations(self.segments)
        )


def without_last_observations(segments: Sequence[Segment]) -> list[Segment]:
    """Without what is read behind the last turn."""
    kept = list(segments)
    while kept and kept[-1].kind == "observation":
        kept.pop()
    return kept


def opened(setting: Setting, asked: Sequence[Request]) -> list[Thread]:
    """A thread for each sample, after its first turn: the very completions that an episode of one turn has."""
    kept = [tuple(Kept() for _ in range(one.count)) for one in asked]
    first = setting.engine.generate([replace(one, kept=some) for one, some in zip(asked, kept, strict=True)], setting.sampling)
    threads = [
        Thread(request, sample, asked[request].prompt, tree=sample, kept=kept[request][sample - asked[request].first])
        for request, sample in zip(first.request.tolist(), first.sample.tolist(), strict=True)
    ]
    _write(setting, threads, first)
    return threads


def sample_turns(
    setting: Setting, asked: Sequence[Request], threads: Sequence[Thread], turn: int, last: int | None = None
) -> None:
    """One more turn, number `turn` of the episode, of each thread. Its noise is keyed by (seed, turn, prompt, sample, position),
    so that no turn repeats another's, regardless of which episodes are still in play."""
    more = [Request(one.context(last), asked[one.request].key, one.sample, 1, (one.kept,)) for one in threads]
    sampling = (
        setting.sampling._replace(seed=random.stream_key(setting.sampling.seed, "turn", turn)) if turn else setting.sampling
    )
    _write(setting, threads, setting.engine.generate(more, sampling))


def _write(setting: Setting, threads: Sequence[Thread], made: Rollouts) -> None:
    written, chances = made.written(), made.logprobs.tolist()
    texts = setting.decode(written)
    for i, thread in enumerate(threads):
        stopped = setting.stop is not None and setting.stop in texts[i]
        kept, text = _up_to(setting, written[i]) if stopped else (len(written[i]), texts[i])
        said = Segment("action", text.replace(MARK, ""), len(thread.said), thread.seat)
        thread.segments.append(said._replace(tokens=written[i][:kept], logprobs=chances[i][:kept]))
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
    excluded: bool


def whole_row(thread: Thread) -> Line:
    """A thread as one row: its turns and what was read between them."""
    tokens: list[int] = []
    logprobs: list[float] = []
    observed: list[bool] = []
    turns = []
    for one in thread.episode():
        if one.kind == "context":
            continue
        own, said = one.kind == "action", one.tokens or ()
        if own:
            turns.append(Turn(len(tokens), len(tokens) + len(said), one.turn, *thread.verdicts[one.turn], one.reward))
        tokens += said
        logprobs += one.logprobs or [0.0] * len(said)
        observed += [not own] * len(said)
    return Line(thread, thread.prompt, tokens, logprobs, observed, turns, thread.truncated or thread.overrun, False)


def windowed_rows(thread: Thread, last: int) -> list[Line]:
    """A thread as a row for each turn, which follows the `last` ones before it. The last row counts in statistics; each knows all
    turns of the episode, those of other rows as empty ones."""
    made = []
    each = [one for one in thread.segments if one.kind == "action"]
    count = len(each)
    for number, one in enumerate(each):
        written, chances = list(one.tokens or ()), list(one.logprobs or ())
        turns = [
            Turn(0, len(written) if other == number else 0, other, *thread.verdicts[other], each[other].reward)
            for other in range(count)
        ]
        prompt, later = thread.context(last, number), number + 1 < count
        cut = thread.overrun or (thread.truncated and not later)
        made.append(Line(thread, prompt, written, chances, [False] * len(written), turns, cut, later))
    return made


def parted_rows(thread: Thread, trained: bool = True) -> list[Line]:
    """A thread whose history was replaced as a row for each part, which follows what was read in its place. The last row counts
    in statistics; each knows all turns of the episode, those of other rows as empty ones. Notes that are not `trained` are
    observations."""
    made, whole_episode = list[Line](), thread.episode()
    starts = [start for _, start in thread.parts]
    acted = [one for one in whole_episode if one.kind == "action"]
    for number, (prompt, start) in enumerate(thread.parts):
        stop = starts[number + 1] if number + 1 < len(starts) else len(whole_episode)
        part = without_last_observations([one for one in whole_episode[start:stop] if one.kind != "context"])
        tokens, logprobs, observed = list[int](), list[float](), list[bool]()
        places = dict[int, tuple[int, int]]()
        for one in part:
            said = list(one.tokens or ())
            own = one.kind == "action" and (trained or one.turn not in thread.notes)
            if own:
                places[one.turn] = len(tokens), len(tokens) + len(said)
            logprobs += list(one.logprobs or ()) if own else [0.0] * len(said)
            observed += [not own] * len(said)
            tokens += said
        turns = [Turn(*places.get(one.turn, (0, 0)), one.turn, *thread.verdicts[one.turn], one.reward) for one in acted]
        later = number + 1 < len(thread.parts)
        cut = thread.overrun or (thread.truncated and not later)
        made.append(Line(thread, prompt, tokens, logprobs, observed, turns, cut, later))
    return [line for line in made if not all(line.observed)]


def played_rows(lines: Sequence[Line], pad: int, own_prompts: bool, seats: Sequence[int] | None = None) -> Played:
    """Rows as arrays."""
    width = max((len(line.tokens) for line in lines), default=0)

    def filled(name: str, filler: Any, dtype: torch.dtype) -> torch.Tensor:
        rows = [[*getattr(line, name), *[filler] * (width - len(line.tokens))] for line in lines]
        return torch.tensor(rows, dtype=dtype).view(len(lines), width)

    excluded = torch.tensor([line.excluded for line in lines], dtype=torch.bool)
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
        excluded=excluded if excluded.any() else None,
        seats=None if seats is None else torch.tensor(seats, dtype=torch.int64),
        segments=[line.thread.episode() for line in lines],
    )


def of_policy(played: Played) -> Played:
    """The first seat of the policy in each episode alone; episodes without seats as they are."""
    if played.policy is None:
        return played
    first, known = torch.zeros(len(played.policy), dtype=torch.bool), set[tuple[int, int]]()
    rows = zip(played.rollouts.request.tolist(), played.rollouts.sample.tolist(), played.policy.tolist(), strict=True)
    for place, (request, sample, own) in enumerate(rows):
        first[place] = own and (request, sample) not in known
        known |= {(request, sample)} if own else set()
    return only(played, first)


def only(played: Played, rows: torch.Tensor | None) -> Played:
    """Some of the rows, (N,) bool."""
    if rows is None or bool(rows.all()):
        return played
    kept = rows.nonzero()[:, 0]
    rollouts = Rollouts(*(select_rows(value, kept) for value in played.rollouts))
    width = int(rollouts.lengths.max()) if len(kept) else 0
    rollouts = rollouts._replace(tokens=rollouts.tokens[:, :width], logprobs=rollouts.logprobs[:, :width])
    observed = None if played.observed is None else played.observed[kept, :width]
    names = ("turns", "prompts", "excluded", "seats", "segments", "learnt", "policy")
    more = {name: select_rows(getattr(played, name), kept) for name in names}
    return played._replace(rollouts=rollouts, observed=observed, **more)


def not_replayed(name: str) -> UserError:
    """Of an environment that is not a function of seed and actions."""
    return UserError(f"{name}: another episode when it is replayed; the same seed and actions must give the same steps")
