"""Text adventures with an expert: games that TextWorld generates (Côté et al., arXiv:1806.11532), and the science curriculum of
ScienceWorld (Wang et al., arXiv:2203.07540)."""

import functools
import hashlib
import json
import os
import random
import re
import tempfile
from pathlib import Path
from typing import Any

from interplay.core.model import UserError, nearest_name
from interplay.tasks.adapters.packages import PackageWorld, package, package_family
from interplay.tasks.environments.spec import ScienceWorld, TextWorld
from interplay.tasks.family import Step

# TextWorld. A game is compiled once per process, into a folder of its own; its story file is a function of the options.


STATUS = re.compile(r"\n*>\s*-= .*?=-.*$", re.DOTALL)
"""The prompt of the interpreter and its line of status, at the end of what it prints."""
BANNER = re.compile(r"\A(?:[^\n]*[$|\\_][^\n]*\n|\s*\n)+")
"""The name of the package in large letters, at the beginning."""


META = {
    "save",
    "restore",
    "restart",
    "quit",
    "q",
    "script",
    "transcript",
    "recording",
    "replay",
    "undo",
    "verify",
    "oops",
    "again",
}
"""Words of commands to the interpreter, which read files, write them or end it; no turn may have one. It hangs at a zero byte."""


def textworld(version: str | None = None) -> Any:
    """The package. Raises UserError where it is not here."""
    return package("textworld", "textworld", version, "textworld")


class Adventure(PackageWorld[TextWorld]):
    """An episode in a game of TextWorld."""

    def check(self, task: TextWorld) -> None:
        """Raises UserError where the package is not here."""
        textworld(task.version)

    def draw(self, task: TextWorld, draw: random.Random, op: int) -> dict[str, Any]:
        """The options of a game."""
        options = {"nb_rooms": task.rooms, "nb_objects": task.objects, "quest_length": op, "quest_breadth": task.breadth}
        options["seeds"] = draw.randrange(2**31)
        _, gold = compiled(json.dumps(options))
        return {"options": options, "gold": gold}

    def begin(self, problem: dict[str, Any], seed: int) -> str:
        """The goal and the first room."""
        file, _ = compiled(json.dumps(problem["options"]))
        module = textworld()
        self.game = module.start(file, module.EnvInfos(won=True, lost=True, score=True, max_score=True))
        state = self.game.reset()
        self.most, self.scored = state.max_score or 1, 0
        return BANNER.sub("", STATUS.sub("", state.feedback)).strip()

    def act(self, action: str) -> Step:
        """What the game says; it pays its points."""
        said = " ".join(re.sub(r"[^ -~]", " ", action).split())[:200]
        if set(re.findall(r"[a-z]+", said.lower())) & META:
            return Step("error")
        state, score, over = self.game.step(said)
        paid, self.scored = (score - self.scored) / self.most, score
        return Step(STATUS.sub("", state.feedback).strip(), paid, over or state.won or state.lost, info={"won": state.won})

    def close(self) -> None:
        """Free the interpreter."""
        self.game.close()


@functools.cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Where this process keeps its games."""
    return tempfile.TemporaryDirectory(prefix="interplay-textworld-")


@functools.lru_cache(maxsize=4096)
def compiled(options: str) -> tuple[str, list[str]]:
    """The story file of a game, and its walkthrough. `options` of `textworld.GameOptions` as JSON."""
    module, given = textworld(), module_options(json.loads(options))
    game = module.generator.make_game(given)
    given.path = str(Path(folder().name) / f"{hashlib.sha256(options.encode()).hexdigest()[:24]}.z8")
    file = module.generator.compile_game(game, given)
    return str(file), list(game.walkthrough)


def module_options(values: dict[str, Any]) -> Any:
    """The options as the package has them."""
    made = textworld().GameOptions()
    for name, value in values.items():
        setattr(made, name, value)
    made.force_recompile = True
    return made


TEXTWORLD = package_family("textworld", Adventure)


# ScienceWorld. One Java machine serves all episodes of a process, each with an interface of its own.


NO_JAVA = "needs Java: apt-get install default-jre-headless"
SAME_ORDER = {"JAVA_TOOL_OPTIONS": "-XX:+UnlockExperimentalVMOptions -XX:hashCode=2"}
"""Gold paths follow the order of sets of objects, which Java draws for each process unless all objects have one hash code."""


@functools.cache
def simulator() -> Any:
    """The package's environment, which holds the Java machine. Raises UserError where either is not here."""
    module = package("scienceworld", "scienceworld", None, "scienceworld")
    kept = {name: os.environ.get(name) for name in SAME_ORDER}
    os.environ.update(SAME_ORDER)
    try:
        return module.ScienceWorldEnv()
    except (OSError, ValueError) as error:  # there is no `java`, or it says nothing on its pipe
        raise UserError(f"task scienceworld: {NO_JAVA} ({error})") from None
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def interface() -> Any:
    """A new world of the simulator."""
    return simulator()._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()


