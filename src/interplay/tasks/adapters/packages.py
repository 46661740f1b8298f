"""Environments of other packages: what their adapters share.

An adapter is a `PackageWorld`: `draw` makes a problem, `begin` and `act` play it. Here are the look-up of the package, a random
state of its own for each episode (many packages draw from the global ones of Python and NumPy), exceptions as ends of episodes,
and the family."""

import contextlib
import functools
import importlib
import importlib.metadata
import io
import random
import unicodedata
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Generic, TypeVar

import numpy as np

from interplay.core import extension
from interplay.core.model import UserError
from interplay.tasks.environments.spec import PackagedWorld
from interplay.tasks.families import LOST, OwnProblem, OwnWorlds
from interplay.tasks.family import Environment, Step
from interplay.tasks.spec import OwnTask

T = TypeVar("T", bound=PackagedWorld)


@functools.cache
def package(task: str, distribution: str, version: str | None, module: str, remedy: str = "") -> ModuleType:
    """A module of an installed distribution. Raises UserError, with what to type, where another version is installed, or none.
    `version` None: any, since the one that a task says was looked at when the study was planned."""
    remedy = remedy or f"pip install 'interplay[{distribution}]'"
    try:
        found = importlib.metadata.version(distribution)
        with quiet():
            made = importlib.import_module(module)
    except ImportError as error:
        missing = "is not installed" if (error.name or distribution) == distribution else f"cannot be imported ({error})"
        raise UserError(f"task {task}: {distribution} {missing}; {remedy}") from None
    if version is not None and found != version:
        raise UserError(f"task {task}: version = {version}: {found} is installed; install that version, or write {found}")
    return made


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What is printed in the block goes nowhere."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


LINES = {"HORIZONTAL": "-", "VERTICAL": "|"}


def plain(text: str) -> str:
    """The text in ASCII: letters without their accents, lines of boxes as - | +, any other character as its name."""
    return "".join(char if "\x1f" < char < "\x7f" or char == "\n" else _plain_character(char) for char in text.expandtabs(2))


def _plain_character(char: str) -> str:
    decomposed = "".join(part for part in unicodedata.normalize("NFKD", char) if "\x1f" < part < "\x7f")
    if decomposed:
        return decomposed
    name = unicodedata.name(char, "")
    if name.startswith("BOX DRAWINGS"):
        return "+" if " AND " in name else LINES.get(name.rpartition(" ")[2], "+")
    punctuation = {"EN DASH": "-", "EM DASH": "-", "LEFT SINGLE QUOTATION MARK": "'", "RIGHT SINGLE QUOTATION MARK": "'"}
    punctuation |= {"LEFT DOUBLE QUOTATION MARK": '"', "RIGHT DOUBLE QUOTATION MARK": '"', "RIGHTWARDS ARROW": "->"}
    # Marks that only modify the character before them, such as variation selectors, have no form of their own.
    return punctuation.get(name, f"<{name.lower()}>" if name and not name.startswith("VARIATION SELECTOR") else "")


class Randomness:
    """A state of Python's and NumPy's global generators, which holds in the block `with`; outside of it both are as they were."""

    def __init__(self, seed: int) -> None:
        kept = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        self.state = random.getstate(), np.random.get_state()
        random.setstate(kept[0])
        np.random.set_state(kept[1])

    def __enter__(self) -> None:
        self.outside = random.getstate(), np.random.get_state()
        random.setstate(self.state[0])
        np.random.set_state(self.state[1])

    def __exit__(self, *raised: Any) -> None:
        self.state = random.getstate(), np.random.get_state()
        random.setstate(self.outside[0])
        np.random.set_state(self.outside[1])


class PackageWorld(Generic[T]):
    """An episode in an environment of another package; a class with `generate`, `reset` and `step`, as users' own are.

    A problem is a JSON object with all that defines the episode, also of the task. Keys that all know: `key` (seed of the random
    state; else that of the episode), `gold` (the expert's actions), `target` and `ascii`."""

    chance = 0.2
    """The share of episodes that random legal actions may win."""

    def check(self, task: T) -> None:
        """Raises UserError where the package is not here, or has none of that name."""
        raise NotImplementedError

    def draw(self, task: T, draw: random.Random, op: int) -> dict[str, Any]:
        """A problem of difficulty `op`."""
        raise NotImplementedError

    def begin(self, problem: dict[str, Any], seed: int) -> str:
        """Begin an episode; the prompt."""
        raise NotImplementedError

    def act(self, action: str) -> Step:
        """Act. May raise anything."""
        raise NotImplementedError

    def generate(self, task: T, draw: random.Random, op: int) -> dict[str, Any]:
        """A problem of difficulty `op`, in which the options that matter to all packages are, too."""
        with Randomness(draw.getrandbits(32)), quiet():
            return {**self.draw(task, draw, op), "ascii": task.ascii}

    def reset(self, problem: dict[str, Any], seed: int) -> str:
        """Begin an episode; the prompt."""
        self.problem, self.over = problem, False
        self.randomness = Randomness(problem.get("key", seed))
        with self.randomness, quiet():
            return self.shown(self.begin(problem, seed))

    def step(self, action: str) -> Step:
        """What the package replies. What it raises ends the episode, unless its process is gone: then that is for the caller."""
        if self.over:
            return Step("", done=True)
        with self.randomness, quiet():
            try:
                made = self.act(action)
            except LOST:
                raise
            except Exception as error:  # a package may raise anything of a text that it did not expect
                made = Step("", 0.0, True, info={"raised": f"{type(error).__name__}: {str(error)[:200]}"})
        self.over = made.done
        return made._replace(text=self.shown(made.text))

    def shown(self, text: str) -> str:
        """A text as the policy reads it, on lines of its own."""
        text = plain(text) if self.problem["ascii"] else text
        return f"{text.rstrip()}\n"

    def legal(self) -> list[str]:
        """The actions that there are now, as far as the package says."""
        return []

    def expert(self, problem: dict[str, Any]) -> list[str]:
        """The actions of the package's expert; none where there is none."""
        gold: list[str] = problem.get("gold", [])
        return gold


class PackageFamily(OwnWorlds):
    """What a class of an adapter says as a family."""

    def __init__(self, name: str, world: type[PackageWorld[Any]]) -> None:
        super().__init__(OwnTask(function=name), world(), world)

    def generate(self, task: Any, seed: int, index: int, op: int) -> OwnProblem:
        """The problem keyed by (seed, index, op)."""
        self.made.check(task)
        name = self.task.function
        with extension.errors_in(self.task):
            return OwnProblem(self.made.generate(task, random.Random(f"{name} {seed} {index} {op}"), op))

    def common(self) -> dict[str, Any]:
        """What its class says, and whether the package is here."""
        return {**super().common(), "check": self.made.check}

    def target(self, problem: OwnProblem) -> float:
        """What an episode has to pay to be right."""
        return float(problem.value.get("target", 1.0))


def package_family(name: str, world: type[PackageWorld[Any]]) -> Environment[OwnProblem, Any]:
    """The family `name` of an adapter."""
    return PackageFamily(name, world).family()
