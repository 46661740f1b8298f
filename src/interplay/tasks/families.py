"""Families by name, and the families that are made of users' own classes."""

import copy
import hashlib
import json
import math
import pkgutil
import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from interplay.core import digest, extension
from interplay.core.model import UserError
from interplay.tasks.family import (
    Environment,
    Family,
    Game,
    Generator,
    Item,
    Language,
    Rates,
    Rendered,
    Step,
    compact_json,
    episode_seed,
)
from interplay.tasks.spec import FAMILIES, OwnTask, Task, Verify
from interplay.tasks.transcripts import MARK, join_turns, observations, policy_turns
from interplay.tasks.verdict import BOX, Row, Verdict, extract_answer, first_error, is_answer_dump

F = TypeVar("F", bound=Family[Any])


@cache
def judge_family(name: str) -> Family[Any]:
    """The family that judges the completions of rows with this value in the column `family`. Raises KeyError for other names."""
    if name in _OWN:
        return _OWN[name][1]
    family = pkgutil.resolve_name(FAMILIES[name])
    assert isinstance(family, Family)
    return family


def task_family(task: Task) -> Generator[Any, Any]:
    """The family that generates the problems of a task."""
    family = judge_family(add_own_family(task) if isinstance(task, OwnTask) else task.name)
    assert isinstance(family, Generator)
    return family


_OWN: dict[str, tuple[OwnTask, Family[Any]]] = {}
"""Families of users' own that this process has loaded, by the value of their rows in the column `family`."""


def add_own_family(task: OwnTask) -> str:
    """Make the family of a task of the user's own known to this process, under the label that is returned, which its rows have in
    the column `family`: its name, and 12 hex digits of all that defines it. Raises UserError where that is neither a `Generator`
    nor a task or an environment (`kinds.extensions`)."""
    label = f"{task.function}@{hashlib.sha256(digest.canonical_json(task).encode()).hexdigest()[:12]}"
    if label not in _OWN:
        make = partial(extension.call_loaded, task, extension.load(task))
        family = make()
        if not isinstance(family, Generator):
            family = own_family(task, family, make)
        _OWN[label] = task, family
    return label


def own_tasks(labels: Sequence[str]) -> list[OwnTask]:
    """The tasks of those families among `labels` that are users' own, in the order of their labels."""
    return [_OWN[label][0] for label in sorted(labels) if label in _OWN]


def families_with(kind: type[Family[Any]]) -> tuple[str, ...]:
    """Names of the families of a kind, such as Environment."""
    return tuple(name for name in FAMILIES if isinstance(judge_family(name), kind))


def families_with_language() -> tuple[str, ...]:
    """Names of the families whose problems a model may write."""
    families = [judge_family(name) for name in FAMILIES]
    return tuple(family.name for family in families if isinstance(family, Generator) and family.language)


def rates_of(name: str) -> Rates | None:
    """The measured rates of a family, by name; None where there are none."""
    family = judge_family(name) if name in FAMILIES else None
    return family.rates if isinstance(family, Generator) else None


def language_of(task: Task) -> Language:
    """How prompts of the task are parsed. Raises ValueError where a model cannot write them."""
    language = task_family(task).language
    if language is None:
        raise ValueError(f"task {task.name}: has no language")
    return language


def environment_of(row: Row) -> Environment[Any, Any]:
    """The environment of a row. Raises UserError where its family is none."""
    return _family_of(row, Environment, "environment")


def game_of(row: Row) -> Game[Any, Any]:
    """The game of a row. Raises UserError where its family is none."""
    return _family_of(row, Game, "self_play")


def _family_of(row: Row, kind: type[F], episode: str) -> F:
    found = judge_family(row.family)
    if not isinstance(found, kind):
        place, known = f"the family '{row.family}' of row {row.index}", ", ".join(families_with(kind))
        raise UserError(f"method.episode = {episode}: {place} is no {kind.__name__.lower()}; known: {known}")
    return found


def multihop_item(row: Row) -> Item | None:
    """The question over documents of a row, in any form; None where it has none."""
    family = judge_family(row.family)
    return family.item(family.loads(row.graph)) if family.item else None


def open_question(row: Row) -> Row:
    """The row of the original question, as far as that question goes, of a row in another form; any other row itself."""
    return judge_family(row.family).open_question(row)


# Tasks and environments of users' own: what they need not say is derived.


ASCII = ["\n", *map(chr, range(32, 127))]
"""The vocabulary of a task that names none."""


class OwnProblem(NamedTuple):
    """A problem of a user's own: any JSON value."""

    value: Any
    mode: str = "own"


LOST = (EOFError, ConnectionError)
"""What a world raises whose process is gone: it is made again, by replay."""


