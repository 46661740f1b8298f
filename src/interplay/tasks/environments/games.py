"""Games of two seats: the rules that they share, tic-tac-toe and Kuhn poker.

Seat 0 moves first; the policy plays `problem.seat` against a scripted opponent. A move is the text of a turn without blanks, and
the other seat reads it on a line of its own. An illegal move loses the game."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import Any, NamedTuple

from interplay.core.random import Draw, stream, stream_key
from interplay.tasks import family, spec, transcripts, verdict
from interplay.tasks.environments.spec import Kuhn, TicTacToe
from interplay.tasks.family import Game, Position, Rendered, Step

LOST = -1.0
ERRORS = ("truncated", "made_up", "illegal", "move", "answer")
"""Error classes of `Rules.judge` and `Rules.verify`."""


def forfeited(seat: int) -> Position:
    """The position after an illegal move of a seat."""
    return Position(-1, LOST if seat == 0 else -LOST, False)


@dataclass(frozen=True)
class Rules:
    """A game: functions of a problem and the moves so far."""

    seats: Callable[[Any], tuple[str, str]]
    """The prompts of both seats."""
    position: Callable[[Any, Sequence[str]], Position]
    scripted: Callable[[Any, Sequence[str]], str]
    """The move of the scripted opponent."""
    best: Callable[[Any, Sequence[str]], str]
    """The expert's move."""
    legal: Callable[[Any, Sequence[str]], list[str]]
    """The moves that there are."""
    sound: Callable[[Any, Sequence[str]], bool]
    """Whether a perfect player may make the last of the moves."""
    target: Callable[[Any, int], float]
    """The payoff from which on a seat's result counts as right."""

    def against(self, problem: Any, turns: Sequence[str]) -> tuple[list[str], str]:
        """All moves of a game against the scripted opponent, as far as the policy's turns lead, and what the policy reads after
        its last turn (before its first: the opponent's opening)."""
        moves: list[str] = []
        observed, left = "", list(turns)
        while (mover := self.position(problem, moves).mover) >= 0:
            if mover == problem.seat:
                if not left:
                    break
                moves.append(left.pop(0).strip())
                observed = ""
            else:
                moves.append(self.scripted(problem, moves))
                observed += transcripts.move_line(moves[-1])
        return moves, observed

    def reply(self, problem: Any, turns: list[str]) -> Step:
        """The opponent's move after the last turn."""
        moves, observed = self.against(problem, turns)
        return Step(observed, done=self.position(problem, moves).mover < 0)

    def expert(self, problem: Any) -> list[str]:
        """The expert's turns until the game is over."""
        turns: list[str] = []
        while True:
            moves, _ = self.against(problem, turns)
            if self.position(problem, moves).mover < 0:
                return turns
            turns.append(self.best(problem, moves))

    def render(self, problem: Any, answer: str) -> Rendered:
        """The prompt of the policy's seat with the moves before its first, and the expert's game."""
        prompt = self.seats(problem)[problem.seat] + self.against(problem, [])[1]
        return Rendered(prompt, transcripts.play(self.expert(problem), lambda turns: self.reply(problem, turns)), answer)

    def judge(self, problem: Any, moves: Sequence[str], seat: int) -> verdict.Verdict:
        """The verdict on a seat of a game. Right: its payoff reaches the target. Strict: also every move of it was sound. Score:
        its payoff from [-1, 1] in [0, 1]. Errors: `truncated` (not over), `illegal` (its own move), `move` (one that is not
        sound), `answer` (all sound, and below the target)."""
        end = self.position(problem, moves)
        payoff = end.payoff if seat == 0 else -end.payoff
        own = [n for n in range(len(moves)) if self.position(problem, moves[:n]).mover == seat]
        fouled = not end.legal and bool(own) and own[-1] == len(moves) - 1
        sound = not fouled and all(self.sound(problem, moves[: n + 1]) for n in own)
        right = end.mover < 0 and not fouled and payoff >= self.target(problem, seat)
        error = verdict.first_error(illegal=fouled, truncated=end.mover >= 0, move=not sound, answer=not right)
        return verdict.Verdict(error == "none", right, (payoff + 1) / 2, error, said=" ".join(moves[n] for n in own)[:80])

    def verify(self, problem: Any, text: str, options: spec.Verify) -> verdict.Verdict:
        """The verdict on a transcript against the scripted opponent; error `made_up` where its replies are not the opponent's."""
        moves, _ = self.against(problem, transcripts.policy_turns(text))
        found = self.judge(problem, moves, problem.seat)
        if transcripts.replies_match(text, lambda turns: self.reply(problem, turns)):
            return found
        return found._replace(strict=False, answer=False, score=0.0, error="made_up")


def game(rules: Rules, **functions: Any) -> Game[Any, Any]:
    """The family of a game: what its rules determine, and `functions` of its own."""
    own = {
        name: getattr(rules, name)
        for name in ("verify", "reply", "expert", "seats", "position", "judge", "best", "scripted", "legal")
    }
    return Game(errors=ERRORS, **own, **functions)


