"""A world that pays turns: locks one behind the other, each of a colour.

The prompt says which digit opens which colour, and the colour of the first lock: `red 3 blue 1 old 7;red?`. `open(3)` opens the
next lock where the digit is that of its colour, which pays, and shows the letter behind it and the next colour; another digit
shows `shut` and costs a turn. The letters in their order are the answer, `\\boxed{kam}`, and end the episode. With `known` a
colour has the same digit in all problems, which grows by 3 from lock to lock and is not told (`red?`): a policy has learnt it, or
tries. Difficulty `op` = locks."""

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch

from interplay.core.random import draw_sample, stream, stream_key
from interplay.tasks.family import Environment, Rendered, Step, from_json
from interplay.tasks.spec import OwnTask
from interplay.tasks.transcripts import BROKEN, TRANSCRIPT_ERRORS, join_turns, judge_transcript
from interplay.tasks.verdict import BOX, extract_answer

COLOURS = ("red", "blue", "old", "loud", "warm", "flat")
LETTERS = "akmostuy"
OPEN = re.compile(r"\s*open\((\d)\)\s*")
SHUT = "shut\n"


class Locks(NamedTuple):
    """A problem."""

    mode: str
    digits: tuple[int, ...]
    """The digit that opens each colour."""
    colours: tuple[int, ...]
    """The colour of each lock."""
    letters: str
    """Behind each lock."""
    shift: int = 0
    """How far the digit of a colour moves on from lock to lock."""

    def digit(self, at: int) -> int:
        """What opens the lock at this place."""
        return (self.digits[self.colours[at]] + self.shift * at) % 10


def generate(colours: int, known: bool, task: OwnTask, seed: int, index: int, op: int) -> Locks:
    """The problem at (seed, index) with `op` locks."""
    draw = stream("locks", seed, index, op, colours)
    digits = tuple(range(1, colours + 1)) if known else tuple(draw_sample(draw, list(range(10)), colours))
    behind = tuple(draw() % colours for _ in range(op)), "".join(LETTERS[draw() % 8] for _ in range(op))
    return Locks("locks", digits, *behind, 3 if known else 0)


def opened(problem: Locks, turns: Sequence[str]) -> int:
    """How many locks these turns open."""
    at = 0
    for turn in turns:
        found = OPEN.fullmatch(turn)
        at += bool(found and at < len(problem.colours) and int(found[1]) == problem.digit(at))
    return at


def reply(pays: float, problem: Locks, turns: Sequence[str]) -> Step:
    """What is read after the last turn, and what it is paid."""
    if BOX in turns[-1]:
        return Step("", float(extract_answer(turns[-1]) == problem.letters), done=True)
    if not OPEN.fullmatch(turns[-1]):
        return Step(BROKEN, 0.0)
    before, now = opened(problem, turns[:-1]), opened(problem, turns)
    if now == before:
        return Step(SHUT, 0.0, tool="open")
    following = COLOURS[problem.colours[now]] if now < len(problem.colours) else "end"
    return Step(f"{problem.letters[before]} {following}\n", pays, tool="open")


def expert(problem: Locks) -> list[str]:
    """A turn for each lock, then the answer."""
    return [*(f"open({problem.digit(at)})" for at in range(len(problem.colours))), f"{BOX}{problem.letters}}}"]


def render(pays: float, known: bool, problem: Locks, task: OwnTask) -> Rendered:
    """Prompt, the expert's transcript and answer."""
    told = "" if known else f"{' '.join(f'{COLOURS[i]} {digit}' for i, digit in enumerate(problem.digits))};"
    turns = expert(problem)
    read = [reply(pays, problem, turns[: n + 1]).text for n in range(len(turns) - 1)]
    return Rendered(f"{told}{COLOURS[problem.colours[0]]}?\n", join_turns(turns, read), problem.letters)


def locks(colours: int = 4, pays: float = 0.1, known: bool = False) -> Environment[Locks, OwnTask]:
    """The world with so many colours, which pays so much for each lock that opens, and 1 for the answer."""
    frame = ["open(", ")", " ", ";", "?\n", "\n", "end", "shut", "error", BOX, "}", *"0123456789", *LETTERS]
    return Environment(
        name="locks",
        errors=TRANSCRIPT_ERRORS,
        loads=from_json(Locks),
        generate=partial(generate, colours, known),
        render=partial(render, pays, known),
        solve=None,
        structure=lambda problem: f"{stream_key('locks', *map(str, problem[:4])):016x}",
        vocabulary=lambda task: [*frame, *COLOURS[:colours]],
        expert=expert,
        reply=partial(reply, pays),
        verify=lambda problem, text, options: judge_transcript(
            text, partial(reply, pays, problem), problem.letters, lambda turns: opened(problem, turns) / len(problem.colours)
        ),
    )


def preferred(batch, now):
    """The reward becomes the share of its group that an episode is preferred to, a tie for half: by what it was paid (SPO)."""
    share = torch.zeros(len(batch), dtype=torch.float64)
    for group in batch.groups.unique().tolist():
        here = (batch.groups == group).nonzero()[:, 0]
        mine = batch.rewards[here]
        beats = (mine[:, None] > mine[None]).double() + 0.5 * (mine[:, None] == mine[None]).double()
        share[here] = (beats.sum(1) - 0.5) / max(len(here) - 1, 1)
    return share - batch.rewards