class OwnWorld:
    """A user's environment as a world. What it raises, and what it returns that is no step, is one line; its object is a cache,
    made again by replay when it is lost."""

    def __init__(self, task: OwnTask, make: Callable[[], Any]) -> None:
        self.task, self.make = task, make

    def reset(self, problem: OwnProblem, seed: int) -> str:
        """The first observation."""
        self.given, self.actions = (problem.value, seed), list[str]()
        with extension.errors_in(self.task):
            return _checked_text(self.task, "reset", self._replay())

    def _replay(self) -> Any:
        self.made, (problem, seed) = self.make(), self.given
        first = self.made.reset(copy.deepcopy(problem), seed)
        for action in self.actions:
            self.made.step(action)
        return first

    def step(self, action: str) -> Step:
        """What the user's environment returns, without MARK in its text."""
        with extension.errors_in(self.task):
            try:
                found = self.made.step(action)
            except LOST:
                self._replay()
                found = self.made.step(action)
        self.actions.append(action)
        if not isinstance(found, Step):
            raise UserError(f"{self.task.function}: step must return a tasks.family.Step, not {found!r:.60}")
        if found.reward is not None and extension.finite_number(found.reward) is None:
            raise UserError(f"{self.task.function}: step must pay a finite number or None, not {found.reward!r:.60}")
        return found._replace(text=_checked_text(self.task, "step", found.text), done=bool(found.done))

    def state(self) -> str | None:
        """The text of the state, where the user's class has a method of that name."""
        with extension.errors_in(self.task):
            return getattr(self.made, "state", lambda: None)()

    def legal(self) -> list[str]:
        """The actions that there are now; none where the user's class has no method of that name."""
        with extension.errors_in(self.task):
            return [*map(str, getattr(self.made, "legal", list)())]

    def close(self) -> None:
        """The episode is over."""
        with extension.errors_in(self.task):
            getattr(self.made, "close", lambda: None)()


def _checked_text(task: OwnTask, method: str, text: Any) -> str:
    if not isinstance(text, str):
        raise UserError(f"{task.function}: {method} must give a text, not {text!r:.60}")
    return text.replace(MARK, "")


def own_family(task: OwnTask, made: Any, make: Callable[[], Any]) -> Generator[OwnProblem, OwnTask]:
    """The family of an object of a user's class (TaskClass, EnvironmentClass); `make` makes another. Raises
    UserError where it is neither."""
    acts = callable(getattr(made, "step", None))
    if lacking := [name for name in ("generate", *(("reset",) if acts else ("prompt", "answer"))) if not hasattr(made, name)]:
        kind, other = "environment" if acts else "task", "" if acts else "; an environment has generate, reset and step"
        raise UserError(f"{task.function}: a {kind} has a method {lacking[0]}, and {type(made).__name__} has none{other}")
    return OwnWorlds(task, made, make).family() if acts else OwnQuestions(task, made, make).family()


