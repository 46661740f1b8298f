"""The audit: faults planted in verifiers are found, sound ones raise no alarm, and RL on a failed audit is refused."""

import random
import signal
import sys
from collections.abc import Callable
from functools import cache, partial
from types import FrameType

import pytest

from interplay.core import execution
from interplay.core.model import UserError
from interplay.data import problems
from interplay.data.audit import Elsewhere, audit_rows, audit_task
from interplay.data.sets import judge_completion
from interplay.data.spec import ProblemsSpec
from interplay.tasks import audit
from interplay.tasks.spec import FAMILIES, Lano, OwnTask, TaskKey, Verify
from interplay.tasks.transcripts import join_turns, observations, policy_turns
from interplay.tasks.verdict import Row, Verdict

judge_row = partial(judge_completion, Verify())
SOUND = (
    "op_dag",
    "op_dag_prose",
    "bios",
    "taxonomy",
    "calculator",
    "bios_search",
    "self_search",
    "twenty_questions",
    "sql_questions",
    "mano",
    "depo",
    "brevo",
    "capo",
)
FAULTY = ("op_dag", pytest.param("op_dag_prose", marks=pytest.mark.slow), "calculator")
"""In `bios` each fault is planted by itself."""


@cache
def rows_of(name: str) -> list[Row]:
    """Problems of a family at its defaults, of three difficulties."""
    task = TaskKey.model_validate({"task": {"name": name}}).task
    low, high = task.ops()
    ops = range(low, min(high, low + 2) + 1)
    spec = ProblemsSpec(task=task, bands={"all": {op: 1 / len(ops) for op in ops}}, shares={"all": 1.0}, size=24, split="train")
    return problems.first_rows(spec, execution.Run(), 24)


def failed(rows: list[Row], judge: audit.Judge) -> list[str]:
    return [finding.check for finding in audit.audit_verifier(rows, judge) if finding.failed]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_verifier_raises_no_alarm(name: str) -> None:
    assert failed(rows_of(name), judge_row) == []


@pytest.mark.parametrize(("levels", "found"), [(2, ["constant", "wrong"]), (4, [])])
def test_that_a_fixed_text_ends_many_sentences_of_few_levels_is_found(levels: int, found: list[str]) -> None:
    spec = ProblemsSpec(task=Lano(), bands={"all": {levels: 1.0}}, shares={"all": 1.0}, size=24, split="train")
    assert failed(problems.first_rows(spec, execution.Run(), 24), judge_row) == found


@pytest.mark.parametrize("name", ["tic_tac_toe", "kuhn"])
def test_games_raise_no_alarm(name: str) -> None:
    found = audit_rows(rows_of(name), None, execution.Run(), [])
    assert found
    assert not [finding for finding in found if finding.failed]


RIGHT = Verdict(True, True, 1.0, "none")
FALSE = Verdict(False, False, 0.0, "answer")


def paid_if(paid: Callable[[Row, str], bool]) -> audit.Judge:
    """A verifier that pays what its family does, and also where `paid` holds."""
    return lambda row, text: RIGHT if paid(row, text) else judge_row(row, text)


def raising(bad: str) -> audit.Judge:
    def judge(row: Row, text: str) -> Verdict:
        if bad in text:
            raise ValueError(bad)
        return judge_row(row, text)

    return judge


def counting() -> audit.Judge:
    """A verifier with a state: it pays the same text every other time."""
    seen: set[tuple[int, str]] = set()

    def judge(row: Row, text: str) -> Verdict:
        known = (row.index, text) in seen
        seen.symmetric_difference_update({(row.index, text)})
        return FALSE if known else judge_row(row, text)

    return judge


def refusing(refused: Callable[[Row], bool]) -> audit.Judge:
    return lambda row, text: FALSE if refused(row) and text == row.solution else judge_row(row, text)


def of_turns(number: int) -> Row:
    """An episode of three turns, any text, a call and any text, that ends in no answer: as BFCL's where functions are withheld."""
    solution = join_turns(["wait", f"open {number}", "done"], ["now\n", "it is open\n"])
    return Row(0, number, "b", 1, "forward", f"door {number}?", solution, "", "", str(number), "any", f"x:{number}")


def test_turns_that_may_be_any_text_are_no_second_answer_and_two_episodes_in_one_are() -> None:
    rows = [of_turns(number) for number in range(6)]

    def sound(row: Row, text: str) -> Verdict:
        first, *calls = policy_turns(text)
        genuine = observations(text) == observations(row.solution) and "open" not in first
        return RIGHT if genuine and calls[0] == f"open {row.index}" and "open" not in calls[1] else FALSE

    assert failed(rows, sound) == []
    assert "hedged" in failed(rows, lambda row, text: RIGHT if row.solution in text else FALSE)


def said(text: str) -> str:
    """What stands in the last frame of any family."""
    for begin, end in (("\\boxed{", "}"), ("<answer>", "</answer>"), ("#", "\n")):
        if begin in text:
            return text.rpartition(begin)[2].partition(end)[0].strip()
    return ""