# Tic-tac-toe. The prompt is a board of nine cells and the mark of its reader, `X.O....X. O`; a move is a cell, 1 to 9. A solution
# is a game of best moves against the scripted opponent; the answer is the minimax value of the position.


LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
WORTH = {1: "win", 0: "draw", -1: "loss"}


class Board(NamedTuple):
    """A position, with the opponent of the policy."""

    mode: str
    """perfect or random: how the scripted opponent plays."""
    board: str
    """Nine of X, O and a stop, row by row. X moves where there are as many of both."""
    seed: int
    """Key of a random opponent."""
    seat: int = 0
    """The policy moves first."""


def mover_mark(board: str) -> str:
    """The mark that moves next."""
    return "X" if board.count("X") == board.count("O") else "O"


def winner(board: str) -> str:
    """X or O; empty where there is none."""
    return next((board[a] for a, b, c in LINES if board[a] != "." and board[a] == board[b] == board[c]), "")


def empty_cells(board: str) -> list[int]:
    """Empty cells; none once there is a winner."""
    return [] if winner(board) else [cell for cell in range(9) if board[cell] == "."]


def place_mark(board: str, cell: int) -> str:
    """The board after a move."""
    return board[:cell] + mover_mark(board) + board[cell + 1 :]


@lru_cache(maxsize=1 << 13)
def minimax(board: str) -> int:
    """The value of a position to the mover: 1, 0 or -1."""
    free = empty_cells(board)
    if not free:
        return -1 if winner(board) else 0
    return max(-minimax(place_mark(board, cell)) for cell in free)


def best_cells(board: str) -> list[int]:
    """Cells that keep the value of the position."""
    return [cell for cell in empty_cells(board) if -minimax(place_mark(board, cell)) == minimax(board)]


def generate_board(task: TicTacToe, seed: int, index: int, op: int) -> Board:
    """A position with `op` empty cells and no winner, reached by random moves. Keyed by (seed, index, op)."""
    draw = stream("tic_tac_toe", seed, index, op)
    while True:
        board = "." * 9
        while board.count(".") > op and (free := empty_cells(board)):
            board = place_mark(board, free[draw() % len(free)])
        if not winner(board) and board.count(".") == op:
            return Board(task.opponent, board, draw())


def _board_after(problem: Board, moves: Sequence[str]) -> str | None:
    """The board; None where a move was illegal."""
    board = problem.board
    for move in moves:
        if move not in [str(cell + 1) for cell in empty_cells(board)]:
            return None
        board = place_mark(board, int(move) - 1)
    return board


def _board_seats(problem: Board) -> tuple[str, str]:
    mine = mover_mark(problem.board)
    return f"{problem.board} {mine}\n", f"{problem.board} {'O' if mine == 'X' else 'X'}\n"


def _board_position(problem: Board, moves: Sequence[str]) -> Position:
    board = _board_after(problem, moves)
    if board is None:
        first = next(n for n in range(len(moves)) if _board_after(problem, moves[: n + 1]) is None)
        return forfeited(first % 2)
    if empty_cells(board):
        return Position(len(moves) % 2)
    won = winner(board)
    return Position(-1, 0.0 if not won else 1.0 if won == mover_mark(problem.board) else -1.0)


def _board_scripted(problem: Board, moves: Sequence[str]) -> str:
    board = _board_after(problem, moves) or problem.board
    if problem.mode == "perfect":
        return str(best_cells(board)[0] + 1)
    free = empty_cells(board)
    return str(free[stream("tic_tac_toe", "opponent", problem.seed, board)() % len(free)] + 1)


def _board_sound(problem: Board, moves: Sequence[str]) -> bool:
    """Whether the last move keeps the value of the position."""
    board = _board_after(problem, moves[:-1])
    return board is not None and moves[-1] in [str(cell + 1) for cell in best_cells(board)]


def _board_state(problem: Board, moves: Sequence[str]) -> str:
    """The board as a prompt shows it."""
    board = _board_after(problem, moves) or problem.board
    return f"{board} {mover_mark(board)}\n"


TIC_TAC_TOE_RULES = Rules(
    seats=_board_seats,
    position=_board_position,
    scripted=_board_scripted,
    best=lambda problem, moves: str(best_cells(_board_after(problem, moves) or problem.board)[0] + 1),
    legal=lambda problem, moves: [str(cell + 1) for cell in empty_cells(_board_after(problem, moves) or "")],
    sound=_board_sound,
    target=lambda problem, seat: float(minimax(problem.board) * (1 if seat == 0 else -1)),
)
TIC_TAC_TOE = game(
    TIC_TAC_TOE_RULES,
    name="tic_tac_toe",
    chance=0.7,  # against a random opponent, at small boards
    state=lambda problem, turns: _board_state(problem, TIC_TAC_TOE_RULES.against(problem, turns)[0]),
    generate=generate_board,
    render=lambda problem, task: TIC_TAC_TOE_RULES.render(problem, WORTH[minimax(problem.board)]),
    solve=lambda prompt, task, replies: WORTH[minimax(prompt[:9])],
    loads=family.from_json(Board),
    structure=lambda problem: f"{stream_key('tic_tac_toe', problem.board):016x}",
    shared=lambda problem: problem.board.count(".") > 7,  # the few boards of at most one move belong to every split
    vocabulary=lambda task: [*"XO. \n", *"123456789"],
)


