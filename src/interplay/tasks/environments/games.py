"""What environments share: turns and replies, and games of two seats."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from interplay.tasks.verdict import BOX, Verdict, extract_answer, is_answer_dump

# What several turns are made of, whatever the family.
#
# A solution of several turns is one text: what the policy writes and what it reads, by turns, with MARK between them. No
# tokenizer of ours has MARK, and an episode takes it out of what a model writes: training learns each turn as a solution of its
# own (data.corpus), and an episode puts the end token in its place.


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
    boxed = extract_answer(turns[-1]) if ended(turns[-1]) and not is_answer_dump(turns[-1]) else None
    right, true, share = boxed == answer, honest(text, reply), earned(turns)
    error = (
        "truncated" if boxed is None
        else "made_up" if not true
        else "answer" if not right
        else "process" if share < 1
        else "none"
    )  # fmt: skip
    return Verdict(error == "none", right, share * float(right), error, said=boxed or "")


# Games of two seats, whichever they are: who moves, what each seat reads, and a game against a scripted opponent as an
# environment.
#
# A game is a module with `seats(problem)`, the prompts of both seats; `position(problem, moves)`; `scripted(problem, moves)`,
# the opponent's move; and `sound(problem, moves)`, whether the last of them is one that a perfect player may make. Seat 0 moves
# first; the policy plays `problem.seat`. A move is the text of a turn without its blanks, and the other seat reads it on a line
# of its own. Who makes a move that is not legal loses all.


LOST = -1.0


class Position(NamedTuple):
    """Where a game stands."""

    mover: int
    """Seat that is to move; -1: the game is over."""
    payoff: float = 0.0
    """Of seat 0, in [-1, 1]; seat 1 has its negative. 0 while it is not over."""
    legal: bool = True
    """Whether all moves were."""


def forfeited(seat: int) -> Position:
    """After a move of that seat which was not legal."""
    return Position(-1, LOST if seat == 0 else -LOST, False)


def line(move: str) -> str:
    """What the other seat reads of a move."""
    return f"{move}\n"


def against(game: ModuleType, problem: Any, turns: Sequence[str]) -> tuple[list[str], str]:
    """All moves of a game against the scripted opponent, as far as the policy's turns lead, and what the policy reads after the
    last of these (before its first: of the opponent's opening)."""
    moves: list[str] = []
    told, left = "", list(turns)
    while (mover := game.position(problem, moves).mover) >= 0:
        if mover == problem.seat:
            if not left:
                break
            moves.append(left.pop(0).strip())
            told = ""
        else:
            moves.append(game.scripted(problem, moves))
            told += line(moves[-1])
    return moves, told


def reply(game: ModuleType, problem: Any, turns: list[str]) -> Reply:
    """The opponent's move after the last turn."""
    moves, told = against(game, problem, turns)
    return Reply(told, game.position(problem, moves).mover < 0)


def expert(game: ModuleType, problem: Any, best: Callable[[list[str]], str]) -> list[str]:
    """The turns of a player who makes the move that `best` names, after the moves so far, until the game is over."""
    turns: list[str] = []
    while True:
        moves, _ = against(game, problem, turns)
        if game.position(problem, moves).mover < 0:
            return turns
        turns.append(best(moves))


def opening(game: ModuleType, problem: Any) -> str:
    """The prompt of the policy's seat, with the moves that come before its first."""
    return game.seats(problem)[problem.seat] + against(game, problem, [])[1]


def played(game: ModuleType, problem: Any, moves: Sequence[str], seat: int, enough: float) -> Verdict:
    """What a seat made of a game. Right: it has at least the payoff `enough`. Strict: and every move of it was sound. Score: its
    payoff from [-1, 1] in [0, 1]. Errors: `truncated` (not over), `illegal` (its own move), `move` (one that was not sound),
    `answer` (all sound, and yet not enough)."""
    end = game.position(problem, moves)
    payoff = end.payoff if seat == 0 else -end.payoff
    own = [n for n in range(len(moves)) if game.position(problem, moves[:n]).mover == seat]
    fouled = not end.legal and bool(own) and own[-1] == len(moves) - 1
    sound = not fouled and all(game.sound(problem, moves[: n + 1]) for n in own)
    right = end.mover < 0 and not fouled and payoff >= enough
    error = (
        "illegal" if fouled
        else "truncated" if end.mover >= 0
        else "move" if not sound
        else "answer" if not right
        else "none"
    )  # fmt: skip
    return Verdict(error == "none", right, (payoff + 1) / 2, error, said=" ".join(moves[n] for n in own)[:80])


def verified(game: ModuleType, problem: Any, text: str, enough: float) -> Verdict:
    """A transcript of a game against the scripted opponent; error `made_up` where its replies are not the opponent's."""
    turns = said(text)
    moves, _ = against(game, problem, turns)
    found = played(game, problem, moves, problem.seat, enough)
    if honest(text, lambda so_far: reply(game, problem, so_far)):
        return found
    return found._replace(strict=False, answer=False, score=0.0, error="made_up")
