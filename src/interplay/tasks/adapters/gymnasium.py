"""Environments of gymnasium (Towers et al., arXiv:2407.17032) that have a form in text: FrozenLake, Taxi, CliffWalking and
Blackjack, and those that a user registers."""

import json
import random
import re
from typing import Any

import numpy as np

from interplay.core.model import UserError, nearest_name
from interplay.tasks.adapters.packages import PackageWorld, package, package_family
from interplay.tasks.environments.spec import Gymnasium
from interplay.tasks.family import Step

COLOURS = dict(enumerate(("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "white", "crimson"), 30))
COLOURED = re.compile(r"\x1b\[(\d+)m(.*?)\x1b\[0m")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RANDOM = "random"
"""The value of FrozenLake's `desc` that stands for a map drawn for each problem."""
LONGEST = 200
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
        while not self.over and len(actions) < LONGEST:
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