# Kuhn poker (Kuhn 1950): three cards J < Q < K, a chip each; `pass` or `bet` a chip; to pass on a bet is to fold, to bet on one
# to call. The prompt is one's card and place, `Q second`. The scripted opponent and the expert play an equilibrium.


CARDS, PASS, BET, MOST_CHIPS = "JQK", "pass", "bet", 2
DEALS = tuple(permutations(CARDS, 2))
SHOWDOWNS = {("pass", "pass"): 1, ("bet", "bet"): 2, ("pass", "bet", "bet"): 2}
"""Moves -> chips that the higher card wins."""
FOLDS = {("bet", "pass"): 1, ("pass", "bet", "pass"): -1}
"""Moves -> chips of seat 0."""
ALPHA = Fraction(1, 3)


class Deal(NamedTuple):
    """Two cards, and the policy's seat."""

    mode: str
    cards: tuple[str, str]
    seat: int
    draw: int
    """Key of the opponent's draws."""


def chips_won(cards: tuple[str, str], moves: tuple[str, ...]) -> int | None:
    """The chips that seat 0 has won; None while the game is not over."""
    if moves in FOLDS:
        return FOLDS[moves]
    if moves in SHOWDOWNS:
        return SHOWDOWNS[moves] * (1 if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -1)
    return None


def bet_chance(card: str, moves: tuple[str, ...], alpha: Fraction = ALPHA) -> Fraction:
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


def generate_deal(task: Kuhn, seed: int, index: int, op: int) -> Deal:
    """A deal and a seat. Keyed by (seed, index)."""
    draw: Draw = stream("kuhn", seed, index)
    first, second = DEALS[draw() % len(DEALS)]
    return Deal("kuhn", (first, second), draw() % 2, draw())


def _deal_position(problem: Deal, moves: Sequence[str]) -> Position:
    """Payoffs in units of two chips."""
    wrong = [n for n, move in enumerate(moves) if move not in (PASS, BET)]
    if wrong:
        return forfeited(wrong[0] % 2)
    won = chips_won(problem.cards, tuple(moves))
    return Position(len(moves) % 2) if won is None else Position(-1, won / MOST_CHIPS)


def _deal_scripted(problem: Deal, moves: Sequence[str]) -> str:
    """A draw from the equilibrium."""
    chance = bet_chance(problem.cards[len(moves) % 2], tuple(moves))
    drawn = Fraction(stream("kuhn", "opponent", problem.draw, len(moves))(), 1 << 32)
    return BET if drawn < chance else PASS


def _deal_sound(problem: Deal, moves: Sequence[str]) -> bool:
    """Whether some equilibrium of the family makes the last move."""
    chances = [bet_chance(problem.cards[(len(moves) - 1) % 2], tuple(moves[:-1]), alpha) for alpha in (Fraction(0), ALPHA)]
    return (moves[-1] == BET and max(chances) > 0) or (moves[-1] == PASS and min(chances) < 1)


def _likelier_move(card: str, moves: Sequence[str]) -> str:
    return BET if bet_chance(card, tuple(moves)) >= Fraction(1, 2) else PASS


def _solve_deal(prompt: str, task: Kuhn, replies: family.Replies) -> str:
    """The expert's moves, from the prompt and the opponent's replies alone."""
    head, *observed = prompt.split("\n")[:-1]
    moves, turns = tuple(observed), []
    while True:
        turns.append(_likelier_move(head[0], moves))
        reply = replies(turns)
        if reply.done:
            return " ".join(turns)
        moves = (*moves, turns[-1], *reply.text.split())


KUHN_RULES = Rules(
    seats=lambda problem: (f"{problem.cards[0]} first\n", f"{problem.cards[1]} second\n"),
    position=_deal_position,
    scripted=_deal_scripted,
    best=lambda problem, moves: _likelier_move(problem.cards[problem.seat], moves),
    legal=lambda problem, moves: [PASS, BET],
    sound=_deal_sound,
    target=lambda problem, seat: LOST,  # any finished game is right
)
KUHN = game(
    KUHN_RULES,
    name="kuhn",
    chance=1.0,
    generate=generate_deal,
    render=lambda problem, task: KUHN_RULES.render(problem, " ".join(KUHN_RULES.expert(problem))),
    solve=_solve_deal,
    loads=family.from_json(Deal),
    structure=lambda problem: f"{stream_key('kuhn', *problem.cards, problem.seat):016x}",
    shared=lambda problem: True,  # there are a dozen problems
    vocabulary=lambda task: [*CARDS, " first\n", " second\n", PASS, BET, "\n"],
)
