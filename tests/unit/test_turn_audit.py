"""Audits that play: faults planted in environments are found, and sound ones raise no alarm."""

import dataclasses
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interplay.core import execution, model
from interplay.data import audit, problems
from interplay.data.curate import StepInputs
from interplay.data.sets import judge_completion
from interplay.data.spec import ProblemsSpec
from interplay.data.steps.turns import give_tools
from interplay.data.steps.turns_spec import WithTools
from interplay.study.context import parse_task
from interplay.tasks import turn_audit
from interplay.tasks.families import judge_family
from interplay.tasks.family import Environment, Step
from interplay.tasks.spec import OwnTask, TaskKey, Verify
from interplay.tasks.verdict import Row

STUDIES = Path(__file__).parents[2] / "configs" / "study" / "methods"
judge_row = partial(judge_completion, Verify())
DOORS = '''
import os
import random
import time

from interplay.tasks.family import Step

NAMES = [*"abcdefghijklmnop"]


class Doors:
    """`op` doors in a row; a letter opens the next one, and the reply to `?` is its letter backwards in the alphabet."""

    seen = 0

    def generate(self, rng, op):
        return [rng.choice(NAMES) for _ in range(op)]

    def reset(self, code, seed):
        self.code, self.at, self.actions, self.wrong = code, 0, [], 0
        return f"{len(code)} doors"

    def step(self, action):
        self.actions.append(action)
        letter = self.code[self.at]
        if action == "?":
            return Step(NAMES[-1 - NAMES.index(letter)])
        right = action == letter
        self.at += right
        self.wrong += not right
        return Step("open" if right else "shut", right / len(self.code), self.at == len(self.code) or self.wrong > 2)

    def expert(self, code):
        return [action for letter in code for action in ("?", letter)]
'''
STEP = "    def step(self, action):\n"
FAULTS: dict[str, tuple[str, str, str]] = {
    "any last action pays": (
        "right = action == letter",
        "right = action == letter or self.at == len(self.code) - 1",
        "wrong end",
    ),
    "any action pays": ("right = action == letter", "right = True", "constant"),
    "nothing pays": ("right = action == letter", 'right = action in (letter, "")', "nothing"),
    "length pays": ("right = action == letter", "right = action == letter or len(action) > 100", "noise"),
    "the length of an episode pays": (
        STEP,
        STEP + "        if len(self.actions) > 9:\n            return Step('', 1.0, True)\n",
        "constant",
    ),
    "a reply tells the answer": (
        'Step("open" if right else "shut"',
        'Step("open" if right else f"it was {letter}"',
        "reads",
    ),
    "a reply to nonsense tells the answer": ("return Step(NAMES[-1 - NAMES.index(letter)])", "return Step(letter)", "reads"),
    "an action that is repeated pays": (
        STEP,
        STEP + "        if self.actions.count(action) > 4:\n            return Step('', 1.0, True)\n",
        "repeated",
    ),
    "a question that is repeated pays more": (
        "return Step(NAMES[-1 - NAMES.index(letter)])",
        "return Step(NAMES[-1 - NAMES.index(letter)], 0.4)",
        "farmed",
    ),
    "the prompt is the answer": ("right = action == letter", "right = action == letter or 'doors' in action", "echo"),
    "the commonest action pays": ("right = action == letter", 'right = action == letter or action == " "', "nothing"),
    "what is legal pays": ("right = action == letter", "right = action in NAMES", "legal"),
    "replies are drawn": ('else "shut"', "else random.choice(NAMES)", "replayed"),
    "pay is drawn": ("right / len(self.code),", "right / len(self.code) + random.random() / 1e6,", "replayed"),
    "the clock is read": ('else "shut"', "else str(time.perf_counter_ns())", "replayed"),
    "episodes share a state": ('else "shut"', "else str(len(NAMES) if NAMES.append('a') is None else 0)", "replayed"),
    "replies follow the hash seed": ('else "shut"', "else str(hash('shut'))", "played elsewhere"),
    "replies follow the process": ('else "shut"', "else str(os.getpid())", "played elsewhere"),
    "the expert is refused": ("right = action == letter", 'right = action == letter and letter > "c"', "plays expert"),
    "the expert's end is not over": ("self.at == len(self.code) or", "False or", "plays expert"),
    "an action raises": (STEP, STEP + "        ord(action[0])\n", "plays on"),
    "a later action raises": (STEP, STEP + "        assert self.wrong < 2 or action.isalpha()\n", "plays on"),
    "it never ends": (STEP, STEP + "        while len(action) > 300:\n            pass\n", "plays on"),
}
WHOLE = ("farmed", "replayed", "played elsewhere", "plays expert", "plays on")
FOUND_BY = {name: check if check in WHOLE else f"plays {check}" for name, (_, _, check) in FAULTS.items()}