def executed(text: str) -> bool:
    try:
        eval(text)
    except Exception:
        return False
    return False


def endless(row: Row, text: str) -> Verdict:
    while "9**9**9" in text:
        pass
    return judge_row(row, text)


def endless_and_deaf(row: Row, text: str) -> Verdict:
    try:
        return endless(row, text)
    except Exception:
        return judge_row(row, "")


FAULTS: dict[str, tuple[audit.Judge, str]] = {
    "any text is right": (paid_if(lambda row, text: bool(text)), "constant"),
    "no text is right": (paid_if(lambda row, text: not text), "empty"),
    "blanks are right": (paid_if(lambda row, text: bool(text) and not text.strip()), "empty"),
    "an answer that is empty is right": (paid_if(lambda row, text: bool(text) and not said(text)), "empty"),
    "the truth of the text": (paid_if(lambda row, text: bool(said(text)) == bool(row.answer)), "constant"),
    "the answer somewhere in the text": (paid_if(lambda row, text: row.answer in text), "hedged"),
    "the answer somewhere in what is said": (paid_if(lambda row, text: row.answer in said(text)), "listed"),
    "what is said somewhere in the answer": (paid_if(lambda row, text: bool(said(text)) and said(text) in row.answer), "nearly"),
    "what is said somewhere in the prompt": (
        paid_if(lambda row, text: bool(said(text)) and said(text) in row.prompt),
        "prompt only",
    ),
    "the prompt is right": (paid_if(lambda row, text: row.prompt in text), "echo"),
    "one constant is right": (paid_if(lambda row, text: said(text) == "nan"), "constant"),
    "one memorised answer is right": (paid_if(lambda row, text: said(text) == "[]"), "constant"),
    "a negation is dropped": (
        paid_if(lambda row, text: said(text).removeprefix("not ").removeprefix("anything but ") == row.answer and "not " in text),
        "negated",
    ),
    "any gold of the set is right": (paid_if(lambda row, text: said(text) in GOLDS), "wrong"),
    "the sign is dropped": (paid_if(lambda row, text: said(text).lstrip("-") == row.answer.lstrip("-") != ""), "nearly"),
    "the order is dropped": (paid_if(lambda row, text: sorted(said(text)) == sorted(row.answer)), "nearly"),
    "repetition is dropped": (paid_if(lambda row, text: set(said(text).split()) == {row.answer}), "nearly"),
    "only the beginning is compared": (paid_if(lambda row, text: said(text).startswith(row.answer)), "nearly"),
    "only the end is compared": (paid_if(lambda row, text: said(text).endswith(row.answer)), "nearly"),
    "only the length is compared": (paid_if(lambda row, text: len(said(text)) == len(row.answer)), "wrong"),
    "any answer in a list counts": (paid_if(lambda row, text: row.answer in said(text).split(", ")), "listed"),
    "any line counts": (paid_if(lambda row, text: any(said(line) == row.answer for line in text.split("\n"))), "hedged"),
    "characters of no width are dropped": (
        paid_if(lambda row, text: "\u200b" in text and said(text).replace("\u200b", "") == row.answer),
        "unicode",
    ),
    "it is evaluated as code": (paid_if(lambda row, text: executed(said(text))), "executes"),
    "a number raises": (raising("1e400"), "exception"),
    "brackets raise": (raising("[["), "exception"),
    "an empty completion raises": (lambda row, text: judge_row(row, text) if text[0] else FALSE, "exception"),
    "a character raises": (raising("\ud800"), "exception"),
    "braces raise": (lambda row, text: judge_row(row, text.format() if "{0}" in text else text), "exception"),
    "the gold is refused": (refusing(lambda row: True), "gold"),
    "one gold in eight is refused": (refusing(lambda row: row.index % 8 == 0), "gold"),
    "the verdict depends on the past": (counting(), "repeatable"),
    "the verdict is drawn": (paid_if(lambda row, text: random.random() < 0.5), "noise"),
    "strict where the answer is wrong": (
        lambda row, text: judge_row(row, text)._replace(strict=text == row.solution or not text.strip()),
        "consistent",
    ),
    "strict for any answer": (lambda row, text: judge_row(row, text)._replace(strict=bool(said(text))), "constant"),
    "a score beyond 1": (lambda row, text: judge_row(row, text)._replace(score=1.5), "consistent"),
    "a score that is no number": (lambda row, text: judge_row(row, text)._replace(score=float("nan")), "consistent"),
    "noise is right": (paid_if(lambda row, text: len(text) > 300), "noise"),
    "the comment counts": (paid_if(lambda row, text: f"<!-- {row.answer} -->" in text), "listed"),
    "it never ends": (endless, "slow"),
    "it never ends, and hides that": (endless_and_deaf, "slow"),
}
GOLDS: set[str] = set()