class Laboratory(PackageWorld[ScienceWorld]):
    """An episode of a task of ScienceWorld."""

    def check(self, task: ScienceWorld) -> None:
        """Raises UserError where the package is not here, or has no such task or simplification."""
        known = package("scienceworld", "scienceworld", task.version, "scienceworld.constants").ID2TASK.values()
        if task.task not in known:
            near = nearest_name(task.task, list(known))
            raise UserError(f"task scienceworld: task = {task.task}: scienceworld has none such{near}")
        simple = ["easy", *simulator().get_possible_simplifications()]
        if wrong := [one for one in task.simplifications if one not in simple]:
            near = nearest_name(wrong[0], simple)
            raise UserError(f"task scienceworld: simplifications = {wrong[0]}: scienceworld has none such{near}")

    def draw(self, task: ScienceWorld, draw: random.Random, op: int) -> dict[str, Any]:
        """A variation, with its gold path where it has one."""
        problem = {"task": task.task, "variation": draw.choice(variations(task.task, task.variations))}
        problem |= {"simplifications": ",".join(task.simplifications)}
        return {**problem, "gold": self.golden({**problem, "ascii": task.ascii})}

    def golden(self, problem: dict[str, Any]) -> list[str]:
        """The gold path as far as the end of the episode, which it reaches; else nothing."""
        self.reset({**problem, "path": True}, 0)
        done, paid = list[str](), 0.0
        for action in self.world.getGoldActionSequence():
            done.append(str(action))
            paid += self.step(done[-1]).reward or 0.0
            if self.over:
                break
        return done if self.over and paid > 1 - 1e-9 else []

    def begin(self, problem: dict[str, Any], seed: int) -> str:
        """The task and the first look around."""
        self.world = self.asked(interface)
        self.asked(self.world.load, problem["task"], problem["variation"], problem["simplifications"], "path" in problem)
        self.asked(self.world.reset)
        first = self.asked(self.world.freeActionLook)
        self.scored = 0.0
        return f"{self.asked(self.world.getTaskDescription)}\n{first}"

    def act(self, action: str) -> Step:
        """What the simulator says. It pays what the score has risen by; a score below zero ends the episode."""
        text = str(self.asked(self.world.step, " ".join(action.split())[:200]))
        score = max(float(self.asked(self.world.getScore)), -1.0)
        paid, self.scored = score - self.scored, score
        return Step(text, paid, bool(self.asked(self.world.getCompleted)) or score < 0, info={"score": score})

    def asked(self, function: Any, *given: Any) -> Any:
        """What a call of the simulator returns. Raises ConnectionError where its machine is gone; the next is a new one."""
        try:
            return function(*given)
        except Exception as error:
            if type(error).__name__ in ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError"):
                simulator.cache_clear()
                raise ConnectionError(f"scienceworld: {error}") from None
            raise

    def structure(self, problem: dict[str, Any]) -> str:
        """A variation is in one split."""
        return f"{problem['task']} {problem['variation']}"


@functools.cache
def variations(task: str, part: str) -> list[int]:
    """The variations of a task: all, or those of a split of the package."""
    if part == "all":
        return list(range(simulator().get_max_variations(task)))
    world = interface()
    world.load(task, 0, "", False)
    return list(getattr(world, f"getVariations{part.title()}")())


SCIENCEWORLD = package_family("scienceworld", Laboratory)
