"""Games of TextArena (Guertler et al., arXiv:2504.11442; package textarena).

The package does not say which moves are legal. So the script of the other seats, and random play as an expert, propose moves: the
user's, those in brackets in what the seat has read, and small numbers and places of boards. They try each on a copy of the game
and take the first that the game does not refuse."""

import copy
import json
import random
import re
from functools import cache
from typing import Any

from interplay.core.model import UserError, nearest_name
from interplay.tasks.adapters.packages import PackageWorld, Randomness, package, package_family, quiet
from interplay.tasks.environments.spec import TextArena
from interplay.tasks.family import Step

SEATS = (2, 1, 3, 4, 5, 6)
"""Numbers of seats, in the order in which they are tried."""
PROPOSED = 60
"""Most moves that a script tries in a turn."""
STARTS = 20
"""Starts that are drawn for a problem with an expert, at most."""
LONGEST = 400
"""Most turns of a game of random moves."""
BRACKETS = re.compile(r"\[[^\[\]\n]{1,40}\]")
NUMBERS = [f"[{n}]" for n in range(30)]
PLACES = [f"[{row}{between}{column}]" for row in range(5) for column in range(5) for between in (" ", ",", ", ")]
BROKEN = {"CharacterConclaveEnv": "it raises an exception at every move"}
"""Game, by its class -> why it cannot be played (tools/games.py). None was found that is not the same twice."""


@cache
def registry(version: str | None = None) -> dict[str, Any]:
    """Name of a game -> its registration."""
    package("textarena", "textarena", version, "textarena")
    found: dict[str, Any] = package("textarena", "textarena", version, "textarena.envs.registration").ENV_REGISTRY
    return found


def games() -> list[str]:
    """A name of each game: the first of its variants."""
    firsts: dict[Any, str] = {}
    for name, registered in registry().items():
        if not name.endswith(("-raw", "-train")):
            firsts.setdefault(registered.entry_point, name)
    return list(firsts.values())


class Game(PackageWorld[TextArena]):
    """An episode of a game."""

    chance = 0.7  # the other seats draw moves, too

    def check(self, task: TextArena) -> None:
        """Raises UserError where the game is unknown, cannot begin here, or cannot be played."""
        known = registry(task.version)
        if task.game not in known:
            raise UserError(f"task textarena: game = {task.game}: textarena has none such{nearest_name(task.game, list(known))}")
        made = known[task.game].entry_point
        if why := BROKEN.get(str(made).rpartition(":")[2]):
            raise UserError(f"task textarena: game = {task.game}: cannot be played ({why}); take another game")
        seats_of(task.game, json.dumps(task.config), task.players)

    def draw(self, task: TextArena, draw: random.Random, op: int) -> dict[str, Any]:
        """A start; with `playouts` one that random moves win, and the moves."""
        seats = seats_of(task.game, json.dumps(task.config), task.players)
        for _ in range(STARTS):
            start = {"game": task.game, "config": task.config, "seats": seats, "moves": task.moves}
            start |= {"seat": draw.randrange(seats), "key": draw.randrange(2**31), "ascii": task.ascii}
            if not task.playouts:
                return start
            for number in range(task.playouts):
                if gold := self.playout(start, number):
                    return {**start, "gold": gold}
        raise UserError(f"task textarena: random moves won {task.game} at none of {STARTS} starts; raise playouts, or write 0")

    def playout(self, start: dict[str, Any], number: int) -> list[str]:
        """The moves of a game of random legal moves that is right; else none."""
        self.reset(start, 0)
        draw, moves, paid = random.Random(f"{start['key']} {number}"), list[str](), 0.0
        while not self.over and len(moves) < LONGEST:
            moves.append(self.legal_move(draw))
            paid += self.step(moves[-1]).reward or 0.0
        return moves if self.over and paid >= 1 else []

    def begin(self, problem: dict[str, Any], seed: int) -> str:
        """Make the game, and let the seats before the policy's play."""
        self.script = random.Random(problem["key"])
        self.game = made_game(problem["game"], problem["config"])
        self.game.reset(num_players=problem["seats"], seed=problem["key"])
        self.read = dict.fromkeys(range(problem["seats"]), "")
        self.new = ""
        self.others()
        return self.new

    def others(self) -> bool:
        """Play the other seats until it is the policy's turn, or the game is over, which is returned. What the policy reads then
        is `new`."""
        for _ in range(LONGEST):
            self.mover, observed = self.game.get_observation()
            before, now = self.read[self.mover], str(observed)
            self.new = now.removeprefix(before) if now.startswith(before) else now
            self.read[self.mover] = now
            if self.mover == self.problem["seat"]:
                return False
            if self.game.step(self.legal_move(self.script))[0]:
                return True
        return True

    def legal_move(self, draw: random.Random) -> str:
        """A random move of the seat whose turn it is, which the game does not refuse as far as the script knows."""
        own, seen = list(self.problem["moves"]), list(dict.fromkeys(BRACKETS.findall(self.read[self.mover])))
        rest = [*NUMBERS, *PLACES]
        for moves in (own, seen, rest):
            draw.shuffle(moves)
        moves = [*own, *seen, *rest][:PROPOSED]
        return next((move for move in moves if self.is_legal(move)), moves[0])

    def legal(self) -> list[str]:
        """One of them, drawn, since trying all takes long."""
        with self.randomness, quiet():
            return [self.legal_move(random.Random(f"{self.problem['key']} {self.new}"))]

    def is_legal(self, move: str) -> bool:
        """Whether the game takes a move, tried on a copy."""
        with Randomness(0):
            tried = copy.deepcopy(self.game)
            try:
                tried.step(move)
            except Exception:  # a game may raise anything of a move that it did not expect
                return False
        state = tried.state
        same = state.current_player_id == self.mover
        return not (state.game_info[self.mover].get("invalid_move") or (same and getattr(state, "error_count", 0)))

    def act(self, action: str) -> Step:
        """The policy's move, then those of the others. The game pays at its end."""
        over = self.game.step(action)[0] or self.others()
        if not over:
            return Step(self.new)
        rewards, info = self.game.close()
        seat = self.problem["seat"]
        why = info.get(seat, {}).get("reason") if isinstance(info, dict) else None
        return Step("", float((rewards or {}).get(seat, 0.0)), True, info={"reason": str(why)[:200]})


def made_game(name: str, config: dict[str, Any]) -> Any:
    """A game that has not begun."""
    return package("textarena", "textarena", None, "textarena").make(name, **config)


@cache
def seats_of(name: str, config: str, wanted: int) -> int:
    """How many seats a game has. `config` as JSON. Raises UserError where the game cannot begin."""
    why = ""
    for seats in (wanted,) if wanted else SEATS:
        try:
            with Randomness(0), quiet():
                game = made_game(name, json.loads(config))
                game.reset(num_players=seats, seed=0)
                game.get_observation()
            return seats
        except Exception as error:  # a game may raise anything
            why = why or f"{type(error).__name__}: {str(error).strip()[:120]}"
    raise UserError(f"task textarena: game = {name}: cannot begin with {wanted or 'any number of'} seats ({why})")


TEXTARENA = package_family("textarena", Game)