@pytest.mark.parametrize("name", FAULTY)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PATIENCE", 0.02)
    rows = rows_of(name)[:16]
    GOLDS.update(row.answer for row in rows)
    missed = [fault for fault, (judge, check) in FAULTS.items() if not failed(rows, judge)]
    assert len(FAULTS) == 41
    assert len(missed) <= 2, missed


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_that_finds_a_fault_is_its_own(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PATIENCE", 0.02)
    rows = rows_of("bios")[:16]
    GOLDS.update(row.answer for row in rows)
    judge, check = FAULTS[fault]
    assert check in failed(rows, judge)


def test_a_family_of_the_package_generates_the_same_with_another_hash_seed() -> None:
    found = audit_task(TaskKey.model_validate({"task": {"name": "op_dag"}}).task, 2, 16)
    assert {finding.check: finding.failed for finding in found}["hash seed"] is False
    assert "reasoning_gym" in FAMILIES


def test_datasets_of_reasoning_gym_are_tasks_and_their_faults_are_found() -> None:
    package = pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym")
    assert len(package.factory.DATASETS) > 100

    def checks(dataset: str) -> dict[str, bool]:
        task = TaskKey.model_validate({"task": {"name": "reasoning_gym", "dataset": dataset}}).task
        return {finding.check: finding.failed for finding in audit_task(task, 1, 12, there)}

    with Elsewhere() as there:
        assert not any(checks("leg_counting").values())
        halting, puzzle = checks("game_of_life_halting"), checks("puzzle24")
        assert halting["constant"]
        assert halting["noise"]
        assert puzzle["constant"]
        assert not puzzle["executes"], "its answers are formulas, which the adapter makes sure of"
        assert checks("word_ladder")["hash seed"]


def test_a_limit_that_is_reached_while_its_block_ends_leaves_no_timer() -> None:
    def late(frame: FrameType, event: str, value: object) -> None:
        if event == "call" and frame.f_code is audit.TimeLimit.__exit__.__code__:
            signal.raise_signal(signal.SIGALRM)

    sys.setprofile(late)
    try:
        with pytest.raises(audit.OutOfTime), audit.TimeLimit(60.0):
            signal.raise_signal(signal.SIGPROF)
    finally:
        sys.setprofile(None)
    assert signal.getitimer(signal.ITIMER_REAL) == signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


HIDDEN = """
import os

from interplay.tasks.family import Step

class Hidden:
    def generate(self, rng, op):
        assert os.isatty(0) or not os.read(0, 1), "a package that reads takes nothing of what is asked of the process"
        print("and may print", end="")
        return [rng.randrange(9) for _ in range(op)]
    def reset(self, code, seed):
        self.code = code
        return f"{len(code)}?"
    def step(self, action):
        return Step("", float(action == "".join(map(str, self.code))), True)
"""


@pytest.mark.parametrize("more", ["", "    def expert(self, code): return [''.join(map(str, code))]\n"])
def test_a_sound_environment_whose_prompt_does_not_tell_its_problem_raises_no_alarm(more: str) -> None:
    with Elsewhere() as there:
        found = audit_task(OwnTask(function="hidden.py:Hidden", source=HIDDEN + more), 5, 16, there)
        broken = audit_task(OwnTask(function="hidden.py:Hidden", source=HIDDEN.replace("action ==", "action !=")), 5, 16, there)
    assert [finding.check for finding in found if finding.failed] == []
    assert {"modal", "duplicate", "split leak"} <= {finding.check for finding in found}
    assert "empty" in [finding.check for finding in broken if finding.failed]


HANGS = """
import time

class Late:
    def generate(self, rng, op):
        if op == 9 and hash("a") != HERE:
            time.sleep(60)
        return rng.randrange(9)
    def prompt(self, number): return f"{number}?"
    def answer(self, number): return str(number)
"""


def test_a_generator_that_hangs_with_another_hash_seed_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    task = OwnTask(function="late.py:Late", source=HANGS.replace("HERE", str(hash("a"))))

    def spec(op: int) -> ProblemsSpec:
        return ProblemsSpec(task=task, bands={"all": {op: 1.0}}, shares={"all": 1.0}, size=4, split="train")

    with Elsewhere() as there:
        there.asked(spec(1), 4, [])
        monkeypatch.setattr("interplay.data.audit.SECONDS", 0.3)
        assert len(there.asked(spec(1), 4, [])[0]) == 4, "the limit leaves time for what does not hang"
        with pytest.raises(UserError, match=r"late.py:Late: with PYTHONHASHSEED=\d+ .*: no answer within 1.5 s"):
            there.asked(spec(9), 4, [])
        assert there.process is None, "what hangs is ended"


def test_a_generator_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    task = OwnTask(function="late.py:Late", source=HANGS.replace("HERE", "0"))
    monkeypatch.setattr("interplay.data.audit.TO_GENERATE", 0.03)
    with pytest.raises(UserError, match=r"late.py:Late: op = 9: 4 problems take more than 0.3 s"):
        audit_task(task, 9, 4)


def test_an_unknown_dataset_of_reasoning_gym_is_refused() -> None:
    pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym")
    task = TaskKey.model_validate({"task": {"name": "reasoning_gym", "dataset": "leg_count"}}).task
    with pytest.raises(UserError, match=r"dataset = leg_count: .* did you mean 'leg_counting'"):
        audit_task(task, 1, 12)
