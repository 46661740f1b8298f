"""Kuhn poker (Kuhn 1950): three cards J < Q < K, a chip each; `pass` or `bet` a chip; to pass on a bet is to fold, to bet on
one to call. The prompt is one's card and place, `Q second`. The scripted opponent and the expert play an equilibrium."""

import json
import sys
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

from interplay.core.random import stream_key
from interplay.tasks.environments import games
from interplay.tasks.environments.games import Position, Rendered, Replies, Reply, transcript
from interplay.tasks.environments.spec import Kuhn
from interplay.tasks.op_dag.graph import stream
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

CARDS, PASS, BET, MOST = "JQK", "pass", "bet", 2
DEALS = tuple(permutations(CARDS, 2))
ENDS = {("pass", "pass"): 1, ("bet", "bet"): 2, ("pass", "bet", "bet"): 2}
"""Showdowns: moves -> chips that the higher card wins."""
FOLDS = {("bet", "pass"): 1, ("pass", "bet", "pass"): -1}
"""Moves -> chips of seat 0."""
ALPHA = Fraction(1, 3)
THIS = sys.modules[__name__]


class Problem(NamedTuple):
    """A deal, and the policy's seat."""

    mode: str
    cards: tuple[str, str]
    seat: int
    draw: int
    """Key of the opponent's draws."""


def chips(cards: tuple[str, str], moves: tuple[str, ...]) -> int | None:
    """What seat 0 has won; None while the game is not over."""
    if moves in FOLDS:
        return FOLDS[moves]
    if moves in ENDS:
        return ENDS[moves] * (1 if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -1)
    return None


def betting(card: str, moves: tuple[str, ...], alpha: Fraction = ALPHA) -> Fraction:
    """Chance of a bet, or call, in the equilibrium `alpha` in [0, 1/3]: seat 0 bets a jack with alpha and a king with 3 alpha,
    and calls with a queen with alpha + 1/3; seat 1 bluffs with a jack and calls with a queen a third of the time."""
    third, sure, never = Fraction(1, 3), Fraction(1), Fraction(0)
    of = {
        (): (alpha, never, 3 * alpha),
        ("pass", "bet"): (never, alpha + third, sure),
        ("bet",): (never, third, sure),
        ("pass",): (third, never, sure),
    }
    return of[moves][CARDS.index(card)]


def generate(task: Kuhn, seed: int, index: int, op: int) -> Problem:
    """A deal and a seat. Keyed by (seed, index)."""
    draw = stream("kuhn", seed, index)
    first, second = DEALS[draw() % len(DEALS)]
    return Problem("kuhn", (first, second), draw() % 2, draw())


def seats(problem: Problem) -> tuple[str, str]:
    """The prompts of both seats."""
    return f"{problem.cards[0]} first\n", f"{problem.cards[1]} second\n"


def position(problem: Problem, moves: list[str]) -> Position:
    """Where the game stands; payoffs in units of two chips."""
    wrong = [n for n, move in enumerate(moves) if move not in (PASS, BET)]
    if wrong:
        return games.forfeited(wrong[0] % 2)
    won = chips(problem.cards, tuple(moves))
    return Position(len(moves) % 2) if won is None else Position(-1, won / MOST)


def scripted(problem: Problem, moves: list[str]) -> str:
    """The opponent's move: a draw by the equilibrium."""
    chance = betting(problem.cards[len(moves) % 2], tuple(moves))
    drawn = Fraction(stream("kuhn", "opponent", problem.draw, len(moves))(), 1 << 32)
    return BET if drawn < chance else PASS


def sound(problem: Problem, moves: list[str]) -> bool:
    """Whether some equilibrium of the family makes the last move."""
    chances = [betting(problem.cards[(len(moves) - 1) % 2], tuple(moves[:-1]), alpha) for alpha in (Fraction(0), ALPHA)]
    return (moves[-1] == BET and max(chances) > 0) or (moves[-1] == PASS and min(chances) < 1)


def reply(problem: Problem, said: list[str]) -> Reply:
    """The opponent's move."""
    return games.reply(THIS, problem, said)


def expert(problem: Problem) -> list[str]:
    """The likelier move of the equilibrium, every time."""
    return games.expert(THIS, problem, lambda moves: _likelier(problem.cards[problem.seat], tuple(moves)))


def _likelier(card: str, moves: tuple[str, ...]) -> str:
    return BET if betting(card, moves) >= Fraction(1, 2) else PASS


def render(problem: Problem, task: Kuhn) -> Rendered:
    """Card and place, the expert's game, the expert's moves."""
    turns = expert(problem)
    return Rendered(games.opening(THIS, problem), transcript(turns, lambda said: reply(problem, said)), " ".join(turns))


def solve(prompt: str, task: Kuhn, ask: Replies) -> str:
    """The expert's moves, knowing nothing but the prompt and what the opponent does."""
    head, *told = prompt.split("\n")[:-1]
    moves, turns = tuple(told), []
    while True:
        turns.append(_likelier(head[0], moves))
        answer = ask(turns)
        if answer.done:
            return " ".join(turns)
        moves = (*moves, turns[-1], *answer.text.split())


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Right: the game is over, whatever the cards made of it. Strict: and no move was one that no equilibrium makes. Score: the
    chips. See tasks.environments.games.played."""
    return games.verified(THIS, problem, completion, games.LOST)


def judge(problem: Problem, moves: list[str], seat: int) -> Verdict:
    """The same of a seat of a game of two policies."""
    return games.played(THIS, problem, moves, seat, games.LOST)


def structure(problem: Problem) -> str:
    """16 hex digits of the deal and the seat."""
    return f"{stream_key('kuhn', *problem.cards, problem.seat):016x}"


def shared(problem: Problem) -> bool:
    """All dozen problems belong to every split."""
    return True


def dumps(problem: Problem) -> str:
    """JSON, one line."""
    return json.dumps(problem, separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    mode, cards, seat, draw = json.loads(text)
    return Problem(mode, (cards[0], cards[1]), seat, draw)


def alphabet(task: Kuhn) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: Kuhn) -> list[str]:
    """The pieces of a tokenizer of words."""
    return [*CARDS, " first\n", " second\n", PASS, BET, "\n"]
