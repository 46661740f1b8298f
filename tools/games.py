"""Which games of TextArena run here and are the same twice: `python -m tools.games`, a line each, then how many of each kind.

Each game is played for some turns by random legal moves against the script, in two processes with different hash seeds; its moves
are then played again, next to another episode of the game. What differs is not deterministic."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

from interplay.core.model import UserError
from interplay.tasks.adapters.games import Game, games
from interplay.tasks.environments.spec import TextArena
from interplay.tasks.family import Step

TURNS, PATIENCE = 6, 4
"""Turns that are played, and seconds of a processor that a game may take."""


def main() -> None:
    """Print the table, or with `--play` what one process found, as JSON."""
    if sys.argv[1:] == ["--play"]:
        print(json.dumps({name: tried(name) for name in games()}))
        return
    first, second = (elsewhere(seed) for seed in ("1", "2"))
    found = {name: first[name] if first[name] == second[name] else "another with another hash seed" for name in first}
    for name, said in sorted(found.items()):
        print(f"{name:28} {said}")
    print(Counter("same twice" if said.startswith("same") else said.split(":")[0].split("(")[0] for said in found.values()))


def elsewhere(seed: str) -> dict[str, str]:
    """What a process with this hash seed found."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tools.games", "--play"],
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def tried(name: str) -> str:
    """What became of a game: `same`, and what its bytes are, or why not."""
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        return played(name)
    except UserError as error:
        return f"cannot begin: {str(error).rpartition('(')[2][:90]}"
    except TimeoutError:
        return f"more than {PATIENCE} s"
    except Exception as error:
        return f"raises: {type(error).__name__}: {error!s:.70}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def late(number: int, frame: Any) -> None:
    """Raises TimeoutError."""
    raise TimeoutError


def played(name: str) -> str:
    """The bytes of a game, which are the same when its moves are played again next to another episode."""
    task, game, moves, steps = TextArena(game=name), Game(), list[str](), list[Step]()
    game.check(task)
    problem = {**game.draw(task, random.Random(0), 1), "ascii": True}
    first, draw = game.reset(problem, 0), random.Random(1)
    while not game.over and len(moves) < TURNS:
        moves.append(game.legal_move(draw))
        steps.append(game.step(moves[-1]))
    again, other = Game(), Game()
    text = again.reset(problem, 0)
    other.reset({**problem, "key": 7}, 0)
    for move, step in zip(moves, steps, strict=True):
        other.step(move)
        if text != first or again.step(move) != step:
            return "another when it is played again"
    raised = next((step.info["raised"] for step in steps if "raised" in step.info), "")
    content = hashlib.sha256(repr([first, moves, steps]).encode()).hexdigest()[:8]
    return f"raises: {raised[:80]}" if raised else f"same ({problem['seats']} seats, {len(moves)} turns, {content})"


if __name__ == "__main__":
    main()