@pytest.fixture(scope="module")
def there() -> Iterator[audit.Elsewhere]:
    """The other process of all audits: most of what it costs is its imports."""
    with audit.Elsewhere() as process:
        yield process


def checks(task: Any, op: int, there: audit.Elsewhere, rows: int = 24) -> list[str]:
    return [finding.check for finding in audit.audit_task(task, op, rows, there) if finding.failed]


def doors(before: str = "", after: str = "") -> OwnTask:
    assert before in DOORS
    return OwnTask(function="doors.py:Doors", source=DOORS.replace(before, after, 1) if before else DOORS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_its_own_check(fault: str, there: audit.Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_audit, "PATIENCE", 0.2)
    before, after, _ = FAULTS[fault]
    task = doors(before, after)
    spec = ProblemsSpec(task=task, bands={"all": {3: 1.0}}, shares={"all": 1.0}, size=8, split="train")
    if FOUND_BY[fault] == "played elsewhere":
        assert FOUND_BY[fault] in checks(task, 3, there, 8)
        return
    try:
        rows = problems.first_rows(spec, execution.Run(), 8)
    except (RuntimeError, model.UserError):  # generation judges the expert's transcript by itself
        assert FOUND_BY[fault] == "plays expert"
        return
    family = judge_family(rows[0].family)
    assert isinstance(family, Environment)
    found, _ = turn_audit.audit_turns(family, rows, judge_row)
    assert FOUND_BY[fault] in [finding.check for finding in found if finding.failed]


@pytest.mark.parametrize("op", [2, 4])
def test_the_sound_environment_that_they_are_planted_in_raises_no_alarm(op: int, there: audit.Elsewhere) -> None:
    assert checks(doors(), op, there) == []


SOUND = [(name, op) for name in ("calculator", "bios_search", "self_search", "twenty_questions", "sql_questions") for op in (3,)]


@pytest.mark.parametrize(("name", "op"), [*SOUND, ("kuhn", 1), ("tic_tac_toe", 4), ("tic_tac_toe", 9)])
def test_environments_of_the_package_raise_no_alarm(name: str, op: int, there: audit.Elsewhere) -> None:
    started = time.process_time()
    assert checks(TaskKey.model_validate({"task": {"name": name}}).task, op, there) == []
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "world", ["turns.py:Safe", "pages.py:Pages", "in_context.py:Bandit", "turn_fight.py:Search", "turn_fight.py:Grid"]
)
@pytest.mark.parametrize("op", [3])
def test_worlds_of_studies_raise_no_alarm(world: str, op: int, there: audit.Elsewhere) -> None:
    assert checks(parse_task({"name": world}, model.KeyPlace("task"), STUDIES), op, there) == []


def rows_of(name: str, op: int) -> tuple[Environment[Any, Any], list[Row]]:
    task = TaskKey.model_validate({"task": {"name": name}}).task
    spec = ProblemsSpec(task=task, bands={"all": {op: 1.0}}, shares={"all": 1.0}, size=8, split="train")
    rows = problems.first_rows(spec, execution.Run(), 8)
    family = judge_family(name)
    assert isinstance(family, Environment)
    return family, rows


@pytest.mark.parametrize(("name", "op", "tool"), [("op_dag", 3, "python"), ("bios", 2, "sql"), ("bios", 2, "search")])
def test_rows_with_tools_raise_no_alarm(name: str, op: int, tool: str) -> None:
    bios = {"level": "in_context", "distractors": (3, 5)} if name == "bios" else {}
    task = TaskKey.model_validate({"task": {"name": name, **bios}}).task
    spec = ProblemsSpec(task=task, bands={"all": {op: 1.0}}, shares={"all": 1.0}, size=12, split="train")
    asked = problems.first_rows(spec, execution.Run(), 12)
    rows = give_tools(WithTools.model_validate({"tools": [{"name": tool}]}), asked, StepInputs(0, {}, 0)).rows
    found = audit.audit_rows(rows, None, execution.Run(), [])
    assert next(one for one in found if one.check == "plays expert").earned == 1
    assert [one.check for one in found if one.failed] == []