class OwnQuestions:
    """What a user's task says, and what follows where it says nothing."""

    def __init__(self, task: OwnTask, made: Any, make: Callable[[], Any]) -> None:
        self.task, self.made, self.make = task, made, make

    def ask(self, method: str, *given: Any, default: Any = "") -> Any:
        """What a method of the user's object returns, or the default where it has no such method."""
        if not hasattr(self.made, method):
            return default
        with extension.errors_in(self.task):
            return getattr(self.made, method)(*given)

    def text(self, method: str, problem: OwnProblem, default: str = "") -> str:
        """The same of a method that returns a text."""
        return _checked_text(self.task, method, self.ask(method, problem.value, default=default))

    def generate(self, task: OwnTask, seed: int, index: int, op: int) -> OwnProblem:
        """The problem of the user's generator, which draws from a stream keyed by (seed, index, op)."""
        value = self.ask("generate", random.Random(f"{task.function} {seed} {index} {op}"), op)
        try:
            return OwnProblem(json.loads(json.dumps(value, allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise UserError(f"{task.function}: generate must return a JSON value ({error})") from None

    def structure(self, problem: OwnProblem) -> str:
        """16 hex digits of what the user says; of the prompt where that is nothing."""
        said = self.ask("structure", problem.value, default=None)
        return hashlib.sha256(str(self.shown(problem) if said is None else said).encode()).hexdigest()[:16]

    def shown(self, problem: OwnProblem) -> str:
        """What distinguishes problems."""
        return self.text("prompt", problem)

    def render(self, problem: OwnProblem, task: OwnTask) -> Rendered:
        """Prompt, solution and answer; the solution is the boxed answer where the user writes none."""
        answer = str(self.ask("answer", problem.value))
        return Rendered(self.text("prompt", problem), self.text("solution", problem, f"{BOX}{answer}}}"), answer)

    def verify(self, problem: OwnProblem, completion: str, options: Verify) -> Verdict:
        """The user's verdict, true or false, or number in [0, 1], which is right at 1; without a verifier the boxed answer
        decides."""
        if not hasattr(self.made, "verify"):
            said = extract_answer(completion) if BOX in completion and not is_answer_dump(completion) else None
            error = first_error(truncated=said is None, answer=said != str(self.ask("answer", problem.value)))
            return Verdict(error == "none", error == "none", float(error == "none"), error, said=said or "")
        found = self.ask("verify", problem.value, completion)
        if isinstance(found, Verdict):
            return found
        number = extension.finite_number(found)
        if number is None or not 0 <= number <= 1:
            needed = "true, false, a number in [0, 1] or a Verdict"
            raise UserError(f"{self.task.function}: verify must return {needed}, not {found!r:.60}")
        return Verdict(number == 1, number == 1, number, "none" if number == 1 else "answer")

    def common(self) -> dict[str, Any]:
        """What tasks and environments both have."""
        solver = (lambda prompt, task, *replies: str(self.ask("solve", prompt))) if hasattr(self.made, "solve") else None
        own = {name: getattr(self, name) for name in ("generate", "structure", "render", "verify")}
        own |= {"loads": lambda text: OwnProblem(json.loads(text)), "dumps": lambda problem: compact_json(problem.value)}
        own |= {"solve": solver, "vocabulary": lambda task: self.ask("vocabulary", default=ASCII)}
        return {"name": self.task.function, **own}

    def family(self) -> Generator[OwnProblem, OwnTask]:
        """The family of all that."""
        return Generator(errors=("truncated", "answer"), **self.common())


class OwnWorlds(OwnQuestions):
    """What a user's environment says, and what follows where it says nothing. An episode is right when it is over and has paid
    the object's `target`, by default 1."""

    def world(self) -> OwnWorld:
        """A new one."""
        return OwnWorld(self.task, self.make)

    def played(self, problem: OwnProblem, turns: Sequence[str]) -> tuple[str, list[Step]]:
        """The first observation, and the steps up to the end of the episode, one at least."""
        here, steps = self.world(), list[Step]()
        first = here.reset(problem, episode_seed(compact_json(problem.value)))
        for turn in turns:
            steps.append(here.step(turn))
            if steps[-1].done:
                break
        here.close()
        return first, steps

    def expert(self, problem: OwnProblem) -> list[str]:
        """The actions of the user's expert; none where there is none."""
        return [*map(str, self.ask("expert", problem.value, default=()))]

    def state(self, problem: OwnProblem, turns: list[str]) -> str:
        """The text of the state after these turns, by replay."""
        here = self.world()
        here.reset(problem, episode_seed(compact_json(problem.value)))
        for turn in turns:
            here.step(turn)
        shown = here.state()
        here.close()
        return shown or ""

    def target(self, problem: OwnProblem) -> float:
        """What an episode has to pay to be right."""
        return float(getattr(self.made, "target", 1.0))

    def shown(self, problem: OwnProblem) -> str:
        """All of it: a state may be hidden."""
        return compact_json(problem.value)

    def render(self, problem: OwnProblem, task: OwnTask) -> Rendered:
        """The first observation, and the expert's transcript."""
        turns = self.expert(problem)
        first, steps = self.played(problem, turns)
        if len(steps) < len(turns):
            raise UserError(f"{self.task.function}: expert acts {len(turns)} times, and the episode is over after {len(steps)}")
        solution = join_turns(turns, [step.text for step in steps[:-1]]) if turns else ""
        return Rendered(first, solution, str(self.ask("answer", problem.value)))

    def verify(self, problem: OwnProblem, completion: str, options: Verify) -> Verdict:
        """The verdict on a transcript, by replay. Score: the share of the target that was paid. Errors: `truncated` (not over),
        `made_up` (an observation that is not the environment's), `answer` (too little was paid)."""
        turns = policy_turns(completion)
        _, steps = self.played(problem, turns)
        genuine = observations(completion) == [step.text for step in steps[:-1]]
        return self.settled(problem, math.fsum(step.reward or 0.0 for step in steps), steps[-1].done, turns[-1], genuine)

    def settled(self, problem: OwnProblem, paid: float, done: bool, said: str, genuine: bool = True) -> Verdict:
        """The verdict on what was paid."""
        target = self.target(problem)
        enough = paid >= target - 1e-9
        error = first_error(truncated=not done, made_up=not genuine, answer=not enough)
        score = min(max(paid / target, 0.0), 1.0) if target > 0 else float(enough)
        return Verdict(error == "none", error == "none", score, error, said=said[:80])

    def briefs(self, problem: OwnProblem) -> list[str]:
        """What each seat of an environment of several reads first, by its method `brief(problem, seat)`; else the prompt."""
        first = self.played(problem, [])[0]
        said = [self.ask("brief", problem.value, name, default=first) for name in getattr(self.made, "seats", ())]
        return [_checked_text(self.task, "brief", one) for one in said]

    def family(self) -> Environment[OwnProblem, OwnTask]:
        """The family of all that."""
        seats = tuple(getattr(self.made, "seats", ()))
        own: dict[str, Any] = {
            "expert": self.expert,
            "world": self.world,
            "reply": lambda problem, turns: self.played(problem, turns)[1][-1],
            "seat_names": seats,
            "briefs": self.briefs,
            "state": self.state if hasattr(self.made, "state") else None,
            "settled": self.settled,
            # Pay between seats is won from others, and where nothing need be paid every end is right.
            "chance": getattr(self.made, "chance", 1.0 if seats or getattr(self.made, "target", 1.0) <= 0 else 0.2),
        }
        return Environment(errors=("truncated", "made_up", "answer"), **own, **self.common())
