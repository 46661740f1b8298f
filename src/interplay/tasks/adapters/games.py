"""Games of TextArena (Guertler et al., arXiv:2504.11442; package textarena), and environments of gymnasium (Towers et al.,
arXiv:2407.17032) that have a form in text: FrozenLake, Taxi, CliffWalking and Blackjack, and those that a user registers."""

import copy
import json
import random
import re
from functools import cache
from typing import Any

import numpy as np

from interplay.core.model import UserError, nearest_name
from interplay.tasks.adapters.packages import PackageWorld, Randomness, package, package_family, quiet
from interplay.tasks.environments.spec import Gymnasium, TextArena
from interplay.tasks.family import Step

# TextArena does not say which moves are legal. So the script of the other seats, and random play as an expert, propose moves: the
# user's, those in brackets in what the seat has read, and small numbers and places of boards. They try each on a copy of the game
# and take the first that the game does not refuse.


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


# Environments of gymnasium.


COLOURS = dict(enumerate(("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "white", "crimson"), 30))
COLOURED = re.compile(r"\x1b\[(\d+)m(.*?)\x1b\[0m")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RANDOM = "random"
"""The value of FrozenLake's `desc` that stands for a map drawn for each problem."""
MOST_ACTIONS = 200
"""Most actions of an expert."""
DISCOUNT, SWEEPS = 0.99, 1000


def marked(text: str) -> str:
    """A picture without escapes of terminals: `[S]` where the background is coloured, `[R:blue]` where the character is."""

    def mark(found: re.Match[str]) -> str:
        number = int(found[1])
        return f"[{found[2]}:{COLOURS[number]}]" if number in COLOURS else f"[{found[2]}]"

    return ESCAPES.sub("", COLOURED.sub(mark, text))


class Env(PackageWorld[Gymnasium]):
    """An episode in a registered environment."""

    chance = 0.5  # of Blackjack a hand is won by luck
    solved: tuple[Any, dict[int, int]] = (None, {})
    """The table of transitions that was solved last, and its policy."""

    def check(self, task: Gymnasium) -> None:
        """Raises UserError where the environment is unknown, or has no form in text."""
        registry = package("gymnasium", "gymnasium", task.version, "gymnasium.envs.registration").registry
        if task.env not in registry:
            raise UserError(f"task gymnasium: env = {task.env}: gymnasium has none such{nearest_name(task.env, list(registry))}")
        try:
            made = made_env(task.env, {key: value for key, value in task.config.items() if value != RANDOM})
        except Exception as error:  # an environment may raise anything
            raise UserError(
                f"task gymnasium: env = {task.env}: cannot be made ({type(error).__name__}: {error!s:.120})"
            ) from None
        for space, what in ((made.observation_space, "observations"), (made.action_space, "actions")):
            kind = type(space).__name__
            if kind not in ("Discrete", "Text") and (what == "actions" or made.render_mode != "ansi") and not is_finite(space):
                raise UserError(f"task gymnasium: env = {task.env}: its {what} are {kind}, which has no form in text")

    def draw(self, task: Gymnasium, draw: random.Random, op: int) -> dict[str, Any]:
        """A seed, and the actions of a policy of value iteration where the transitions are known and it reaches the target."""
        key, config = draw.randrange(2**31), dict(task.config)
        if config.get("desc") == RANDOM:
            frozen = package("gymnasium", "gymnasium", task.version, "gymnasium.envs.toy_text.frozen_lake")
            config["desc"] = frozen.generate_random_map(size=op, seed=key)
        elif op != 1:
            raise UserError(
                f"task gymnasium: op {op}: {task.env} has one difficulty, 1; FrozenLake with desc: {RANDOM} has sizes"
            )
        problem = {"env": task.env, "config": config, "target": task.target, "key": key, "ascii": task.ascii}
        gold = self.planned(problem)
        return {**problem, "gold": gold} if gold else problem

    def begin(self, problem: dict[str, Any], seed: int) -> str:
        """The actions there are, and the first observation."""
        self.env = made_env(problem["env"], problem["config"])
        self.observed, _ = self.env.reset(seed=problem["key"])
        space = self.env.action_space
        actions = f"{space.start} to {space.start + space.n - 1}" if hasattr(space, "n") else "a text"
        return f"{problem['env']}. An action is {actions}.\n{self.picture()}"

    def picture(self) -> str:
        """What is observed, as text: a text as it is, else what the environment renders, else the numbers."""
        if isinstance(self.observed, str):
            return self.observed
        return marked(str(self.env.render())).strip("\n") if self.env.render_mode == "ansi" else numbers(self.observed)

    def act(self, action: str) -> Step:
        """What the environment returns. An action that it does not have changes nothing and is not paid."""
        space, said = self.env.action_space, action.strip()
        chosen: Any = said
        if hasattr(space, "n"):
            chosen = np.int64(said) if re.fullmatch(r"-?\d{1,9}", said, re.ASCII) else None
        if chosen is None or not space.contains(chosen):
            return Step("no such action")
        self.observed, reward, ended, cut, _ = self.env.step(chosen)
        return Step(self.picture(), float(reward), bool(ended or cut), info={"truncated": True} if cut else {})

    def legal(self) -> list[str]:
        """All numbers, of a finite space."""
        space = self.env.action_space
        return [str(space.start + n) for n in range(space.n)] if hasattr(space, "n") else []

    def structure(self, problem: dict[str, Any]) -> str:
        """A map that was drawn is in one split."""
        return json.dumps(
            problem["config"] if "desc" in problem["config"] else [problem["env"], problem["config"], problem["key"]]
        )

    def planned(self, problem: dict[str, Any]) -> list[str]:
        """The actions of an optimal policy in this episode, where its transitions are known and they reach the target."""
        self.reset(problem, 0)
        table = getattr(self.env.unwrapped, "P", None)
        if not isinstance(table, dict) or not hasattr(self.env.observation_space, "n"):
            return []
        if table != self.solved[0]:  # all problems of most environments have one table
            self.solved = table, best_actions(table)
        best, actions, paid = self.solved[1], list[str](), 0.0
        while not self.over and len(actions) < MOST_ACTIONS:
            actions.append(str(best[int(self.observed)]))
            paid += self.step(actions[-1]).reward or 0.0
        return actions if self.over and paid >= problem["target"] else []


def best_actions(table: dict[int, dict[int, list[tuple[float, int, float, bool]]]]) -> dict[int, int]:
    """State -> an action of an optimal policy, by value iteration over a table of state, action -> (chance, next state, reward,
    over); of equally good actions the first."""

    def worth(ways: list[tuple[float, int, float, bool]]) -> float:
        return sum(chance * (paid + (0.0 if over else DISCOUNT * values[after])) for chance, after, paid, over in ways)

    values = dict.fromkeys(table, 0.0)
    for _ in range(SWEEPS):
        change = 0.0
        for state, actions in table.items():
            new = max(map(worth, actions.values()))
            change, values[state] = max(change, abs(new - values[state])), new
        if change < 1e-9:
            break
    return {state: max(actions, key=lambda action: worth(actions[action])) for state, actions in table.items()}


def is_finite(space: Any) -> bool:
    """Whether a space is made of numbers from finite sets."""
    parts = getattr(space, "spaces", None)
    if parts is not None:
        return all(map(is_finite, parts.values() if isinstance(parts, dict) else parts))
    return type(space).__name__ in ("Discrete", "MultiDiscrete", "MultiBinary")


def numbers(observed: Any) -> str:
    """Numbers as text, such as `14 10 0`."""
    if isinstance(observed, dict):
        return "\n".join(f"{name} {numbers(value)}" for name, value in observed.items())
    return " ".join(map(numbers, observed)) if isinstance(observed, tuple) else " ".join(map(str, np.ravel(observed).tolist()))


def made_env(name: str, config: dict[str, Any]) -> Any:
    """An environment, which renders text where it can."""
    module = package("gymnasium", "gymnasium", None, "gymnasium")
    registered = module.envs.registration.registry[name]
    modes = getattr(module.envs.registration.load_env_creator(registered.entry_point), "metadata", {}).get("render_modes", ())
    text = {"render_mode": "ansi"} if "ansi" in modes else {}
    return module.make(name, **text, **config)


GYMNASIUM = package_family("gymnasium", Env)