def test_the_time_of_an_episode_is_also_that_of_a_process_that_plays_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        before, started = turn_audit.cpu_seconds(), time.process_time()
        while turn_audit.cpu_seconds() - before < 0.1 + time.process_time() - started:
            time.sleep(0.05)
        process.kill()


def test_an_environment_that_is_over_and_has_no_verdict_is_found() -> None:
    family, rows = rows_of("calculator", 2)
    early = dataclasses.replace(family, reply=lambda problem, turns: family.reply(problem, turns)._replace(done=True))
    found, _ = turn_audit.audit_turns(early, rows, judge_row)
    failed = [finding.check for finding in found if finding.failed]
    assert "over" in failed
    assert "plays expert" in failed


def test_a_verdict_that_is_right_before_the_end_is_found() -> None:
    family, rows = rows_of("calculator", 2)
    endless = dataclasses.replace(family, reply=lambda problem, turns: family.reply(problem, turns)._replace(done=False))
    found, _ = turn_audit.audit_turns(endless, rows, judge_row)
    assert "over" in [finding.check for finding in found if finding.failed]


def test_what_random_play_may_win_is_stated_by_the_environment() -> None:
    family, rows = rows_of("tic_tac_toe", 4)

    def failed(chance: float) -> list[str]:
        found, _ = turn_audit.audit_turns(dataclasses.replace(family, chance=chance), rows, judge_row)
        return [finding.check for finding in found if finding.failed]

    assert "plays legal" in failed(0.05)
    assert failed(0.7) == []


def test_verdicts_on_episodes_are_asked_twice() -> None:
    family, rows = rows_of("calculator", 2)
    draw = random.Random(0)

    def judged(row: Row, text: str) -> Any:
        found = judge_row(row, text)
        return found._replace(score=draw.random())

    found, _ = turn_audit.audit_turns(family, rows, judged)
    assert "replayed" in [finding.check for finding in found if finding.failed]


def test_episodes_of_rows_in_any_order_are_played_elsewhere_as_here(there: audit.Elsewhere) -> None:
    shares = {"few": {2: 1.0}, "more": {4: 1.0}}
    spec = ProblemsSpec(task=doors(), bands=shares, shares={"few": 0.5, "more": 0.5}, size=8, split="train")
    rows = problems.first_rows(spec, execution.Run(), 8)
    found = audit.audit_rows(rows[::-1], spec, execution.Run(), rows, there)
    assert "played elsewhere" in [finding.check for finding in found]
    assert "played elsewhere" not in [finding.check for finding in found if finding.failed]


def test_an_expert_whose_episode_has_no_verdict_is_a_finding() -> None:
    family, rows = rows_of("calculator", 2)

    def judged(row: Row, text: str) -> Any:
        if text == row.solution:
            raise ValueError("no verdict")
        return judge_row(row, text)

    found, again = turn_audit.audit_turns(family, rows, judged)
    assert {"plays expert", "plays on"} <= {finding.check for finding in found if finding.failed}
    assert again, "other episodes are still played again"


class Opened:
    """A world that breaks at the action `1`, and counts how many are open."""

    now = 0

    def __init__(self, family: Environment[Any, Any]) -> None:
        self.family = family

    def reset(self, problem: Any, seed: int) -> str:
        Opened.now += 1
        self.problem, self.actions = problem, list[str]()
        return ""

    def step(self, action: str) -> Step:
        if action == "1":
            raise ValueError("broken")
        self.actions.append(action)
        return self.family.reply(self.problem, self.actions)

    def close(self) -> None:
        Opened.now -= 1


def test_a_world_that_breaks_is_closed() -> None:
    family, rows = rows_of("calculator", 2)
    found, _ = turn_audit.audit_turns(dataclasses.replace(family, world=lambda: Opened(family)), rows, judge_row)
    assert "plays on" in [finding.check for finding in found if finding.failed]
    assert Opened.now == 0
