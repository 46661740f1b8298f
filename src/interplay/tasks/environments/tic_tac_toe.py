"""Tic-tac-toe. The prompt is a board of nine cells and the mark of who reads it, `X.O....X. O`; a move is a cell, 1 to 9. A
solution is a game of the best moves against the scripted opponent; the answer is what the position is worth."""

import json
import sys
from functools import lru_cache
from typing import NamedTuple

from interplay.core.random import stream_key
from interplay.tasks.environments import games
from interplay.tasks.environments.games import Position, Rendered, Replies, Reply, transcript
from interplay.tasks.environments.spec import TicTacToe
from interplay.tasks.op_dag.graph import stream
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
WORTH = {1: "win", 0: "draw", -1: "loss"}
THIS = sys.modules[__name__]


class Problem(NamedTuple):
    """A position, with who answers the policy."""

    mode: str
    """perfect or random: how the scripted opponent plays."""
    board: str
    """Nine of X, O and a stop, row by row. X moves where there are as many of both."""
    seed: int
    """Key of a random opponent."""
    seat: int = 0
    """The policy moves first."""


def mark(board: str) -> str:
    """Who moves."""
    return "X" if board.count("X") == board.count("O") else "O"


def winner(board: str) -> str:
    """X or O; empty where there is none."""
    return next((board[a] for a, b, c in LINES if board[a] != "." and board[a] == board[b] == board[c]), "")


def cells(board: str) -> list[int]:
    """Empty cells, none where somebody has won."""
    return [] if winner(board) else [cell for cell in range(9) if board[cell] == "."]


def put(board: str, cell: int) -> str:
    """The board after a move."""
    return board[:cell] + mark(board) + board[cell + 1 :]


@lru_cache(maxsize=1 << 13)
def value(board: str) -> int:
    """What the position is worth to who moves: 1, 0 or -1 (minimax)."""
    free = cells(board)
    if not free:
        return -1 if winner(board) else 0
    return max(-value(put(board, cell)) for cell in free)


def best(board: str) -> list[int]:
    """Cells that keep what the position is worth."""
    return [cell for cell in cells(board) if -value(put(board, cell)) == value(board)]


def generate(task: TicTacToe, seed: int, index: int, op: int) -> Problem:
    """A position with `op` empty cells, reached by random moves, in which nobody has won. Keyed by (seed, index, op)."""
    draw = stream("tic_tac_toe", seed, index, op)
    while True:
        board = "." * 9
        while board.count(".") > op and (free := cells(board)):
            board = put(board, free[draw() % len(free)])
        if not winner(board) and board.count(".") == op:
            return Problem(task.opponent, board, draw())


def _after(problem: Problem, moves: list[str]) -> str | None:
    """The board; None where a move was not legal."""
    board = problem.board
    for move in moves:
        if move not in [str(cell + 1) for cell in cells(board)]:
            return None
        board = put(board, int(move) - 1)
    return board


def seats(problem: Problem) -> tuple[str, str]:
    """The prompts of both seats."""
    mine = mark(problem.board)
    return f"{problem.board} {mine}\n", f"{problem.board} {'O' if mine == 'X' else 'X'}\n"


def position(problem: Problem, moves: list[str]) -> Position:
    """Where the game stands."""
    board = _after(problem, moves)
    if board is None:
        first = next(n for n in range(len(moves)) if _after(problem, moves[: n + 1]) is None)
        return games.forfeited(first % 2)
    if cells(board):
        return Position(len(moves) % 2)
    won = winner(board)
    return Position(-1, 0.0 if not won else 1.0 if won == mark(problem.board) else -1.0)


def scripted(problem: Problem, moves: list[str]) -> str:
    """The opponent's move."""
    board = _after(problem, moves) or problem.board
    if problem.mode == "perfect":
        return str(best(board)[0] + 1)
    free = cells(board)
    return str(free[stream("tic_tac_toe", "opponent", problem.seed, board)() % len(free)] + 1)


def sound(problem: Problem, moves: list[str]) -> bool:
    """Whether the last move keeps what the position was worth."""
    board = _after(problem, moves[:-1])
    return board is not None and moves[-1] in [str(cell + 1) for cell in best(board)]


def reply(problem: Problem, said: list[str]) -> Reply:
    """The opponent's move."""
    return games.reply(THIS, problem, said)


def expert(problem: Problem) -> list[str]:
    """The first of the best moves, every time."""
    return games.expert(THIS, problem, lambda moves: str(best(_after(problem, moves) or problem.board)[0] + 1))


def render(problem: Problem, task: TicTacToe) -> Rendered:
    """The board, the expert's game, what the position is worth."""
    told = transcript(expert(problem), lambda said: reply(problem, said))
    return Rendered(games.opening(THIS, problem), told, WORTH[value(problem.board)])


def solve(prompt: str, task: TicTacToe, ask: Replies) -> str:
    """What the position of a prompt is worth."""
    return WORTH[value(prompt[:9])]


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Right: the game ends no worse than the position is worth. See tasks.environments.games.played."""
    return games.verified(THIS, problem, completion, float(value(problem.board)))


def judge(problem: Problem, moves: list[str], seat: int) -> Verdict:
    """The same of a seat of a game of two policies."""
    return games.played(THIS, problem, moves, seat, float(value(problem.board) * (1 if seat == 0 else -1)))


def structure(problem: Problem) -> str:
    """16 hex digits of the board."""
    return f"{stream_key('tic_tac_toe', problem.board):016x}"


def shared(problem: Problem) -> bool:
    """The empty board, and those of one move, belong to every split: there are few."""
    return problem.board.count(".") > 7


def dumps(problem: Problem) -> str:
    """JSON, one line."""
    return json.dumps(problem, separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    return Problem(*json.loads(text))


def alphabet(task: TicTacToe) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: TicTacToe) -> list[str]:
    """The pieces of a tokenizer of words: characters."""
    return [*"XO. \n", *"123456789"]
